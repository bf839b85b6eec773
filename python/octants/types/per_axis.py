"""Shapes, offsets and other values for each axis, as users pass them."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.types.values import Matrix


def per_axis(given: Any) -> tuple[Any, ...]:
    """The value for each axis: the items of a sequence, an array or a vector, or a single value."""
    return tuple(given) if isinstance(given, (tuple, list, np.ndarray, Matrix)) else (given,)
