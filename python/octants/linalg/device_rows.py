"""The rows of a sparse matrix on the program's device: `DeviceRows`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants.linalg import row_kernels
from octants.types.primitive import DataType, i32, i64

__all__ = ["DeviceRows"]


class DeviceRows:
    """A matrix in compressed sparse row (CSR) format on the device: row offsets, columns and values as ndarrays."""

    def __init__(
        self,
        shape: tuple[int, int],
        starts: np.ndarray[Any, Any],
        columns: np.ndarray[Any, Any],
        values: np.ndarray[Any, Any],
        dtype: DataType,
    ) -> None:
        self.shape, self.entries, self.dtype = shape, len(values), dtype
        self.is_narrow = max(len(values), *shape) < 2**31
        index = i32 if self.is_narrow else i64
        self.pattern = starts.astype(index.numpy), columns.astype(index.numpy)
        self.starts, self.columns = (_on_device(part, index) for part in self.pattern)
        self.values = _on_device(values, dtype)

    @property
    def alive(self) -> bool:
        """Whether the program is still running."""
        return self.starts.alive

    @property
    def arrays(self) -> tuple[Ndarray, Ndarray, Ndarray]:
        """Row offsets, columns and values, as arguments of row kernels."""
        return self.starts, self.columns, self.values

    @property
    def buffers(self) -> tuple[_octants.Buffer, _octants.Buffer, _octants.Buffer]:
        """The buffers of `arrays`."""
        return self.starts.buffer, self.columns.buffer, self.values.buffer

    def has_pattern_of(self, other: DeviceRows) -> bool:
        """Whether both matrices have the same sparsity pattern."""
        same = (np.array_equal(a, b) for a, b in zip(self.pattern, other.pattern, strict=True))
        return self.shape == other.shape and all(same)

    def may_use_library(self, work: str) -> bool:
        """Whether to use the vendor's library for "products" or "solvers" with matrices of this size."""
        on_host = self.values.buffer.host_addressable
        return not on_host and self.is_narrow and self.entries > 0 and _octants.missing_sparse_library(work) is None

    @cached_property
    def _product(self) -> _octants.DeviceProduct | None:
        if not self.may_use_library("products"):
            return None
        return _octants.DeviceProduct(self.shape, self.entries, self.buffers, self.dtype.name)

    def multiply(self, x: Ndarray, y: Ndarray) -> None:
        """Sets `y` to the product with `x`."""
        is_own_type = x.dtype == self.dtype and y.dtype == self.dtype
        if is_own_type and self._product is not None and self._product.multiply(x.buffer, y.buffer):
            return
        row_kernels.multiply(*self.arrays, x, y)


def _on_device(values: np.ndarray[Any, Any], dtype: DataType) -> Ndarray:
    # An ndarray has at least one element; one that no row's range reaches is never read.
    made = make_ndarray(dtype, max(len(values), 1))
    if len(values):
        made.from_numpy(values.astype(dtype.numpy, copy=False))
    return made
