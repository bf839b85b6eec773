"""Operations of the threads of a subgroup, which run in step: they exchange values in registers.

All threads of the subgroup execute them together.
"""

from __future__ import annotations

from octants.ops import kernel_only

__all__ = [
    "ballot",
    "group_size",
    "invocation_id",
    "shuffle",
    "shuffle_down",
    "shuffle_up",
    "shuffle_xor",
    "sync",
]

group_size = kernel_only("simt.group_size", "Threads of a subgroup, known at compile time: 32 or 64.")
invocation_id = kernel_only("simt.lane", "The thread's index in its subgroup, i32.")
sync = kernel_only("simt.subgroup_sync", "A barrier of the subgroup.")
shuffle = kernel_only("simt.shuffle", "`shuffle(value, index)`: the value of the thread with an index in the subgroup.")
shuffle_xor = kernel_only("simt.shuffle_xor", "`shuffle_xor(value, mask)`: the value of the thread whose index differs in the mask's bits.")
shuffle_up = kernel_only(
    "simt.shuffle_up",
    "`shuffle_up(value, offset)`: the value of the thread whose index is less by the offset; the own value if there is none.",
)
shuffle_down = kernel_only(
    "simt.shuffle_down",
    "`shuffle_down(value, offset)`: the value of the thread whose index is larger by the offset; the own value if there is none.",
)
ballot = kernel_only("simt.ballot", "A bit for each thread of the subgroup whose predicate is not zero, u64.")
