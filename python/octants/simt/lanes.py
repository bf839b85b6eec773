"""Subgroup basics: size, positions, and shuffles of values between threads."""

from __future__ import annotations

from typing import Any

from octants import _octants
from octants._language.kernel_decorators import func
from octants._language.ops import kernel_only, known_to_compiler, static_assert
from octants.exceptions import OctantsRuntimeError
from octants.types import template

__all__ = [
    "broadcast",
    "broadcast_first",
    "group_size",
    "invocation_id",
    "log2_group_size",
    "mem_fence",
    "shuffle",
    "shuffle_down",
    "shuffle_up",
    "shuffle_xor",
    "sync",
]


@known_to_compiler("simt.group_size")
def group_size() -> int:
    """Threads per subgroup on the device of the running program: 32 or 64; 8 to 128 on Vulkan. A compile-time constant
    in kernels.

    Raises `OctantsRuntimeError` without a program.
    """
    size = _octants.subgroup_size()
    if size == 0:
        raise OctantsRuntimeError("group_size() depends on the program's device: call qd.init() first")
    return size


@known_to_compiler("simt.log2_group_size")
def log2_group_size() -> int:
    """The binary logarithm of `group_size()`."""
    return group_size().bit_length() - 1


invocation_id = kernel_only(
    "simt.lane", "The thread's index in its subgroup, i32.", lambda: None, "simt.subgroup.invocation_id"
)
sync = kernel_only("simt.subgroup_sync", "A barrier of the subgroup.", lambda: None, "simt.subgroup.sync")
mem_fence = kernel_only(
    "simt.block_fence",
    "A memory fence for the block: orders this thread's accesses as other threads of the block see them.",
    lambda: None,
    "simt.block.mem_fence",
)
shuffle = kernel_only(
    "simt.shuffle",
    "`shuffle(value, index)`: the value of the subgroup's thread `index`; the thread's own value if there is none.",
    lambda value, index: None,
    "simt.subgroup.shuffle",
)
shuffle_xor = kernel_only(
    "simt.shuffle_xor",
    "`shuffle_xor(value, mask)`: the value of the thread whose index is this one xor `mask`; the thread's own "
    "value if there is none.",
    lambda value, mask: None,
    "simt.subgroup.shuffle_xor",
)
shuffle_up = kernel_only(
    "simt.shuffle_up",
    "`shuffle_up(value, offset)`: the value of the thread `offset` below; the thread's own value if there is none.",
    lambda value, offset: None,
    "simt.subgroup.shuffle_up",
)
shuffle_down = kernel_only(
    "simt.shuffle_down",
    "`shuffle_down(value, offset)`: the value of the thread `offset` above; the thread's own value if there is none.",
    lambda value, offset: None,
    "simt.subgroup.shuffle_down",
)


@func
def check_tile(log2_size: template()) -> None:  # type: ignore[valid-type]
    """Rejects at compile time tiles that do not divide a subgroup."""
    static_assert(
        0 <= log2_size and log2_size <= log2_group_size(),
        "log2_size must be from 0 to log2_group_size(): a tile is a part of a subgroup",
    )


@func
def broadcast(value: Any, index: Any) -> Any:
    """The value of the subgroup's thread with that index, which must be uniform in the subgroup."""
    return shuffle(value, index)


@func
def broadcast_first(value: Any) -> Any:
    """The value of the subgroup's first thread."""
    return shuffle(value, 0)
