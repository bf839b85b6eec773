"""Single-pass scan: blocks take tiles in order, and pass the sums of tiles on to each other.

This is decoupled look-back (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016)
with a different look-back structure. The order of combination depends only on positions, so sums of floats are the
same in each run. Tiles are the leaves of a tree whose nodes have as many children as a subgroup has threads. Each tile
publishes its sum. The last tile of a node waits for the sums of the others, and publishes the node's. The prefix of a
tile is then the sum of its earlier siblings, of its node's earlier siblings, and so on: one read of the subgroup per
level.

A block waits only for tiles that were taken before its own, by blocks that have therefore begun. It relies on forward
progress of blocks that have begun, which GPUs guarantee, not on the order in which blocks begin.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import atomic_add, cast, loop_config, min, static
from octants.algorithms.element_types import is_pair
from octants.algorithms.scratch_words import awaited, publish, published_words
from octants.algorithms.tile_shapes import (
    FAN_OUT,
    GRID,
    SCAN_BLOCK,
    SMALLEST_TILE,
    adjacent_of_scan,
    items_of_scan,
)
from octants.simt.block_threads import SharedArray, sync, thread_idx
from octants.simt.lanes import group_size, invocation_id, log2_group_size, shuffle, shuffle_up
from octants.simt.scans import _inclusive_tiled
from octants.types import i32, i64, template, u64
from octants.types.values import Matrix, Vector

__all__ = ["clear_words", "first_in_tile", "scan_in_tiles", "scan_words", "sum_before_tile", "take_tile", "words_for"]

# The first word of scratch memory counts the tiles that have been taken.
_SUMS = 1


def tree_slots(tiles: int) -> int:
    """Slots for the sums of tiles and of the tree nodes above them."""
    return tiles + tiles // (FAN_OUT - 1) + 1


def scan_words(n: int, words_of_value: int) -> int:
    """Words of scratch memory for a scan of `n` elements."""
    return _SUMS + words_of_value * tree_slots((n + SMALLEST_TILE - 1) // SMALLEST_TILE)


@func
def first_in_tile(items: template()) -> Any:
    """Position of the thread's first element in a tile. The rows of a subgroup are adjacent."""
    return (thread_idx() // group_size()) * static(group_size() * items) + invocation_id()


@func
def first_of_thread(items: template(), adjacent: template()) -> Any:
    """Position of the thread's first element in a tile of a scan. A row of the subgroup has `adjacent` elements of
    each thread.
    """
    return (thread_idx() // group_size()) * static(group_size() * items) + invocation_id() * static(adjacent)


@func
def _place(k: template(), adjacent: template()) -> Any:
    """Position of the thread's element `k`, from its first one."""
    return static(k // adjacent * adjacent) * group_size() + static(k % adjacent)


@func
def _item(values: Any, k: template(), dtype: template()) -> Any:
    """One of the elements that a thread holds. Pairs are rows of a matrix."""
    if static(is_pair(dtype)):
        return Vector([values[k, 0], values[k, 1]])
    else:
        return values[k]


@func
def _set_item(values: template(), k: template(), value: Any, dtype: template()) -> None:
    if static(is_pair(dtype)):
        values[k, 0] = value[0]
        values[k, 1] = value[1]
    else:
        values[k] = value


@func
def load_tile(
    source: template(), load: template(), begin: Any, left: Any, identity, dtype: template(), items: template()
) -> Any:
    """Loads the thread's elements of the tile that starts at `begin`; `identity` from `left` on."""
    values = Vector.zero(dtype, static(items)) if static(not is_pair(dtype)) else Matrix.zero(u64, static(items), 2)
    adjacent = static(adjacent_of_scan(dtype))
    first = first_of_thread(items, adjacent)
    # Differences that change with the tile are compared with constants: sums that do not would each take a register.
    at, rest = begin + cast(first, i64), left - first
    if left >= static(SCAN_BLOCK * items):
        for k in static(range(items)):
            _set_item(values, k, load(source, at + _place(k, adjacent)), dtype)
    else:
        for k in static(range(items)):
            _set_item(values, k, identity, dtype)
            if _place(k, adjacent) < rest:
                _set_item(values, k, load(source, at + _place(k, adjacent)), dtype)
    return values


@func
def _store_tile(
    sink: template(),
    store: template(),
    begin: Any,
    left: Any,
    results: Any,
    values: Any,
    dtype: template(),
    items: template(),
) -> None:
    adjacent = static(adjacent_of_scan(dtype))
    first = first_of_thread(items, adjacent)
    at, rest = begin + cast(first, i64), left - first
    if left >= static(SCAN_BLOCK * items):
        for k in static(range(items)):
            store(sink, at + _place(k, adjacent), _item(results, k, dtype), _item(values, k, dtype))
    else:
        for k in static(range(items)):
            if _place(k, adjacent) < rest:
                store(sink, at + _place(k, adjacent), _item(results, k, dtype), _item(values, k, dtype))


@func
def _scan_rows(
    values: Any, op: template(), identity, inclusive: template(), dtype: template(), items: template()
) -> Any:
    """The scan of the subgroup's rows, and the sum of all of them."""
    results = values
    total = identity
    adjacent = static(adjacent_of_scan(dtype))
    for row in static(range(items // adjacent_of_scan(dtype))):
        own = _item(values, static(row * adjacent), dtype)
        for k in static(range(1, adjacent)):
            own = op(own, _item(values, static(row * adjacent + k), dtype))
        sums = _inclusive_tiled(own, op, log2_group_size())
        last = shuffle(sums, static(group_size() - 1))
        if static(inclusive and adjacent == 1):
            if static(row > 0):
                sums = op(total, sums)
            _set_item(results, row, sums, dtype)
        else:
            before = shuffle_up(sums, 1)
            if invocation_id() == 0:
                before = identity
            if static(row > 0):
                before = op(total, before)
            for k in static(range(row * adjacent, (row + 1) * adjacent)):
                up_to = op(before, _item(values, k, dtype))
                if static(inclusive):
                    _set_item(results, k, up_to, dtype)
                else:
                    _set_item(results, k, before, dtype)
                before = up_to
        if static(row > 0):
            total = op(total, last)
        else:
            total = last
    return results, total


@func
def sum_before_tile(
    scratch: template(), tile: Any, tiles: Any, total: Any, op: template(), identity, dtype: template()
) -> Any:
    """Publishes the sum of a tile, and returns the sum of all tiles before it. Called by one subgroup."""
    lane = invocation_id()
    if lane == 0:
        publish(scratch, _SUMS, tile, total, dtype)
    before = identity
    level, nodes, node = 0, tiles, tile
    # The sum of the node, as long as the tile is the last one of it.
    is_last, node_sum = True, total
    while node > 0:
        place = node & static(group_size() - 1)
        parent = node >> log2_group_size()
        value = identity
        if lane < place:
            value = awaited(scratch, _SUMS, level + (node - place) + lane, dtype)
        elif lane == place and is_last:
            value = node_sum
        sums = _inclusive_tiled(value, op, log2_group_size())
        earlier = shuffle(sums, (place - 1) & static(group_size() - 1))
        node_sum = shuffle(sums, static(group_size() - 1))
        if place > 0:
            before = op(earlier, before)
        level += nodes
        is_last = is_last and place == static(group_size() - 1)
        if is_last and lane == 0:
            publish(scratch, _SUMS, level + parent, node_sum, dtype)
        nodes = nodes >> log2_group_size()
        node = parent
    return before


@func
def take_tile(scratch: template(), counter: template(), shared: template()) -> Any:
    """The index of the next tile, from an atomic counter in scratch memory. Each tile goes to exactly one block."""
    if thread_idx() == 0:
        shared[0] = cast(atomic_add(scratch[static(counter)], static(scratch.dtype)(1)), i32)
    sync()
    return shared[0]


@func(requires_top_level=True)
def clear_words(scratch: template(), words: Any) -> None:
    """Zeroes the first words of scratch memory."""
    for k in range(words):
        scratch[k] = static(scratch.dtype)(0)


@func
def words_for(n, scratch: template(), dtype: template(), items: template()) -> Any:
    """Words of scratch memory to clear for `n` elements in tiles of `items` elements per thread, with sums of
    `dtype`.
    """
    tile = static(SCAN_BLOCK * items)
    slots = tree_slots((n + tile - 1) // tile)
    return cast(static(_SUMS) + slots * static(published_words(scratch.dtype, dtype)), i32)


@func(requires_top_level=True)
def scan_in_tiles(
    source: template(),
    load: template(),
    sink: template(),
    store: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    inclusive: template(),
) -> None:
    """Calls `store(sink, i, result, value)` for each `i` below `n`. `value` is `load(source, i)`, of `dtype`. `result`
    is the reduction by `op` of the values up to it (`inclusive`) or before it.
    """
    items = static(items_of_scan(dtype))
    clear_words(scratch, words_for(n, scratch, dtype, items))
    loop_config(block_dim=static(SCAN_BLOCK))
    for _ in range(static(GRID * SCAN_BLOCK)):
        taken = SharedArray(1, i32)
        parts = SharedArray(static(SCAN_BLOCK // group_size()), dtype)
        before_tile = SharedArray(1, dtype)
        tiles = cast((n + static(SCAN_BLOCK * items - 1)) // static(SCAN_BLOCK * items), i32)
        tile = take_tile(scratch, 0, taken)
        while tile < tiles:
            begin = cast(tile, i64) * static(SCAN_BLOCK * items)
            left = cast(min(cast(n, i64) - begin, i64(static(SCAN_BLOCK * items))), i32)
            values = load_tile(source, load, begin, left, identity, dtype, items)
            results, total = _scan_rows(values, op, identity, inclusive, dtype, items)
            group = thread_idx() // group_size()
            if invocation_id() == 0:
                parts[group] = total
            sync()
            before, tile_sum = identity, parts[0]
            for k in static(range(SCAN_BLOCK // group_size())):
                if static(k > 0):
                    tile_sum = op(tile_sum, parts[k])
                if k < group:
                    before = op(before, parts[k])
            if group == 0:
                earlier = sum_before_tile(scratch, tile, tiles, tile_sum, op, identity, dtype)
                if invocation_id() == 0:
                    before_tile[0] = earlier
            sync()
            before = op(before_tile[0], before)
            for k in static(range(items)):
                _set_item(results, k, op(before, _item(results, k, dtype)), dtype)
            _store_tile(sink, store, begin, left, results, values, dtype, items)
            tile = take_tile(scratch, 0, taken)
