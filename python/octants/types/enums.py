"""What a field is to differentiation."""

from enum import Enum


class SNodeGradType(Enum):
    """Whether a field's place holds values or what belongs to those of another field."""

    PRIMAL = 0
    """Values."""
    ADJOINT = 1
    """Gradients."""
    DUAL = 2
    """Tangents of forward mode."""
    ADJOINT_CHECKBIT = 3
    """Marks of the check of gradients; Octants keeps them elsewhere."""
