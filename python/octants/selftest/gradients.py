"""Derivatives of kernels, and kernels of several tasks that are launched as one graph."""

# mypy: ignore-errors
# Kernels are Python in form only.

from __future__ import annotations

import numpy as np

import octants as qd
from octants.selftest.registry import check, close, equal

N = 2000


@check()
def gradients_by_reverse_mode() -> None:
    """Reverse mode through a sum over elements, with a function that contains a loop."""
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.kernel
    def powers():
        for i in x:
            value = x[i]
            for _ in range(3):
                value = value * x[i]
            y[i] = value + qd.sin(x[i])

    @qd.kernel
    def total():
        for i in y:
            loss[None] += y[i] * (i % 7)

    values = np.random.default_rng(1).uniform(0.5, 1.5, N)
    x.from_numpy(values)
    with qd.ad.Tape(loss=loss):
        powers()
        total()
    weight = np.arange(N) % 7
    close(loss[None], np.sum(weight * (values**4 + np.sin(values))), 1e-10, what="loss")
    close(x.grad.to_numpy(), weight * (4 * values**3 + np.cos(values)), 1e-10, 1e-10, "x.grad")


@check()
def kernels_launched_as_one() -> None:
    """Graphs: tasks run in order, and again with other arguments."""

    @qd.kernel(graph=True)
    def steps(x: qd.types.ndarray(dtype=qd.i32, ndim=1), by: qd.i32):
        for i in x:
            x[i] += by
        for i in x:
            x[i] *= 2
        for i in x:
            x[i] -= i

    x = qd.ndarray(qd.i32, shape=N)
    want = np.zeros(N, dtype=np.int32)
    for by in (1, 2, 3):
        steps(x, by)
        want = (want + by) * 2 - np.arange(N, dtype=np.int32)
    equal(x.to_numpy(), want, "x")
