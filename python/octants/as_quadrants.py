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
    """The line of the `.pth` file, which Python runs at startup. It does nothing if Octants is not installed any
    more.
    """
    return (
        f"import os, importlib.util as u; p = {str(finder)!r}; "
        "s = u.spec_from_file_location('_octants_quadrants_finder', p) if os.path.exists(p) else None; "
        "m = u.module_from_spec(s) if s else None; s and (s.loader.exec_module(m), m.install())\n"
    )


def _folders() -> list[Path]:
    """The folders in which this Python looks for `.pth` files; that of the environment comes first."""
    folders = [Path(sysconfig.get_path("purelib"))]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getusersitepackages()))
    return folders


def install_for_all_programs() -> Path:
    """Writes a `.pth` file that makes every program of this Python find Octants as `quadrants`; returns its path.

    It goes to the `site-packages` folder of the environment, or to that of the user if the former is not writable.
    Raises `OSError` if neither is.
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
    """Removes the files of `install_for_all_programs`; returns their paths."""
    files = [folder / _PTH for folder in _folders()]
    found = [file for file in files if file.exists()]
    for file in found:
        file.unlink()
    return found


def main(arguments: list[str]) -> None:
    """The command line: runs a script or module with its arguments, or executes an option."""
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
