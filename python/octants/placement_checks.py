"""Fields that were made without a shape and never placed: a program with one is not run.

Such a field is a mistake in the program's set-up, which a kernel that does not use the field would hide. The extension
module calls `refuse_unplaced_fields` for each kernel that it compiles; so do `qd.sync()` and the first access from
Python to a field or an ndarray.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octants import _octants
from octants.exceptions import OctantsRuntimeError

if TYPE_CHECKING:
    from octants.fields import Field

__all__ = ["expect_placement", "refuse_unplaced_fields"]


@dataclass(frozen=True)
class _Waiting:
    field: weakref.ref[Field]
    needs_grad: bool
    needs_dual: bool
    generation: int
    made_at: str

    def missing(self) -> str | None:
        """What has no place yet: the field, its gradient or its dual; None where nothing is expected any more."""
        made = self.field()
        if made is None or self.generation != _octants.generation():
            return None
        wanted = (("", made, True), (".grad", made.grad, self.needs_grad), (".dual", made.dual, self.needs_dual))
        for suffix, part, is_needed in wanted:
            if is_needed and part._parts[0].node is None:
                return f"{made._name or 'a field'}{suffix}, made at {self.made_at}"
        return None


_waiting: list[_Waiting] = []


def expect_placement(made: Field, needs_grad: bool, needs_dual: bool) -> None:
    """Keeps in mind that a field has no memory, and where the program made it."""
    _waiting.append(_Waiting(weakref.ref(made), needs_grad, needs_dual, _octants.generation(), _place_in_program()))


def refuse_unplaced_fields() -> None:
    """Raises an `OctantsRuntimeError` that lists the fields without a place. Fields that were placed are forgotten."""
    if not _waiting:
        return
    missing = []
    for entry in list(_waiting):
        text = entry.missing()
        if text is None:
            _waiting.remove(entry)
        else:
            missing.append(text)
    if missing:
        lines = "\n".join(f"  {text}" for text in missing)
        raise OctantsRuntimeError(
            f"These field(s) are not placed:\n{lines}\n"
            "Give them a shape=, or place them: qd.root.dense(qd.i, 4).place(x); gradients by qd.root.lazy_grad()"
        )


def _place_in_program() -> str:
    """File and line of the call that led into the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("octants"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
