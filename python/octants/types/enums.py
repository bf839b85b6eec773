"""What a field is to differentiation, and what a tape makes of a kernel."""

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


class AutodiffMode(Enum):
    """What a launch of a kernel does."""

    NONE = 0
    """It computes values."""
    VALIDATION = 1
    """It also checks that it overwrites nothing that its gradient will read."""
    FORWARD = 2
    """It computes tangents beside values."""
    REVERSE = 3
    """It computes gradients."""
