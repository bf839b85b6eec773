"""The first k elements of an array in ascending or descending order.

The key of the last element of the result is found digit by digit, from the highest. Then one scan moves the elements
with a smaller key and the first of those with an equal one, and these few elements are sorted.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import atomic_add, cast, loop_config, static
from octants.algorithms.digits import sortable_bits
from octants.algorithms.element_types import sortable_type, width
from octants.algorithms.scans import scan
from octants.algorithms.tile_shapes import DIGIT_BITS, DIGITS, REDUCTION_BLOCKS, runs_in_blocks
from octants.simt.block_threads import SharedArray, sync, thread_idx
from octants.simt.identities import add
from octants.types import i32, i64, template, u32, u64
from octants.types.values import Vector

__all__ = ["find_threshold", "take_up_to_threshold"]

# The state of the search, in words of u64: after each digit the key so far, and how many elements that begin with it
# belong to the result; then a histogram of the digit that is looked at.
_MOST_STEPS = 8
_KEYS, _WANTED, _BINS = 0, _MOST_STEPS + 1, 2 * (_MOST_STEPS + 1)
SEARCH_WORDS = _BINS + DIGITS

# Elements that a thread loads before it counts them.
_ITEMS = 8


def _steps(dtype: Any) -> int:
    return width(sortable_type(dtype)) // DIGIT_BITS


@func
def _digit_within(
    element: Any,
    search: template(),
    step: template(),
    shift: template(),
    key_dtype: template(),
    descending: template(),
) -> Any:
    """The digit of the element's key; -1 unless the digits before it equal those of the threshold."""
    word = static(sortable_type(key_dtype))
    bits = sortable_bits(element, key_dtype, descending) >> static(shift)
    digit = cast(bits & word(static(DIGITS - 1)), i32)
    if bits >> word(static(DIGIT_BITS)) != cast(search[static(_KEYS + step)], word):
        digit = -1
    return digit


@func(requires_top_level=True)
def _count_in_blocks(
    arr: template(),
    search: template(),
    n,
    step: template(),
    shift: template(),
    key_dtype: template(),
    descending: template(),
) -> None:
    """Counts digits in shared memory first, because many keys have the same digit."""
    loop_config(block_dim=static(DIGITS))
    for i in range(static(REDUCTION_BLOCKS * DIGITS)):
        held = SharedArray(static(DIGITS), i32)
        thread = thread_idx()
        held[thread] = 0
        sync()
        at = cast(i // static(DIGITS), i64) * static(DIGITS * _ITEMS) + cast(thread, i64)
        while at < n:
            digits = Vector.zero(i32, static(_ITEMS))
            for item in static(range(_ITEMS)):
                digits[item] = -1
                if at + static(item * DIGITS) < n:
                    element = arr[at + static(item * DIGITS)]
                    digits[item] = _digit_within(element, search, step, shift, key_dtype, descending)
            for item in static(range(_ITEMS)):
                if digits[item] >= 0:
                    atomic_add(held[digits[item]], 1)
            at += static(REDUCTION_BLOCKS * DIGITS * _ITEMS)
        sync()
        if held[thread] > 0:
            atomic_add(search[static(_BINS) + thread], cast(held[thread], u64))


@func(requires_top_level=True)
def find_threshold(arr: template(), search: template(), n, k, key_dtype: template(), descending: template()) -> None:
    """Finds the key of the `k`-th element in order. `search` has `SEARCH_WORDS` words of u64."""
    for slot in range(static(SEARCH_WORDS)):
        search[slot] = u64(0)
        if slot == static(_WANTED):
            search[slot] = cast(k, u64)
    for step in static(range(_steps(key_dtype))):
        shift = static(width(sortable_type(key_dtype)) - (step + 1) * DIGIT_BITS)
        for digit in range(static(DIGITS)):
            search[static(_BINS) + digit] = u64(0)
        if static(runs_in_blocks()):
            _count_in_blocks(arr, search, n, step, shift, key_dtype, descending)
        else:
            for i in range(n):
                digit = _digit_within(arr[i], search, step, shift, key_dtype, descending)
                if digit >= 0:
                    atomic_add(search[static(_BINS) + digit], u64(1))
        # Each digit sums the counts of those before it; exactly one is the threshold's.
        for digit in range(static(DIGITS)):
            before = u64(0)
            for smaller in range(digit):
                before += search[static(_BINS) + smaller]
            wanted = search[static(_WANTED + step)]
            if before < wanted and wanted <= before + search[static(_BINS) + digit]:
                search[static(_WANTED + step + 1)] = wanted - before
                so_far = search[static(_KEYS + step)] << u64(static(DIGIT_BITS))
                search[static(_KEYS + step + 1)] = so_far | cast(digit, u64)


def _comparison(descending: bool) -> Any:
    @func
    def smaller_or_equal(source: template(), i: Any) -> Any:
        """A pair of counts: keys before the threshold in the high half, keys equal to it in the low half."""
        arr, search = source
        bits = cast(sortable_bits(arr[i], static(arr.dtype), static(descending)), u64)
        threshold = search[static(_KEYS + _steps(arr.dtype))]
        result = u64(0)
        if bits < threshold:
            result = u64(static(1 << 32))
        elif bits == threshold:
            result = u64(1)
        return result

    return smaller_or_equal


@func
def _take(sink: template(), i: Any, places: Any, value: Any) -> None:
    arr, search, keys, indices, k = sink
    wanted = search[static(_WANTED + _steps(arr.dtype))]
    place = places >> u64(32)
    taken = value > u64(1)
    if value == u64(1):
        equal = places & u64(0xFFFF_FFFF)
        taken = equal < wanted
        place = cast(k, u64) - wanted + equal
    if taken:
        keys[place] = arr[i]
        indices[place] = cast(i, u32)


@func(requires_top_level=True)
def take_up_to_threshold(
    arr: template(),
    search: template(),
    keys: template(),
    indices: template(),
    scratch: template(),
    n,
    k,
    descending: template(),
) -> None:
    """Takes the first `k` elements in order, unsorted, with their indices; ties go to the lowest indices."""
    load = static(_comparison(descending))
    scan((arr, search), load, (arr, search, keys, indices, k), _take, scratch, n, u64, add, u64(0), False)
