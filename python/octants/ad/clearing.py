"""Setting gradients to zero."""

from __future__ import annotations

from octants._arrays.shadow_buffers import fields_in_memory, split_gradients
from octants.types.enums import SNodeGradType

_KINDS = {SNodeGradType.PRIMAL: "field", SNodeGradType.ADJOINT: "grad", SNodeGradType.DUAL: "dual"}


def clear_all_gradients(gradient_type: SNodeGradType = SNodeGradType.ADJOINT) -> None:
    """Zeroes the gradients (with `SNodeGradType.DUAL`, the duals) of all fields, but not those of ndarrays."""
    kind = _KINDS.get(gradient_type)
    for field in fields_in_memory(kind) if kind else []:
        field.fill(0)
    for gradient in split_gradients() if kind == "grad" else []:
        gradient.fill(0)
