"""Fields that were made without a shape and never placed: a program with one is not run.

Such a field is a mistake in the program's set-up, which a kernel that does not use the field would hide. The extension
module calls `refuse_unplaced_fields` for each kernel that it compiles; so do `qd.sync()` and the first access from
Python to a field or an ndarray.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octants import _octants
from octants.exceptions import OctantsRuntimeError

if TYPE_CHECKING:
    from octants._fields.fields import TensorField

__all__ = ["expect_finalize", "expect_placement", "refuse_unplaced_fields"]


@dataclass(frozen=True)
class _Waiting:
    field: weakref.ref[TensorField]
    needs_grad: bool
    needs_dual: bool
    generation: int
    made_at: str

    def problem(self) -> tuple[str, str] | None:
        """What is missing for placement: the heading of the error message, and the line below it."""
        made = self.field()
        if made is None or self.generation != _octants.generation():
            return None
        wanted = (("", made, True), (".grad", made.grad, self.needs_grad), (".dual", made.dual, self.needs_dual))
        for suffix, part, is_needed in wanted:
            if is_needed and any(component.node is None for component in part._parts):
                return _UNPLACED[suffix], f"{made._name or 'a field'}{suffix}, created at {self.made_at}"
        shapes = dict.fromkeys(component.node.shape for component in made._parts if component.node is not None)
        if len(shapes) > 1:
            listed = ", ".join(map(str, shapes))
            return _DIFFERENT_SHAPES, f"{made._name or 'a field'} of shapes {listed}, created at {self.made_at}"
        return None


# Programs look for these words, so they are spelled as Quadrants spells them.
_UNPLACED = {
    "": "These field(s) are not placed:",
    ".grad": "These field(s) requrie `needs_grad=True`, however their grad field(s) are not placed:",
    ".dual": "These field(s) requrie `needs_dual=True`, however their dual field(s) are not placed:",
}
_DIFFERENT_SHAPES = "Members of the following field have different shapes:"

_waiting: list[_Waiting] = []
_unfinished: list[tuple[weakref.ref[Any], int, str]] = []


def expect_placement(made: TensorField, needs_grad: bool, needs_dual: bool) -> None:
    """Registers an unplaced field and the line that created it."""
    _waiting.append(_Waiting(weakref.ref(made), needs_grad, needs_dual, _octants.generation(), _place_in_program()))


def expect_finalize(builder: Any) -> str:
    """Registers a `FieldsBuilder` and the line that created it. Returns that line."""
    made_at = _place_in_program()
    _unfinished.append((weakref.ref(builder), _octants.generation(), made_at))
    return made_at


def place_made(component: Any) -> str | None:
    """The line that created an unplaced field with this component, as far as it is registered."""
    for entry in _waiting:
        made = entry.field()
        shadow_buffers = () if made is None else (made.grad, made.dual)
        if any(component in each._parts for each in (made, *shadow_buffers) if each is not None):
            return entry.made_at
    return None


def refuse_unplaced_fields() -> None:
    """Raises an `OctantsRuntimeError` that lists the unplaced fields, and each `FieldsBuilder` with levels on which
    `finalize()` was not called. Drops placed fields from the register.
    """
    _refuse_open_builders()
    if not _waiting:
        return
    problems: dict[str, list[str]] = {}
    for entry in list(_waiting):
        problem = entry.problem()
        if problem is None:
            _waiting.remove(entry)
        else:
            problems.setdefault(problem[0], []).append(problem[1])
    if problems:
        lines = [line for heading, fields in problems.items() for line in (heading, *(f"  {text}" for text in fields))]
        lines.append(
            "Give them a shape=, or place them: qd.root.dense(qd.i, 4).place(x). "
            "For gradients, call qd.root.lazy_grad()."
        )
        raise OctantsRuntimeError("\n".join(lines))


def _refuse_open_builders() -> None:
    for entry in list(_unfinished):
        builder, generation, made_at = entry[0](), entry[1], entry[2]
        if builder is None or generation != _octants.generation() or builder.finalized:
            _unfinished.remove(entry)
        elif not builder.empty:
            raise OctantsRuntimeError(
                "a FieldsBuilder is not finalized: call its finalize() before its fields are used; it was created at "
                f"{made_at}"
            )


def _place_in_program() -> str:
    """File and line of the user's call into the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("octants"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
