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

__all__ = ["ConcurrencyReport", "ConcurrentLaunch", "FusedLaunches", "concurrency_report", "concurrent"]


@contextmanager
def concurrent(fuse: bool = False) -> Iterator[None]:
    """In the `with` block, launches of this thread on the default stream are ordered by their data dependences only.

    Two launches keep their order if one writes an element that the other accesses; others may run concurrently. Results
    do not change. The host waits for what it reads, as usual. Work on the default stream after the block runs after all
    launches in it. `qd.init(concurrency="auto")` enables this for a whole program; `@qd.kernel(concurrent=False)` keeps
    the launches of one kernel in order.

    With `fuse`, or `qd.init(concurrency="auto+fuse")`, launches of a repeated sequence whose loops have the same
    iterations and depend on each other only element by element become one loop. `concurrency_report()` says which, and
    why others do not. Kernels that were compiled before `fuse` was first used are not fused.

    These launches stay on the default stream, after all launches before them: launches that return a value, print,
    assert, take host arrays, or use memory shared by another library. On a device without streams the block has no
    effect.

    Raises `OctantsRuntimeError` before `qd.init`.
    """
    fused = _octants.request_fusion(True) if fuse else None
    before = _octants.request_concurrency(True)
    try:
        yield
    finally:
        _octants.request_concurrency(before)
        if fused is not None:
            _octants.request_fusion(fused)


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
    replay: int | None = None
    """For a launch of a repeated sequence that was launched as one graph for the first time, the number of the graph
    among all that the program has launched. Such launches run after all before them."""


@dataclass(frozen=True)
class FusedLaunches:
    """Launches of a repeated sequence that were fused into one, or not."""

    kernels: tuple[str, ...]
    """The names of the kernels, in order."""
    removed: tuple[str, ...]
    """The names of temporary arrays that are no longer stored."""
    refusal: str
    """The reason why the last kernel was not fused with those before it. Empty if it was."""


@dataclass(frozen=True)
class ConcurrencyReport:
    """The result of `concurrency_report()`. Printed, it is a table with a line for each launch."""

    launches: tuple[ConcurrentLaunch, ...]
    """The latest 4,096 launches, in the order of the calls. Of repeated sequences that are launched as one graph, only
    the first such launch is listed."""
    replays: int
    """Rounds of launches that the program has launched as one graph since `qd.init`, because they came again and
    again."""
    fusions: tuple[FusedLaunches, ...] = ()
    """Launches that were fused, and why others were not."""

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
        for segment in self._segments():
            for launch in segment:
                waits = (depths.get(number, 0) for number, _ in launch.depends_on)
                depths[launch.number] = 1 + max(floor, *waits, 0)
            floor = max(depths.values())
        return floor

    def _segments(self) -> list[list[ConcurrentLaunch]]:
        """The launches, divided where order is that of the default stream: its own launches, and each graph, run after
        all before them and before all after them."""
        segments: list[list[ConcurrentLaunch]] = []
        for launch in self.launches:
            last = segments[-1][-1] if segments else None
            joined = last is not None and last.lane is not None and launch.lane is not None
            if joined and last is not None and last.replay == launch.replay:
                segments[-1].append(launch)
            else:
                segments.append([launch])
        return segments

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
        before: list[int] = []
        for segment in self._segments():
            begin = len(steps)
            for launch in segment:
                texts = launch.reasons or ("",) * len(launch.depends_on)
                after = dict.fromkeys(before, "order of the default stream")
                for (number, _), text in zip(launch.depends_on, texts, strict=True):
                    if number in places:
                        after[places[number]] = text
                reasons |= {(earlier, len(steps)): text for earlier, text in after.items()}
                steps.append((launch.kernel, -1 if launch.lane is None else launch.lane, sorted(after)))
            before = list(range(begin, len(steps)))
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
            graph = "" if launch.replay is None else f" (graph {launch.replay})"
            lines.append(
                f"{launch.number:>8}  {lane:>7}  {launch.kernel}{graph}" + (f", after {waits}" if waits else "")
            )
            lines += [f"{'':>21}{reason}" for reason in launch.reasons if reason]
        for fused in self.fusions:
            names = ", ".join(fused.kernels)
            removed = f"; not stored: {', '.join(fused.removed)}" if fused.removed else ""
            lines.append(f"not fused: {names}: {fused.refusal}" if fused.refusal else f"fused: {names}{removed}")
        return "\n".join(lines)


def concurrency_report() -> ConcurrencyReport:
    """The concurrent launches since the last call: the lane of each, and which launches it waited for and why. Raises
    `OctantsRuntimeError` before `qd.init`.

        print(qd.concurrency_report())
    """
    decided, replays, fused = _octants.take_decisions()
    launches = tuple(
        ConcurrentLaunch(number, kernel, lane, tuple(depends_on), tuple(reasons), replay)
        for number, kernel, lane, depends_on, reasons, replay in decided
    )
    fusions = tuple(FusedLaunches(tuple(kernels), tuple(removed), refusal) for kernels, removed, refusal in fused)
    return ConcurrencyReport(launches, replays, fusions)
