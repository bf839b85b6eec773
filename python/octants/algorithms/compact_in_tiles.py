"""Single-pass compaction: moves the elements that satisfy a condition together, in order.

Blocks take tiles in order, and pass on the number of kept elements as a scan does (`scan_in_tiles`). A subgroup counts
its own by votes. A tile's kept elements are gathered in shared memory, so that a subgroup's stores are full: if each
row stored the few elements that it keeps, `select` would be a sixth slower on an H200.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import cast, loop_config, min, popcnt, static
from octants.algorithms.scan_in_tiles import clear_words, first_in_tile, sum_before_tile, take_tile, words_for
from octants.algorithms.tile_shapes import GRID, SCAN_BLOCK, items_of_selection
from octants.simt.block_threads import SharedArray, sync, thread_idx
from octants.simt.identities import add
from octants.simt.lanes import group_size, invocation_id
from octants.simt.votes import ballot
from octants.types import i32, i64, template, u32, u64
from octants.types.values import Vector

__all__ = ["compact_in_tiles"]


@func
def _keeps_of_tile(source: template(), keeps: template(), at: Any, rest: Any, full: template(), items: template()):
    """A bit mask of the thread's elements to keep, one bit per row."""
    kept = u32(0)
    for k in static(range(items)):
        if static(full):
            kept = kept | (cast(keeps(source, at + k * group_size()), u32) << static(k))
        elif k * group_size() < rest:
            kept = kept | (cast(keeps(source, at + k * group_size()), u32) << static(k))
    return kept


@func
def _values_of_tile(arr: template(), at: Any, rest: Any, full: template(), items: template()) -> Any:
    values = Vector.zero(static(arr.dtype), static(items))
    for k in static(range(items)):
        if static(full):
            values[k] = arr[at + k * group_size()]
        elif k * group_size() < rest:
            values[k] = arr[at + k * group_size()]
    return values


@func(requires_top_level=True)
def compact_in_tiles(
    arr: template(), source: template(), keeps: template(), out: template(), count: template(), scratch: template(), n
) -> None:
    """Stream compaction: copies each scalar `arr[i]` for which `keeps(source, i)` is 1 to the front of `out`, in order,
    and writes their number to `count[0]`. Writes nothing if `n` is 0.
    """
    items = static(items_of_selection(arr.dtype))
    size = static(SCAN_BLOCK * items)
    clear_words(scratch, words_for(n, scratch, u32, items))
    loop_config(block_dim=static(SCAN_BLOCK))
    for _ in range(static(GRID * SCAN_BLOCK)):
        taken = SharedArray(1, i32)
        parts = SharedArray(static(SCAN_BLOCK // group_size()), u32)
        moved = SharedArray(size, arr.dtype)
        before_tile = SharedArray(1, u32)
        tiles = cast((n + static(size - 1)) // size, i32)
        earlier_lanes = (u64(1) << cast(invocation_id(), u64)) - u64(1)
        group = thread_idx() // group_size()
        tile = take_tile(scratch, 0, taken)
        while tile < tiles:
            begin = cast(tile, i64) * size
            left = cast(min(cast(n, i64) - begin, i64(size)), i32)
            at, rest = begin + cast(first_in_tile(items), i64), left - first_in_tile(items)
            values = Vector.zero(static(arr.dtype), static(items))
            kept = u32(0)
            if left == size:
                kept = _keeps_of_tile(source, keeps, at, rest, True, items)
                values = _values_of_tile(arr, at, rest, True, items)
            else:
                kept = _keeps_of_tile(source, keeps, at, rest, False, items)
                values = _values_of_tile(arr, at, rest, False, items)
            places = Vector.zero(u32, static(items))
            total = u32(0)
            for k in static(range(items)):
                votes = ballot((kept >> static(k)) & u32(1))
                places[k] = total + cast(popcnt(votes & earlier_lanes), u32)
                total += cast(popcnt(votes), u32)
            if invocation_id() == 0:
                parts[group] = total
            sync()
            before, tile_sum = u32(0), u32(0)
            for k in static(range(SCAN_BLOCK // group_size())):
                tile_sum += parts[k]
                if k < group:
                    before += parts[k]
            for k in static(range(items)):
                if (kept >> static(k)) & u32(1) != 0:
                    moved[before + places[k]] = values[k]
            if group == 0:
                earlier = sum_before_tile(scratch, tile, tiles, tile_sum, add, u32(0), u32)
                if invocation_id() == 0:
                    before_tile[0] = earlier
            sync()
            place = before_tile[0]
            # A subgroup's stores begin at a multiple of its size, so the first one may be partial.
            k = thread_idx() - cast(place & u32(static(group_size() - 1)), i32)
            while k < cast(tile_sum, i32):
                if k >= 0:
                    out[place + cast(k, u32)] = moved[k]
                k += SCAN_BLOCK
            if tile == tiles - 1 and thread_idx() == 0:
                count[0] = cast(place + tile_sum, static(count.dtype))
            tile = take_tile(scratch, 0, taken)
