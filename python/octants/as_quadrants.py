"""Runs programs written for Quadrants: after `import octants.as_quadrants`, `import quadrants` finds Octants.

`python -m octants.as_quadrants script.py args...` (or `-m module args...`) does this for an unchanged program, and
`pytest -p octants.as_quadrants` for its tests. Quadrants has a pytest plugin, so pytest imports Quadrants itself at
start-up. Loaded as a plugin with `-p`, this module takes effect before that.

`python -m octants.as_quadrants --install` does this for all programs of this Python, including the child processes of
a program, which do not inherit imports. `--uninstall` reverts it.
"""

from __future__ import annotations

import os
import runpy
import site
import sys
import sysconfig
from pathlib import Path

from octants import _quadrants_finder
from octants._quadrants_finder import install

__all__ = ["install", "install_for_all_programs", "main", "uninstall_for_all_programs"]

_PTH = "octants_as_quadrants.pth"

_USAGE = """usage: python -m octants.as_quadrants script.py [args...] | -m module [args...] | --install | --uninstall"""


def _line(finder: Path) -> str:
    """The line that Python runs at its start. Where Octants is no longer there, it does nothing."""
    return (
        f"import os, importlib.util as u; p = {str(finder)!r}; "
        "s = u.spec_from_file_location('_octants_quadrants_finder', p) if os.path.exists(p) else None; "
        "m = u.module_from_spec(s) if s else None; s and (s.loader.exec_module(m), m.install())\n"
    )


def _folders() -> list[Path]:
    """Where this Python looks for `.pth` files; the environment's own folder comes first."""
    folders = [Path(sysconfig.get_path("purelib"))]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getusersitepackages()))
    return folders


def install_for_all_programs() -> Path:
    """Writes the `.pth` file by which each program of this Python finds Octants as `quadrants`; returns its path.

    It goes to the environment's folder of packages, or to the user's where that cannot be written; an `OSError` where
    neither can.
    """
    refused: OSError | None = None
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _PTH).write_text(_line(Path(_quadrants_finder.__file__).resolve()))
        except OSError as error:
            refused = error
        else:
            return folder / _PTH
    raise refused or OSError("this Python has no site-packages folder")


def uninstall_for_all_programs() -> list[Path]:
    """Removes what `install_for_all_programs` has written; returns the paths of the files that were there."""
    files = [folder / _PTH for folder in _folders()]
    found = [file for file in files if file.exists()]
    for file in found:
        file.unlink()
    return found


def main(arguments: list[str]) -> None:
    """Runs a script or a module with the arguments that follow it, or does what an option asks for."""
    if not arguments:
        sys.exit(_USAGE)
    if arguments[0] == "--install":
        print(f"`import quadrants` finds Octants in all programs of this Python: {install_for_all_programs()}")
        return
    if arguments[0] == "--uninstall":
        removed = uninstall_for_all_programs()
        print("\n".join(f"removed {file}" for file in removed) or "nothing was installed")
        return
    install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit("-m needs a module name")
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    if arguments[0].startswith("-"):
        sys.exit(_USAGE)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
else:
    install()
