"""Launches on the default stream that run concurrently because their accesses do not conflict.

    with qd.concurrent():
        advance(a)          # these two run concurrently if the device can:
        advance(b)          # neither writes what the other accesses
        combine(a, b, c)    # runs after both

Needs a device with real streams: a GPU, or the CPU with `cpu_streams=True`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from octants import _octants
from octants._profiling.written_files import AnyPath, write_text
from octants._streams.graph_drawings import drawing

__all__ = ["ConcurrencyReport", "ConcurrentLaunch", "concurrency_report", "concurrent"]


@contextmanager
def concurrent() -> Iterator[None]:
    """In the `with` block, launches of this thread on the default stream are ordered by their data dependences only.

    Two launches keep their order if one writes an element that the other accesses; others may run concurrently. Results
    do not change. The host waits for what it reads, as usual. Work on the default stream after the block runs after all
    launches in it. `qd.init(concurrency="auto")` enables this for a whole program; `@qd.kernel(concurrent=False)` keeps
    the launches of one kernel in order.

    These launches stay on the default stream, after all launches before them: launches that return a value, print,
    assert, take host arrays, or use memory shared by another library. On a device without streams the block has no
    effect.

    Raises `OctantsRuntimeError` before `qd.init`.
    """
    before = _octants.request_concurrency(True)
    try:
        yield
    finally:
        _octants.request_concurrency(before)


@dataclass(frozen=True)
class ConcurrentLaunch:
    """A launch: its lane, and the launches it waited for."""

    number: int
    """Index among the launches made under `qd.concurrent()`."""
    kernel: str
    """The kernel's name."""
    lane: int | None
    """The lane, a stream of the pool, counted from 0; `None` for the default stream."""
    depends_on: tuple[tuple[int, str], ...]
    """The launches that it conflicts with, latest first, each with its own name of the array or field in which they
    meet. Launches that one of these waited for are mostly left out."""
    reasons: tuple[str, ...] = ()
    """For each of them the elements in which they meet, with the kernel's and the other kernel's access. Empty if
    unknown."""


@dataclass(frozen=True)
class ConcurrencyReport:
    """The result of `concurrency_report()`. Printed, it is a table with a line for each launch."""

    launches: tuple[ConcurrentLaunch, ...]
    """The latest 4,096 launches that did not run as part of a graph, in the order of the calls."""
    replays: int
    """Rounds of launches that the program has launched as one graph since `qd.init`, because they came again and
    again."""

    @property
    def lanes(self) -> int:
        """Number of lanes in use."""
        return len({launch.lane for launch in self.launches if launch.lane is not None})

    @property
    def depth(self) -> int:
        """The length of the longest chain of dependent launches: the critical path. `len(launches) / depth` is an upper
        bound of the speedup if all launches take equally long.
        """
        depths: dict[int, int] = {}
        floor = 0
        for launch in self.launches:
            waits = (depths.get(number, 0) for number, _ in launch.depends_on)
            depth = 1 + max(floor, *waits, 0)
            depths[launch.number] = depth
            if launch.lane is None:
                # The default stream is after all before it, and all later ones after it.
                floor = max([depth, *depths.values()])
        return max([floor, *depths.values()], default=0)

    def plot(self, path: AnyPath | None = None) -> str:
        """Draws the launches as SVG, and returns the text. Columns are lanes. A launch is below all launches that it
        waited for, so launches beside each other may have run concurrently. Edges have their reasons as tooltips. The
        critical path is red.
        """
        if path is not None and os.path.splitext(os.fspath(path))[1] != ".svg":
            name = os.path.basename(os.fspath(path))
            raise ValueError(f"a report can only be drawn as .svg, not as {name!r}")
        places = {launch.number: i for i, launch in enumerate(self.launches)}
        steps: list[tuple[str, int, list[int]]] = []
        reasons: dict[tuple[int, int], str] = {}
        # The default stream is after all before it, and all later ones after it.
        barrier: int | None = None
        for i, launch in enumerate(self.launches):
            texts = launch.reasons or ("",) * len(launch.depends_on)
            after = {} if barrier is None else {barrier: "order of the default stream"}
            for (number, _), text in zip(launch.depends_on, texts, strict=True):
                if number in places:
                    after[places[number]] = text
            if launch.lane is None:
                after = dict.fromkeys(range(barrier or 0, i), "order of the default stream")
                barrier = i
            reasons |= {(earlier, i): text for earlier, text in after.items()}
            steps.append((launch.kernel, -1 if launch.lane is None else launch.lane, sorted(after)))
        lanes = {launch.lane for launch in self.launches if launch.lane is not None}
        text = drawing(steps, None, reasons, {-1: "default stream"} | {lane: f"lane {lane}" for lane in lanes})
        if path is not None:
            write_text(path, text)
        return text

    def __str__(self) -> str:
        lines = [
            f"Concurrent launches: {len(self.launches)} on {self.lanes} lanes, critical path {self.depth}; "
            f"{self.replays} rounds as graphs",
            f"{'launch':>8}  {'lane':>7}  kernel",
        ]
        for launch in self.launches:
            lane = "default" if launch.lane is None else str(launch.lane)
            waits = ", ".join(f"{number} ({name})" if name else str(number) for number, name in launch.depends_on)
            lines.append(f"{launch.number:>8}  {lane:>7}  {launch.kernel}" + (f", after {waits}" if waits else ""))
            lines += [f"{'':>21}{reason}" for reason in launch.reasons if reason]
        return "\n".join(lines)


def concurrency_report() -> ConcurrencyReport:
    """The concurrent launches since the last call: the lane of each, and which launches it waited for and why. Raises
    `OctantsRuntimeError` before `qd.init`.

        print(qd.concurrency_report())
    """
    decided, replays = _octants.take_decisions()
    launches = tuple(
        ConcurrentLaunch(number, kernel, lane, tuple(depends_on), tuple(reasons))
        for number, kernel, lane, depends_on, reasons in decided
    )
    return ConcurrencyReport(launches, replays)
