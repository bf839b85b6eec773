"""The order of the extension's functions in memory: those that a program runs stand together.

The operating system maps files in pieces of 64 KiB. The functions that one compilation calls are scattered all over
LLVM's code, so a process would map nearly all of its 42 MB. With the order it maps 15 MB.

Valgrind's callgrind records which functions two programs call: one that only imports the package, and one that compiles
typical kernels. The linker reads their names, in that order, from a file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = Path(__file__).resolve().parent / "typical_kernels.py"
IMPORT = "import octants as qd; qd.init(arch=qd.cpu)"
# An object's or a function's name is written once, with its number; "c" stands before those that are called.
_OBJECT = re.compile(r"(c?)ob=\((\d+)\)(?: (.*))?")
_FUNCTION = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
_RECURSION_LEVEL = re.compile(r"'\d+$")


def write_order(python: str, wheel: Path, nm: Path, out: Path) -> None:
    """Writes the names of the functions of a wheel that was not stripped, one a line. Those of a program keep the order
    of their addresses, which `nm` tells: functions of one object file compress better if they stand together.

    Raises `SystemExit` if valgrind is not installed, or if the extension has no names of functions.
    """
    names: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder:
        own = str(Path(folder) / "bin" / "python")
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
        (library,) = Path(folder).glob("lib/python*/site-packages/octants/_octants.*.so")
        addresses = subprocess.run(
            [nm, "-n", "--format=just-symbols", library], check=True, capture_output=True, text=True
        )
        place = {name: number for number, name in enumerate(addresses.stdout.split())}
        for program, least in (["-c", IMPORT], 1000), ([str(KERNELS)], 10_000):
            profile = Path(folder) / f"profile-{least}"
            _run_in_callgrind([own, *program], profile)
            called = called_functions(profile.read_text(), "_octants.")
            if len(called) < least:
                sys.exit(
                    f"error: {program[0]} calls only {len(called)} functions with names; is {wheel.name} stripped?"
                )
            names.update(dict.fromkeys(sorted(called, key=lambda name: place.get(name, -1))))
    out.write_text("".join(f"{name}\n" for name in names))


def called_functions(profile: str, module: str) -> list[str]:
    """The functions of a shared object, whose file's name starts with `module`, that a profile of callgrind records."""
    objects: dict[str, str] = {}
    functions: dict[str, str] = {}
    found: dict[str, None] = {}
    current = ""
    for line in profile.splitlines():
        if match := _OBJECT.match(line):
            is_call, number, path = match.groups()
            path = objects.setdefault(number, path or "")
            current = current if is_call else path
        elif match := _FUNCTION.match(line):
            is_call, number, name = match.groups()
            name = functions.setdefault(number, name or "")
            if not is_call and Path(current).name.startswith(module):
                found[_RECURSION_LEVEL.sub("", name)] = None
    return list(found)


def _run_in_callgrind(command: list[str], profile: Path) -> None:
    """Runs a program in callgrind, without the files of earlier compilations."""
    callgrind = ["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        subprocess.run(
            [*callgrind, *command],
            env={**environment, "OCTANTS_OFFLINE_CACHE": "0"},
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        sys.exit("error: valgrind is not installed; install it, or pass --no-order: a process then maps 30 MB more")
