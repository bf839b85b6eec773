"""Timing and inputs of all benchmarks: medians of bursts, the same inputs for every system."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import repeat

import numpy as np

# Elements of the arrays, side lengths, bodies, (particles, cells, time step).
SIZES: dict[str, int] = {
    "triad": 1 << 24,
    "stencil": 4096,
    "map": 1 << 22,
    "sum": 1 << 24,
    "histogram": 1 << 23,
    "mandelbrot": 768,
    "nbody": 4096,
    "matmul": 512,
    "blur": 1024,
    "mpm88": 8192,
}
LEVELS = 256
RADIUS = 8
ITERATIONS = 256
CELLS = 128
TIME_STEP = 2e-4
THROUGHPUT = tuple(SIZES)


def work(name: str) -> tuple[float, str]:
    """How much work one call does, and its unit per second."""
    n = float(SIZES[name])
    return {
        "triad": (12 * n / 1e9, "GB/s"),
        "stencil": (8 * n * n / 1e9, "GB/s"),
        "map": (n / 1e9, "G elements/s"),
        "sum": (4 * n / 1e9, "GB/s"),
        "histogram": (n / 1e9, "G elements/s"),
        "mandelbrot": (n * n / 1e6, "M pixels/s"),
        "nbody": (20 * n * n / 1e9, "GFLOP/s"),
        "matmul": (2 * n**3 / 1e9, "GFLOP/s"),
        "blur": ((2 * RADIUS + 1) * 2 * n * n / 1e9, "GFLOP/s"),
        "mpm88": (1.0, "steps/s"),
    }[name]


def inputs(name: str) -> list[np.ndarray]:
    """The arrays that a benchmark starts from; outputs come as zeros."""
    random, n = np.random.default_rng(42), SIZES[name]
    if name == "triad":
        return [random.random(n, np.float32), random.random(n, np.float32), np.zeros(n, np.float32)]
    if name == "stencil":
        return [random.random((n, n), np.float32), np.zeros((n, n), np.float32)]
    if name == "map":
        return [random.random(n, np.float32), np.zeros(n, np.float32)]
    if name == "sum":
        return [random.random(n, np.float32), np.zeros(1, np.float32)]
    if name == "histogram":
        return [random.integers(0, LEVELS, n, np.int32), np.zeros(LEVELS, np.int32)]
    if name == "mandelbrot":
        return [np.zeros((n, n), np.int32)]
    if name == "nbody":
        return [random.random(n, np.float32) for _ in range(3)] + [np.zeros(n, np.float32) for _ in range(3)]
    if name == "matmul":
        return [*(random.random((n, n), np.float32) for _ in range(2)), np.zeros((n, n), np.float32)]
    if name == "blur":
        weights = np.exp(-(np.linspace(-2, 2, 2 * RADIUS + 1, dtype=np.float32) ** 2))
        return [random.random((n, n), np.float32), weights, np.zeros((n, n), np.float32)]
    places = random.random((n, 2), np.float32) * np.float32(0.4) + np.float32(0.2)
    falling = np.tile(np.array([0, -1], np.float32), (n, 1))
    grid = [np.zeros((CELLS, CELLS, 2), np.float32), np.zeros((CELLS, CELLS), np.float32)]
    return [places, falling, np.zeros((n, 2, 2), np.float32), np.ones(n, np.float32), *grid]


def seconds_per_call(call: Callable[[], object], wait: Callable[[], object], runs: int = 7) -> float:
    """Median over `runs` bursts of calls, each burst about 80 ms and waited for once."""
    call()
    wait()
    count = 1
    while True:
        spent = burst(call, wait, count)
        if spent > 0.03 or count > 50_000:
            break
        count *= 2
    count = max(1, int(count * 0.08 / max(spent, 1e-7)))
    return statistics.median(burst(call, wait, count) / count for _ in range(runs))


def fastest_seconds(call: Callable[[], object], wait: Callable[[], object], spend: float = 0.6) -> float:
    """Seconds of a call in the fastest of many short bursts, which are as many as fit into `spend` seconds, and ten at
    least.

    Of long bursts none is free of what other programs do on a busy machine.
    """
    call()
    wait()
    count = 1
    # A single call may mostly wait for a device, so the time of a call is derived from several calls.
    for _ in range(3):
        count = max(1, int(0.002 * count / max(burst(call, wait, count), 1e-7)))
    end = time.perf_counter() + spend
    times: list[float] = []
    while len(times) < 10 or time.perf_counter() < end:
        times.append(burst(call, wait, count) / count)
    return min(times)


def burst(call: Callable[[], object], wait: Callable[[], object], count: int) -> float:
    """Seconds for `count` calls and one wait."""
    started = time.perf_counter()
    for _ in repeat(None, count):
        call()
    wait()
    return time.perf_counter() - started


def host_microseconds(call: Callable[[], object], wait: Callable[[], object], count: int = 200) -> float:
    """Median host time of a launch, without waiting for it, in microseconds."""
    for _ in range(20):
        call()
    times = []
    for _ in range(15):
        wait()
        times.append(burst(call, lambda: None, count) / count)
    wait()
    return statistics.median(times) * 1e6
