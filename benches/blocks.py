"""Compares the examples with thread blocks with libraries: numpy on a CPU, torch on an NVIDIA GPU.

    python benches/blocks.py                       # the CPU
    python benches/blocks.py --arch cuda --sizes tiled_matmul=4096
    python benches/blocks.py --only shared_fft

The kernels are those of `examples/`. All systems get the same input and take turns; each figure is a median. The last
column is the rate of Octants over that of the library.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from algorithms import seconds_in_turns

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SIZES = {"tiled_matmul": 1024, "block_scan": 1 << 22, "shared_fft": 4096, "bitonic_sort": 2048}
"""Sides of matrices, numbers, rows of 1,024 numbers, rows of 2,048 numbers."""


def example(name: str, arch: str, size: int) -> ModuleType:
    """The example as a module, with a program that has started."""
    sys.path.insert(0, str(EXAMPLES))
    given, sys.argv = sys.argv, [f"{name}.py", "--arch", arch, "--size", str(size)]
    try:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.argv = given
        sys.path.pop(0)
    return module


def of_octants(name: str, m: ModuleType) -> Callable[[], object]:
    """A call of the example's kernels on arrays in the device's memory."""

    def on_device(values: np.ndarray) -> Any:
        made = m.qd.ndarray(m.qd.i32 if values.dtype == np.int32 else m.qd.f32, values.shape)
        made.from_numpy(values)
        return made

    if name == "tiled_matmul":
        arrays = [on_device(v) for v in (m.left, m.right, m.product)]
        return lambda: m.multiply(*arrays)
    if name == "block_scan":
        x, out, sums = (on_device(v) for v in (m.numbers, m.running, m.tile_sums))
        return lambda: (m.scan_tiles(x, out, sums), m.scan_sums(sums), m.add_sums(out, sums))
    if name == "shared_fft":
        arrays = [on_device(v) for v in (m.real, m.imaginary, m.result_re, m.result_im)]
        return lambda: m.transform(*arrays)
    arrays = [on_device(v) for v in (m.numbers, m.ordered)]
    return lambda: m.sort_rows(*arrays)


def of_numpy(name: str, m: ModuleType) -> Callable[[], object]:
    """The call of numpy that does the same; its product is the BLAS library's."""
    if name == "tiled_matmul":
        return lambda: np.matmul(m.left, m.right)
    if name == "block_scan":
        return lambda: np.cumsum(m.numbers, dtype=np.int32)
    if name == "shared_fft":
        both = (m.real + 1j * m.imaginary).astype(np.complex64)
        return lambda: np.fft.fft(both)
    return lambda: np.sort(m.numbers, axis=1)


def of_torch(name: str, m: ModuleType) -> Callable[[], object]:
    """The call of torch that does the same, on the GPU: cuBLAS without tensor cores, CUB, cuFFT."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False

    def on_device(values: np.ndarray) -> Any:
        return torch.from_numpy(values).cuda()

    if name == "tiled_matmul":
        a, b = on_device(m.left), on_device(m.right)
        return lambda: torch.matmul(a, b)
    if name == "block_scan":
        x = on_device(m.numbers)
        return lambda: torch.cumsum(x, 0, dtype=torch.int32)
    if name == "shared_fft":
        both = torch.complex(on_device(m.real), on_device(m.imaginary))
        return lambda: torch.fft.fft(both)
    x = on_device(m.numbers)
    return lambda: torch.sort(x, dim=1)


def main() -> None:
    """Measures and prints a line for each example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--only", nargs="*", choices=SIZES, default=list(SIZES), help="examples to run (default: all)")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="EXAMPLE=SIZE", help="other sizes than the usual")
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each system (default: 7)")
    args = parser.parse_args()
    sizes = SIZES | {name: int(size) for name, _, size in (s.partition("=") for s in args.sizes)}
    library = "torch" if args.arch == "cuda" else "numpy"
    print(f"{'example':<14}{'work':>10}{'octants':>12}{library:>12}{'ratio':>8}")
    for name in args.only:
        m = example(name, args.arch, sizes[name])
        other = of_torch if args.arch == "cuda" else of_numpy
        systems = {"octants": of_octants(name, m), library: other(name, m)}
        if args.arch == "cuda":
            import torch

            def wait(ours: Callable[[], None] = m.qd.sync, theirs: Callable[[], None] = torch.cuda.synchronize) -> None:
                ours()
                theirs()

            seconds = seconds_in_turns(systems, wait, args.rounds)
        else:
            seconds = seconds_in_turns(systems, m.qd.sync, args.rounds)
        ours, theirs = seconds["octants"], seconds[library]
        print(
            f"{name:<14}{sizes[name]:>10}{ours * 1e3:>9.3f} ms{theirs * 1e3:>9.3f} ms{theirs / ours:>8.2f}", flush=True
        )


if __name__ == "__main__":
    main()
