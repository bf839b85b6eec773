"""Arithmetic on indices of fields, in the kernel language."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from octants.kernel_decorators import func
from octants.ops import static
from octants.types import template


@func
def rescale_index(a: template(), b: template(), I):  # noqa: E741
    """The index in the field or level `b` of what lies over index `I` of `a`: each axis is scaled by the ratio of the extents,
    which is a whole number one way or the other."""
    for n in static(range(min(len(a.shape), len(b.shape)))):
        if static(b.shape[n] > a.shape[n]):
            I[n] *= b.shape[n] // a.shape[n]
        elif static(a.shape[n] > b.shape[n]):
            I[n] //= a.shape[n] // b.shape[n]
    return I
