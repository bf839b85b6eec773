"""The public names that Quadrants' internal modules have too, such as `qd.lang.Matrix` and `qd.lang.impl.root`."""

import sys
from collections.abc import Callable
from typing import Any


def public_names_of(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds the public names."""

    def find(name: str) -> Any:
        found = getattr(sys.modules["octants"], name, None) if not name.startswith("_") else None
        if found is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return found

    return find
