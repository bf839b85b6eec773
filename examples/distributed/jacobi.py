"""Laplace's equation on a ring, split over ranks: Jacobi's iteration with the residual of every second sweep."""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=512, steps=100)
n, m = args.rows, args.size

old = qd.field(qd.f32, shape=(n, m), split=0, halo=1, periodic=True)
new = qd.field(qd.f32, shape=(n, m), split=0, halo=1, periodic=True)
residual = qd.field(qd.f32, shape=())

Plane = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.kernel
def set_edges(u: Plane):
    for i in range(n):
        u[i, 0] = qd.sin(2 * np.pi * i / n)
        u[i, m - 1] = qd.sin(2 * np.pi * i / n)


@qd.kernel
def sweep(old: Plane, new: Plane):
    for i, j in qd.ndrange(n, (1, m - 1)):
        new[i, j] = 0.25 * (old[(i - 1) % n, j] + old[(i + 1) % n, j] + old[i, j - 1] + old[i, j + 1])


@qd.kernel
def sweep_and_measure(old: Plane, new: Plane):
    residual[None] = 0.0
    for i, j in qd.ndrange(n, (1, m - 1)):
        value = 0.25 * (old[(i - 1) % n, j] + old[(i + 1) % n, j] + old[i, j - 1] + old[i, j + 1])
        residual[None] += (value - old[i, j]) ** 2
        new[i, j] = value


def step() -> None:
    """Two sweeps."""
    sweep(old, new)
    sweep_and_measure(new, old)


def expected() -> np.ndarray:
    """The same with numpy, in double precision."""
    u = np.zeros((n, m))
    u[:, 0] = u[:, -1] = np.sin(2 * np.pi * np.arange(n) / n)
    for _ in range(2 * args.steps):
        u[:, 1:-1] = 0.25 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1))[:, 1:-1]
    return u


set_edges(old)
set_edges(new)
run(args, step, 2.0 * n * m, "cell updates")
if args.check:
    check(args, old.to_numpy(), expected, 1e-5)
    if not 0.0 < residual[None] < 1.0:
        raise SystemExit(f"the residual is {residual[None]}")
