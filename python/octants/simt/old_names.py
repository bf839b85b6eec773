"""Warnings about older names."""

from __future__ import annotations

import warnings

_warned: set[str] = set()


def warn_of_old_name(old: str, new: str) -> None:
    """Warns once that a name is deprecated. Kernels call it at compile time."""
    if old not in _warned:
        _warned.add(old)
        warnings.warn(f"qd.simt.{old}() is deprecated; use qd.simt.{new}() instead", DeprecationWarning, stacklevel=2)
