"""Finds races in a whole program: `python -m octants.racecheck program.py args...` (or `-m module args...`).

The program runs with `check_races="full"`, regardless of the environment, and continues after each race. On the CPU it
runs with `cpu_streams=True` unless it says otherwise, so that its launches are asynchronous. Its own output
comes first. Then each race that occurred is reported once on standard error, with both lines, the element and a
fix. `--static` only looks for races that can be proved, which costs nothing while kernels run.

The exit status is the program's own if it fails, otherwise 3 if there were races, 0 if there were none.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from octants import _octants
from octants._streams.races import Race, race_of

__all__ = ["main", "run_program"]

_USAGE = "usage: python -m octants.racecheck [--static] script.py [args...] | -m module [args...]"

STATUS_OF_RACES = 3


def run_program(arguments: list[str], mode: str = "full") -> tuple[list[Race], int]:
    """Runs a script, or a module after `-m`, with the arguments that follow it, and checks it for races.

    `mode` is `"full"` or `"static"`, as in `qd.init(check_races=...)`. Returns the races in the order of detection and
    the exit status of the program. Exceptions of the program propagate.
    """
    os.environ["OCTANTS_CHECK_RACES"] = mode
    os.environ.setdefault("OCTANTS_CPU_STREAMS", "1")
    _octants.collect_races()
    status = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    if _octants.is_initialized():
        _octants.sync()
    return [race_of(parts) for parts in _octants.take_races()], status


def main(arguments: list[str]) -> int:
    """The command line: runs the given program, prints its races and returns the exit status."""
    mode = "full"
    if arguments and arguments[0] == "--static":
        mode, arguments = "static", arguments[1:]
    if not arguments or arguments[0].startswith("--") or arguments == ["-m"]:
        print(_USAGE, file=sys.stderr)
        return 2
    races, status = run_program(arguments, mode)
    for race in races:
        print(race, file=sys.stderr)
    print(f"octants.racecheck: {len(races)} race{'s' * (len(races) != 1)}", file=sys.stderr)
    return status or STATUS_OF_RACES * bool(races)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
