"""Light in a box, split over ranks: Yee's scheme for Maxwell's equations, six components on staggered grids."""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=64, steps=50)
n, m = args.rows, args.size
courant = 0.5

e = [qd.field(qd.f32, shape=(n, m, m), split=0, halo=1) for _ in range(3)]
h = [qd.field(qd.f32, shape=(n, m, m), split=0, halo=1) for _ in range(3)]
energy = qd.field(qd.f64, shape=())

Grid = qd.types.ndarray(dtype=qd.f32, ndim=3)


@qd.kernel
def pulse(ez: Grid):
    for i, j, k in ez:
        r2 = (i - n // 2) ** 2 + (j - m // 2) ** 2 + (k - m // 3) ** 2
        ez[i, j, k] = qd.exp(-qd.cast(r2, qd.f32) / 8.0)


@qd.kernel
def move_h(ex: Grid, ey: Grid, ez: Grid, hx: Grid, hy: Grid, hz: Grid):
    for i, j, k in qd.ndrange(n - 1, m - 1, m - 1):
        hx[i, j, k] -= courant * (ez[i, j + 1, k] - ez[i, j, k] - ey[i, j, k + 1] + ey[i, j, k])
        hy[i, j, k] -= courant * (ex[i, j, k + 1] - ex[i, j, k] - ez[i + 1, j, k] + ez[i, j, k])
        hz[i, j, k] -= courant * (ey[i + 1, j, k] - ey[i, j, k] - ex[i, j + 1, k] + ex[i, j, k])


@qd.kernel
def move_e(ex: Grid, ey: Grid, ez: Grid, hx: Grid, hy: Grid, hz: Grid):
    for i, j, k in qd.ndrange((1, n - 1), (1, m - 1), (1, m - 1)):
        ex[i, j, k] += courant * (hz[i, j, k] - hz[i, j - 1, k] - hy[i, j, k] + hy[i, j, k - 1])
        ey[i, j, k] += courant * (hx[i, j, k] - hx[i, j, k - 1] - hz[i, j, k] + hz[i - 1, j, k])
        ez[i, j, k] += courant * (hy[i, j, k] - hy[i - 1, j, k] - hx[i, j, k] + hx[i, j - 1, k])


@qd.kernel
def measure(ex: Grid, ey: Grid, ez: Grid):
    for i, j, k in ex:
        energy[None] += qd.cast(ex[i, j, k] ** 2 + ey[i, j, k] ** 2 + ez[i, j, k] ** 2, qd.f64)


def step() -> None:
    """Half a step of the magnetic field, then one of the electric field."""
    move_h(*e, *h)
    move_e(*e, *h)


def expected() -> np.ndarray:
    """The same with numpy's slices, in double precision."""
    i, j, k = np.mgrid[:n, :m, :m]
    r2 = (i - n // 2) ** 2 + (j - m // 2) ** 2 + (k - m // 3) ** 2
    ex, ey, hx, hy, hz = (np.zeros((n, m, m)) for _ in range(5))
    ez = np.exp(-r2 / 8.0)
    low, up, mid = slice(None, -1), slice(1, None), slice(1, -1)
    back = slice(None, -2)
    for _ in range(args.steps):
        hx[low, low, low] -= courant * (ez[low, up, low] - ez[low, low, low] - ey[low, low, up] + ey[low, low, low])
        hy[low, low, low] -= courant * (ex[low, low, up] - ex[low, low, low] - ez[up, low, low] + ez[low, low, low])
        hz[low, low, low] -= courant * (ey[up, low, low] - ey[low, low, low] - ex[low, up, low] + ex[low, low, low])
        ex[mid, mid, mid] += courant * (hz[mid, mid, mid] - hz[mid, back, mid] - hy[mid, mid, mid] + hy[mid, mid, back])
        ey[mid, mid, mid] += courant * (hx[mid, mid, mid] - hx[mid, mid, back] - hz[mid, mid, mid] + hz[back, mid, mid])
        ez[mid, mid, mid] += courant * (hy[mid, mid, mid] - hy[back, mid, mid] - hx[mid, mid, mid] + hx[mid, back, mid])
    return np.stack([ex, ey, ez])


pulse(e[2])
run(args, step, 6.0 * n * m * m, "component updates")
measure(*e)
if args.check:
    found = np.stack([component.to_numpy() for component in e])
    check(args, found, expected, 1e-5)
    total = energy[None]
    if abs(total - float((found.astype(np.float64) ** 2).sum())) > 1e-4 * total:
        raise SystemExit(f"the ranks' sum of the energy is {total}")
