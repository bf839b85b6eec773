"""Timelines: when each task ran, on which stream, and after which tasks, as a Chrome trace or as a drawing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octants import _octants
from octants._profiling.written_files import AnyPath, write_text
from octants.exceptions import OctantsRuntimeError

_MOST_NAMED = 8
"""Tasks that a tooltip names."""
_WIDTH, _MARGIN, _ROW = 1000, 130, 60
_COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#79706e")


@dataclass(frozen=True)
class Task:
    """One run of one task of a kernel. Times are device times, in milliseconds since the start of the first task in the
    timeline.
    """

    kernel: str
    """Name of the kernel."""
    task: str
    """Index of the task in its kernel, and its kind: `0_range`."""
    lane: str
    """Name of the stream it ran on."""
    begin_ms: float
    end_ms: float
    launch: int
    """Number of the launch in the program; the tasks of one launch share it."""
    depends_on: tuple[int, ...]
    """Tasks on other streams that it waited for (events, forks and joins), as indices of `Timeline.tasks`."""

    @property
    def name(self) -> str:
        """`kernel:task`."""
        return f"{self.kernel}:{self.task}"

    @property
    def ms(self) -> float:
        """The duration."""
        return self.end_ms - self.begin_ms


class Timeline:
    """Device tasks between two points of the program. Made by `octants.profiler.timeline`. Use it as a context manager,
    or call `start` and `stop`.

    `tasks`, `lanes` and `save` wait for all work on the device; nothing waits before.
    """

    def __init__(self, streams: Mapping[str, Any] | None = None) -> None:
        self._streams = dict(streams or {})
        self._named: dict[int, str] = {}
        self._first: int | None = None
        self._last: int | None = None
        self._program = -1
        self._serial = 0
        self._read: tuple[list[Task], list[str]] | None = None

    def start(self) -> None:
        """Starts recording the tasks launched from now on."""
        if self._first is not None:
            raise OctantsRuntimeError("a timeline can only be started once: create another with qd.profiler.timeline()")
        # Without real streams, each stream has the number of the default stream, which keeps its own name.
        default = _octants.default_stream()
        self._named = {s.number: name for name, s in self._streams.items() if s.number or s == default}
        self._program = _octants.generation()
        self._serial = _octants.program_serial()
        self._first = _octants.profiler_start()

    def stop(self) -> None:
        """Stops recording. May be called twice."""
        if self._first is None:
            raise OctantsRuntimeError("this timeline was not started: use it in a with statement, or call start()")
        if self._last is None and self._program == _octants.generation():
            with _octants.on_program(self._serial):
                self._last = _octants.profiler_stop()

    def __enter__(self) -> Timeline:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def tasks(self) -> list[Task]:
        """The tasks, ordered by start."""
        return self._content()[0]

    @property
    def lanes(self) -> list[str]:
        """The streams with tasks: those of the program by number, then the worker streams of `stream_parallel`."""
        return self._content()[1]

    def _content(self) -> tuple[list[Task], list[str]]:
        if self._read is not None:
            return self._read
        if self._first is None or (self._last is None and self._program == _octants.generation()):
            raise OctantsRuntimeError(
                "a timeline can only be read after it has stopped: leave the with block, or call stop()"
            )
        if self._program != _octants.generation():
            raise OctantsRuntimeError(
                "the program of this timeline has ended: read or save timelines before qd.reset()"
            )
        assert self._last is not None
        with _octants.on_program(self._serial):
            rows, numbers, _ = _octants.profiler_spans(self._first, self._last)
        # Streams by number, workers (negative) after them.
        used = sorted({numbers[row[4]] for row in rows}, key=lambda n: (n < 0, abs(n)))
        names = {number: self._lane_name(number) for number in used}
        zero = min((row[5] for row in rows), default=0.0)
        places = {row[0]: i for i, row in enumerate(rows)}
        tasks = [
            Task(
                kernel=kernel,
                task=task,
                lane=names[numbers[lane]],
                begin_ms=begin - zero,
                end_ms=end - zero,
                launch=launch,
                depends_on=tuple(places[other] for other in depends_on if other in places),
            )
            for _, launch, kernel, task, lane, begin, end, depends_on in rows
        ]
        self._read = tasks, [names[number] for number in used]
        return self._read

    def _lane_name(self, number: int) -> str:
        if number < 0:
            return f"worker {-number}"
        return self._named.get(number, f"stream {number}" if number else "default stream")

    def save(self, path: AnyPath) -> None:
        """Writes the timeline: a Chrome trace to `.json`, for Perfetto or chrome://tracing, or a drawing to `.svg`."""
        writers = {".json": self._trace, ".svg": self._drawing}
        name = os.path.basename(os.fspath(path))
        suffix = os.path.splitext(name)[1]
        if suffix not in writers:
            raise ValueError(f"a timeline can only be saved as .json (Chrome trace) or .svg, not as {name!r}")
        write_text(path, writers[suffix]())

    def beside(self, task: Task) -> list[Task]:
        """The tasks on other streams that ran at the same time, for a part of it, ordered by start."""
        during = (other for other in self.tasks if other.lane != task.lane)
        return [other for other in during if other.begin_ms < task.end_ms and task.begin_ms < other.end_ms]

    def _company(self) -> list[str]:
        """For each task a text: what it waited for on other streams, and what ran beside it."""
        tasks, texts = self.tasks, []
        running: list[Task] = []
        beside: dict[int, list[str]] = {id(task): [] for task in tasks}
        for task in tasks:
            running = [other for other in running if other.end_ms > task.begin_ms]
            for other in running:
                if other.lane != task.lane:
                    beside[id(task)].append(other.name)
                    beside[id(other)].append(task.name)
            running.append(task)
        for task in tasks:
            found = ""
            for what, names in (
                ("waited for", [tasks[n].name for n in task.depends_on]),
                ("beside", beside[id(task)]),
            ):
                if names:
                    more = ", ..." if len(names) > _MOST_NAMED else ""
                    found += f"; {what} {', '.join(names[:_MOST_NAMED])}{more}"
            texts.append(found)
        return texts

    def _edges(self) -> list[tuple[Task, Task]]:
        tasks = self.tasks
        return [(tasks[earlier], later) for later in tasks for earlier in later.depends_on]

    def _trace(self) -> str:
        import json  # imported here and below to keep `import octants` fast

        lane_of = {lane: i for i, lane in enumerate(self.lanes)}
        events: list[dict[str, Any]] = []
        for lane, i in lane_of.items():
            events.append({"ph": "M", "pid": 1, "tid": i, "name": "thread_name", "args": {"name": lane}})
            events.append({"ph": "M", "pid": 1, "tid": i, "name": "thread_sort_index", "args": {"sort_index": i}})
        for task, company in zip(self.tasks, self._company(), strict=True):
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": lane_of[task.lane],
                    "name": task.name,
                    "cat": "task",
                    "ts": task.begin_ms * 1e3,
                    "dur": task.ms * 1e3,
                    "args": {"launch": task.launch} | ({"order": company.removeprefix("; ")} if company else {}),
                }
            )
        for i, (earlier, later) in enumerate(self._edges()):
            edge = {"pid": 1, "name": "waits for", "cat": "order", "id": i}
            # An arrow begins at the task that encloses its time, so that the very end would be outside.
            left = (earlier.end_ms - earlier.ms * 0.01) * 1e3
            events.append(edge | {"ph": "s", "tid": lane_of[earlier.lane], "ts": left})
            events.append(edge | {"ph": "f", "bp": "e", "tid": lane_of[later.lane], "ts": later.begin_ms * 1e3})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})

    def _drawing(self) -> str:
        from html import escape

        tasks, lanes = self._content()
        end = max((task.end_ms for task in tasks), default=0.0)
        scale = (_WIDTH - _MARGIN - 10) / (end or 1.0)
        row = {lane: i * _ROW for i, lane in enumerate(lanes)}
        kernels = list(dict.fromkeys(task.kernel for task in tasks))
        color = {kernel: _COLORS[i % len(_COLORS)] for i, kernel in enumerate(kernels)}
        size = f'width="{_WIDTH}" height="{_ROW * len(lanes) + 30}"'
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
        for lane in lanes:
            parts.append(f'<text x="4" y="{row[lane] + 38}">{escape(lane)}</text>')
        parts.append(
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        )
        for task, company in zip(tasks, self._company(), strict=True):
            x, y, wide = _MARGIN + task.begin_ms * scale, row[task.lane] + 15, max(1.0, task.ms * scale)
            title = f"<title>{escape(task.name)}: {task.begin_ms:.3f} to {task.end_ms:.3f} ms{escape(company)}</title>"
            place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="36"'
            parts.append(f'<rect {place} fill="{color[task.kernel]}" stroke="white">{title}</rect>')
            if wide > 7 * len(task.kernel):
                parts.append(f'<text x="{x + 4:.1f}" y="{y + 22}" fill="white">{escape(task.kernel)}</text>')
        for earlier, later in self._edges():
            x1, y1 = _MARGIN + earlier.end_ms * scale, row[earlier.lane] + 33
            x2, y2 = _MARGIN + later.begin_ms * scale, row[later.lane] + 33
            title = f"<title>{escape(later.name)} waited for {escape(earlier.name)}</title>"
            ends = f'x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}"'
            parts.append(f'<line {ends} stroke="black" marker-end="url(#end)">{title}</line>')
        parts.append(f'<text x="{_MARGIN}" y="{_ROW * len(lanes) + 20}">0 to {end:.3f} ms</text></svg>')
        return "\n".join(parts)
