"""Streams: two long concurrent kernels, a pipeline of a producer and a consumer, and four sections of one kernel.

Each kernel runs on one thread, so a single kernel leaves processors idle. Events order dependent work. The profiler
measures when each task ran: in addition to the picture, a run writes the timeline as a Chrome trace (`timeline.json`,
opens in Perfetto) and as a drawing (`timeline.svg`), with a lane per stream and the dependences between streams.
"""

import os
import time
from typing import Any

import numpy as np
from example_support import Arrays, Example, Timing, Tolerance

# Without this the CPU runs all work in order; the results are the same.
os.environ.setdefault("OCTANTS_CPU_STREAMS", "1")
example = Example(__doc__, frames=4, size=2000, out="out/streams.png", check_frames=2, check_size=50)
qd = example.qd

n = example.size
chunks = 8
rounds = 1000

Values = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.func
def relaxed(y: qd.f32, toward: qd.f32) -> qd.f32:
    for _ in range(rounds):
        y += 0.01 * (toward - y * y)
    return y


@qd.kernel
def relax(x: Values, toward: qd.f32):
    qd.loop_config(serialize=True)
    for i in range(n):
        x[i] = relaxed(x[i], toward)


@qd.kernel
def produce(x: Values, first: qd.i32, value: qd.f32):
    qd.loop_config(serialize=True)
    for i in range(first, first + n // chunks):
        x[i] = relaxed(value, 2.0)


@qd.kernel
def consume(x: Values, y: Values, first: qd.i32):
    qd.loop_config(serialize=True)
    for i in range(first, first + n // chunks):
        y[i] = relaxed(x[i], 3.0)


@qd.kernel
def four(a: Values, b: Values, c: Values, d: Values):
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(n):
            a[i] = relaxed(a[i], 1.0)
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(n):
            b[i] = relaxed(b[i], 2.0)
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(n):
            c[i] = relaxed(c[i], 3.0)
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(n):
            d[i] = relaxed(d[i], 4.0)


names = ("a", "b", "c", "d", "made", "used")
arrays = {name: qd.ndarray(qd.f32, shape=n) for name in names}
start = {name: np.linspace(0.5, 1.5, n, dtype=np.float32) * (k + 1) / 6 for k, name in enumerate(names)}
for name in names:
    arrays[name].from_numpy(start[name])
lanes = {"first": qd.create_stream(), "second": qd.create_stream()}


def launch_all() -> None:
    """Queues one frame. Nothing here waits."""
    first, second = lanes["first"], lanes["second"]
    relax(arrays["a"], 1.5, qd_stream=first)
    relax(arrays["b"], 2.5, qd_stream=second)
    for chunk in range(chunks):
        begin = chunk * (n // chunks)
        produce(arrays["made"], begin, 0.1 * chunk, qd_stream=first)
        with qd.create_event() as made:
            made.record(first)
            made.wait(second)
        consume(arrays["made"], arrays["used"], begin, qd_stream=second)
    first.wait(second)
    four(*(arrays[name] for name in "abcd"), qd_stream=first)
    # The next frame writes data that this one reads.
    second.wait(first)


latest: Any = None


def advance(_frame: int) -> None:
    """One frame."""
    global latest
    with qd.profiler.timeline(lanes) as latest:
        launch_all()


def relaxed_numpy(y: np.ndarray, toward: float) -> np.ndarray:
    y = y.astype(np.float64)
    for _ in range(rounds):
        y = y + 0.01 * (toward - y * y)
    return y


def reference(frames: int) -> Arrays:
    """The same with numpy."""
    want = {name: start[name].astype(np.float64) for name in names}
    part = n // chunks
    for _ in range(frames):
        want["a"], want["b"] = relaxed_numpy(want["a"], 1.5), relaxed_numpy(want["b"], 2.5)
        for chunk in range(chunks):
            here = slice(chunk * part, (chunk + 1) * part)
            want["made"][here] = relaxed_numpy(np.full(part, 0.1 * chunk), 2.0)
            want["used"][here] = relaxed_numpy(want["made"][here], 3.0)
        for k, name in enumerate("abcd"):
            want[name] = relaxed_numpy(want[name], k + 1.0)
    return want


def picture() -> np.ndarray:
    """The lanes of the frame, one row of blocks each."""
    tasks, rows = latest.tasks, latest.lanes
    last = max(task.end_ms for task in tasks)
    image = np.full((40 * len(rows), 800, 3), 255, np.uint8)
    for task in tasks:
        row = 40 * rows.index(task.lane)
        color = [sum(map(ord, task.kernel)) * factor % 200 for factor in (3, 5, 7)]
        columns = slice(int(task.begin_ms / last * 799), int(task.end_ms / last * 799) + 1)
        image[row + 5 : row + 35, columns] = color
    return image


def report(_timing: Timing) -> None:
    """The gain of two streams over one, and the timeline."""

    def seconds(streams: tuple[str, str]) -> float:
        best = float("inf")
        for _ in range(5):
            qd.sync()
            began = time.perf_counter()
            for name, lane in zip("ab", streams, strict=True):
                relax(arrays[name], 1.0, qd_stream=lanes[lane])
            qd.sync()
            best = min(best, time.perf_counter() - began)
        return best

    one, two = seconds(("first", "first")), seconds(("first", "second"))
    print(f"{'two streams:':<22}{one / two:.2f} times as fast as one ({one * 1e3:.1f} and {two * 1e3:.1f} ms)")
    folder = example.args.out.parent
    latest.save(folder / "timeline.json")
    latest.save(folder / "timeline.svg")
    print(f"{'timeline:':<22}{folder / 'timeline.json'} and .svg")


example.run(
    advance=advance,
    picture=picture,
    state=lambda: {name: arrays[name].to_numpy() for name in names},
    reference=reference,
    tolerance=dict.fromkeys(names, Tolerance(atol=1e-3)),
    work=(2 * n * rounds + 2 * n * rounds + 4 * n * rounds, "steps"),
    report=report,
)
