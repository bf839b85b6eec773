"""Kernels on vectors of any number of axes, fields or ndarrays: the steps of matrix-free solvers."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._arrays.tensors import Tensor
from octants._language.kernel_decorators import kernel
from octants._language.ops import cast, grouped, static
from octants.types.primitive import f32, f64


@kernel
def copy(source: Tensor, target: Tensor):
    """`target = source`."""
    for I in grouped(target):
        target[I] = source[I]


@kernel
def subtract(left: Tensor, right: Tensor, result: Tensor):
    """`result = left - right`."""
    for I in grouped(result):
        result[I] = left[I] - right[I]


# Python computes factors in double precision; kernels round them to the type of the vectors.


@kernel
def subtract_scaled(left: Tensor, right: Tensor, factor: f64, result: Tensor):
    """`result = left - factor * right`."""
    for I in grouped(result):
        result[I] = left[I] - cast(factor, static(result.dtype)) * right[I]


@kernel
def add_scaled(target: Tensor, direction: Tensor, factor: f64):
    """`target += factor * direction`."""
    for I in grouped(target):
        target[I] += cast(factor, static(target.dtype)) * direction[I]


@kernel
def scale_and_add(target: Tensor, addend: Tensor, factor: f64):
    """`target = addend + factor * target`."""
    for I in grouped(target):
        target[I] = addend[I] + cast(factor, static(target.dtype)) * target[I]


@kernel
def next_direction(p: Tensor, Ap: Tensor, r: Tensor, omega: f64, beta: f64):
    """`p = r + beta * (p - omega * Ap)`."""
    for I in grouped(p):
        p[I] = r[I] + cast(beta, static(p.dtype)) * (p[I] - cast(omega, static(p.dtype)) * Ap[I])


def _dot_of(real):
    """The inner product of two vectors of a type."""

    @kernel
    def dot(left: Tensor, right: Tensor) -> real:
        total = real(0.0)
        for I in grouped(left):
            total += left[I] * right[I]
        return total

    return dot


DOT = {f32: _dot_of(f32), f64: _dot_of(f64)}
