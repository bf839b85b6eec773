"""Cart-poles, one environment per row, split over ranks: no rank needs rows of another, only the mean reward."""

import numpy as np
from rank_support import check, run, start

import octants as qd

args = start(__doc__, size=100_000, steps=200)
n = args.rows
dt, gravity, pole_mass, length, total_mass = 0.02, 9.8, 0.1, 0.5, 1.1

state = qd.field(qd.types.vector(4, qd.f32), shape=(n,), split=0, halo=0)
gains = qd.field(qd.f32, shape=4)
reward = qd.field(qd.f64, shape=())


@qd.kernel
def reset():
    for i in state:
        tilt = 0.05 * qd.cast(i % 13 - 6, qd.f32) / 6.0
        state[i] = qd.Vector([0.0, 0.0, tilt, 0.0])


@qd.kernel
def advance():
    for i in state:
        s = state[i]
        force = gains[0] * s[0] + gains[1] * s[1] + gains[2] * s[2] + gains[3] * s[3]
        sine, cosine = qd.sin(s[2]), qd.cos(s[2])
        push = (force + pole_mass * length * s[3] * s[3] * sine) / total_mass
        angular = (gravity * sine - cosine * push) / (length * (4.0 / 3.0 - pole_mass * cosine * cosine / total_mass))
        linear = push - pole_mass * length * angular * cosine / total_mass
        state[i] = s + dt * qd.Vector([s[1], linear, s[3], angular])
    for i in state:
        reward[None] += qd.cast(1.0 - abs(state[i][2]), qd.f64) / n


def expected() -> np.ndarray:
    """The same with numpy, in double precision."""
    x, v, w = np.zeros(n), np.zeros(n), np.zeros(n)
    t = 0.05 * (np.arange(n) % 13 - 6) / 6.0
    for _ in range(args.steps):
        force = 1.0 * x + 2.0 * v + 30.0 * t + 4.0 * w
        push = (force + pole_mass * length * w * w * np.sin(t)) / total_mass
        angular = (gravity * np.sin(t) - np.cos(t) * push) / (
            length * (4.0 / 3.0 - pole_mass * np.cos(t) ** 2 / total_mass)
        )
        linear = push - pole_mass * length * angular * np.cos(t) / total_mass
        x, v, t, w = x + dt * v, v + dt * linear, t + dt * w, w + dt * angular
    return np.stack([x, v, t, w], axis=1)


gains.from_numpy(np.array([1.0, 2.0, 30.0, 4.0], np.float32))
reset()
run(args, advance, float(n), "environment steps")
if args.check:
    check(args, state.to_numpy(), expected, 1e-4)
    if not 0.9 * args.steps < reward[None] <= args.steps:
        raise SystemExit(f"the ranks' sum of rewards is {reward[None]}")
