"""Votes of a subgroup: ballots, agreement, and masks of threads.

Functions whose names end in `_tiled` apply to each tile of `2**log2_size` consecutive threads separately.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, kernel_only, static, static_assert
from octants.simt.lanes import check_tile, invocation_id, log2_group_size, shuffle, shuffle_xor
from octants.types import i32, template, u32, u64

__all__ = [
    "all_equal",
    "all_equal_tiled",
    "all_true",
    "all_true_tiled",
    "any_true",
    "any_true_tiled",
    "ballot",
    "ballot_first_n",
    "elect",
    "lanemask_eq",
    "lanemask_ge",
    "lanemask_gt",
    "lanemask_le",
    "lanemask_lt",
]

ballot = kernel_only(
    "simt.ballot",
    "A bit mask of the threads of the subgroup whose predicate is not zero, u64.",
    lambda predicate: None,
    "simt.subgroup.ballot",
)


@func
def ballot_first_n(predicate: Any, n: template()) -> Any:
    """A bit mask of the first `n` threads of the subgroup whose predicate is not zero, u32. `n` is from 1 to 32."""
    static_assert(1 <= n and n <= 32, "ballot_first_n() takes 1 to 32 threads")
    return cast(ballot(predicate) & u64(static((1 << n) - 1)), u32)


@func
def elect() -> Any:
    """1 on the subgroup's first thread, 0 on the others, i32."""
    return cast(invocation_id() == 0, i32)


@func
def all_true_tiled(predicate: Any, log2_size: template()) -> Any:
    """1 if the predicate is not zero on all threads of the tile, else 0, i32."""
    check_tile(log2_size)
    holds = cast(predicate != 0, i32)
    for k in static(range(log2_size)):
        holds = holds & shuffle_xor(holds, static(1 << k))
    return holds


@func
def any_true_tiled(predicate: Any, log2_size: template()) -> Any:
    """1 if the predicate is not zero on any thread of the tile, else 0, i32."""
    check_tile(log2_size)
    holds = cast(predicate != 0, i32)
    for k in static(range(log2_size)):
        holds = holds | shuffle_xor(holds, static(1 << k))
    return holds


@func
def all_equal_tiled(value: Any, log2_size: template()) -> Any:
    """1 if the value is the same on all threads of the tile, else 0, i32. NaN is not equal to NaN."""
    first = shuffle(value, (invocation_id() >> log2_size) << log2_size)
    return all_true_tiled(value == first, log2_size)


@func
def all_true(predicate: Any) -> Any:
    """1 if the predicate is not zero on all threads of the subgroup, else 0, i32."""
    return all_true_tiled(predicate, log2_group_size())


@func
def any_true(predicate: Any) -> Any:
    """1 if the predicate is not zero on any thread of the subgroup, else 0, i32."""
    return any_true_tiled(predicate, log2_group_size())


@func
def all_equal(value: Any) -> Any:
    """1 if the value is the same on all threads of the subgroup, else 0, i32. NaN is not equal to NaN."""
    return all_equal_tiled(value, log2_group_size())


@func
def lanemask_eq(lane_id: Any) -> Any:
    """The bit of lane 0 to 31, u32."""
    return u32(1) << cast(lane_id, u32)


@func
def lanemask_lt(lane_id: Any) -> Any:
    """The bits of all lanes below lane 0 to 31, u32."""
    return lanemask_eq(lane_id) - u32(1)


@func
def lanemask_le(lane_id: Any) -> Any:
    """The bits of lane 0 to 31 and of all lanes below, u32."""
    return lanemask_lt(lane_id) | lanemask_eq(lane_id)


@func
def lanemask_gt(lane_id: Any) -> Any:
    """The bits of all lanes above lane 0 to 31, u32."""
    return ~lanemask_le(lane_id)


@func
def lanemask_ge(lane_id: Any) -> Any:
    """The bits of lane 0 to 31 and of all lanes above, u32."""
    return ~lanemask_lt(lane_id)
