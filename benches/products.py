"""Compares f16 matrix products on tensor cores with a library: torch (cuBLAS) on an NVIDIA GPU, numpy on a CPU.

    python benches/products.py --arch cuda --sizes 4096 8192
    python benches/products.py                     # the CPU

The kernel is that of `examples/tensor_matmul.py`; `--depths` and `--sides` try other tiles. Both systems get the same
input and take turns; each figure is a median. The last columns are the rate of Octants over that of the library, and
the largest difference from the library's sums, over the largest sum.
"""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values.

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from algorithms import seconds_in_turns

import octants as qd
from octants.simt import block, subgroup

PAD, CHUNK = 8, 8


def multiply_of(n: int, down_side: int, across_side: int, depth: int, groups: tuple[int, int]) -> Any:
    """A kernel for matrices of n x n, by tiles of `down_side` x `across_side` and `groups` subgroups."""
    product = qd.simt.MatrixProduct(qd.f16)
    m, size = product.SIZE, subgroup.group_size()
    down, across = groups
    threads = down * across * size
    rows_of, columns_of = down_side // down // m, across_side // across // m
    operand, total = qd.types.ndarray(dtype=qd.f16, ndim=2), qd.types.ndarray(dtype=qd.f32, ndim=2)

    @qd.func
    def copy_tile(
        to: qd.template(), source: operand, row: qd.i32, column: qd.i32, rows: qd.template(), columns: qd.template()
    ):
        thread = block.thread_idx()
        per_row = qd.static(columns // CHUNK)
        for k in qd.static(range(rows * columns // CHUNK // threads)):
            at_row, at_column = thread // per_row + k * qd.static(threads // per_row), thread % per_row * CHUNK
            for i in qd.static(range(CHUNK)):
                to[at_row, at_column + i] = source[row + at_row, column + at_column + i]

    @qd.kernel
    def multiply(a: operand, b: operand, c: total):
        qd.loop_config(block_dim=threads)
        for i in range((n // down_side) * (n // across_side) * threads):
            rows = [block.SharedArray((down_side, depth + PAD), qd.f16) for _ in qd.static(range(2))]
            columns = [block.SharedArray((depth, across_side + PAD), qd.f16) for _ in qd.static(range(2))]
            tile = i // threads
            # Blocks that run at a time share rows and columns: tiles in stripes of eight rows.
            stripe = tile // (8 * (n // across_side))
            in_stripe = tile % (8 * (n // across_side))
            top, left = (stripe * 8 + in_stripe % 8) * down_side, in_stripe // 8 * across_side
            group = block.thread_idx() // size
            row, column = group // across * (rows_of * m), group % across * (columns_of * m)
            sums = [[product.sums.zeros() for _ in qd.static(range(columns_of))] for _ in qd.static(range(rows_of))]
            copy_tile(rows[0], a, top, 0, down_side, depth)
            copy_tile(columns[0], b, 0, left, depth, across_side)
            block.sync()
            for step in range(n // depth // 2):
                for half in qd.static(range(2)):
                    following = (2 * step + half + 1) * depth
                    if following < n:
                        copy_tile(rows[1 - half], a, top, following, down_side, depth)
                        copy_tile(columns[1 - half], b, following, left, depth, across_side)
                    for k in qd.static(range(0, depth, m)):
                        others = [product.b.zeros() for _ in qd.static(range(columns_of))]
                        for x in qd.static(range(columns_of)):
                            others[x].load_(columns[half], k, column + x * m)
                        for y in qd.static(range(rows_of)):
                            own = product.a.zeros()
                            own.load_(rows[half], row + y * m, k)
                            for x in qd.static(range(columns_of)):
                                sums[y][x] += own @ others[x]
                    block.sync()
            for y in qd.static(range(rows_of)):
                for x in qd.static(range(columns_of)):
                    sums[y][x].store_(c, top + row + y * m, left + column + x * m)

    return multiply


def on_device(values: np.ndarray) -> Any:
    """The values in the device's memory."""
    made = qd.ndarray(qd.f16 if values.dtype == np.float16 else qd.f32, values.shape)
    made.from_numpy(values)
    return made


def of_library(arch: str, a: np.ndarray, b: np.ndarray) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """The same by torch, with sums of f32 that are rounded to f16, or by numpy in f32."""
    if arch == "cpu":
        left, right = a.astype(np.float32), b.astype(np.float32)
        product = np.empty_like(left)
        return lambda: np.matmul(left, right, out=product), lambda: product
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    z = torch.empty_like(x)
    return lambda: torch.matmul(x, y, out=z), lambda: z.float().cpu().numpy()


def main() -> None:
    """Measures and prints a line for each size and tile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu", choices=("cpu", "cuda"), help="(default: cpu)")
    parser.add_argument("--sizes", nargs="*", type=int, help="sides of the matrices, multiples of 1,024")
    parser.add_argument(
        "--tiles",
        nargs="*",
        default=["128x128x32x2x4"],
        metavar="ROWSxCOLUMNSxDEPTHxDOWNxACROSS",
        help="a block's tile, the depth of a step, and its subgroups down and across (default: 128x128x32x2x4)",
    )
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each system (default: 7)")
    args = parser.parse_args()
    qd.init(arch=getattr(qd, args.arch), enable_fallback=False)

    def wait() -> None:
        qd.sync()
        if args.arch == "cuda":
            import torch

            torch.cuda.synchronize()

    print(f"{'size':>6}{'tile':>18}{'octants':>18}{'library':>18}{'ratio':>8}{'difference':>12}")
    for n in args.sizes or ([4096, 8192] if args.arch == "cuda" else [1024]):
        random = np.random.default_rng(1)
        a, b = (random.standard_normal((n, n)).astype(np.float16) for _ in range(2))
        arrays = [on_device(a), on_device(b), on_device(np.zeros((n, n), np.float32))]
        theirs, their_result = of_library(args.arch, a, b)
        for tile in args.tiles:
            rows, columns, depth, down, across = map(int, tile.split("x"))
            kernel = multiply_of(n, rows, columns, depth, (down, across))
            ours = lambda kernel=kernel, arrays=arrays: kernel(*arrays)  # noqa: E731
            seconds = seconds_in_turns({"octants": ours, "library": theirs}, wait, args.rounds)
            rates = {system: 2 * n**3 / taken / 1e12 for system, taken in seconds.items()}
            wanted = their_result()
            difference = float(np.abs(arrays[2].to_numpy() - wanted).max() / np.abs(wanted).max())
            print(
                f"{n:>6}{tile:>18}{rates['octants']:>10.2f} TFLOP/s{rates['library']:>10.2f} TFLOP/s"
                f"{rates['octants'] / rates['library']:>8.2f}{difference:>12.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
