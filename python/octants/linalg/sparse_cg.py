"""Conjugate gradients for sparse matrices: `SparseCG`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants._fields.fields import TensorField
from octants.exceptions import OctantsRuntimeError
from octants.linalg.row_kernels import CONJUGATE_GRADIENTS
from octants.linalg.sparse_matrix import SparseMatrix

__all__ = ["SparseCG"]


class SparseCG:
    """Solves `A x = b` for a symmetric positive definite matrix by conjugate gradients with a diagonal (Jacobi)
    preconditioner.

    `b` and the initial guess `x0` (default: zeros) are ndarrays, fields or numpy arrays. The solver stops after
    `max_iter` iterations, or when the norm of the residual is at most `atol` times that of `b`. It runs on the
    program's device.

    Raises `OctantsRuntimeError` if the matrix is not square, or if `b` or `x0` is not a vector of matching length.
    """

    def __init__(self, A: SparseMatrix, b: Any, x0: Any = None, max_iter: int = 50, atol: float = 1e-6) -> None:
        if not isinstance(A, SparseMatrix) or A.n != A.m:
            raise OctantsRuntimeError(f"SparseCG needs a square sparse matrix, got {type(A)} {np.shape(A)}")
        self.matrix, self.dtype, self.b = A, A.dtype, b
        self._right = self._vector(b, "RHS")
        self._guess = None if x0 is None else self._vector(x0, "initial guess")
        self._max_iter, self._tolerance = max_iter, atol

    def solve(self) -> tuple[Any, bool]:
        """The solution, and whether the solver converged.

        The solution is an ndarray if `b` is one and the host cannot address device memory, otherwise a numpy array.
        """
        begin, apply, advance, turn = CONJUGATE_GRADIENTS[self.dtype]
        rows = self.matrix._rows_on_device().arrays
        inverse = self._array(1 / self._diagonal())
        b, x = self._array(self._right), self._array(self._guess)
        r, p, ap = (self._array(None) for _ in range(3))
        bb, rr, rz = begin(*rows, inverse, b, x, r, p)
        limit = self._tolerance**2 * bb
        for _ in range(self._max_iter):
            if rr <= limit:
                break
            pap = apply(*rows, p, ap)
            if not pap > 0:
                break
            rr, new_rz = advance(inverse, p, ap, x, r, rz / pap)
            turn(inverse, r, p, new_rz / rz if rz else 0.0)
            rz = new_rz
        on_device = isinstance(self.b, Ndarray) and not x.buffer.host_addressable
        return (x if on_device else x.to_numpy()), bool(sqrt(rr) <= self._tolerance * sqrt(bb))

    def _diagonal(self) -> np.ndarray[Any, Any]:
        """The diagonal, with 1 in place of missing and zero elements."""
        starts, rows, values = self.matrix.matrix.by_columns()
        is_diagonal = (rows == np.repeat(np.arange(self.matrix.m), np.diff(starts))) & (values != 0)
        diagonal = np.ones(self.matrix.n, self.dtype.numpy)
        diagonal[rows[is_diagonal]] = values[is_diagonal]
        return diagonal

    def _vector(self, values: Any, what: str) -> np.ndarray[Any, Any] | Ndarray:
        if not isinstance(values, (TensorField, Ndarray, np.ndarray)):
            raise OctantsRuntimeError(f"Unsupported CG {what} type: {type(values)}")
        if tuple(values.shape) != (self.matrix.n,):
            raise OctantsRuntimeError(
                f"Dimension mismatch between sparse matrix {self.matrix.shape} and {what} ({tuple(values.shape)})"
            )
        return values.to_numpy() if isinstance(values, TensorField) else values

    def _array(self, values: Any) -> Ndarray:
        """A new ndarray of the matrix's type, optionally set to values."""
        made = make_ndarray(self.dtype, self.matrix.n)
        if isinstance(values, Ndarray) and values.dtype == self.dtype:
            made.copy_from(values)
        elif values is not None:
            values = values.to_numpy() if isinstance(values, Ndarray) else values
            made.from_numpy(np.ascontiguousarray(values, self.dtype.numpy))
        return made
