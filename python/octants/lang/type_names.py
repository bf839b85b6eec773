"""Type names of other libraries and of Python, under the import path in Quadrants.

Torch is imported by the first call that needs it.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from octants.types.primitive import BY_NUMPY, DataType, resolve_dtype
from octants.types.primitive import resolve_dtype as cook_dtype

__all__ = ["cook_dtype", "has_pytorch", "to_numpy_type", "to_pytorch_type", "to_quadrants_type"]


def has_pytorch() -> bool:
    """Whether torch can be imported. Always false with `QD_ENABLE_TORCH=0` in the environment."""
    return os.environ.get("QD_ENABLE_TORCH", "1") not in ("", "0") and importlib.util.find_spec("torch") is not None


def to_numpy_type(dt: Any) -> type[np.generic]:
    """The numpy dtype of a scalar type."""
    return resolve_dtype(dt).numpy.type


def to_pytorch_type(dt: Any) -> Any:
    """The torch dtype of a scalar type."""
    import torch

    if isinstance(dt, torch.dtype):
        return dt
    name = resolve_dtype(dt).numpy.name
    if not hasattr(torch, name):
        raise RuntimeError(f"this torch has no type for {dt}")
    return getattr(torch, name)


def to_quadrants_type(dt: Any) -> DataType:
    """The scalar type for a scalar type of Octants, Python, numpy or torch."""
    if isinstance(dt, DataType) or dt in (int, float, bool):
        return resolve_dtype(dt)
    # Torch's types print as `torch.float32`.
    name = str(dt).partition("torch.")[2]
    try:
        return BY_NUMPY[np.dtype(name or dt)]
    except (KeyError, TypeError):
        raise TypeError(f"no scalar type corresponds to {dt!r}") from None
