"""Programs with a planted race, and their race-free twins: their annotations, and how to run them.

A program is one text. Marks at the ends of its lines state the version that a line belongs to and its role in the race:

    # racy        only in the version with the race
    # safe        only in the twin
    # here        one of the two accesses of the race
    # launch      one of the two launches of the race

A line may have several marks, such as `# racy here`. A program whose race has both accesses on one line has one `here`.
"""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import octants as qd

MARKS = {"racy", "safe", "here", "launch"}


@dataclass(frozen=True)
class Planted:
    """A program with a race, and its twin."""

    name: str
    mode: str
    """The mode that finds the race: `"static"`, or `"full"` where only a run tells."""
    text: str
    options: dict[str, Any] = field(default_factory=dict)
    """For `qd.init`."""


def planted(mode: str, text: str, **options: Any) -> Planted:
    """A program, named by the first line of its text."""
    first, _, rest = textwrap.dedent(text).lstrip("\n").partition("\n")
    return Planted(first.removeprefix("#").strip(), mode, rest, options)


def version(program: Planted, racy: bool) -> tuple[str, set[int], set[int]]:
    """The text of a version, and the lines of its race's accesses and launches."""
    lines, here, launches = [], set(), set()
    for line in program.text.splitlines():
        code, hash_mark, comment = line.rpartition("#")
        marks = set(comment.split()) if hash_mark and set(comment.split()) <= MARKS else set()
        if ("racy" in marks and not racy) or ("safe" in marks and racy):
            continue
        lines.append(code.rstrip() if marks else line)
        if racy and "here" in marks:
            here.add(len(lines) + 2)
        if racy and "launch" in marks:
            launches.add(len(lines) + 2)
    return "import numpy as np\nimport octants as qd\n" + "\n".join(lines) + "\n", here, launches


def run(program: Planted, racy: bool, folder: Path, mode: str) -> tuple[list[qd.Race], set[int], set[int]]:
    """Runs a version with races checked in a mode. Returns the races, and the lines that are expected."""
    text, here, launches = version(program, racy)
    path = folder / f"{program.name.replace(' ', '_')}_{'racy' if racy else 'safe'}_{mode}.py"
    path.write_text(text)
    qd.init(arch=qd.cpu, check_races=mode, offline_cache=False, **program.options)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    races: list[qd.Race] = []
    try:
        spec.loader.exec_module(module)
        qd.sync()
    except qd.RaceError as error:
        races = list(error.races)
    finally:
        del sys.modules[path.stem]
        qd.reset()
    return races, here, launches


def lines_of(race: qd.Race) -> set[int]:
    """The lines of both accesses."""
    return {race.first.line, race.second.line}


def launch_lines_of(race: qd.Race) -> set[int]:
    """The lines of both launches, if the report names them."""
    sites = [side.launched_at for side in (race.first, race.second)]
    return {int(site.rpartition(":")[2]) for site in sites if site is not None}
