"""Compares captured graphs with the launches that they consist of.

    python benches/graphs.py                  # the CPU
    python benches/graphs.py --arch cuda

Prints the host's time of a call, which returns before the work is done if streams are real, and the time of a call with
its work, in microseconds; of MPM88 with 8,192 particles steps per second. All rows of a block take turns; each figure
is a median.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import measuring
import numpy as np
import package_kernels

import octants as qd

LAUNCHES = 10
SUBSTEPS = 100


def times(calls: Mapping[str, Callable[[], object]], count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """For each call the median of its time on the host and of its time with the work, in seconds."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for name in list(calls) * rounds:
        qd.sync()
        began = time.perf_counter()
        for _ in range(count):
            calls[name]()
        returned = time.perf_counter()
        qd.sync()
        taken[name].append(((returned - began) / count, (time.perf_counter() - began) / count))
    return {
        name: (statistics.median(t[0] for t in each[1:]), statistics.median(t[1] for t in each[1:]))
        for name, each in taken.items()
    }


def launches(rounds: int) -> None:
    """Ten launches of a small task."""
    x, y = (qd.ndarray(qd.f32, 2048) for _ in range(2))

    def one_by_one() -> None:
        for _ in range(LAUNCHES):
            package_kernels.increment(x, 1.0)

    with qd.graph.capture() as captured:
        one_by_one()
    with qd.graph.capture() as changing:
        one_by_one()
    arrays = [x, y]

    def change() -> None:
        arrays.reverse()
        changing(a=arrays[0])

    first = time.perf_counter()
    captured.launch()
    qd.sync()
    first = time.perf_counter() - first
    calls = {"one by one": one_by_one, "captured": captured.launch, "captured, other array each time": change}
    for name, (host, whole) in times(calls, 200, rounds).items():
        print(f"{LAUNCHES} launches, {name:34s} {host * 1e6:8.2f} us of the host {whole * 1e6:8.2f} us")
    print(f"the captured graph's first launch {first * 1e6:24.2f} us")


def mpm88(rounds: int) -> None:
    """A step of MPM88 in a graph of 100."""
    step, positions = package_kernels.prepare_mpm88(measuring.inputs("mpm88"))
    with qd.graph.capture() as graph:
        for _ in range(SUBSTEPS):
            step()

    def one_by_one() -> None:
        for _ in range(SUBSTEPS):
            step()

    for name, (_, whole) in times({"one by one": one_by_one, "captured": graph.launch}, 5, rounds).items():
        print(f"MPM88, {name:20s} {SUBSTEPS / whole:12,.0f} steps/s")
    assert np.isfinite(positions()).all()


def main() -> None:
    """Prints all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cpu", choices=("cpu", "cuda"), help="(default: cpu)")
    parser.add_argument("--rounds", type=int, default=9, help="bursts of each call (default: 9)")
    given = parser.parse_args()
    qd.init(arch=getattr(qd, given.arch))
    launches(given.rounds)
    mpm88(given.rounds)


if __name__ == "__main__":
    main()
