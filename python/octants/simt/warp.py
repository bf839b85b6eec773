"""Older names of operations of a subgroup, for subgroups of 32 threads. New programs use `qd.simt.subgroup`.

The masks, u32, name the threads that take part; all threads of the subgroup execute the operation.
"""

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, select, static, static_assert
from octants.simt import lanes, votes
from octants.types import i32, u32

__all__ = [
    "active_mask",
    "all_nonzero",
    "any_nonzero",
    "ballot",
    "match_all",
    "match_any",
    "shfl_down_f32",
    "shfl_down_i32",
    "shfl_sync_f32",
    "shfl_sync_i32",
    "shfl_up_f32",
    "shfl_up_i32",
    "shfl_xor_i32",
    "sync",
    "unique",
]


@func
def _votes(mask: Any, predicate: Any) -> Any:
    static_assert(lanes.group_size() == 32, "qd.simt.warp is for subgroups of 32 threads: use qd.simt.subgroup")
    return cast(votes.ballot(predicate), u32) & cast(mask, u32)


@func
def _shuffle(value: Any, lane: Any) -> Any:
    static_assert(lanes.group_size() == 32, "qd.simt.warp is for subgroups of 32 threads: use qd.simt.subgroup")
    return lanes.shuffle(value, cast(lane, i32))


@func
def all_nonzero(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is not zero on all threads of the mask, else 0, i32."""
    return cast(_votes(mask, predicate) == cast(mask, u32), i32)


@func
def any_nonzero(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is not zero on any thread of the mask, else 0, i32."""
    return cast(_votes(mask, predicate) != 0, i32)


@func
def unique(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is uniform: not zero on all threads of the mask, or on none; else 0, i32."""
    given = _votes(mask, predicate)
    return cast(given == 0 or given == cast(mask, u32), i32)


@func
def ballot(predicate: Any) -> Any:
    """A bit mask of the threads of the subgroup whose predicate is not zero, i32."""
    return cast(_votes(u32(0xFFFFFFFF), predicate), i32)


@func
def shfl_sync_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The i32 of the thread with that index."""
    return _shuffle(cast(val, i32), offset & 31)


@func
def shfl_sync_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The f32 of the thread with that index."""
    return _shuffle(val, offset & 31)


@func
def shfl_up_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The i32 of the thread `offset` below; the thread's own value if there is none."""
    return lanes.shuffle_up(cast(val, i32), offset)


@func
def shfl_up_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The f32 of the thread `offset` below; the thread's own value if there is none."""
    return lanes.shuffle_up(val, offset)


@func
def shfl_down_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The i32 of the thread `offset` above; the thread's own value if there is none."""
    return lanes.shuffle_down(cast(val, i32), offset)


@func
def shfl_down_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The f32 of the thread `offset` above; the thread's own value if there is none."""
    return lanes.shuffle_down(val, offset)


@func
def shfl_xor_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The i32 of the thread whose index is this one xor the offset."""
    return lanes.shuffle_xor(cast(val, i32), offset)


@func
def match_any(mask: Any, value: Any) -> Any:
    """A bit mask of the threads of the mask with the same value, u32."""
    same = u32(0)
    for k in static(range(32)):
        if _shuffle(value, k) == value:
            same = same | u32(static(1 << k))
    return same & cast(mask, u32)


@func
def match_all(mask: Any, val: Any) -> Any:
    """The mask if all its threads have the same value, else 0, u32."""
    chosen = cast(mask, u32)
    return select(match_any(mask, val) == chosen, chosen, u32(0))


@func
def active_mask() -> Any:
    """A bit mask of the active threads of the subgroup, u32."""
    return _votes(u32(0xFFFFFFFF), 1)


@func
def sync(mask: Any) -> None:
    """A barrier of the subgroup."""
    lanes.sync()
