"""Operations of all threads of a launch."""

from __future__ import annotations

from octants.ops import kernel_only

__all__ = ["mem_fence"]

mem_fence = kernel_only(
    "simt.grid_fence",
    "Orders this thread's accesses to memory, as all threads of the device see them. Waits for no one.",
)
