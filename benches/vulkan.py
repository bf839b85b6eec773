"""Compares Vulkan with another back end, by default CUDA, on one machine: throughput, launches, streams.

    python benches/vulkan.py --beside cuda --out vulkan.json

Both take turns, each measurement in a fresh process, and the last lines are a table of medians: Vulkan, the other one,
and their ratio (above 1 Vulkan is better). Arrays are of 67 million elements on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from measuring import inputs
from package_kernels import prepare_mpm88

import octants as qd
from octants.algorithms import launch

F = qd.types.ndarray(qd.f32, 1)
Ints = qd.types.ndarray(qd.i32, 1)
F2 = qd.types.ndarray(qd.f32, 2)

# The measured quantities: unit, and whether more is better.
MEASURED = {
    "triad": ("GB/s", True),
    "copy": ("GB/s", True),
    "sum": ("GB/s", True),
    "sum of a field": ("GB/s", True),
    "sum of i32": ("GB/s", True),
    "maximum": ("GB/s", True),
    "dot product": ("GB/s", True),
    "reduce": ("GB/s", True),
    "stencil": ("GB/s", True),
    "map": ("G elements/s", True),
    "MPM88": ("steps/s", True),
    "launch": ("us", False),
    "launch and wait": ("us", False),
    "ten launches": ("us", False),
    "16 streams": ("times one", True),
}


@qd.kernel
def triad(a: F, b: F, c: F):
    for i in c:
        c[i] = a[i] + 3.0 * b[i]


@qd.kernel
def copy(a: F, b: F):
    for i in b:
        b[i] = a[i]


@qd.kernel
def total(a: F, out: F):
    for i in a:
        out[0] += a[i]


@qd.kernel
def total_of_integers(a: Ints, out: Ints):
    for i in a:
        out[0] += a[i]


@qd.kernel
def maximum(a: F, out: F):
    for i in a:
        qd.atomic_max(out[0], a[i])


@qd.kernel
def dot(a: F, b: F, out: F):
    for i in a:
        out[0] += a[i] * b[i]


@qd.kernel
def stencil(x: F2, y: F2):
    for i, j in qd.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
        y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@qd.kernel
def compute(x: F, y: F):
    for i in x:
        y[i] = qd.sin(x[i]) * qd.exp(-x[i]) + qd.sqrt(x[i])


@qd.kernel
def touch(x: F):
    for i in range(32):
        x[i] += 1.0


@qd.kernel
def spin(x: F, rounds: qd.i32):
    for i in range(32):
        s = x[i]
        for _ in range(rounds):
            s = s * 1.0001 + 0.5
        x[i] = s


def seconds(run: Callable[[], object], most: float = 0.4) -> float:
    """Seconds of a call, the median of bursts."""
    run()
    qd.sync()
    start = time.perf_counter()
    run()
    qd.sync()
    count = max(1, min(200, int(most / 5 / max(time.perf_counter() - start, 1e-6))))
    bursts = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            run()
        qd.sync()
        bursts.append((time.perf_counter() - start) / count)
    return statistics.median(bursts)


def overlap(rounds: int) -> float:
    """How many times as fast 16 kernels are on 16 streams as on one."""
    arrays = [qd.ndarray(qd.f32, 32) for _ in range(16)]
    streams = [qd.create_stream() for _ in arrays]
    one = seconds(lambda: [spin(x, rounds) for x in arrays])
    many = seconds(lambda: [spin(x, rounds, qd_stream=s) for x, s in zip(arrays, streams, strict=True)])
    for s in streams:
        s.destroy()
    return one / many


def measure(arch: str, n: int) -> dict[str, float]:
    """All figures of a back end."""
    qd.init(arch=getattr(qd, arch), enable_fallback=False, offline_cache=False, log_level="error")
    a, b, c = (qd.ndarray(qd.f32, n) for _ in range(3))
    out, small = qd.ndarray(qd.f32, 1), qd.ndarray(qd.f32, 32)
    # Memory of a GPU may be compressed, so equal values would show more than its bandwidth.
    generator = np.random.default_rng(0)
    values = generator.random(n, dtype=np.float32)
    a.from_numpy(values)
    b.from_numpy(values)
    side = int(n**0.5) // 64 * 64
    x, y = qd.ndarray(qd.f32, (side, side)), qd.ndarray(qd.f32, (side, side))
    x.from_numpy(values[: side * side].reshape(side, side))
    f = qd.field(qd.f32, n)
    f.from_numpy(values)
    integers, integer = qd.ndarray(qd.i32, n), qd.ndarray(qd.i32, 1)
    integers.from_numpy(generator.integers(-(1 << 31), 1 << 31, n, dtype=np.int32))

    @qd.kernel
    def total_of_field(out: F):
        for i in f:
            out[0] += f[i]

    figures = {
        "triad": 12e-9 * n / seconds(lambda: triad(a, b, c)),
        "copy": 8e-9 * n / seconds(lambda: copy(a, b)),
        "sum": 4e-9 * n / seconds(lambda: total(a, out)),
        "sum of a field": 4e-9 * n / seconds(lambda: total_of_field(out)),
        "sum of i32": 4e-9 * n / seconds(lambda: total_of_integers(integers, integer)),
        "maximum": 4e-9 * n / seconds(lambda: maximum(a, out)),
        "dot product": 8e-9 * n / seconds(lambda: dot(a, b, out)),
        "reduce": 4e-9 * n / seconds(lambda: launch.reduce(a, out)),
        "stencil": 8e-9 * side * side / seconds(lambda: stencil(x, y)),
        "map": 1e-9 * n / seconds(lambda: compute(a, c)),
        "launch": 1e6 * seconds(lambda: touch(small)),
        "launch and wait": 1e6 * seconds(lambda: (touch(small), qd.sync())),
        "ten launches": 1e6 * seconds(lambda: [touch(small) for _ in range(10)]),
    }
    figures["MPM88"] = 1.0 / seconds(prepare_mpm88(inputs("mpm88"))[0])
    out.fill(0.0)
    total(a, out)
    assert abs(out.to_numpy()[0] / values.sum(dtype=np.float64) - 1) < 1e-4, "the sum is wrong"
    figures["16 streams"] = overlap(10_000 if n < 1 << 24 else 200_000)
    few = values[:8]
    assert np.allclose(c.to_numpy()[:8], np.sin(few) * np.exp(-few) + np.sqrt(few), atol=1e-5), "the map is wrong"
    return figures


def main() -> None:
    """Measures in turns and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", default="cuda", help="the other back end")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--size", type=int, default=1 << 26, help="elements of an array")
    parser.add_argument("--out", help="file for all figures, as JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.size)))
        return
    found: dict[str, list[dict[str, float]]] = {"vulkan": [], options.beside: []}
    for _ in range(options.turns):
        for arch, figures in found.items():
            command = [sys.executable, __file__, "--one", arch, "--size", str(options.size)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                sys.exit(f"{arch}: {ran.stderr[-2000:]}")
            figures.append(json.loads(ran.stdout.splitlines()[-1]))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    print(f"{'':16} {'vulkan':>10} {options.beside:>10}  ratio")
    for name, (unit, is_more_better) in MEASURED.items():
        vulkan, other = (statistics.median(f[name] for f in found[arch]) for arch in ("vulkan", options.beside))
        ratio = vulkan / other if is_more_better else other / vulkan
        print(f"{name:16} {vulkan:10.2f} {other:10.2f}  {ratio:5.2f}  {unit}")


if __name__ == "__main__":
    main()
