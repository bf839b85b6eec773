"""Programs with gradients, on octants or a package with its interface: `BENCH_MODULE` names it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

qd: Any = importlib.import_module(os.environ.get("BENCH_MODULE", "octants"))

F1 = qd.types.ndarray(dtype=qd.f32, ndim=1)

# Elements, bodies, rows or particles: on the CPU, and on a GPU, which needs more to be busy. The data that the sums
# read exceeds the private caches of the cores.
SIZES: dict[str, tuple[int, int]] = {
    "sum of squares, fields": (1 << 23, 1 << 25),
    "sum of squares, ndarrays": (1 << 23, 1 << 25),
    "all pairs": (1024, 16384),
    "triangle": (1024, 16384),
    "carried": (1 << 11, 1 << 18),
    "MPM88": (8192, 1 << 16),
}
# Iterations of the inner loop of "carried", on average.
STEPS = 64
CELLS = 128
TIME_STEP = 2e-4


@dataclass
class Program:
    """A program and its gradient: one call of each does the work once."""

    forward: Callable[[], object]
    # Needs to have been run forward before.
    reverse: Callable[[], object]
    gradient: Callable[[], np.ndarray]


def start(arch: str, threads: int) -> None:
    """Initializes the package: nothing comes from a cache, so that the first calls compile."""
    options = {"arch": getattr(qd, arch), "offline_cache": False, "ad_stack_experimental_enabled": True}
    if arch == "cpu":
        options["cpu_max_num_threads"] = threads
    qd.init(**options)


def wait() -> None:
    """Waits for everything launched."""
    qd.sync()


def random(*shape: int) -> np.ndarray:
    """The same numbers between 0 and 1 for every system."""
    return np.random.default_rng(42).random(shape, np.float32)


def sum_on_fields(n: int) -> Program:
    """A reduction of a field."""
    x = qd.field(qd.f32, n, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def add_squares():
        for i in x:
            loss[None] += x[i] * x[i]

    x.from_numpy(random(n))
    loss.grad[None] = 1.0
    return Program(add_squares, add_squares.grad, x.grad.to_numpy)


def sum_on_arrays(n: int) -> Program:
    """A reduction of an argument."""

    @qd.kernel
    def add_squares(x: F1, loss: F1):
        for i in range(x.shape[0]):
            loss[0] += x[i] * x[i]

    x, loss = qd.ndarray(qd.f32, (n,), needs_grad=True), qd.ndarray(qd.f32, (1,), needs_grad=True)
    x.from_numpy(random(n))
    loss.grad.fill(1.0)
    return Program(lambda: add_squares(x, loss), lambda: add_squares.grad(x, loss), x.grad.to_numpy)


def all_pairs(n: int) -> Program:
    """The forces between all bodies: a loop in a loop, which reads both its indices' elements."""
    x = qd.Vector.field(3, qd.f32, n, needs_grad=True)
    force = qd.Vector.field(3, qd.f32, n, needs_grad=True)
    count = qd.field(qd.i32, ())

    @qd.kernel
    def attract():
        for i in x:
            for j in range(count[None]):
                d = x[j] - x[i]
                inverse = 1.0 / qd.sqrt(d.dot(d) + 1e-3)
                # Not summed up in a local first: Quadrants 1.3.3 has wrong gradients of that.
                force[i] += d * (inverse * inverse * inverse)

    x.from_numpy(random(n, 3))
    force.grad.from_numpy(random(n, 3) + 0.5)
    count[None] = n
    return Program(attract, attract.grad, x.grad.to_numpy)


def triangle(n: int) -> Program:
    """An energy of all pairs, each counted once: the inner loop's bound is the outer one's index."""
    x = qd.field(qd.f32, n, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def energy():
        for i in x:
            for j in range(i):
                d = x[i] - x[j]
                loss[None] += 1.0 / (d * d + 1e-2)

    x.from_numpy(random(n))
    loss.grad[None] = 1.0
    return Program(energy, energy.grad, x.grad.to_numpy)


def carried(n: int) -> Program:
    """A recurrence that is not linear, of a length read from a field: every state is needed on the way back."""
    x = qd.field(qd.f32, n, needs_grad=True)
    y = qd.field(qd.f32, n, needs_grad=True)
    rate = qd.field(qd.f32, 2 * STEPS, needs_grad=True)
    length = qd.field(qd.i32, n)

    @qd.kernel
    def swing():
        for i in x:
            a = x[i]
            for k in range(length[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    x.from_numpy(random(n))
    rate.from_numpy(0.1 * random(2 * STEPS))
    length.from_numpy((random(n) * 2 * STEPS).astype(np.int32))
    y.grad.from_numpy(np.ones(n, np.float32))
    return Program(swing, swing.grad, x.grad.to_numpy)


@qd.func
def weights(fx):
    """The weights of the cells near a particle."""
    return [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]


def mpm88(n: int) -> Program:
    """A step of MPM88 from one state to the next, with a separate kernel for each phase."""
    dx, mass = 1.0 / CELLS, (0.5 / CELLS) ** 2

    x = qd.Vector.field(2, qd.f32, (2, n), needs_grad=True)
    v = qd.Vector.field(2, qd.f32, (2, n), needs_grad=True)
    C = qd.Matrix.field(2, 2, qd.f32, (2, n), needs_grad=True)
    J = qd.field(qd.f32, (2, n), needs_grad=True)
    momentum = qd.Vector.field(2, qd.f32, (CELLS, CELLS), needs_grad=True)
    grid_m = qd.field(qd.f32, (CELLS, CELLS), needs_grad=True)
    grid_v = qd.Vector.field(2, qd.f32, (CELLS, CELLS), needs_grad=True)

    @qd.kernel
    def clear():
        for i, j in grid_m:
            momentum[i, j] = [0.0, 0.0]
            grid_m[i, j] = 0.0

    @qd.kernel
    def to_grid(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] / dx - 0.5, qd.i32)
            fx = x[t, p] / dx - qd.cast(base, qd.f32)
            w = weights(fx)
            stress = -TIME_STEP * 4 * 400.0 * mass * (J[t, p] - 1.0) / dx**2
            affine = qd.Matrix([[stress, 0.0], [0.0, stress]]) + mass * C[t, p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                weight = w[i][0] * w[j][1]
                momentum[base + offset] += weight * (mass * v[t, p] + affine @ ((qd.cast(offset, qd.f32) - fx) * dx))
                grid_m[base + offset] += weight * mass

    @qd.kernel
    def on_grid():
        for i, j in grid_m:
            u = momentum[i, j]
            if grid_m[i, j] > 1e-12:
                u = u / grid_m[i, j]
            u[1] -= TIME_STEP * 9.8
            if i < 3 and u[0] < 0:
                u[0] = 0.0
            if i > CELLS - 3 and u[0] > 0:
                u[0] = 0.0
            if j < 3 and u[1] < 0:
                u[1] = 0.0
            if j > CELLS - 3 and u[1] > 0:
                u[1] = 0.0
            grid_v[i, j] = u

    @qd.kernel
    def from_grid(t: qd.i32):
        for p in range(n):
            base = qd.cast(x[t, p] / dx - 0.5, qd.i32)
            fx = x[t, p] / dx - qd.cast(base, qd.f32)
            w = weights(fx)
            new_v = qd.Vector([0.0, 0.0])
            new_C = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i, j in qd.static(qd.ndrange(3, 3)):
                offset = qd.Vector([i, j])
                weight = w[i][0] * w[j][1]
                near = grid_v[base + offset]
                new_v += weight * near
                new_C += 4 * weight * near.outer_product(qd.cast(offset, qd.f32) - fx) / dx
            v[t + 1, p] = new_v
            x[t + 1, p] = x[t, p] + TIME_STEP * new_v
            J[t + 1, p] = J[t, p] * (1.0 + TIME_STEP * new_C.trace())
            C[t + 1, p] = new_C

    @qd.kernel
    def seed():
        for i, j in grid_m:
            momentum.grad[i, j] = [0.0, 0.0]
            grid_m.grad[i, j] = 0.0
            grid_v.grad[i, j] = [0.0, 0.0]
        for p in range(n):
            x.grad[0, p] = [0.0, 0.0]
            v.grad[0, p] = [0.0, 0.0]
            C.grad[0, p] = [[0.0, 0.0], [0.0, 0.0]]
            J.grad[0, p] = 0.0
            x.grad[1, p] = [1.0, 0.5]
            v.grad[1, p] = [0.1, 0.2]
            J.grad[1, p] = 1.0

    def forward() -> None:
        clear()
        to_grid(0)
        on_grid()
        from_grid(0)

    def reverse() -> None:
        seed()
        from_grid.grad(0)
        on_grid.grad()
        to_grid.grad(0)

    x.from_numpy(np.stack([random(n, 2) * 0.4 + 0.2] * 2))
    v.from_numpy(np.stack([random(n, 2) - 0.5] * 2))
    J.from_numpy(1.0 + 0.1 * random(2, n))
    return Program(forward, reverse, lambda: x.grad.to_numpy()[0])


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "sum of squares, fields": sum_on_fields,
    "sum of squares, ndarrays": sum_on_arrays,
    "all pairs": all_pairs,
    "triangle": triangle,
    "carried": carried,
    "MPM88": mpm88,
}


def prepare(name: str, arch: str) -> Program:
    """One of `PROGRAMS`, of the size for a device."""
    return PROGRAMS[name](SIZES[name][arch != "cpu"])
