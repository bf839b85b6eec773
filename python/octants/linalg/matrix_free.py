"""Matrix-free solvers: `MatrixFreeCG` and `MatrixFreeBICGSTAB`.

Vectors are fields or ndarrays of one to three axes. The solver's temporary vectors have the kind and shape of the
right side, so that the user's kernel accepts them too.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from octants._arrays.ndarrays import Ndarray
from octants._arrays.ndarrays import ndarray as make_ndarray
from octants._fields.fields import TensorField
from octants._fields.make_field import field
from octants.exceptions import OctantsRuntimeError, OctantsTypeError
from octants.linalg import vector_kernels
from octants.linalg.linear_operator import LinearOperator

__all__ = ["MatrixFreeBICGSTAB", "MatrixFreeCG"]


def _work_vectors(A: Any, b: Any, x: Any, count: int, solver: str) -> list[Any]:
    """New vectors like the right-hand side. Checks all arguments first."""
    if not isinstance(A, LinearOperator):
        raise OctantsTypeError(f"{solver} needs a LinearOperator, not {type(A)}")
    for name, vector in (("b", b), ("x", x)):
        if not isinstance(vector, (TensorField, Ndarray)):
            raise OctantsTypeError(f"`{name}` of {solver} must be a field or an ndarray, not {type(vector)}")
    if b.dtype != x.dtype:
        raise OctantsTypeError(f"Dtype mismatch b.dtype({b.dtype}) != x.dtype({x.dtype}).")
    if b.dtype.name not in ("f32", "f64"):
        raise OctantsTypeError(f"Not supported dtype: {b.dtype}, expected f32 or f64")
    if b.shape != x.shape:
        raise OctantsRuntimeError(f"Dimension mismatch b.shape{b.shape} != x.shape{x.shape}.")
    if not 1 <= len(b.shape) <= 3:
        raise OctantsRuntimeError(f"{solver} only supports 1D, 2D and 3D inputs, got {len(b.shape)}D.")
    make = make_ndarray if isinstance(b, Ndarray) else field
    return [make(b.dtype, shape=b.shape) for _ in range(count)]


class _Log:
    """Prints the progress of a solver, unless it is quiet."""

    def __init__(self, solver: str, quiet: bool) -> None:
        self._solver, self._quiet = solver, quiet

    def __call__(self, text: str) -> None:
        if not self._quiet:
            print(f"{self._solver}: {text}")

    def step(self, iteration: int, residual: float) -> None:
        self(f"iteration {iteration}, residual {residual:e}")

    def end(self, iterations: int, residual: float, succeeded: bool) -> bool:
        self(f"{'converged' if succeeded else 'not converged'} after {iterations} iterations, residual {residual:e}")
        return succeeded


def MatrixFreeCG(A: Any, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True) -> bool:
    """Solves `A x = b` by conjugate gradients, for a symmetric positive definite `LinearOperator`.

    `x` holds the initial guess, and the solution on return. The solver stops when the norm of the residual is below
    `tol`, or after `maxiter` iterations; returns whether it converged. Unless `quiet`, prints each iteration.

    Raises `OctantsTypeError` if `A` is not a `LinearOperator`, if `b` or `x` is not a field or ndarray, or unless both
    are `qd.f32` or both are `qd.f64`. Raises `OctantsRuntimeError` if their shapes differ or do not have one to three
    axes.
    """
    r, p, Ap = _work_vectors(A, b, x, 3, "MatrixFreeCG")
    dot = vector_kernels.DOT[b.dtype]
    log = _Log("MatrixFreeCG", quiet)
    A._matvec(x, Ap)
    vector_kernels.subtract(b, Ap, r)
    vector_kernels.copy(r, p)
    rr = dot(r, r)
    iteration = 0
    log.step(iteration, sqrt(rr))
    while sqrt(rr) >= tol and iteration < maxiter:
        A._matvec(p, Ap)
        pAp = dot(p, Ap)
        if pAp == 0.0:
            break
        alpha = rr / pAp
        vector_kernels.add_scaled(x, p, alpha)
        vector_kernels.add_scaled(r, Ap, -alpha)
        before, rr = rr, dot(r, r)
        vector_kernels.scale_and_add(p, r, rr / before)
        iteration += 1
        log.step(iteration, sqrt(rr))
    return log.end(iteration, sqrt(rr), sqrt(rr) < tol)


def MatrixFreeBICGSTAB(A: Any, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True) -> bool:
    """Solves `A x = b` by the stabilized biconjugate gradient method (BiCGSTAB), for any `LinearOperator`.

    Arguments, result and errors are those of `MatrixFreeCG`.
    """
    r, shadow, p, Ap, s, As = _work_vectors(A, b, x, 6, "MatrixFreeBICGSTAB")
    dot = vector_kernels.DOT[b.dtype]
    log = _Log("MatrixFreeBICGSTAB", quiet)
    A._matvec(x, Ap)
    vector_kernels.subtract(b, Ap, r)
    vector_kernels.copy(r, shadow)
    vector_kernels.copy(r, p)
    residual = sqrt(dot(r, r))
    rho, is_fresh = residual * residual, True
    iteration = 0
    log.step(iteration, residual)
    while residual >= tol and iteration < maxiter:
        A._matvec(p, Ap)
        denominator = dot(shadow, Ap)
        if rho == 0.0 or denominator == 0.0:
            # The residual has become orthogonal to the one that it is compared with, by rounding mostly: begin again
            # from it.
            if is_fresh:
                break
            vector_kernels.copy(r, shadow)
            vector_kernels.copy(r, p)
            rho, is_fresh = residual * residual, True
            continue
        is_fresh = False
        alpha = rho / denominator
        vector_kernels.subtract_scaled(r, Ap, alpha, s)
        A._matvec(s, As)
        square = dot(As, As)
        omega = dot(As, s) / square if square else 0.0
        vector_kernels.add_scaled(x, p, alpha)
        vector_kernels.add_scaled(x, s, omega)
        vector_kernels.subtract_scaled(s, As, omega, r)
        residual = sqrt(dot(r, r))
        iteration += 1
        log.step(iteration, residual)
        before, rho = rho, dot(shadow, r) if omega else 0.0
        if omega:
            vector_kernels.next_direction(p, Ap, r, omega, (rho / before) * (alpha / omega))
    return log.end(iteration, residual, residual < tol)
