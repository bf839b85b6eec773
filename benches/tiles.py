"""Compares loops that GPUs run in tiles with libraries: a matrix product in three loops, and all pairs of bodies.

    python benches/tiles.py                        # the CPU
    python benches/tiles.py --arch cuda --sizes product=4096 pairs=65536

The kernels are those of `package_kernels.py`. The product is compared with torch on an NVIDIA GPU (cuBLAS without
tensor cores) and with numpy's BLAS library on a CPU, all pairs with a kernel of CuPy that stages tiles by hand, and
with Numba. All systems get the same input and take turns; each figure is a median. The last column is the rate of
Octants over that of the library.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import package_kernels
from algorithms import seconds_in_turns

import octants as qd

SIZES = {"product": {"cpu": 512, "cuda": 4096}, "pairs": {"cpu": 4096, "cuda": 65536}}
"""Sides of matrices, bodies."""
OPERATIONS = {"product": lambda n: 2 * n**3, "pairs": lambda n: 20 * n**2}
"""Floating-point operations of a call; those of a pair are counted as the field does."""

TILED_BY_HAND = r"""
extern "C" __global__ void pairs(const float *x, const float *y, const float *z, float *ax, float *ay, float *az,
                                 int n) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    int own = min(i, n - 1);
    float px = x[own], py = y[own], pz = z[own], sx = 0, sy = 0, sz = 0;
    for (int first = 0; first < n; first += 256) {
        int j = min(first + (int)threadIdx.x, n - 1);
        tile[threadIdx.x] = make_float4(x[j], y[j], z[j], 0);
        __syncthreads();
        int count = min(256, n - first);
#pragma unroll 16
        for (int k = 0; k < count; k++) {
            float4 q = tile[k];
            float dx = q.x - px, dy = q.y - py, dz = q.z - pz;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), cubed = inverse * inverse * inverse;
            sx += dx * cubed;
            sy += dy * cubed;
            sz += dz * cubed;
        }
        __syncthreads();
    }
    if (i < n) {
        ax[i] = sx;
        ay[i] = sy;
        az[i] = sz;
    }
}
"""


def inputs(name: str, n: int) -> list[np.ndarray]:
    """The arrays that a loop reads."""
    rng = np.random.default_rng(1)
    shape = (n, n) if name == "product" else (n,)
    return [rng.random(shape, dtype=np.float32) for _ in range(2 if name == "product" else 3)]


def of_octants(name: str, given: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """A call on arrays in the device's memory, and the first array that it writes."""

    def on_device(values: np.ndarray) -> Any:
        made = qd.ndarray(qd.f32, values.shape)
        made.from_numpy(values)
        return made

    read = [on_device(values) for values in given]
    written = [on_device(np.zeros_like(given[0])) for _ in range(1 if name == "product" else 3)]
    kernel = package_kernels.matmul if name == "product" else package_kernels.nbody
    return lambda: kernel(*read, *written), lambda: written[0].to_numpy()


def of_gpu_library(name: str, given: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """The same by torch, or by a kernel of CuPy."""
    if name == "product":
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        a, b = (torch.from_numpy(values).cuda() for values in given)
        c = torch.empty_like(a)
        return lambda: torch.matmul(a, b, out=c), lambda: c.cpu().numpy()
    import cupy

    kernel = cupy.RawKernel(TILED_BY_HAND, "pairs", options=("--use_fast_math",))
    read, written = [cupy.asarray(v) for v in given], [cupy.zeros_like(cupy.asarray(v)) for v in given]
    n = len(given[0])
    grid = ((n + 255) // 256,)
    return lambda: kernel(grid, (256,), (*read, *written, np.int32(n))), lambda: cupy.asnumpy(written[0])


def of_cpu_library(name: str, given: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """The same by numpy, or by Numba."""
    if name == "product":
        product = np.empty_like(given[0])
        return lambda: np.matmul(given[0], given[1], out=product), lambda: product
    import numba_kernels

    if not numba_kernels.available():
        raise SystemExit("Numba is not installed: `--only product` needs it not")
    written = [np.zeros_like(v) for v in given]
    return lambda: numba_kernels.nbody(*given, *written), lambda: written[0]


def waiter(arch: str) -> Callable[[], object]:
    """A function that waits for the work of all systems."""
    if arch == "cpu":
        return qd.sync
    import torch

    def wait() -> None:
        qd.sync()
        torch.cuda.synchronize()

    return wait


def main() -> None:
    """Measures and prints a line for each loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu", choices=("cpu", "cuda"), help="(default: cpu)")
    parser.add_argument("--only", nargs="*", choices=SIZES, default=list(SIZES), help="loops to run (default: all)")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="LOOP=SIZE", help="other sizes than the usual")
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each system (default: 7)")
    args = parser.parse_args()
    sizes = {name: usual[args.arch] for name, usual in SIZES.items()}
    sizes |= {name: int(size) for name, _, size in (s.partition("=") for s in args.sizes)}
    qd.init(arch=getattr(qd, args.arch), enable_fallback=False)
    print(f"{'loop':<10}{'size':>8}{'octants':>18}{'library':>18}{'ratio':>8}{'difference':>12}")
    for name in args.only:
        given = inputs(name, sizes[name])
        (ours, our_result), (theirs, their_result) = (
            make(name, given) for make in (of_octants, of_gpu_library if args.arch == "cuda" else of_cpu_library)
        )
        seconds = seconds_in_turns({"octants": ours, "library": theirs}, waiter(args.arch), args.rounds)
        rates = {system: OPERATIONS[name](sizes[name]) / taken / 1e9 for system, taken in seconds.items()}
        a, b = our_result(), their_result()
        difference = float(np.abs(a - b).max() / np.abs(b).max())
        print(
            f"{name:<10}{sizes[name]:>8}{rates['octants']:>11.0f} GFLOP/s{rates['library']:>11.0f} GFLOP/s"
            f"{rates['octants'] / rates['library']:>8.2f}{difference:>12.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
