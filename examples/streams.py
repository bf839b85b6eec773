"""Streams: two long kernels side by side, a pipeline of a producer and a consumer, and four sections of one kernel.

Each kernel runs on one thread, so that one alone leaves processors idle. Events order what depends on one another, and
tell when each kernel ran: beside the picture a run writes the timeline as a Chrome trace (`timeline.json`, opens in
Perfetto) and as a drawing (`timeline.svg`), a lane per stream, with the events that one stream waits for on another.
"""

import json
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
def relaxed(y: qd.f32, towards: qd.f32) -> qd.f32:
    for _ in range(rounds):
        y += 0.01 * (towards - y * y)
    return y


@qd.kernel
def relax(x: Values, towards: qd.f32):
    qd.loop_config(serialize=True)
    for i in range(n):
        x[i] = relaxed(x[i], towards)


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


class Timeline:
    """When kernels ran, by events around each, and which waits led from one stream to another."""

    def __init__(self) -> None:
        self.origin = qd.create_event(timing=True)
        self.origin.record(lanes["first"])
        self.marks: list[tuple[str, str, Any, Any]] = []
        self.waits: list[tuple[Any, str, str]] = []

    def run(self, lane: str, name: str, kernel: Any, *args: Any) -> Any:
        """Launches on a lane and returns the event behind the launch."""
        before, after = qd.create_event(timing=True), qd.create_event(timing=True)
        before.record(lanes[lane])
        kernel(*args, qd_stream=lanes[lane])
        after.record(lanes[lane])
        self.marks.append((lane, name, before, after))
        return after

    def wait(self, lane: str, event: Any, other: str) -> None:
        """Makes a lane wait for an event of another."""
        event.wait(lanes[lane])
        self.waits.append((event, other, lane))

    def spans(self) -> list[tuple[str, str, float, float]]:
        """Lane, kernel, begin and end in milliseconds."""
        at = self.origin.elapsed_ms
        return [(lane, name, at(before), at(after)) for lane, name, before, after in self.marks]

    def write(self, folder: Any) -> None:
        """Writes `timeline.json` and `timeline.svg`."""
        spans = self.spans()
        waits = [(self.origin.elapsed_ms(event), source, target) for event, source, target in self.waits]
        order = list(lanes)
        trace: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": k, "name": "thread_name", "args": {"name": f"stream {lane}"}}
            for k, lane in enumerate(order)
        ]
        for lane, name, begin, end in spans:
            trace.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": order.index(lane),
                    "name": name,
                    "ts": begin * 1e3,
                    "dur": (end - begin) * 1e3,
                }
            )
        for k, (at, source, target) in enumerate(waits):
            edge = {"pid": 1, "name": "event", "cat": "event", "id": k, "ts": at * 1e3}
            trace.append(edge | {"ph": "s", "tid": order.index(source)})
            trace.append(edge | {"ph": "f", "bp": "e", "tid": order.index(target)})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "timeline.json").write_text(json.dumps({"traceEvents": trace}))
        (folder / "timeline.svg").write_text(drawing(spans, waits, order))


def drawing(spans: list[Any], waits: list[Any], order: list[str]) -> str:
    """The timeline as an SVG."""
    width, high = 1000.0, 60
    scale = (width - 120) / max(end for *_, end in spans)
    colours = {"relax": "#4c78a8", "produce": "#f58518", "consume": "#54a24b", "four": "#b279a2"}
    size = f'width="{width:.0f}" height="{high * len(order) + 30}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
    for k, lane in enumerate(order):
        parts.append(f'<text x="4" y="{k * high + 38}">stream {lane}</text>')
    for lane, name, begin, end in spans:
        x, y = 110 + begin * scale, order.index(lane) * high + 15
        long = max(1.0, (end - begin) * scale)
        place = f'x="{x:.1f}" y="{y}" width="{long:.1f}" height="36"'
        title = f"<title>{name}: {begin:.2f} to {end:.2f} ms</title>"
        parts.append(f'<rect {place} fill="{colours[name]}" stroke="white">{title}</rect>')
        if long > 40:
            parts.append(f'<text x="{x + 4:.1f}" y="{y + 22}" fill="white">{name}</text>')
    for at, source, target in waits:
        x, y = 110 + at * scale, order.index(source) * high + 33
        to = order.index(target) * high + 33
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x + 6:.1f}" y2="{to}" stroke="black"/>')
    parts.append(f'<text x="110" y="{high * len(order) + 20}">0 to {max(end for *_, end in spans):.1f} ms</text></svg>')
    return "\n".join(parts)


def launch_all(timeline: Timeline) -> None:
    """Queues one frame. Nothing here waits."""
    timeline.run("first", "relax", relax, arrays["a"], 1.5)
    timeline.run("second", "relax", relax, arrays["b"], 2.5)
    for chunk in range(chunks):
        first = chunk * (n // chunks)
        made = timeline.run("first", "produce", produce, arrays["made"], first, 0.1 * chunk)
        timeline.wait("second", made, "first")
        timeline.run("second", "consume", consume, arrays["made"], arrays["used"], first)
    done = qd.create_event()
    done.record(lanes["second"])
    done.wait(lanes["first"])
    timeline.run("first", "four", four, *(arrays[name] for name in "abcd"))
    # The next frame writes what this one reads.
    lanes["second"].wait(lanes["first"])


latest: Timeline | None = None


def advance(_frame: int) -> None:
    """One frame."""
    global latest
    latest = Timeline()
    launch_all(latest)


def relaxed_numpy(y: np.ndarray, towards: float) -> np.ndarray:
    y = y.astype(np.float64)
    for _ in range(rounds):
        y = y + 0.01 * (towards - y * y)
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
    assert latest is not None
    spans = latest.spans()
    last = max(end for *_, end in spans)
    image = np.full((40 * len(lanes), 800, 3), 255, np.uint8)
    for lane, name, begin, end in spans:
        row = 40 * list(lanes).index(lane)
        colour = [sum(map(ord, name)) * factor % 200 for factor in (3, 5, 7)]
        image[row + 5 : row + 35, int(begin / last * 799) : int(end / last * 799) + 1] = colour
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
    assert latest is not None
    latest.write(example.args.out.parent)
    print(f"{'timeline:':<22}{example.args.out.parent / 'timeline.json'} and .svg")


example.run(
    advance=advance,
    picture=picture,
    state=lambda: {name: arrays[name].to_numpy() for name in names},
    reference=reference,
    tolerance=dict.fromkeys(names, Tolerance(atol=1e-3)),
    work=(2 * n * rounds + 2 * n * rounds + 4 * n * rounds, "steps"),
    report=report,
)
