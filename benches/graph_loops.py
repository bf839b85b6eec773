"""Compares iterations of `qd.graph.do_while`, decided by the GPU and by the host, with CUDA C++, if nvcc is installed.

    python benches/graph_loops.py

Three tasks on arrays of several sizes and a counter, 1,000 iterations. A stream beyond the first eight that launch the
kernel has no native graph, so the host decides there. `graph_loops.cu` has the same loop as a conditional graph, as a
persistent kernel, and with the host deciding. Then updates `b[i] += a[i]`, beside `b[i] = b[i] + a[i]`, in a program
without streams and with one. All rows of a size take turns; medians, in microseconds.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import octants as qd

ITERATIONS = 1000
SIZES = (2048, 8192, 1 << 16, 1 << 18, 1 << 20)
Values = qd.types.ndarray(dtype=qd.f32, ndim=1)
Counter = qd.types.ndarray(dtype=qd.i32, ndim=0)


@qd.kernel(graph=True)
def loop(a: Values, b: Values, c: Values, left: Counter):
    while qd.graph.do_while(left):
        for i in a:
            a[i] += 1.0
        for i in b:
            b[i] += a[i]
        for i in c:
            c[i] += b[i]
        left[()] -= 1


@qd.kernel
def update(b: Values, a: Values):
    for i in b:
        b[i] += a[i]


@qd.kernel
def assign(b: Values, a: Values):
    for i in b:
        b[i] = b[i] + a[i]


def arrays(count: int, size: int) -> list[qd.Ndarray]:
    """Arrays of zeros."""
    made = [qd.ndarray(qd.f32, size) for _ in range(count)]
    for array in made:
        array.fill(0)
    return made


def loop_times(size: int, stream: qd.Stream | None) -> float:
    """The time of an iteration, in microseconds."""
    given, left = arrays(3, size), qd.ndarray(qd.i32, ())
    times = []
    for _ in range(9):
        left.fill(ITERATIONS)
        qd.sync()
        began = time.perf_counter()
        loop(*given, left, qd_stream=stream)
        qd.sync()
        times.append((time.perf_counter() - began) / ITERATIONS * 1e6)
    return statistics.median(times[1:])


def launch_times(calls: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """The time of each call with its work, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in list(calls) * 9:
        qd.sync()
        began = time.perf_counter()
        for _ in range(count):
            calls[name]()
        qd.sync()
        times[name].append((time.perf_counter() - began) / count * 1e6)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def updates(when: str) -> None:
    """Updates of own elements, atomic or not."""
    for size in (1 << 18, 1 << 20, 1 << 22, 1 << 26):
        a, b = arrays(2, size)
        calls = {"b[i] += a[i]": lambda b=b, a=a: update(b, a), "b[i] = b[i] + a[i]": lambda b=b, a=a: assign(b, a)}
        for name, taken in launch_times(calls, 300 if size < 1 << 25 else 50).items():
            print(f"{when}, n={size:9d}, {name:20s} {taken:8.2f}")


def in_cuda() -> None:
    """The same loop in CUDA C++."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("nvcc is not installed: no figures of CUDA C++")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "graph_loops"
        source = Path(__file__).with_suffix(".cu")
        subprocess.run([nvcc, "-O3", "-std=c++17", "-arch=native", "-o", program, source], check=True)
        subprocess.run([program], check=True)


def main() -> None:
    """Prints all rows."""
    qd.init(arch=qd.cuda)
    updates("no stream")
    for size in SIZES:
        print(f"no stream, n={size:7d}, do_while on the device {loop_times(size, None):8.2f}")
    streams = [qd.create_stream() for _ in range(9)]
    updates("with streams")
    for stream in streams[:8]:
        loop_times(2048, stream)
    for size in SIZES:
        for name, stream in (("device", streams[0]), ("host", streams[8])):
            print(f"with streams, n={size:7d}, do_while on the {name:6s} {loop_times(size, stream):8.2f}")
    in_cuda()


if __name__ == "__main__":
    main()
