"""Compiles the kernels of a script for any machine, and writes their code to files: `python -m octants.inspect
--help`.

    python -m octants.inspect script.py --kernel saxpy --target gfx1100 --emit ir,llvm,asm,object --out code

The script runs as usual, on the device that it selects, or on the CPU if that device is missing. Each kernel that it
compiles is also compiled for the targets. In a program, `qd.inspect` does the same for one call.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from octants import _octants
from octants._code.compiled_code import FORMS
from octants._code.compiled_code import inspect as _inspect

_TEXT = "access, ir, schedule, llvm (after optimization), asm, object (the code for the driver); several with commas"


class _Found(BaseException):
    """Raised once all requested code is written."""


class Writer:
    """Writes the code of kernels as they are compiled."""

    def __init__(self, kernels: set[str], targets: list[str | None], forms: list[str], out: Path) -> None:
        self.kernels, self.targets, self.forms, self.out = kernels, targets, forms, out
        self.missing = set(kernels)
        self.seen: Counter[str] = Counter()

    def __call__(self, kernel: _octants.Inspection) -> None:
        if self.kernels and kernel.kernel not in self.kernels:
            return
        number = self.seen[kernel.kernel]
        self.seen[kernel.kernel] += 1
        for target in self.targets:
            for form in self.forms:
                code, ending = kernel.emit(form, None, target)
                parts = [kernel.kernel, *([str(number)] if number else []), *([target] if target else []), ending]
                path = self.out / ".".join(parts)
                path.write_bytes(code)
                print(path)
        self.missing.discard(kernel.kernel)
        if self.kernels and not self.missing:
            raise _Found


class _List(argparse.Action):
    """Prints the targets and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for kind, targets in _octants.code_targets():
            print(textwrap.fill(f"{kind}: {' '.join(targets)}", 120, subsequent_indent="    ", break_on_hyphens=False))
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m octants.inspect",
        description="Write the code of a script's kernels for any target to files. Options after `--` go to it.",
    )
    parser.add_argument("script", type=Path, help="a Python program that calls kernels")
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="NAME",
        help="only this kernel; the script stops once it is compiled",
    )
    parser.add_argument(
        "--target",
        default="",
        help="gfx90a, sm_90, znver4, aarch64, ..., separated by commas (default: the script's own device)",
    )
    parser.add_argument("--list", action=_List, nargs=0, help="print all supported targets")
    parser.add_argument("--emit", default="asm", help=_TEXT)
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="output folder, created if missing")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    argv = sys.argv[1:] if argv is None else argv
    split = argv.index("--") if "--" in argv else len(argv)
    given, arguments = parser.parse_args(argv[:split]), argv[split + 1 :]
    forms = [form for form in given.emit.split(",") if form]
    if wrong := [form for form in forms if form not in FORMS]:
        parser.error(f"--emit: `{wrong[0]}` is not one of {', '.join(FORMS)}")
    if not given.script.is_file():
        parser.error(f"no script {given.script}")
    kernels = {name for names in given.kernel for name in names.split(",")}
    given.out.mkdir(parents=True, exist_ok=True)
    writer = Writer(kernels, given.target.split(",") if given.target else [None], forms, given.out)
    _octants.observe_compilations(writer)
    sys.argv = [str(given.script), *arguments]
    sys.path.insert(0, str(given.script.resolve().parent))
    try:
        runpy.run_path(str(given.script), run_name="__main__")
    except _Found:
        return 0
    finally:
        _octants.observe_compilations(None)
    if writer.missing:
        print(f"the script ended before it compiled {', '.join(sorted(writer.missing))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
# `qd.inspect` is the function. So an import of this module by its name gives the function too, and not a module in its
# place.
sys.modules[__name__] = cast(ModuleType, _inspect)
