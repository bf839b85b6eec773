"""Types and values as the interpreter has them, and the words of the language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class InvalidProgramError(Exception):
    """Not a program of the language, as far as the interpreter knows it."""


@dataclass(frozen=True)
class Tensor:
    """The type of a vector or matrix."""

    scalar: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)


@dataclass(frozen=True)
class Struct:
    """The type of a struct."""

    name: str
    members: tuple[tuple[str, Any], ...]

    @property
    def count(self) -> int:
        return sum(count_of(t) for _, t in self.members)


Type = str | Tensor | Struct


def count_of(t: Type) -> int:
    return 1 if isinstance(t, str) else t.count


def leaves(t: Type) -> list[str]:
    if isinstance(t, str):
        return [t]
    if isinstance(t, Tensor):
        return [t.scalar] * t.count
    return [leaf for _, member in t.members for leaf in leaves(member)]


@dataclass
class Storage:
    """Memory: numbers that one or several arrays reach."""

    numbers: list


@dataclass
class Array:
    """A field or an array as kernels see it. Strides and the offset count numbers."""

    element: Type
    shape: tuple[int, ...]
    storage: Storage
    offset: int
    strides: tuple[int, ...]
    is_field: bool = False
    first: tuple[int, ...] = ()
    """The least index of each axis, where that is not zero."""


@dataclass
class Value:
    """An expression: its type, how to compute it, and the number if it is known at compile time. A place has
    `locate`."""

    type: Type
    get: Callable[[list], Any]
    literal: Any = None
    locate: Callable[[list], tuple[list, int, bool]] | None = None
    """Gives a list, a position in it, and whether iterations share it."""
    is_global: bool = False
    selected: tuple[Value, list[int]] | None = None
    """The tensor that this is a selection of, and the positions of its components."""


@dataclass
class Function:
    """A function of the module."""

    node: ast.FunctionDef
    kind: str


@dataclass
class Scope:
    """Names of a block."""

    names: dict[str, Any] = field(default_factory=dict)


BREAK, CONTINUE = object(), object()

OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
ATOMICS = {
    "atomic_add": "+",
    "atomic_sub": "-",
    "atomic_mul": "*",
    "atomic_min": "min",
    "atomic_max": "max",
    "atomic_and": "&",
    "atomic_or": "|",
    "atomic_xor": "^",
    "atomic_exchange": "=",
}
ATOMIC_ASSIGNMENTS = {"+", "-", "*", "&", "|", "^"}


def dotted(node: ast.expr) -> str | None:
    """`qd.math.clz` as text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None
