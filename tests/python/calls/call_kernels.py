"""Kernels that several files of tests call."""

from __future__ import annotations

import octants as qd

Floats = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.kernel
def add(a: qd.i32, b: qd.f32) -> qd.f32:
    """Adds."""
    return a + b


@qd.kernel
def scale(x: qd.types.ndarray(dtype=qd.f32, ndim=1), by: qd.f32):
    for i in x:
        x[i] *= by


@qd.kernel
def shift(to: qd.types.ndarray(dtype=qd.f32, ndim=1), source: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for _ in range(1):
        for i in range(1, to.shape[0]):
            to[i] = source[i - 1]


def compiled(kernel: qd.Kernel) -> int:
    return kernel._specialization_count()
