"""Pendulums of eight links, one for each environment, split over ranks: a step of multi-body dynamics.

Each environment assembles its mass matrix, factorizes it and solves for the accelerations. No rank needs rows of
another; the ranks' energies are summed.
"""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=20_000, steps=50)
n = args.rows
LINKS = 8
dt, gravity = 1e-3, 9.8

angles = qd.field(qd.types.vector(LINKS, qd.f32), shape=(n,), split=0, halo=0)
rates = qd.field(qd.types.vector(LINKS, qd.f32), shape=(n,), split=0, halo=0)
energy = qd.field(qd.f64, shape=())


@qd.kernel
def reset():
    for e in angles:
        for link in qd.static(range(LINKS)):
            angles[e][link] = 0.3 + 0.05 * qd.cast((e + link) % 7, qd.f32)
        rates[e] = qd.Vector.zero(qd.f32, LINKS)


@qd.kernel
def advance():
    for e in angles:
        angle, rate = angles[e], rates[e]
        factor = qd.Matrix.zero(qd.f32, LINKS, LINKS)
        solution = qd.Vector.zero(qd.f32, LINKS)
        # Unit masses at the ends of unit links: row i of the mass matrix, then its row of the Cholesky factor.
        for i in qd.static(range(LINKS)):
            solution[i] = -(LINKS - i) * gravity * qd.sin(angle[i])
            for k in qd.static(range(LINKS)):
                below = qd.static(LINKS - max(i, k))
                solution[i] -= below * qd.sin(angle[i] - angle[k]) * rate[k] ** 2
                if qd.static(k <= i):
                    factor[i, k] = below * qd.cos(angle[i] - angle[k])
            for k in qd.static(range(i)):
                for h in qd.static(range(k)):
                    factor[i, k] -= factor[i, h] * factor[k, h]
                factor[i, k] /= factor[k, k]
                factor[i, i] -= factor[i, k] ** 2
            factor[i, i] = qd.sqrt(factor[i, i])
            for k in qd.static(range(i)):
                solution[i] -= factor[i, k] * solution[k]
            solution[i] /= factor[i, i]
        for i in qd.static(range(LINKS - 1, -1, -1)):
            for k in qd.static(range(i + 1, LINKS)):
                solution[i] -= factor[k, i] * solution[k]
            solution[i] /= factor[i, i]
        rate += dt * solution
        rates[e] = rate
        angles[e] = angle + dt * rate


@qd.kernel
def measure():
    for e in angles:
        moving = qd.Vector([0.0, 0.0])
        height = 0.0
        for link in qd.static(range(LINKS)):
            angle, rate = angles[e][link], rates[e][link]
            moving += rate * qd.Vector([qd.cos(angle), qd.sin(angle)])
            height -= qd.cos(angle)
            energy[None] += qd.cast(0.5 * moving.dot(moving) + gravity * height, qd.f64) / n


def expected() -> np.ndarray:
    """The angles after the same steps with numpy, in double precision."""
    i = np.arange(LINKS)
    below = LINKS - np.maximum.outer(i, i)
    angle = 0.3 + 0.05 * ((np.arange(n)[:, None] + i) % 7)
    rate = np.zeros((n, LINKS))
    for _ in range(args.steps):
        between = angle[:, :, None] - angle[:, None, :]
        force = -(below * np.sin(between) * rate[:, None, :] ** 2).sum(2) - (LINKS - i) * gravity * np.sin(angle)
        rate += dt * np.linalg.solve(below * np.cos(between), force[:, :, None])[:, :, 0]
        angle += dt * rate
    return angle


reset()
if args.check:
    measure()
    before = energy[None]
    energy[None] = 0.0
run(args, advance, float(n), "environment steps")
measure()
if args.check:
    check(args, angles.to_numpy(), expected, 1e-4)
    if abs(energy[None] - before) > 1e-3 * abs(before):
        raise SystemExit(f"the mean energy has changed from {before} to {energy[None]}")
