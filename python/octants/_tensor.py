"""Tensor constructors under Quadrants' import path, with the function that sets a tensor's layout afterwards."""

from __future__ import annotations

from typing import Any

from octants._arrays.ndarrays import with_layout
from octants._arrays.tensors import Backend, Tensor, permutation, tensor

__all__ = ["Backend", "Tensor", "tensor"]


def _with_layout(wrapped: Any, layout: Any) -> Any:
    """Declares the memory layout of an ndarray-backed tensor, as axes listed outermost first, and returns the tensor.

    The current shape is that of the memory: its axis `k` becomes axis `layout[k]`. The gradient follows. Raises
    `TypeError` for another object, and `ValueError` if the layout is not a permutation of the axes.
    """
    if not isinstance(wrapped, Tensor) or wrapped._is_field():
        raise TypeError(f"expected a tensor of qd.Backend.NDARRAY, got {wrapped!r}")
    order = permutation(layout, wrapped.shape)
    if order is not None:
        wrapped._impl = with_layout(wrapped._unwrap(), order)
    return wrapped
