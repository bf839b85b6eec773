"""Threads of a block: positions, barriers, fences, shared memory."""

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, kernel_only
from octants.types import i32

__all__ = [
    "SharedArray",
    "global_thread_idx",
    "mem_fence",
    "sync",
    "sync_all_nonzero",
    "sync_any_nonzero",
    "sync_count_nonzero",
    "thread_idx",
]

_count = kernel_only(
    "simt.block_count", "Number of threads in the block whose predicate is not zero.", lambda predicate: None
)
_block_index = kernel_only("simt.block_index", "The block's index in the grid, i32.", lambda: None)
_block_size = kernel_only("simt.block_size", "Number of threads per block, i32.", lambda: None)
_require_block_size = kernel_only(
    "simt.require_block_size",
    "Only loops with this `block_dim` may execute the code; loops without `block_dim` get it.",
    lambda size: None,
)

sync = kernel_only(
    "simt.block_sync",
    "A barrier: waits for all threads of the block, and makes their writes visible to each other.",
    lambda: None,
    "simt.block.sync",
)
mem_fence = kernel_only(
    "simt.block_fence",
    "A memory fence for the block: orders this thread's accesses as other threads of the block see them.",
    lambda: None,
    "simt.block.mem_fence",
)
thread_idx = kernel_only(
    "simt.thread_index", "The thread's index in its block, i32.", lambda: None, "simt.block.thread_idx"
)
SharedArray = kernel_only(
    "simt.SharedArray",
    "`SharedArray(shape, dtype)`: an array in shared memory. The shape is a compile-time integer or tuple of "
    "integers; the type is a scalar, vector or matrix type. The array is uninitialized.",
    lambda shape, dtype: None,
    "simt.block.SharedArray",
)


@func
def sync_count_nonzero(predicate: Any) -> Any:
    """A barrier; returns the number of threads in the block whose predicate is not zero, i32."""
    return _count(predicate)


@func
def sync_any_nonzero(predicate: Any) -> Any:
    """A barrier; returns 1 if the predicate is not zero on any thread of the block, else 0, i32."""
    return cast(_count(predicate) > 0, i32)


@func
def sync_all_nonzero(predicate: Any) -> Any:
    """A barrier; returns 1 if the predicate is not zero on all threads of the block, else 0, i32."""
    # The last block on the CPU may have fewer threads than `_block_size()`.
    return cast(_count(not predicate) == 0, i32)


@func
def global_thread_idx() -> Any:
    """The thread's index in the grid, i32."""
    return _block_index() * _block_size() + thread_idx()
