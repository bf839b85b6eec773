"""Compile-time reports: by kernel, phase and step, as text and as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from octants import _octants

_WIDTH, _ROW = 1200, 22
_COLORS = {
    "parse": "#54a24b",
    "lower": "#4c78a8",
    "passes": "#b279a2",
    "codegen": "#e45756",
    "link": "#f58518",
    "load": "#79706e",
}
_MOST_STEPS = 12


@dataclass(frozen=True)
class CompileStep:
    """A step of a compilation. Times are in milliseconds."""

    phase: str
    """One of `CompileReport.phases`."""
    name: str
    """The name of the step; empty if the phase is a single step."""
    begin_ms: float
    """Since the start of the compilation."""
    ms: float


@dataclass(frozen=True)
class Compilation:
    """One kernel that was compiled for certain argument types, or loaded from the cache on disk."""

    kernel: str
    begin_ms: float
    """Since the start of the program."""
    kept: bool
    """Whether the code was loaded from the cache on disk."""
    steps: tuple[CompileStep, ...]

    @property
    def ms(self) -> float:
        """Total time of the steps."""
        return sum(step.ms for step in self.steps)

    def phase_ms(self, phase: str) -> float:
        """Total time of the steps of a phase."""
        return sum(step.ms for step in self.steps if step.phase == phase)


class CompileReport:
    """The compilations since the program began, with their times. Made by `octants.profiler.compile_report`.

    `print(report)` shows a line for each kernel; `save` writes a table or a drawing.
    """

    def __init__(self, compilations: Iterable[Compilation]) -> None:
        self.compilations: tuple[Compilation, ...] = tuple(compilations)
        """In order of completion."""
        self.phases: tuple[str, ...] = tuple(_octants.compile_phases())
        """`parse`: source text to syntax trees. `lower`: these to intermediate code, with all that is computed at
        compile time. `passes`: what is done to that code. `codegen`: from there to machine code. `link`: making it
        callable; on a GPU its driver's work. `load`: looking for the code on disk, and storing it there."""

    @property
    def kernels(self) -> dict[str, tuple[Compilation, ...]]:
        """The compilations of each kernel, slowest kernel first."""
        found: dict[str, list[Compilation]] = {}
        for one in self.compilations:
            found.setdefault(one.kernel, []).append(one)
        by_time = sorted(found.items(), key=lambda item: -sum(one.ms for one in item[1]))
        return {kernel: tuple(ones) for kernel, ones in by_time}

    @property
    def total_ms(self) -> float:
        """Total time of all compilations. Concurrent compilations count separately."""
        return sum(one.ms for one in self.compilations)

    def text(self) -> str:
        """A table of the kernels, and one of the slowest steps."""
        kept = sum(one.kept for one in self.compilations)
        counts = f"Compilations: {len(self.compilations)}, found on disk: {kept}"
        lines = [f"{counts}, in all {self.total_ms:.1f} ms; times in ms"]
        heads = (*self.phases, "total")
        lines.append("".join(f"{head:>11}" for head in heads) + f"{'count':>8}  kernel")

        def row(ones: Iterable[Compilation], name: str) -> str:
            ones = tuple(ones)
            times = [sum(one.phase_ms(phase) for one in ones) for phase in self.phases]
            return "".join(f"{ms:>11.2f}" for ms in (*times, sum(times))) + f"{len(ones):>8}  {name}"

        lines += [row(ones, kernel) for kernel, ones in self.kernels.items()]
        if len(self.kernels) > 1:
            lines.append(row(self.compilations, "(all)"))
        steps: dict[str, float] = {}
        for step in (step for one in self.compilations for step in one.steps):
            name = f"{step.phase}: {step.name}" if step.name else step.phase
            steps[name] = steps.get(name, 0.0) + step.ms
        lines.append(f"{'share':>8}{'ms':>11}  step")
        for name, ms in sorted(steps.items(), key=lambda item: -item[1])[:_MOST_STEPS]:
            lines.append(f"{100 * ms / (self.total_ms or 1.0):>7.1f}%{ms:>11.2f}  {name}")
        return "\n".join(lines)

    __str__ = text

    def save(self, path: str | Path) -> None:
        """Writes the report: the table to `.txt`, or a flame graph of kernels, phases and steps to `.svg`."""
        path = Path(path)
        writers = {".txt": self.text, ".svg": self._drawing}
        if path.suffix not in writers:
            raise ValueError(f"a report can only be saved as .svg (drawing) or .txt (table), not as {path.name!r}")
        text = writers[path.suffix]()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    def _blocks(self) -> Iterator[tuple[int, float, float, str, str]]:
        """Level, begin, duration, text and color of each block. Equal steps of a kernel's compilations are merged."""
        yield 0, 0.0, self.total_ms, "all kernels", "#333333"
        at = 0.0
        for kernel, ones in self.kernels.items():
            times = f"{len(ones)} times" if len(ones) > 1 else "once"
            yield 1, at, sum(one.ms for one in ones), f"{kernel} ({times})", "#555555"
            for phase in self.phases:
                steps: dict[str, float] = {}
                for step in (step for one in ones for step in one.steps if step.phase == phase):
                    steps[step.name] = steps.get(step.name, 0.0) + step.ms
                yield 2, at, sum(steps.values()), phase, _COLORS.get(phase, "#9d755d")
                for name, ms in steps.items():
                    if name:
                        yield 3, at, ms, name, _COLORS.get(phase, "#9d755d")
                    at += ms

    def _drawing(self) -> str:
        scale = (_WIDTH - 20) / (self.total_ms or 1.0)
        height = 4 * _ROW + 20
        size = f'width="{_WIDTH}" height="{height}"'
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
        for level, begin, ms, name, color in self._blocks():
            wide = ms * scale
            if wide < 0.1:
                continue
            x, y = 10 + begin * scale, height - 10 - (level + 1) * _ROW
            title = f"<title>{escape(name)}: {ms:.3f} ms, {100 * ms / (self.total_ms or 1.0):.1f}%</title>"
            place = f'x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_ROW - 2}"'
            parts.append(f'<rect {place} fill="{color}" stroke="white" stroke-width="0.3">{title}</rect>')
            if wide > 7 * len(name):
                parts.append(f'<text x="{x + 4:.2f}" y="{y + 14}" fill="white">{escape(name)}</text>')
        return "\n".join([*parts, "</svg>"])


def read() -> CompileReport:
    """The report of the current program."""
    return CompileReport(
        Compilation(
            kernel,
            1e3 * begin,
            kept,
            tuple(CompileStep(phase, name, 1e3 * at, 1e3 * took) for phase, name, at, took in steps),
        )
        for kernel, begin, kept, steps in _octants.compilations()
    )
