"""Heat in a block, split over ranks: a 7-point stencil between two arrays."""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=96, steps=50)
shape = (args.rows, args.size, args.size)
rate = 0.1

old = qd.field(qd.f32, shape=shape, split=0, halo=1)
new = qd.field(qd.f32, shape=shape, split=0, halo=1)

Block = qd.types.ndarray(dtype=qd.f32, ndim=3)


@qd.kernel
def heat(block: Block):
    for i, j, k in block:
        block[i, j, k] = qd.cast((i * 7 + j * 5 + k * 3) % 11, qd.f32)


@qd.kernel
def diffuse(old: Block, new: Block):
    for i, j, k in qd.ndrange((1, old.shape[0] - 1), (1, old.shape[1] - 1), (1, old.shape[2] - 1)):
        around = old[i - 1, j, k] + old[i + 1, j, k] + old[i, j - 1, k] + old[i, j + 1, k]
        around += old[i, j, k - 1] + old[i, j, k + 1]
        new[i, j, k] = old[i, j, k] + rate * (around - 6.0 * old[i, j, k])


def step() -> None:
    """Two steps of time, so that the newest values are in `old`."""
    diffuse(old, new)
    diffuse(new, old)


def expected() -> np.ndarray:
    """The same with numpy's slices, in double precision."""
    i, j, k = np.mgrid[: shape[0], : shape[1], : shape[2]]
    u = ((i * 7 + j * 5 + k * 3) % 11).astype(np.float64)
    for _ in range(2 * args.steps):
        inner = u[1:-1, 1:-1, 1:-1]
        around = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
        around = around + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
        u[1:-1, 1:-1, 1:-1] = inner + rate * (around - 6.0 * inner)
    return u


heat(old)
heat(new)
run(args, step, 2.0 * np.prod(shape), "cell updates")
if args.check:
    check(args, old.to_numpy(), expected, 1e-4)
