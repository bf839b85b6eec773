"""The kernel that counts a grid's active cells."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values.

from octants._language.kernel_decorators import library_kernel
from octants._language.ops import grouped, static
from octants.types import f32, template


@library_kernel
def share_of_active_cells(x: template()) -> f32:
    """The fraction of the cells of the level above a field that are active."""
    active = 0
    for _ in grouped(x.parent()):
        active += 1
    total = 1.0
    for extent in static(x.shape):
        total *= extent
    return active / total
