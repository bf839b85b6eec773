"""Concurrent launches: inferred, by streams, as a graph, and sequential for comparison.

    python benches/concurrency.py                                   on the CPU, with streams
    python benches/concurrency.py --arch cuda --size 100000 --rounds 200

Six programs in the forms of GrCUDA's benchmark suite (Parravicini et al., "DAG-based scheduling with resource sharing
for multi-task applications in a polyglot GPU runtime", IPDPS 2021), written again as kernels: squares of vectors,
option prices, an image pipeline, an ensemble of two classifiers, hubs and authorities of a graph, and two branches of
a small network. Each is a list of launches. `serial` makes them on the default stream, `auto` does so under
`qd.concurrent()`, `fused` under `qd.concurrent(fuse=True)`, `streams` has each launch on a stream with events between
them as a careful programmer places them, `graph` captures that. A seventh program, a chain of element-wise launches,
shows fusion: its time is that of memory traffic if the arrays are large (`--size 4000000`). `--program` selects some
of them. Prints microseconds for a round, medians of `--repeats`, and the results' largest difference
from those of `serial`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import octants as qd

A = qd.types.ndarray(dtype=qd.f32, ndim=1)
M = qd.types.ndarray(dtype=qd.f32, ndim=2)
I = qd.types.ndarray(dtype=qd.i32, ndim=1)  # noqa: E741


@qd.kernel
def square(x: A, y: A):
    for i in x:
        y[i] = x[i] * x[i]


@qd.kernel
def difference(x: A, y: A, z: A):
    for i in x:
        z[i] = x[i] - y[i]


@qd.kernel
def affine(x: A, y: A, a: qd.f32, b: qd.f32):
    for i in x:
        y[i] = x[i] * a + b


@qd.func
def normal_cdf(x: qd.f32) -> qd.f32:
    t = 1.0 / (1.0 + 0.2316419 * abs(x))
    p = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = 0.39894228 * qd.exp(-0.5 * x * x) * p
    return 1.0 - tail if x > 0.0 else tail


@qd.kernel
def black_scholes(x: A, y: A, strike: qd.f32):
    for i in x:
        s = x[i] + 1.0
        d1 = (qd.log(s / strike) + 0.0218) / 0.3
        y[i] = s * normal_cdf(d1) - strike * 0.95 * normal_cdf(d1 - 0.3)


@qd.kernel
def blur(x: M, y: M, radius: qd.i32):
    for i, j in x:
        s = 0.0
        for a in range(-radius, radius + 1):
            for b in range(-radius, radius + 1):
                s += x[max(0, min(x.shape[0] - 1, i + a)), max(0, min(x.shape[1] - 1, j + b))]
        y[i, j] = s / ((2 * radius + 1) * (2 * radius + 1))


@qd.kernel
def edges(x: M, y: M):
    for i, j in x:
        a, b = max(i, 1), max(j, 1)
        dx, dy = x[i, j] - x[a - 1, j], x[i, j] - x[i, b - 1]
        y[i, j] = qd.sqrt(dx * dx + dy * dy)


@qd.kernel
def sharpen(x: M, y: M, z: M, amount: qd.f32):
    for i, j in x:
        z[i, j] = min(max(x[i, j] * (1.0 + amount) - y[i, j] * amount, 0.0), 1.0)


@qd.kernel
def blend(x: M, y: M, mask: M, z: M):
    for i, j in x:
        z[i, j] = x[i, j] * mask[i, j] + y[i, j] * (1.0 - mask[i, j])


@qd.kernel
def standardize(x: M, y: M):
    for j in range(x.shape[1]):
        s, s2 = 0.0, 0.0
        for i in range(x.shape[0]):
            s += x[i, j]
            s2 += x[i, j] * x[i, j]
        mean = s / x.shape[0]
        scale = qd.rsqrt(s2 / x.shape[0] - mean * mean + 1e-3)
        for i in range(x.shape[0]):
            y[i, j] = (x[i, j] - mean) * scale


@qd.kernel
def classify(x: M, w: M, y: M):
    for i, k in y:
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j] * w[j, k]
        y[i, k] = s


@qd.kernel
def softmax(x: M):
    for i in range(x.shape[0]):
        top, s = x[i, 0], 0.0
        for k in range(1, x.shape[1]):
            top = max(top, x[i, k])
        for k in range(x.shape[1]):
            x[i, k] = qd.exp(x[i, k] - top)
            s += x[i, k]
        for k in range(x.shape[1]):
            x[i, k] /= s


@qd.kernel
def mean_of(x: M, y: M, z: M):
    for i, k in x:
        z[i, k] = 0.5 * (x[i, k] + y[i, k])


@qd.kernel
def spread(starts: I, columns: I, x: A, y: A):
    for i in y:
        s = 0.0
        for e in range(starts[i], starts[i + 1]):
            s += x[columns[e]]
        y[i] = s


@qd.kernel
def normalize(x: A, y: A):
    for i in x:
        y[i] = x[i] / (1.0 + abs(x[i]))


@qd.kernel
def convolve(x: M, w: M, y: M):
    for i, j in y:
        s = 0.0
        for a in range(w.shape[0]):
            for b in range(w.shape[1]):
                s += x[min(i + a, x.shape[0] - 1), min(j + b, x.shape[1] - 1)] * w[a, b]
        y[i, j] = max(s, 0.0)


@qd.kernel
def pool(x: M, y: M):
    for i, j in y:
        y[i, j] = max(max(x[2 * i, 2 * j], x[2 * i + 1, 2 * j]), max(x[2 * i, 2 * j + 1], x[2 * i + 1, 2 * j + 1]))


@dataclass
class Step:
    """A launch, the stream that a programmer gives it, and the earlier launches on other streams that it waits for."""

    kernel: Any
    args: tuple[Any, ...]
    lane: int
    waits: tuple[int, ...] = ()


@dataclass
class Program:
    """Launches, and the arrays that are compared."""

    steps: list[Step] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def add(self, lane: int, kernel: Any, *args: Any, waits: tuple[int, ...] = ()) -> int:
        self.steps.append(Step(kernel, args, lane, waits))
        return len(self.steps) - 1


def vector(n: int, seed: int = 0) -> Any:
    made = qd.ndarray(qd.f32, shape=n)
    made.from_numpy(np.random.default_rng(seed).random(n, dtype=np.float32))
    return made


def matrix(n: int, m: int, seed: int = 0) -> Any:
    made = qd.ndarray(qd.f32, shape=(n, m))
    made.from_numpy(np.random.default_rng(seed).random((n, m), dtype=np.float32))
    return made


def vector_squares(n: int) -> Program:
    p = Program()
    x, y, a, b, z = (vector(n, k) for k in range(5))
    p.add(0, square, x, a)
    other = p.add(1, square, y, b)
    p.add(0, difference, a, b, z, waits=(other,))
    p.results = [z]
    return p


def option_prices(n: int) -> Program:
    p = Program()
    for k in range(10):
        x, y = vector(n, k), vector(n, 20 + k)
        p.add(k % 8, black_scholes, x, y, 0.9 + 0.02 * k)
        p.results.append(y)
    return p


def image_pipeline(n: int) -> Program:
    p = Program()
    side = max(16, math.isqrt(n))
    image, small, middle, large, fine, coarse, sharp, mixed, out = (matrix(side, side, k) for k in range(9))
    p.add(0, blur, image, small, 1)
    p.add(1, blur, image, middle, 3)
    b = p.add(2, blur, image, large, 2)
    p.add(0, edges, small, fine)
    p.add(1, edges, middle, coarse)
    b = p.add(2, sharpen, image, large, sharp, 0.5)
    c = p.add(1, blend, sharp, middle, coarse, mixed, waits=(b,))
    p.add(0, blend, mixed, small, fine, out, waits=(c,))
    p.results = [out]
    return p


def classifier_ensemble(n: int) -> Program:
    p = Program()
    rows, features, classes = max(32, n // 200), 200, 16
    x, z = matrix(rows, features, 0), matrix(rows, features, 1)
    w, v = matrix(features, classes, 2), matrix(features, classes, 3)
    ridge, bayes, out = (matrix(rows, classes, k) for k in (4, 5, 6))
    p.add(0, standardize, x, z)
    p.add(1, classify, x, v, bayes)
    p.add(0, classify, z, w, ridge)
    p.add(0, softmax, ridge)
    other = p.add(1, softmax, bayes)
    p.add(0, mean_of, ridge, bayes, out, waits=(other,))
    p.results = [out]
    return p


def hubs_and_authorities(n: int) -> Program:
    p = Program()
    rng = np.random.default_rng(0)
    graphs = []
    for _ in range(2):
        starts, columns = qd.ndarray(qd.i32, shape=n + 1), qd.ndarray(qd.i32, shape=3 * n)
        starts.from_numpy(np.arange(0, 3 * n + 1, 3, dtype=np.int32))
        columns.from_numpy(rng.integers(0, n, 3 * n).astype(np.int32))
        graphs.append((starts, columns))
    hubs, authorities, new_hubs, new_authorities = (vector(n, k) for k in range(4))
    last: dict[str, int] = {}
    for _ in range(5):
        seen = tuple(last.values())
        a = p.add(0, spread, *graphs[0], hubs, new_authorities, waits=seen)
        b = p.add(1, spread, *graphs[1], authorities, new_hubs, waits=seen)
        last = {
            "authorities": p.add(0, normalize, new_authorities, authorities, waits=(b,)),
            "hubs": p.add(1, normalize, new_hubs, hubs, waits=(a,)),
        }
    p.results = [hubs, authorities]
    return p


def two_branches(n: int) -> Program:
    p = Program()
    side = max(32, math.isqrt(n)) // 8 * 8
    ends = []
    for lane in range(2):
        x, w, v = matrix(side, side, lane), matrix(5, 5, 10 + lane), matrix(3, 3, 20 + lane)
        first, half = matrix(side, side, 30), matrix(side // 2, side // 2, 31)
        second, quarter = matrix(side // 2, side // 2, 32), matrix(side // 4, side // 4, 33)
        p.add(lane, convolve, x, w, first)
        p.add(lane, pool, first, half)
        p.add(lane, convolve, half, v, second)
        ends.append((p.add(lane, pool, second, quarter), quarter))
    out = matrix(side // 4, side // 4, 40)
    p.add(0, mean_of, ends[0][1], ends[1][1], out, waits=(ends[1][0],))
    p.results = [out]
    return p


def element_wise_chain(n: int) -> Program:
    p = Program()
    x, a, b, c, d, y = (vector(n, k) for k in range(6))
    p.add(0, affine, x, a, 0.5, 1.0)
    p.add(0, affine, a, b, 0.25, -1.0)
    p.add(0, difference, b, x, c)
    p.add(0, affine, c, d, 2.0, 0.5)
    p.add(0, difference, d, a, y)
    p.results = [y]
    return p


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "vector squares": vector_squares,
    "option prices": option_prices,
    "image pipeline": image_pipeline,
    "classifier ensemble": classifier_ensemble,
    "hubs and authorities": hubs_and_authorities,
    "two branches": two_branches,
    "element-wise chain": element_wise_chain,
}


def serial(p: Program) -> Callable[[], None]:
    def run() -> None:
        for step in p.steps:
            step.kernel(*step.args)

    return run


def auto(p: Program, fuse: bool = False) -> Callable[[], None]:
    def run() -> None:
        with qd.concurrent(fuse=fuse):
            for step in p.steps:
                step.kernel(*step.args)

    return run


def fused(p: Program) -> Callable[[], None]:
    return auto(p, fuse=True)


def streams(p: Program) -> Callable[[], None]:
    lanes = [qd.create_stream() for _ in range(1 + max(step.lane for step in p.steps))]
    marked = {wait for step in p.steps for wait in step.waits}
    events = {number: qd.create_event() for number in marked}
    start, ends = qd.create_event(), [qd.create_event() for _ in lanes]

    def run() -> None:
        home = qd.default_stream()
        start.record(home)
        for lane in lanes:
            start.wait(lane)
        for number, step in enumerate(p.steps):
            lane = lanes[step.lane]
            for wait in step.waits:
                events[wait].wait(lane)
            step.kernel(*step.args, qd_stream=lane)
            if number in marked:
                events[number].record(lane)
        for lane, end in zip(lanes, ends, strict=True):
            end.record(lane)
            end.wait(home)

    return run


def graph(p: Program) -> Callable[[], None]:
    run = streams(p)
    with qd.graph.capture() as captured:
        run()
    return captured.launch


FORMS = {"serial": serial, "auto": auto, "fused": fused, "streams": streams, "graph": graph}


def measure(run: Callable[[], None], rounds: int) -> float:
    """Microseconds for a round."""
    qd.sync()
    begin = time.perf_counter()
    for _ in range(rounds):
        run()
    qd.sync()
    return (time.perf_counter() - begin) / rounds * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="cpu", choices=["cpu", "cuda", "amdgpu", "vulkan"])
    parser.add_argument("--size", type=int, default=20_000, help="elements of the arrays, about")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--program", action="append", choices=[*PROGRAMS], help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each program")
    args = parser.parse_args()
    qd.init(arch=getattr(qd, args.arch), cpu_streams=args.arch == "cpu", log_level="error")
    # Kernels that are compiled from now on can be fused.
    with qd.concurrent(fuse=True):
        pass
    gains, best = [], []
    print(f"{'us for a round':<22}" + "".join(f"{form:>10}" for form in FORMS) + f"{'auto gains':>12}{'differs':>10}")
    for name, make in PROGRAMS.items():
        if args.program and name not in args.program:
            continue
        times: dict[str, float] = {}
        wanted: list[np.ndarray] = []
        differs = 0.0
        runs = {}
        for form, prepare in FORMS.items():
            p = make(args.size)
            runs[form] = prepare(p)
            runs[form]()
            results = [r.to_numpy() for r in p.results]
            wanted = wanted or results
            differs = max(differs, *(float(np.abs(a - b).max()) for a, b in zip(results, wanted, strict=True)))
            measure(runs[form], 12)
        taken: dict[str, list[float]] = {form: [] for form in FORMS}
        for _ in range(args.repeats):
            for form, run in runs.items():
                taken[form].append(measure(run, args.rounds))
        times = {form: statistics.median(t) for form, t in taken.items()}
        gains.append(times["serial"] / times["auto"])
        best.append(min(times["streams"], times["graph"]) / times["auto"])
        if args.json:
            print(json.dumps({"program": name, "size": args.size, **times, "differs": differs}))
        print(f"{name:<22}" + "".join(f"{t:>10.1f}" for t in times.values()) + f"{gains[-1]:>12.2f}{differs:>10.2g}")
    mean = math.exp(statistics.fmean(math.log(g) for g in gains))
    print(
        f"auto: {mean:.2f} times serial in the geometric mean; of the best hand-written form at least {min(best):.2f}"
    )


if __name__ == "__main__":
    main()
