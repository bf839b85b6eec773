"""A decaying vortex, split over ranks: the lattice Boltzmann method with 19 velocities and BGK collisions.

Each population is an array of its own, so that only those that move along the split axis are exchanged: five of 19 in
each direction.
"""

import itertools

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=64, steps=50)
n, m = args.rows, args.size
rate = 1.0 / 0.6  # of relaxation

VELOCITIES = [c for c in itertools.product((-1, 0, 1), repeat=3) if sum(map(abs, c)) < 3]
WEIGHTS = [{0: 1 / 3, 1: 1 / 18, 2: 1 / 36}[sum(map(abs, c))] for c in VELOCITIES]
Q = len(VELOCITIES)


def lattice() -> list:
    """The populations."""
    return [qd.field(qd.f32, shape=(n, m, m), split=0, halo=1, periodic=True) for _ in range(Q)]


# A step reads one and writes the other.
even, odd = lattice(), lattice()


@qd.func
def equilibrium(q: qd.template(), density, velocity):
    along = 0.0
    for axis in qd.static(range(3)):
        along += VELOCITIES[q][axis] * velocity[axis]
    return WEIGHTS[q] * density * (1 + 3 * along + 4.5 * along * along - 1.5 * velocity.dot(velocity))


@qd.kernel
def vortex(to: qd.template()):
    for i, j, k in to[0]:
        x, y = 2 * np.pi * i / n, 2 * np.pi * j / m
        velocity = qd.Vector([0.05 * qd.sin(x) * qd.cos(y), -0.05 * qd.cos(x) * qd.sin(y), 0.0])
        for q in qd.static(range(Q)):
            to[q][i, j, k] = equilibrium(q, 1.0, velocity)


@qd.kernel
def advance(old: qd.template(), new: qd.template()):
    for i, j, k in new[0]:
        f = qd.Vector.zero(qd.f32, Q)
        density = 0.0
        velocity = qd.Vector([0.0, 0.0, 0.0])
        for q in qd.static(range(Q)):
            x, y, z = qd.static(VELOCITIES[q])
            f[q] = old[q][(i - x) % n, (j - y) % m, (k - z) % m]
            density += f[q]
            velocity += f[q] * qd.Vector([x, y, z])
        velocity /= density
        for q in qd.static(range(Q)):
            new[q][i, j, k] = f[q] + rate * (equilibrium(q, density, velocity) - f[q])


def step() -> None:
    """Two steps of time, so that the newest populations are in `even`."""
    advance(even, odd)
    advance(odd, even)


def expected() -> np.ndarray:
    """The same with numpy, in double precision."""

    def balance(q: int, density: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        along = np.tensordot(VELOCITIES[q], velocity, 1)
        return WEIGHTS[q] * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * (velocity**2).sum(0))

    i, j, _ = np.mgrid[:n, :m, :m]
    x, y = 2 * np.pi * i / n, 2 * np.pi * j / m
    velocity = 0.05 * np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y), np.zeros(x.shape)])
    f = np.stack([balance(q, np.ones(x.shape), velocity) for q in range(Q)])
    for _ in range(2 * args.steps):
        f = np.stack([np.roll(f[q], VELOCITIES[q], (0, 1, 2)) for q in range(Q)])
        density = f.sum(0)
        velocity = np.tensordot(np.transpose(VELOCITIES), f, 1) / density
        f = np.stack([f[q] + rate * (balance(q, density, velocity) - f[q]) for q in range(Q)])
    return f


vortex(even)
run(args, step, 2.0 * n * m * m, "cell updates")
if args.check:
    check(args, np.stack([population.to_numpy() for population in even]), expected, 1e-5)
