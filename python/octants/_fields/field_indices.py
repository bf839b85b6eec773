"""Arithmetic on indices of fields, in the kernel language."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from octants._language.kernel_decorators import pyfunc
from octants._language.ops import static
from octants.types.values import Vector


@pyfunc
def rescale_index(a, b, I):  # noqa: E741
    """The index in the field or level `b` that corresponds to index `I` of `a`, a vector or a list. Each axis is scaled
    by the ratio of the extents; one of the two must be a multiple of the other.
    """
    found = Vector([I[n] for n in static(range(len(I)))])
    for n in static(range(min(len(I), len(a.shape), len(b.shape)))):
        if static(b.shape[n] > a.shape[n]):
            found[n] = I[n] * (b.shape[n] // a.shape[n])
        elif static(a.shape[n] > b.shape[n]):
            found[n] = I[n] // (a.shape[n] // b.shape[n])
    return found
