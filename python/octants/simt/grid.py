"""Operations of all threads of a launch."""

from __future__ import annotations

from octants._language.kernel_decorators import func
from octants._language.ops import kernel_only
from octants.simt.old_names import warn_of_old_name

__all__ = ["mem_fence", "memfence"]

mem_fence = kernel_only(
    "simt.grid_fence",
    "A memory fence for the device: orders this thread's accesses as all threads of the device see them.",
    lambda: None,
    "simt.grid.mem_fence",
)


@func
def memfence() -> None:
    """Deprecated name of `mem_fence`."""
    warn_of_old_name("grid.memfence", "grid.mem_fence")
    mem_fence()
