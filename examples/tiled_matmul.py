"""Tiled matrix product: blocks of threads load tiles into shared memory, and each thread sums a small square.

A block computes 64 x 64 elements with 256 threads. Tiles of 16 columns pass through shared memory, and each thread
keeps 4 x 4 sums in registers, so each loaded number is used 64 times.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=10, size=512, out="out/tiled_matmul.png", check_frames=1, check_size=192)
qd = example.qd
block = qd.simt.block

SIDE, DEPTH, EACH = 64, 16, 4
THREADS = (SIDE // EACH) ** 2
n = -(-example.size // SIDE) * SIDE

Matrix = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.kernel
def multiply(a: Matrix, b: Matrix, c: Matrix):
    qd.loop_config(block_dim=THREADS)
    for i in range((n // SIDE) * (n // SIDE) * THREADS):
        rows = qd.simt.block.SharedArray((DEPTH, SIDE), qd.f32)
        columns = qd.simt.block.SharedArray((DEPTH, SIDE), qd.f32)
        thread = block.thread_idx()
        tile = i // THREADS
        top, left = tile // (n // SIDE) * SIDE, tile % (n // SIDE) * SIDE
        row, column = thread // (SIDE // EACH), thread % (SIDE // EACH)
        sums = qd.Matrix.zero(qd.f32, EACH, EACH)
        for step in range(n // DEPTH):
            for k in qd.static(range(SIDE * DEPTH // THREADS)):
                place = thread + k * THREADS
                rows[place % DEPTH, place // DEPTH] = a[top + place // DEPTH, step * DEPTH + place % DEPTH]
                columns[place // SIDE, place % SIDE] = b[step * DEPTH + place // SIDE, left + place % SIDE]
            block.sync()
            for k in range(DEPTH):
                for y in qd.static(range(EACH)):
                    for x in qd.static(range(EACH)):
                        sums[y, x] += rows[k, row * EACH + y] * columns[k, column + x * (SIDE // EACH)]
            block.sync()
        for y in qd.static(range(EACH)):
            for x in qd.static(range(EACH)):
                c[top + row * EACH + y, left + column + x * (SIDE // EACH)] = sums[y, x]


random = np.random.default_rng(1)
left, right = (random.standard_normal((n, n)).astype(np.float32) for _ in range(2))
product = np.zeros((n, n), np.float32)


def advance(_frame: int) -> None:
    """Multiplies once."""
    multiply(left, right, product)


def reference(_frames: int) -> Arrays:
    """The product by numpy, in double precision."""
    return {"product": left.astype(np.float64) @ right.astype(np.float64)}


def picture() -> np.ndarray:
    """The product in gray."""
    level = np.clip(product / np.sqrt(n) * 40 + 128, 0, 255)
    return np.repeat(level[..., None], 3, 2).astype(np.uint8)


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"product": product},
        reference=reference,
        tolerance={"product": Tolerance(1e-2)},
        work=(2.0 * n**3, "floating-point operations"),
    )
