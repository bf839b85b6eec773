"""Runs programs written for Quadrants: after `import octants.as_quadrants`, `import quadrants` finds Octants.

`python -m octants.as_quadrants script.py args...` (or `-m module args...`) does so for an unchanged program, and
`pytest -p octants.as_quadrants` for its tests. Pytest itself looks for the modules of each package that brings a plugin, as
Quadrants does: Octants must come first there too, and does when it is loaded as a plugin.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_NAME = "quadrants"
_TARGET = "octants"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `quadrants` and `quadrants.x`; the modules it loads are those of Octants themselves."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname != _NAME and not fullname.startswith(_NAME + "."):
            return None
        real = _TARGET + fullname[len(_NAME) :]
        try:
            if importlib.util.find_spec(real) is None:
                return None
        except ModuleNotFoundError:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_TARGET + spec.name[len(_NAME) :])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias's spec into the module: put its own back.
        module.__spec__ = self._spec


def install() -> None:
    """Makes `import quadrants` find Octants from now on, before any finder that is there already."""
    if not (sys.meta_path and isinstance(sys.meta_path[0], _Alias)):
        sys.meta_path[:] = [_Alias(), *(finder for finder in sys.meta_path if not isinstance(finder, _Alias))]
    for name in [name for name in sys.modules if name == _NAME or name.startswith(_NAME + ".")]:
        del sys.modules[name]


def main(arguments: list[str]) -> None:
    """Runs a script or a module with the arguments that follow it."""
    if not arguments:
        sys.exit("usage: python -m octants.as_quadrants script.py [args...] | -m module [args...]")
    install()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            sys.exit("-m needs the name of a module")
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
else:
    install()
