"""Histogram: counts the gray levels of a picture with atomic additions, and evens them out.

The picture, the counts and the result are numpy arrays; kernels work on their memory.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=20, size=768, out="out/histogram.png", check_frames=2, check_size=200)
qd = example.qd

n = example.size
levels = 256

Gray = qd.types.ndarray(dtype=qd.i32, ndim=2)
Counts = qd.types.ndarray(dtype=qd.i32, ndim=1)


@qd.kernel
def count(picture: Gray, counts: Counts):
    for level in range(counts.shape[0]):
        counts[level] = 0
    for i, j in qd.ndrange(picture.shape[0], picture.shape[1]):
        qd.atomic_add(counts[picture[i, j]], 1)


@qd.kernel
def running_sum(counts: Counts, sums: Counts) -> qd.i32:
    total = 0
    qd.loop_config(serialize=True)
    for level in range(counts.shape[0]):
        total += counts[level]
        sums[level] = total
    return total


@qd.kernel
def even_out(picture: Gray, sums: Counts, result: Gray, total: qd.i32):
    for i, j in qd.ndrange(picture.shape[0], picture.shape[1]):
        scaled = qd.cast(sums[picture[i, j]], qd.i64) * (levels - 1) // total
        result[i, j] = qd.cast(scaled, qd.i32)


def scene() -> np.ndarray:
    """A dim picture: smooth waves with grain, most of it in a narrow range of grays."""
    row, column = np.mgrid[0:n, 0:n] / n
    waves = np.sin(14.0 * row + 4.0 * np.sin(9.0 * column)) * np.cos(11.0 * column - 3.0 * row * row)
    grain = np.random.default_rng(5).standard_normal((n, n)) * 0.08
    return np.clip(70.0 + 28.0 * (waves + grain), 0, levels - 1).astype(np.int32)


gray = scene()
counted = np.zeros(levels, np.int32)
summed = np.zeros(levels, np.int32)
evened = np.zeros((n, n), np.int32)


def advance(_frame: int) -> None:
    """Counts and evens out once."""
    count(gray, counted)
    total = running_sum(counted, summed)
    even_out(gray, summed, evened, total)


def reference(_frames: int) -> Arrays:
    """The same with `np.bincount`."""
    counts = np.bincount(gray.ravel(), minlength=levels)
    sums = np.cumsum(counts)
    return {"counts": counts, "sums": sums, "picture": sums[gray] * (levels - 1) // gray.size}


def picture() -> np.ndarray:
    """Before and after, side by side, each above its histogram."""
    panels = []
    for values in (gray, evened):
        bars = np.bincount(values.ravel(), minlength=levels)
        height = (bars * 150.0 / bars.max()).astype(int)
        chart = np.where(np.arange(160)[::-1, None] < height[None], 230, 30)
        wide = chart[:, np.arange(n) * levels // n]
        panels.append(np.concatenate([values, wide]))
    return np.repeat(np.concatenate(panels, 1)[..., None], 3, 2).astype(np.uint8)


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"counts": counted, "sums": summed, "picture": evened},
        reference=reference,
        tolerance={name: Tolerance(0.0) for name in ("counts", "sums", "picture")},
        work=(float(n * n), "pixels"),
    )
