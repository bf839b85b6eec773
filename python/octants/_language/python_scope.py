"""Functions for Python scope only. In a kernel, such a function would run at compile time, and never at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def only_in_python(function: F) -> F:
    """Marks a function that must not be called in kernels: the compiler reports the line of the call."""
    function._octants_only_in_python = True  # type: ignore[attr-defined]
    return function


STAND_INS: dict[str, Callable[..., Any]] = {}
"""Python implementations of builtins, by the compiler's name. Empty unless kernels run as Python (`arch=qd.python`)."""


def runs_as_python() -> bool:
    """Whether kernels run as Python."""
    return bool(STAND_INS)
