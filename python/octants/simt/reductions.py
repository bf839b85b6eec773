"""Reductions of a subgroup.

Functions whose names end in `_tiled` reduce each tile of `2**log2_size` consecutive threads separately. `reduce_*`
leaves the result to the first thread, `reduce_all_*` gives it to every thread, and `segmented_reduce_*` gives each
thread the result of the values from the last thread with a flag up to itself.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, clz, max, min, static
from octants.simt.identities import add
from octants.simt.lanes import check_tile, invocation_id, log2_group_size, shuffle_down, shuffle_up, shuffle_xor
from octants.simt.votes import ballot
from octants.types import template, u64

__all__ = [
    "reduce_add",
    "reduce_add_tiled",
    "reduce_all_add",
    "reduce_all_add_tiled",
    "reduce_all_max",
    "reduce_all_max_tiled",
    "reduce_all_min",
    "reduce_all_min_tiled",
    "reduce_max",
    "reduce_max_tiled",
    "reduce_min",
    "reduce_min_tiled",
    "segmented_reduce_add",
    "segmented_reduce_add_tiled",
    "segmented_reduce_max",
    "segmented_reduce_max_tiled",
    "segmented_reduce_min",
    "segmented_reduce_min_tiled",
]


@func
def _reduce_tiled(value: Any, op: template(), log2_size: template()) -> Any:
    check_tile(log2_size)
    # From neighbors outward: the operands keep their order, so that `op` need not commute.
    result = value
    for k in static(range(log2_size)):
        result = op(result, shuffle_down(result, static(1 << k)))
    return result


@func
def _reduce_all_tiled(value: Any, op: template(), log2_size: template()) -> Any:
    check_tile(log2_size)
    result = value
    for k in static(range(log2_size)):
        result = op(result, shuffle_xor(result, static(1 << k)))
    return result


@func
def _segmented_reduce_tiled(value: Any, head_flag: Any, op: template(), log2_size: template()) -> Any:
    check_tile(log2_size)
    lane = invocation_id()
    first = (lane >> log2_size) << log2_size
    # The flags of the tile's threads up to this one, in the high bits; the tile's first thread begins a segment.
    flags = (ballot(head_flag) | (u64(1) << cast(first, u64))) << cast(63 - lane, u64)
    distance = clz(flags)
    result = value
    for k in static(range(log2_size)):
        other = shuffle_up(result, static(1 << k))
        if distance >= static(1 << k):
            result = op(other, result)
    return result


@func
def reduce_add_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of the tile, on its first thread; other threads have parts of it."""
    return _reduce_tiled(value, add, log2_size)


@func
def reduce_add(value: Any) -> Any:
    """The sum of the subgroup, on its first thread; other threads have parts of it."""
    return reduce_add_tiled(value, log2_group_size())


@func
def reduce_min_tiled(value: Any, log2_size: template()) -> Any:
    """The smallest value of the tile, on its first thread; other threads have parts of it."""
    return _reduce_tiled(value, min, log2_size)


@func
def reduce_min(value: Any) -> Any:
    """The smallest value of the subgroup, on its first thread; other threads have parts of it."""
    return reduce_min_tiled(value, log2_group_size())


@func
def reduce_max_tiled(value: Any, log2_size: template()) -> Any:
    """The largest value of the tile, on its first thread; other threads have parts of it."""
    return _reduce_tiled(value, max, log2_size)


@func
def reduce_max(value: Any) -> Any:
    """The largest value of the subgroup, on its first thread; other threads have parts of it."""
    return reduce_max_tiled(value, log2_group_size())


@func
def reduce_all_add_tiled(value: Any, log2_size: template()) -> Any:
    """The sum of the tile, on each of its threads."""
    return _reduce_all_tiled(value, add, log2_size)


@func
def reduce_all_add(value: Any) -> Any:
    """The sum of the subgroup, on each of its threads."""
    return reduce_all_add_tiled(value, log2_group_size())


@func
def reduce_all_min_tiled(value: Any, log2_size: template()) -> Any:
    """The smallest value of the tile, on each of its threads."""
    return _reduce_all_tiled(value, min, log2_size)


@func
def reduce_all_min(value: Any) -> Any:
    """The smallest value of the subgroup, on each of its threads."""
    return reduce_all_min_tiled(value, log2_group_size())


@func
def reduce_all_max_tiled(value: Any, log2_size: template()) -> Any:
    """The largest value of the tile, on each of its threads."""
    return _reduce_all_tiled(value, max, log2_size)


@func
def reduce_all_max(value: Any) -> Any:
    """The largest value of the subgroup, on each of its threads."""
    return reduce_all_max_tiled(value, log2_group_size())


@func
def segmented_reduce_add_tiled(value: Any, head_flag: Any, log2_size: template()) -> Any:
    """The sum from the last thread of the tile with a flag (or its first thread) up to this one."""
    return _segmented_reduce_tiled(value, head_flag, add, log2_size)


@func
def segmented_reduce_add(value: Any, head_flag: Any) -> Any:
    """The sum from the last thread of the subgroup with a flag (or its first thread) up to this one."""
    return segmented_reduce_add_tiled(value, head_flag, log2_group_size())


@func
def segmented_reduce_min_tiled(value: Any, head_flag: Any, log2_size: template()) -> Any:
    """The smallest value from the last thread of the tile with a flag (or its first thread) up to this one."""
    return _segmented_reduce_tiled(value, head_flag, min, log2_size)


@func
def segmented_reduce_min(value: Any, head_flag: Any) -> Any:
    """The smallest value from the last thread of the subgroup with a flag (or its first thread) up to this one."""
    return segmented_reduce_min_tiled(value, head_flag, log2_group_size())


@func
def segmented_reduce_max_tiled(value: Any, head_flag: Any, log2_size: template()) -> Any:
    """The largest value from the last thread of the tile with a flag (or its first thread) up to this one."""
    return _segmented_reduce_tiled(value, head_flag, max, log2_size)


@func
def segmented_reduce_max(value: Any, head_flag: Any) -> Any:
    """The largest value from the last thread of the subgroup with a flag (or its first thread) up to this one."""
    return segmented_reduce_max_tiled(value, head_flag, log2_group_size())
