"""Running sums: thread blocks scan tiles, a second kernel scans the sums of the tiles, and a third one adds them.

A block of 256 threads scans its tile with `block.inclusive_add`. The sums of tiles are few: one block scans them.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=10, size=1 << 16, out="out/block_scan.png", check_frames=1, check_size=40_000)
qd = example.qd
block = qd.simt.block

THREADS = 256
tiles = -(-example.size // THREADS)
groups = -(-tiles // THREADS)
n = tiles * THREADS

Numbers = qd.types.ndarray(dtype=qd.i32, ndim=1)


@qd.kernel
def scan_tiles(x: Numbers, out: Numbers, sums: Numbers):
    qd.loop_config(block_dim=THREADS)
    for i in range(n):
        total = block.inclusive_add(x[i], THREADS, qd.i32)
        out[i] = total
        if block.thread_idx() == THREADS - 1:
            sums[i // THREADS] = total


@qd.kernel
def scan_sums(sums: Numbers):
    qd.loop_config(block_dim=THREADS)
    for i in range(THREADS):
        before = 0
        for group in range(groups):
            place = group * THREADS + i
            value = 0
            if place < tiles:
                value = sums[place]
            here = block.inclusive_add(value, THREADS, qd.i32)
            if place < tiles:
                sums[place] = before + here
            before += block.reduce_all_add(value, THREADS, qd.i32)


@qd.kernel
def add_sums(out: Numbers, sums: Numbers):
    for i in range(THREADS, n):
        out[i] += sums[i // THREADS - 1]


numbers = np.random.default_rng(2).integers(-50, 52, n).astype(np.int32)
running = np.zeros(n, np.int32)
tile_sums = np.zeros(tiles, np.int32)


def advance(_frame: int) -> None:
    """Scans once."""
    scan_tiles(numbers, running, tile_sums)
    scan_sums(tile_sums)
    add_sums(running, tile_sums)


def reference(_frames: int) -> Arrays:
    """The same by `np.cumsum`."""
    return {"running": np.cumsum(numbers)}


def picture() -> np.ndarray:
    """The running sum as a curve."""
    width, height = 512, 256
    at = running[np.linspace(0, n - 1, width).astype(int)].astype(np.float64)
    row = (height - 1) - ((at - at.min()) / max(1.0, np.ptp(at)) * (height - 1)).astype(int)
    image = np.full((height, width, 3), 20, np.uint8)
    image[row, np.arange(width)] = [255, 190, 60]
    return image


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"running": running},
        reference=reference,
        tolerance={"running": Tolerance(0.0)},
        work=(float(n), "numbers"),
    )
