"""Makes `import quadrants` find Octants. It uses only the standard library, because a `.pth` file loads it at each
start of the interpreter.

`octants.as_quadrants` is the user's interface; `python -m octants.as_quadrants --install` writes the `.pth` file.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # Importing `typing` for it would slow down each start of Python.
if TYPE_CHECKING:
    from typing import Any

_NAME = "quadrants"
_TARGET = "octants"


class QuadrantsFinder:
    """Resolves `quadrants` and `quadrants.x` to the modules of Octants."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The spec of the module of Octants that replaces `fullname`; None for other names."""
        if fullname != _NAME and not fullname.startswith(_NAME + "."):
            return None
        from importlib.util import find_spec

        try:
            if find_spec(_TARGET + fullname[len(_NAME) :]) is None:
                return None
        except ModuleNotFoundError:
            return None
        loader: Any = self
        return ModuleSpec(fullname, loader)

    def create_module(self, spec: ModuleSpec) -> Any:
        """Imports the module of Octants."""
        module = import_module(_TARGET + spec.name[len(_NAME) :])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        """Restores the module's own spec: the module is already initialized."""
        # The import system has just written the alias's spec into the module: put its own back.
        module.__spec__ = self._spec


def install() -> None:
    """Makes `import quadrants` resolve to Octants from now on, even if Quadrants is installed."""
    # A start of the interpreter loads this file apart from the package, so the class may be another one.
    others = [finder for finder in sys.meta_path if type(finder).__name__ != QuadrantsFinder.__name__]
    sys.meta_path[:] = [QuadrantsFinder(), *others]
    for name in [name for name in sys.modules if name == _NAME or name.startswith(_NAME + ".")]:
        del sys.modules[name]
