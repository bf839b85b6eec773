"""Reductions and scans of a block.

`block_dim` is the number of threads of the block, a multiple of a subgroup's, and `dtype` the type of the values; both
are known at compile time. All threads of the block call them. First each subgroup combines its values in registers;
then its result goes through shared memory, and the results of subgroups are combined in their order.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import max, min, static, static_assert, zero
from octants.simt.block_threads import SharedArray, _require_block_size, sync, thread_idx
from octants.simt.identities import add, largest, smallest
from octants.simt.lanes import group_size, invocation_id, log2_group_size, shuffle_up
from octants.simt.reductions import _reduce_tiled
from octants.simt.scans import _inclusive_tiled
from octants.types import template

__all__ = [
    "exclusive_add",
    "exclusive_max",
    "exclusive_min",
    "exclusive_scan",
    "inclusive_add",
    "inclusive_max",
    "inclusive_min",
    "inclusive_scan",
    "reduce",
    "reduce_add",
    "reduce_all",
    "reduce_all_add",
    "reduce_all_max",
    "reduce_all_min",
    "reduce_max",
    "reduce_min",
]


@func
def _check_block_dim(block_dim: template()) -> None:
    static_assert(
        block_dim > 0 and block_dim % group_size() == 0,
        f"block_dim must be a multiple of the {group_size()} threads of a subgroup, got {block_dim}",
    )
    _require_block_size(block_dim)


@func
def reduce(value: Any, block_dim: template(), op: template(), dtype: template()) -> Any:
    """The values of all threads reduced by `op`, an associative function, in thread order; valid on the first
    thread.
    """
    _check_block_dim(block_dim)
    result = _reduce_tiled(value, op, log2_group_size())
    if static(block_dim > group_size()):
        parts = SharedArray(static(block_dim // group_size()), dtype)
        if invocation_id() == 0:
            parts[thread_idx() // group_size()] = result
        sync()
        if thread_idx() == 0:
            for k in range(1, static(block_dim // group_size())):
                result = op(result, parts[k])
        # The parts may be written again when they have been read.
        sync()
    return result


@func
def reduce_all(value: Any, block_dim: template(), op: template(), dtype: template()) -> Any:
    """The values of all threads reduced by `op`, an associative function, in thread order; valid on each thread."""
    result = reduce(value, block_dim, op, dtype)
    everyones = SharedArray(1, dtype)
    if thread_idx() == 0:
        everyones[0] = result
    sync()
    result = everyones[0]
    sync()
    return result


@func
def _scan(value: Any, block_dim: template(), op: template(), dtype: template()) -> Any:
    """The inclusive scan, the reduction of all preceding subgroups, and whether there are any."""
    _check_block_dim(block_dim)
    result = _inclusive_tiled(value, op, log2_group_size())
    before = result
    group = thread_idx() // group_size()
    if static(block_dim > group_size()):
        parts = SharedArray(static(block_dim // group_size()), dtype)
        if invocation_id() == static(group_size() - 1):
            parts[group] = result
        sync()
        # The same for all threads of a subgroup, and of no use to the first subgroup.
        sums = parts[0]
        for k in range(1, group):
            sums = op(sums, parts[k])
        before = sums
        # The parts may be written again when they have been read.
        sync()
    return result, before, group > 0


@func
def inclusive_scan(value: Any, block_dim: template(), op: template(), dtype: template()) -> Any:
    """The values of the threads up to and including this one, reduced by `op`, an associative function."""
    result, before, follows = _scan(value, block_dim, op, dtype)
    if follows:
        result = op(before, result)
    return result


@func
def exclusive_scan(value: Any, block_dim: template(), op: template(), identity: Any, dtype: template()) -> Any:
    """The values of the threads before this one, reduced by `op`; `identity` on the first thread."""
    scanned, before, follows = _scan(value, block_dim, op, dtype)
    result = shuffle_up(scanned, 1)
    if follows:
        result = op(before, result)
    if invocation_id() == 0:
        result = identity
        if follows:
            result = before
    return result


@func
def reduce_add(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The sum of the block's values, on its first thread; other threads have parts of it."""
    return reduce(value, block_dim, add, dtype)


@func
def reduce_min(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The smallest value of the block's values, on its first thread; other threads have parts of it."""
    return reduce(value, block_dim, min, dtype)


@func
def reduce_max(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The largest value of the block's values, on its first thread; other threads have parts of it."""
    return reduce(value, block_dim, max, dtype)


@func
def reduce_all_add(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The sum of the block's values, on each of its threads."""
    return reduce_all(value, block_dim, add, dtype)


@func
def reduce_all_min(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The smallest value of the block's values, on each of its threads."""
    return reduce_all(value, block_dim, min, dtype)


@func
def reduce_all_max(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The largest value of the block's values, on each of its threads."""
    return reduce_all(value, block_dim, max, dtype)


@func
def inclusive_add(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The sum of the values of the block's threads up to this one."""
    return inclusive_scan(value, block_dim, add, dtype)


@func
def inclusive_min(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The smallest value of the values of the block's threads up to this one."""
    return inclusive_scan(value, block_dim, min, dtype)


@func
def inclusive_max(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The largest value of the values of the block's threads up to this one."""
    return inclusive_scan(value, block_dim, max, dtype)


@func
def exclusive_add(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The sum of the values of the block's threads before this one."""
    return exclusive_scan(value, block_dim, add, zero(value), dtype)


@func
def exclusive_min(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The smallest value of the values of the block's threads before this one."""
    return exclusive_scan(value, block_dim, min, largest(value), dtype)


@func
def exclusive_max(value: Any, block_dim: template(), dtype: template()) -> Any:
    """The largest value of the values of the block's threads before this one."""
    return exclusive_scan(value, block_dim, max, smallest(value), dtype)
