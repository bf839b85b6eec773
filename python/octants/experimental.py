"""Names that Quadrants exports from `experimental`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from octants._language import kernel_decorators


def real_func(fn: Callable[..., Any]) -> Any:
    """The same as `qd.real_func`."""
    warnings.warn(
        "qd.experimental.real_func is deprecated because it is no longer experimental. Use qd.real_func instead.",
        DeprecationWarning,
        stacklevel=2,
    )
    return kernel_decorators.real_func(fn)
