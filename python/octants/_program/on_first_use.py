"""Names of modules that are imported when they are first used, because most programs need none of them."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["OnFirstUse"]


class OnFirstUse:
    """A name of a module. Imports the module when it is called, or when an attribute is read."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _imported(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._imported()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._imported(), name)
