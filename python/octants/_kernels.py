"""Copies of whole fields and ndarrays into numpy and torch arrays, under Quadrants' import path.

New programs call `to_numpy()` and `to_torch()` instead. The components of vectors and matrices become additional axes.
With `as_vector`, a single column has no axis of its own; with `layout_is_aos`, these axes come last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octants._language.python_scope import only_in_python

__all__ = ["matrix_to_ext_arr", "ndarray_matrix_to_ext_arr", "ndarray_to_ext_arr", "tensor_to_ext_arr"]


def _store(arr: Any, values: np.ndarray[Any, Any]) -> None:
    """Sets all elements of a numpy array or a torch tensor."""
    if isinstance(arr, np.ndarray):
        arr[...] = values
        return
    import torch

    arr.copy_(torch.from_numpy(values))


@only_in_python
def tensor_to_ext_arr(tensor: Any, arr: Any) -> None:
    """Copies a field of scalars."""
    _store(arr, tensor.to_numpy())


@only_in_python
def ndarray_to_ext_arr(ndarray: Any, arr: Any) -> None:
    """Copies an ndarray of scalars."""
    _store(arr, ndarray.to_numpy())


@only_in_python
def matrix_to_ext_arr(mat: Any, arr: Any, as_vector: bool) -> None:
    """Copies a field of vectors or matrices."""
    elements = (mat.n,) if as_vector else (mat.n, mat.m)
    _store(arr, mat.to_numpy().reshape(*mat.shape, *elements))


@only_in_python
def ndarray_matrix_to_ext_arr(ndarray: Any, arr: Any, layout_is_aos: bool, as_vector: bool) -> None:
    """Copies an ndarray of vectors or matrices."""
    elements = (ndarray.n,) if as_vector else (ndarray.n, ndarray.m)
    values = ndarray.to_numpy().reshape(*ndarray.shape, *elements)
    last = range(len(ndarray.shape), values.ndim)
    _store(arr, values if layout_is_aos else np.moveaxis(values, last, range(len(elements))))
