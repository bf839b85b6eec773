"""N-body: stars that attract each other, every pair computed, leapfrog in time."""

import numpy as np
from example_support import Arrays, Example, Tolerance, dots

example = Example(__doc__, frames=120, size=2048, out="out/nbody.gif", check_frames=10, check_size=128)
qd = example.qd

n = example.size
dt = 5e-3
softening = 1e-3

Stars = qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=1)

position = qd.Vector.ndarray(3, qd.f32, n)
velocity = qd.Vector.ndarray(3, qd.f32, n)


@qd.kernel
def kick(position: Stars, velocity: Stars, mass: qd.f32):
    for i in range(position.shape[0]):
        here = position[i]
        pull = qd.Vector([0.0, 0.0, 0.0])
        for j in range(position.shape[0]):
            away = position[j] - here
            inverse = qd.rsqrt(away.norm_sqr() + softening)
            pull += away * (inverse * inverse * inverse)
        velocity[i] += dt * mass * pull


@qd.kernel
def drift(position: Stars, velocity: Stars):
    for i in position:
        position[i] += dt * velocity[i]


def start() -> tuple[np.ndarray, np.ndarray]:
    """Two turning discs that pass each other."""
    random = np.random.default_rng(11)
    radius, angle = 0.05 + 0.35 * np.sqrt(random.random(n)), 2.0 * np.pi * random.random(n)
    side = np.where(np.arange(n) % 2 == 0, -1.0, 1.0)
    flat = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.05 * random.standard_normal(n)], 1)
    speed = 0.9 * np.sqrt(radius)
    turning = np.stack([-speed * np.sin(angle), speed * np.cos(angle), np.zeros(n)], 1)
    place = np.stack([0.6 * side, 0.15 * side, 0.0 * side], 1)
    motion = np.stack([-0.5 * side, 0.0 * side, 0.0 * side], 1)
    return (flat + place).astype(np.float32), (turning + motion).astype(np.float32)


def reference(frames: int) -> Arrays:
    """All pairs at once in numpy, double precision."""
    x, v = (a.astype(np.float64) for a in start())
    for _ in range(frames):
        away = x[None] - x[:, None]
        inverse = 1.0 / np.sqrt(np.sum(away**2, -1) + softening)
        v += dt / n * np.sum(away * (inverse**3)[..., None], 1)
        x += dt * v
    return {"position": x, "velocity": v}


def advance(_frame: int) -> None:
    """One frame."""
    kick(position, velocity, 1.0 / n)
    drift(position, velocity)


def picture() -> np.ndarray:
    """The stars from above, colored by the disc they began in."""
    colors = np.where((np.arange(n) % 2 == 0)[:, None], [255, 200, 120], [140, 190, 255])
    return dots(position.to_numpy()[:, :2] * 0.4 + 0.5, colors, 360, 0x05060D)


if __name__ == "__main__":
    for array, values in zip((position, velocity), start(), strict=True):
        array.from_numpy(values)
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"position": position.to_numpy(), "velocity": velocity.to_numpy()},
        reference=reference,
        tolerance={"position": Tolerance(1e-4), "velocity": Tolerance(1e-3)},
        work=(float(n * n), "interactions"),
    )
