"""Matrix product on tensor cores: f16 operands, f32 sums, tiles that take turns in shared memory.

A block computes 128 x 128 elements with 256 threads. Each of its eight subgroups (four of 64 threads on some AMD GPUs)
keeps a part of the sums in registers, as fragments of 16 x 16. While a tile is multiplied, the next one is copied to
the other pair of shared arrays.
"""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=10, size=512, out="out/tensor_matmul.png", check_frames=1, check_size=256)
qd = example.qd
block, subgroup = qd.simt.block, qd.simt.subgroup

SIDE, DEPTH, THREADS = 128, 32, 256
product = qd.simt.MatrixProduct(qd.f16)
M = product.SIZE
# Subgroups in a column and in a row of a block, and fragments of each.
GROUPS = THREADS // subgroup.group_size()
DOWN, ACROSS = 2, GROUPS // 2
ROWS, COLUMNS = SIDE // DOWN // M, SIDE // ACROSS // M
# Eight elements more in each row: rows begin in different banks.
PAD, CHUNK = 8, 8
n = -(-example.size // SIDE) * SIDE

Operand = qd.types.ndarray(dtype=qd.f16, ndim=2)
Sums = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.func
def copy_tile(to: qd.template(), source: Operand, row: qd.i32, column: qd.i32, columns: qd.template()):
    """Copies a tile with this many columns, in chunks of neighbors."""
    thread = block.thread_idx()
    across = qd.static(columns // CHUNK)
    for k in qd.static(range(SIDE * DEPTH // CHUNK // THREADS)):
        at_row = thread // across + k * qd.static(THREADS // across)
        at_column = thread % across * CHUNK
        for i in qd.static(range(CHUNK)):
            to[at_row, at_column + i] = source[row + at_row, column + at_column + i]


@qd.kernel
def multiply(a: Operand, b: Operand, c: Sums):
    qd.loop_config(block_dim=THREADS)
    for i in range((n // SIDE) * (n // SIDE) * THREADS):
        rows = [block.SharedArray((SIDE, DEPTH + PAD), qd.f16) for _ in qd.static(range(2))]
        columns = [block.SharedArray((DEPTH, SIDE + PAD), qd.f16) for _ in qd.static(range(2))]
        tile = i // THREADS
        top, left = tile // (n // SIDE) * SIDE, tile % (n // SIDE) * SIDE
        group = block.thread_idx() // qd.static(subgroup.group_size())
        row, column = group // ACROSS * (ROWS * M), group % ACROSS * (COLUMNS * M)
        sums = [[product.sums.zeros() for _ in qd.static(range(COLUMNS))] for _ in qd.static(range(ROWS))]
        copy_tile(rows[0], a, top, 0, DEPTH)
        copy_tile(columns[0], b, 0, left, SIDE)
        block.sync()
        for step in range(n // DEPTH // 2):
            for half in qd.static(range(2)):
                following = (2 * step + half + 1) * DEPTH
                if following < n:
                    copy_tile(rows[1 - half], a, top, following, DEPTH)
                    copy_tile(columns[1 - half], b, following, left, SIDE)
                for k in qd.static(range(0, DEPTH, M)):
                    others = [product.b.zeros() for _ in qd.static(range(COLUMNS))]
                    for x in qd.static(range(COLUMNS)):
                        others[x].load_(columns[half], k, column + x * M)
                    for y in qd.static(range(ROWS)):
                        own = product.a.zeros()
                        own.load_(rows[half], row + y * M, k)
                        for x in qd.static(range(COLUMNS)):
                            sums[y][x] += own @ others[x]
                block.sync()
        for y in qd.static(range(ROWS)):
            for x in qd.static(range(COLUMNS)):
                sums[y][x].store_(c, top + row + y * M, left + column + x * M)


random = np.random.default_rng(1)
left_matrix, right_matrix = (random.standard_normal((n, n)).astype(np.float16) for _ in range(2))
result = np.zeros((n, n), np.float32)


def advance(_frame: int) -> None:
    """Multiplies once."""
    multiply(left_matrix, right_matrix, result)


def reference(_frames: int) -> Arrays:
    """The product by numpy, in double precision."""
    return {"product": left_matrix.astype(np.float64) @ right_matrix.astype(np.float64)}


def picture() -> np.ndarray:
    """The product in gray."""
    level = np.clip(result / np.sqrt(n) * 40 + 128, 0, 255)
    return np.repeat(level[..., None], 3, 2).astype(np.uint8)


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"product": result},
        reference=reference,
        tolerance={"product": Tolerance(1e-2)},
        work=(2.0 * n**3, "floating-point operations"),
    )
