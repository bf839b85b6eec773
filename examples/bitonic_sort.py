"""Bitonic sort in shared memory: each block sorts a row of 2,048 numbers.

Each of the 66 steps compares elements at a power of two apart and exchanges those in the wrong order, one pair on each
thread, with a barrier between steps.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=10, size=256, out="out/bitonic_sort.png", check_frames=1, check_size=12)
qd = example.qd
block = qd.simt.block

BITS = 11
N = 1 << BITS
THREADS = N // 4
rows = example.size

Rows = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.kernel
def sort_rows(x: Rows, out: Rows):
    qd.loop_config(block_dim=THREADS)
    for i in range(rows * THREADS):
        s = block.SharedArray(N, qd.f32)
        thread, row = block.thread_idx(), i // THREADS
        for k in qd.static(range(N // THREADS)):
            s[thread + k * THREADS] = x[row, thread + k * THREADS]
        block.sync()
        for size_bits in range(1, BITS + 1):
            for step in range(size_bits):
                bits = size_bits - 1 - step
                for k in qd.static(range(N // 2 // THREADS)):
                    pair = thread + k * THREADS
                    low = (pair >> bits << (bits + 1)) + (pair & ((1 << bits) - 1))
                    high = low + (1 << bits)
                    a, b = qd.min(s[low], s[high]), qd.max(s[low], s[high])
                    ascends = (low >> size_bits & 1) == 0
                    s[low], s[high] = qd.select(ascends, a, b), qd.select(ascends, b, a)
                block.sync()
        for k in qd.static(range(N // THREADS)):
            out[row, thread + k * THREADS] = s[thread + k * THREADS]


numbers = np.random.default_rng(4).standard_normal((rows, N)).astype(np.float32)
ordered = np.zeros_like(numbers)


def advance(_frame: int) -> None:
    """Sorts all rows."""
    sort_rows(numbers, ordered)


def reference(_frames: int) -> Arrays:
    """The same by `np.sort`."""
    return {"ordered": np.sort(numbers, axis=1)}


def picture() -> np.ndarray:
    """Rows before and after, in gray."""
    both = np.clip(np.concatenate([numbers, ordered], 1) * 60 + 128, 0, 255)
    return np.repeat(both[..., None], 3, 2).astype(np.uint8)


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"ordered": ordered},
        reference=reference,
        tolerance={"ordered": Tolerance(0.0)},
        work=(float(rows * N), "numbers"),
    )
