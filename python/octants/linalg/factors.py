"""Factors of sparse matrices: `HostFactors` on the host, `DeviceFactors` by the library of the device's vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants.linalg.device_rows import DeviceRows
from octants.types.primitive import DataType

if TYPE_CHECKING:
    from octants.linalg.sparse_matrix import SparseMatrix

__all__ = ["DeviceFactors", "HostFactors"]


class HostFactors:
    """Factors in host memory. `analyze` and `factorize` return the reason if they fail."""

    def __init__(self, dtype: DataType, method: str, ordering: str) -> None:
        self._dtype = dtype
        self._solver = _octants.DirectSolver(dtype.name, method, ordering)

    @property
    def is_analyzed(self) -> bool:
        """Whether a sparsity pattern was analyzed."""
        return self._solver.is_analyzed

    @property
    def is_factorized(self) -> bool:
        """Whether there are factors."""
        return self._solver.is_factorized

    def analyze(self, matrix: SparseMatrix) -> str | None:
        """Symbolic factorization: orders the unknowns and computes the sparsity pattern of the factors."""
        return self._solver.analyze(matrix.matrix)

    def factorize(self, matrix: SparseMatrix) -> str | None:
        """Numeric factorization of a matrix with the analyzed pattern."""
        return self._solver.factorize(matrix.matrix)

    def solve(self, right: np.ndarray[Any, Any] | Ndarray) -> np.ndarray[Any, Any]:
        """The solution for a right-hand side."""
        values = right if isinstance(right, np.ndarray) else right.to_numpy()
        x = np.array(values, self._dtype.numpy)
        self._solver.solve(x)
        return x


class DeviceFactors:
    """Factors in device memory. `analyze` and `factorize` return the reason if they fail."""

    def __init__(self, dtype: DataType, method: str) -> None:
        self._dtype, self._method = dtype, method
        self._rows: DeviceRows | None = None
        self._solver: _octants.DeviceSolver | None = None
        self.is_factorized = False

    @property
    def is_analyzed(self) -> bool:
        """Whether a sparsity pattern was analyzed."""
        return self._solver is not None

    def analyze(self, matrix: SparseMatrix) -> None:
        """Symbolic factorization: orders the unknowns and computes the sparsity pattern of the factors."""
        self._rows = rows = matrix._rows_on_device()
        self._solver = _octants.DeviceSolver(matrix.n, rows.entries, rows.buffers, self._dtype.name, self._method)
        self._solver.analyze()

    def factorize(self, matrix: SparseMatrix) -> str | None:
        """Numeric factorization of a matrix with the analyzed pattern."""
        assert self._solver is not None
        assert self._rows is not None
        self.is_factorized = False
        rows = matrix._rows_on_device()
        if not rows.has_pattern_of(self._rows):
            return "the sparsity pattern of the matrix differs from the analyzed one"
        failure = self._solver.factorize(rows.values.buffer)
        self.is_factorized = failure is None
        return failure

    def solve(self, right: np.ndarray[Any, Any] | Ndarray) -> Ndarray:
        """The solution for a right-hand side on the device."""
        assert self._solver is not None
        extent = right.shape[0]
        x = make_ndarray(self._dtype, extent)
        if isinstance(right, Ndarray) and right.dtype == self._dtype:
            own = right
        else:
            values = right if isinstance(right, np.ndarray) else right.to_numpy()
            own = make_ndarray(self._dtype, extent)
            own.from_numpy(np.ascontiguousarray(values, self._dtype.numpy))
        self._solver.solve(own.buffer, x.buffer)
        return x
