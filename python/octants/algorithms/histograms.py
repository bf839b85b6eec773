"""Histograms: the number of elements in each of several ranges of equal width.

On a GPU each block counts in its own shared memory first, if the counts fit; otherwise all threads count in global
memory.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import atomic_add, cast, loop_config, min, static
from octants.algorithms.tile_shapes import BLOCK, REDUCTION_BLOCKS, runs_in_blocks
from octants.simt.block_threads import SharedArray, sync, thread_idx
from octants.types import f64, i32, i64, template
from octants.types.values import Vector

__all__ = ["histogram"]

# Counts in a block's memory, and elements that a thread loads before it counts them.
_HELD = 4096
_ITEMS = 8


@func
def _range_of(element: Any, counts: template(), lower: Any, upper: Any) -> Any:
    """The index of an element's bin; -1 for elements outside all bins."""
    value, bins = cast(element, f64), counts.shape[0]
    result = -1
    if value >= lower and value <= upper:
        result = min(cast((value - lower) * (bins / (cast(upper, f64) - lower)), i32), bins - 1)
    return result


@func
def _count(place: Any, bins: template()) -> None:
    if place >= 0:
        atomic_add(bins[place], static(bins.dtype)(1))


@func
def _count_tiles(arr: template(), first: Any, counts: template(), bins: template(), n, lower, upper) -> None:
    """Counts the thread's elements of every `REDUCTION_BLOCKS`-th tile in `bins`, starting with tile `first`."""
    at = first
    while at + static(BLOCK * (_ITEMS - 1)) < n:
        places = Vector.zero(i32, static(_ITEMS))
        for item in static(range(_ITEMS)):
            places[item] = _range_of(arr[at + static(item * BLOCK)], counts, lower, upper)
        for item in static(range(_ITEMS)):
            _count(places[item], bins)
        at += static(REDUCTION_BLOCKS * BLOCK * _ITEMS)
    # In the last tile, some threads have fewer elements.
    for item in static(range(_ITEMS)):
        if at + static(item * BLOCK) < n:
            _count(_range_of(arr[at + static(item * BLOCK)], counts, lower, upper), bins)


@func(requires_top_level=True)
def _count_in_blocks(arr: template(), counts: template(), n, lower, upper) -> None:
    loop_config(block_dim=static(BLOCK))
    for i in range(static(REDUCTION_BLOCKS * BLOCK)):
        held = SharedArray(static(_HELD), i32)
        first = cast(i // static(BLOCK), i64) * static(BLOCK * _ITEMS) + cast(thread_idx(), i64)
        # All threads take the same branch, so that all of them reach its barriers.
        if counts.shape[0] <= static(_HELD):
            k = thread_idx()
            while k < counts.shape[0]:
                held[k] = 0
                k += static(BLOCK)
            sync()
            _count_tiles(arr, first, counts, held, n, lower, upper)
            sync()
            k = thread_idx()
            while k < counts.shape[0]:
                if held[k] > 0:
                    atomic_add(counts[k], cast(held[k], static(counts.dtype)))
                k += static(BLOCK)
        else:
            _count_tiles(arr, first, counts, counts, n, lower, upper)


@func(requires_top_level=True)
def histogram(arr: template(), counts: template(), n, lower, upper) -> None:
    """Counts the elements of `arr[0:n]` in each of `counts.shape[0]` bins of equal width from `lower` to `upper`.

    Bins are half-open, except that the last one includes `upper`. Elements outside and NaNs are not counted. Bins are
    computed in f64. `counts` is an array of integers, which is zeroed first.
    """
    for k in range(counts.shape[0]):
        counts[k] = 0
    if static(runs_in_blocks()):
        _count_in_blocks(arr, counts, n, lower, upper)
    else:
        for i in range(n):
            place = _range_of(arr[i], counts, lower, upper)
            if place >= 0:
                counts[place] += 1
