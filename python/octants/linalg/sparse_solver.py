"""Direct solvers of sparse linear systems: `SparseSolver`."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants import _octants
from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants._fields.fields import TensorField
from octants.exceptions import OctantsRuntimeError
from octants.linalg.factors import DeviceFactors, HostFactors
from octants.linalg.sparse_matrix import SparseMatrix
from octants.types.primitive import f32, resolve_dtype

__all__ = ["SparseSolver"]

_METHODS = ["LLT", "LDLT", "LU"]
_ORDERINGS = {"AMD": "minimum_degree", "COLAMD": "column_minimum_degree"}
_PLACES = ["auto", "device", "host"]


class SparseSolver:
    """A direct solver for `A x = b`: factorizes a square matrix once and solves for any number of right-hand sides.

    `solver_type` is "LLT" for symmetric positive definite matrices or "LDLT" for symmetric ones, both of which read
    only the lower triangle, or "LU" for invertible matrices. `ordering`, "AMD" or "COLAMD", determines the fill-in of
    the host's factors for the first two; "LU" on the host always orders columns by COLAMD.

    The factors are computed and kept on the device by its vendor's library, if that is installed, otherwise on the
    host. `runs_on="host"` or `"device"` forces one of them.

    Raises `OctantsRuntimeError` for another solver, ordering, type or location, and for `runs_on="device"` without such
    a library.
    """

    def __init__(
        self, dtype: Any = f32, solver_type: str = "LLT", ordering: str = "AMD", *, runs_on: str = "auto"
    ) -> None:
        if solver_type not in _METHODS or ordering not in _ORDERINGS:
            raise OctantsRuntimeError(
                f"The solver type {solver_type} with {ordering} is not supported for now. Only {_METHODS} with "
                f"{list(_ORDERINGS)} are supported."
            )
        self.dtype = resolve_dtype(dtype)
        if self.dtype.name not in ("f32", "f64"):
            raise OctantsRuntimeError(f"a sparse solver supports f32 and f64, not {self.dtype}")
        if runs_on not in _PLACES:
            raise OctantsRuntimeError(f"runs_on must be one of {_PLACES}, got {runs_on!r}")
        missing = _octants.missing_sparse_library("solvers") if runs_on == "device" else None
        if missing is not None:
            raise OctantsRuntimeError(f'{missing}. Use runs_on="host" to factorize on the host')
        self.matrix: SparseMatrix | None = None
        self._method, self._ordering, self._runs_on = solver_type, ordering, runs_on
        self._failure: str | None = None
        self._factors: HostFactors | DeviceFactors | None = None

    def compute(self, sparse_matrix: SparseMatrix) -> None:
        """Analyzes the sparsity pattern of a matrix and factorizes it. `info()` returns whether that succeeded."""
        self.analyze_pattern(sparse_matrix)
        self.factorize(sparse_matrix)

    def analyze_pattern(self, sparse_matrix: SparseMatrix) -> None:
        """Symbolic factorization: orders the unknowns and computes the sparsity pattern of the factors.

        Raises `OctantsRuntimeError` for an argument that is not a sparse matrix, for a matrix that is not square, and
        for one of another type.
        """
        self._take(sparse_matrix)
        if self._uses_device(sparse_matrix):
            self._factors = DeviceFactors(self.dtype, self._method)
        else:
            self._factors = HostFactors(self.dtype, self._method, _ORDERINGS[self._ordering])
        self._failure = self._factors.analyze(sparse_matrix)

    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Numeric factorization of a matrix with the analyzed pattern. `info()` returns whether it succeeded.

        Raises `OctantsRuntimeError` like `analyze_pattern`, and if no pattern was analyzed.
        """
        self._take(sparse_matrix)
        if self._factors is None or not self._factors.is_analyzed:
            if self._failure is None:
                raise OctantsRuntimeError("Please call analyze_pattern() before calling factorize().")
            return
        self._failure = self._factors.factorize(sparse_matrix)

    def solve(self, b: Any) -> Any:
        """The solution for a right-hand side: an ndarray for an ndarray, a numpy array for a field or a numpy array.

        Raises `OctantsRuntimeError` before a successful factorization, if the right-hand side has the wrong number of
        elements, and for other objects.
        """
        if self.matrix is None:
            raise OctantsRuntimeError("Please call compute() before calling solve().")
        if not isinstance(b, (TensorField, np.ndarray, Ndarray)):
            raise OctantsRuntimeError(f"The parameter type: {type(b)} is not supported in linear solvers for now.")
        if self._failure is not None:
            raise OctantsRuntimeError(f"The system cannot be solved: {self._failure}")
        if self._factors is None or not self._factors.is_factorized:
            raise OctantsRuntimeError("Please call factorize() before calling solve().")
        if tuple(b.shape) != (self.matrix.n,):
            raise OctantsRuntimeError(
                f"Dimension mismatch between sparse matrix {self.matrix.shape} and right side ({tuple(b.shape)})"
            )
        x = self._factors.solve(b.to_numpy() if isinstance(b, TensorField) else b)
        if not isinstance(b, Ndarray):
            return x if isinstance(x, np.ndarray) else x.to_numpy()
        if isinstance(x, Ndarray) and x.dtype == b.dtype:
            return x
        result = make_ndarray(b.dtype, self.matrix.m)
        values = x if isinstance(x, np.ndarray) else x.to_numpy()
        result.from_numpy(values.astype(b.dtype.numpy, copy=False))
        return result

    def info(self) -> bool:
        """Whether the last step succeeded."""
        return self._failure is None

    def _uses_device(self, sparse_matrix: SparseMatrix) -> bool:
        if self._runs_on == "host" or _octants.missing_sparse_library("solvers") is not None:
            return False
        if sparse_matrix._rows_on_device().may_use_library("solvers"):
            return True
        if self._runs_on == "device":
            raise OctantsRuntimeError("the device solver supports matrices with 1 to 2^31 - 1 entries")
        return False

    def _take(self, sparse_matrix: SparseMatrix) -> None:
        if not isinstance(sparse_matrix, SparseMatrix):
            raise OctantsRuntimeError(
                f"The parameter type: {type(sparse_matrix)} is not supported in linear solvers for now."
            )
        if sparse_matrix.dtype != self.dtype:
            raise OctantsRuntimeError(
                f"The SparseSolver's dtype {self.dtype} is not consistent with the SparseMatrix's dtype "
                f"{sparse_matrix.dtype}."
            )
        if sparse_matrix.n != sparse_matrix.m:
            raise OctantsRuntimeError(f"only square matrices can be factorized, not one of shape {sparse_matrix.shape}")
        self.matrix = sparse_matrix
