"""Callbacks for two events of the running program: it allocates memory of fields, and it ends.

Modules that need these events register their functions here. `snode_trees.py` and `runtime.py`, which call them,
import none of those modules.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["allocated", "ended", "tell"]

allocated: list[Callable[[], None]] = []
"""Called after memory of fields was allocated."""

ended: list[Callable[[], None]] = []
"""Called when a program has ended."""


def tell(listeners: list[Callable[[], None]]) -> None:
    """Calls each of these functions."""
    for listener in listeners:
        listener()
