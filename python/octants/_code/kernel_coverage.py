"""Kernel coverage: the executed lines of kernels, as coverage.py data.

With `QD_KERNEL_COVERAGE=1` (or `OCTANTS_KERNEL_COVERAGE=1`), the compiler precedes each statement of a kernel by a
store that marks its line in a field. The marks are read when the program ends. When the process ends, they are written
to `_qd_kcov.<pid>` in the folder where the first program began.

The module is imported only if the variable is set. It needs the package `coverage`.
"""

from __future__ import annotations

import ast
import atexit
import os
import warnings
from typing import Any

from coverage import CoverageData
from coverage.exceptions import CoverageException
from coverage.parser import PythonParser

from octants import _octants
from octants._fields.make_field import field
from octants.types.primitive import i32

__all__ = ["begin", "end_program"]

DEFAULT_MOST_PROBES = 100_000

Line = tuple[str, int]


class _Coverage:
    """The covered lines of this process, over all its programs."""

    def __init__(self) -> None:
        self.folder = os.getcwd()
        self.most = int(
            os.environ.get("OCTANTS_COVERAGE_MAX_PROBES", os.environ.get("QD_COVERAGE_MAX_PROBES", DEFAULT_MOST_PROBES))
        )
        self.numbers: dict[tuple[str, int, bool], int] = {}
        self.marks: Any = None
        self.reached: set[Line] = set()
        self.skipped: set[Line] = set()

    def probe(self, path: str, line: int, is_skipped: bool) -> tuple[Any, int] | None:
        """The field and the index of the element that a line sets when it runs; None once the capacity is exhausted."""
        if self.marks is None or not os.path.exists(path):
            return None
        number = self.numbers.setdefault((os.path.abspath(path), line, is_skipped), len(self.numbers))
        if number < self.most:
            return self.marks, number
        if number == self.most:
            warnings.warn(
                f"Kernel coverage probe capacity ({self.most}) exceeded: further lines of kernels are not tracked. Set "
                "QD_COVERAGE_MAX_PROBES to a higher value.",
                stacklevel=2,
            )
        return None

    def harvest(self) -> None:
        """Reads the marks of a program that is about to end."""
        marks, self.marks = self.marks, None
        if marks is None:
            return
        values = marks.to_numpy()
        for (path, line, is_skipped), number in self.numbers.items():
            if number < self.most and values[number]:
                (self.skipped if is_skipped else self.reached).add((path, line))

    def write(self) -> None:
        """Writes the coverage data, if any line ran."""
        self.harvest()
        if not self.reached:
            return
        lines: dict[str, set[int]] = {}
        for path, line in self.reached:
            lines.setdefault(path, set()).add(line)
        data = CoverageData(basename=os.path.join(self.folder, f"_qd_kcov.{os.getpid()}"))
        if self._counts_branches():
            skipped = {path: {line for where, line in self.skipped if where == path} for path in lines}
            data.add_arcs({path: _arcs(path, reached, skipped[path]) for path, reached in lines.items()})
        else:
            data.add_lines(lines)
        data.write()

    def _counts_branches(self) -> bool:
        """Whether to write arcs. Coverage.py cannot combine data with branches and data without."""
        asked = os.environ.get("_QD_KCOV_ARC")
        if asked is not None:
            return asked == "1"
        path = os.path.join(self.folder, ".coverage")
        if not os.path.exists(path):
            return False
        data = CoverageData(basename=path)
        data.read()
        return bool(data.has_arcs())


_coverage: _Coverage | None = None


def begin() -> None:
    """Must be called after a program has begun."""
    global _coverage
    if _coverage is None:
        _coverage = _Coverage()
        # Registered after the handler that ends the program, so this runs first.
        atexit.register(_coverage.write)
        _octants.probe_lines(_coverage.probe)
    _coverage.marks = field(i32, shape=_coverage.most)


def end_program() -> None:
    """Must be called before a program ends."""
    if _coverage is not None:
        _coverage.harvest()


def _branches(tree: ast.AST) -> dict[int, ast.If | ast.For | ast.While]:
    """The branch statements by line."""
    return {node.lineno: node for node in ast.walk(tree) if isinstance(node, (ast.If, ast.For, ast.While))}


def _arcs(path: str, reached: set[int], skipped: set[int]) -> list[tuple[int, int]]:
    """The arcs of a file, as coverage.py defines them: an entry and an exit for each line that ran, and for each branch
    the ways that were taken.

    `skipped` holds the lines of `if` statements without `else` whose condition was false. A loop whose line ran has
    ended.
    """
    arcs = [arc for line in reached for arc in ((-1, line), (line, -1))]
    try:
        parser = PythonParser(filename=path)
        parser.parse_source()
        branches = _branches(ast.parse(parser.text))
    except (CoverageException, SyntaxError):
        return arcs
    for line, target in parser.arcs():
        node = branches.get(line)
        if node is None or line not in reached:
            continue
        is_taken = target in reached
        if target != node.body[0].lineno:
            is_taken = line in skipped if isinstance(node, ast.If) and not node.orelse else target in reached
            is_taken = is_taken or not isinstance(node, ast.If)
        if is_taken:
            arcs.append((line, target))
    return arcs
