"""Julia set: how long z -> z*z + c stays bounded at each pixel, while c moves along a circle."""

import math

import numpy as np
from example_support import Arrays, Example, Tolerance, heat_map

example = Example(__doc__, frames=60, size=320, out="out/julia.gif", check_frames=3, check_size=96)
qd = example.qd

height, width = example.size, 2 * example.size
most_steps = 96

image = qd.ndarray(qd.f32, (height, width))


@qd.func
def square(z):
    return qd.Vector([z[0] * z[0] - z[1] * z[1], 2.0 * z[0] * z[1]])


@qd.kernel
def count_steps(pixels: qd.types.ndarray(dtype=qd.f32, ndim=2), cx: qd.f32, cy: qd.f32):
    for i, j in qd.ndrange(pixels.shape[0], pixels.shape[1]):
        c = qd.Vector([cx, cy])
        z = qd.Vector([j / pixels.shape[0] - 1.0, i / pixels.shape[0] - 0.5]) * 2.2
        steps = 0
        while z.norm_sqr() < 400.0 and steps < most_steps:
            z = square(z) + c
            steps += 1
        pixels[i, j] = 1.0 - steps / most_steps


def constant(frame: int) -> tuple[float, float]:
    """The constant c of a frame."""
    angle = 2.0 * math.pi * frame / 60.0
    return -0.8 + 0.08 * math.cos(angle), 0.16 * math.sin(angle)


def reference(frames: int) -> Arrays:
    """The last frame with numpy's own complex numbers."""
    row, column = np.mgrid[0:height, 0:width]
    z = ((column / height - 1.0) + 1j * (row / height - 0.5)) * 2.2
    steps = np.zeros(z.shape, int)
    c = complex(*constant(frames - 1))
    for _ in range(most_steps):
        inside = np.abs(z) ** 2 < 400.0
        steps += inside
        z[inside] = z[inside] ** 2 + c
    return {"image": 1.0 - steps / most_steps}


if __name__ == "__main__":
    example.run(
        advance=lambda frame: count_steps(image, *constant(frame)),
        picture=lambda: heat_map(1.0 - image.to_numpy()),
        state=lambda: {"image": image.to_numpy()},
        reference=reference,
        # Points next to the set's edge escape one step sooner or later in single precision.
        tolerance={"image": Tolerance(1e-5, allowed=0.01)},
        work=(float(height * width), "pixels"),
    )
