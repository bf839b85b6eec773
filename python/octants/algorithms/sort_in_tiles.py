"""A radix sort that reads and writes the keys once for each digit (Adinets and Merrill, "Onesweep: A Faster Least
Significant Digit Radix Sort for GPUs", 2022).

The digits of all passes are counted in one pass over the keys. In each digit pass, blocks take tiles in order. A block
ranks its keys by the digit, in registers and shared memory. It finds by decoupled look-back, with one thread per
digit, how many keys of earlier tiles have the digit. It then moves the keys to their destinations, in runs of equal
digits.

A pass of 64-bit keys in which all have the same digit only copies: integers are often smaller than their type allows.
With the second path, other sorts were slower on an H200.

The state of a digit in a tile is a word (two for 2**30 keys and more). Its upper two bits tell whether the others are
the count of this tile or of all tiles up to it. Passes alternate between two areas of states: each clears the other.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import (
    atomic_add,
    atomic_exchange,
    atomic_or,
    bit_cast,
    cast,
    loop_config,
    min,
    popcnt,
    static,
    volatile_load,
)
from octants.algorithms.digits import digit_of
from octants.algorithms.element_types import bits_type, width
from octants.algorithms.scan_in_tiles import clear_words, first_in_tile, take_tile
from octants.algorithms.tile_shapes import (
    BLOCK,
    DIGIT_BITS,
    DIGITS,
    GRID,
    REDUCTION_BLOCKS,
    SMALLEST_TILE,
    items_of_pairs,
)
from octants.simt import block, subgroup
from octants.simt.lanes import group_size, invocation_id
from octants.types import i32, i64, template, u32, u64
from octants.types.values import Vector

__all__ = ["count_digits", "sort_by_digit_in_tiles"]

# Scratch memory: how many tiles each pass has given out, whether all keys have the same digit in each pass, its
# counts of digits, the two areas of states.
_MOST_PASSES = 8
_OF_ONE_DIGIT = _MOST_PASSES
_COUNTS = _OF_ONE_DIGIT + _MOST_PASSES
_STATES = _COUNTS + _MOST_PASSES * DIGITS

_OF_TILE, _UP_TO_TILE = 1, 2

# The number of counts that fit in a state word next to the flags.
_COUNTS_OF_WORD = 1 << 30


def sort_words(n: int) -> int:
    """Words of scratch memory for a sort of `n` keys."""
    tiles = (n + SMALLEST_TILE - 1) // SMALLEST_TILE
    return _STATES + 2 * tiles * DIGITS * words_of_state(n)


def words_of_state(n: int) -> int:
    """u32 words per state: one state for each digit of each tile."""
    return 1 + min(n // _COUNTS_OF_WORD, 1)


def _copies_passes(key_dtype: Any, has_values: bool) -> bool:
    return width(key_dtype) == 64 and not has_values


@func
def _keys_of_tile(
    source: template(), begin: Any, left: Any, key_dtype: template(), full: template(), items: template()
) -> Any:
    keys = Vector.zero(key_dtype, static(items))
    # Differences that change with the tile are compared with constants: sums that do not would each take a register.
    at, rest = begin + cast(first_in_tile(items), i64), left - first_in_tile(items)
    for k in static(range(items)):
        if static(full):
            keys[k] = source[at + k * group_size()]
        elif k * group_size() < rest:
            keys[k] = source[at + k * group_size()]
    return keys


@func
def _load(source: template(), begin: Any, left: Any, dtype: template(), items: template()) -> Any:
    """Loads the thread's elements of a tile, one per row; zeros from `left` on."""
    result = Vector.zero(dtype, static(items))
    if left == static(BLOCK * items):
        result = _keys_of_tile(source, begin, left, dtype, True, items)
    else:
        result = _keys_of_tile(source, begin, left, dtype, False, items)
    return result


@func(requires_top_level=True)
def count_digits(
    keys: template(),
    values: template(),
    scratch: template(),
    n,
    end_bit: template(),
    key_dtype: template(),
    has_values: template(),
    descending: template(),
) -> None:
    """Clears the scratch memory, then writes to it, for each pass, the exclusive prefix sum of the digit counts, and
    whether all keys have the same digit, if that is used."""
    items = static(items_of_pairs(key_dtype, values.dtype, has_values))
    passes = static(end_bit // DIGIT_BITS)
    word = static(scratch.dtype)
    tile_size = static(BLOCK * items)
    states = ((cast(n, i64) + static(BLOCK * items - 1)) // tile_size) * static(DIGITS)
    clear_words(scratch, static(_STATES) + states * _state_words(scratch, n))
    loop_config(block_dim=static(BLOCK))
    for i in range(static(REDUCTION_BLOCKS * BLOCK)):
        counts = block.SharedArray(static(passes * DIGITS), u32)
        thread = block.thread_idx()
        for k in static(range(passes * DIGITS // BLOCK)):
            counts[thread + static(k * BLOCK)] = u32(0)
        block.sync()
        tile = i // static(BLOCK)
        while cast(tile, i64) * tile_size < n:
            begin = cast(tile, i64) * tile_size
            left = cast(min(cast(n, i64) - begin, i64(static(BLOCK * items))), i32)
            held = _load(keys, begin, left, key_dtype, items)
            rest = left - first_in_tile(items)
            for k in static(range(items)):
                if k * group_size() < rest:
                    for digit in static(range(passes)):
                        bin = digit_of(held[k], static(digit * DIGIT_BITS), key_dtype, descending)
                        atomic_add(counts[static(digit * DIGITS) + bin], u32(1))
            tile += static(REDUCTION_BLOCKS)
        block.sync()
        for k in static(range(passes * DIGITS // BLOCK)):
            count = counts[thread + static(k * BLOCK)]
            if count > 0:
                atomic_add(scratch[static(_COUNTS + k * BLOCK) + thread], cast(count, word))
    loop_config(block_dim=static(BLOCK))
    for i in range(static(passes * DIGITS)):
        count = scratch[static(_COUNTS) + i]
        if static(_copies_passes(key_dtype, has_values)):
            is_of_one_digit = block.sync_any_nonzero(cast(cast(count, i64) == cast(n, i64), i32))
            if block.thread_idx() == 0:
                scratch[static(_OF_ONE_DIGIT) + i // static(DIGITS)] = cast(is_of_one_digit, word)
        scratch[static(_COUNTS) + i] = block.exclusive_add(count, static(BLOCK), word)


@func
def _state_words(scratch: template(), n) -> Any:
    """Words per state. One u64 always suffices."""
    words = i64(1)
    if static(width(scratch.dtype) == 32):
        if cast(n, i64) >= i64(static(_COUNTS_OF_WORD)):
            words = i64(2)
    return words


@func
def _publish(scratch: template(), at: Any, words: Any, count: Any, state: template()) -> None:
    word = static(scratch.dtype)
    bits = static(width(scratch.dtype))
    flag = word(static(state << (width(scratch.dtype) - 2)))
    if words == 1:
        atomic_exchange(scratch[at], count | flag)
    else:
        half = static(bits // 2)
        atomic_exchange(scratch[at], (count & word(static((1 << (width(scratch.dtype) // 2)) - 1))) | flag)
        atomic_exchange(scratch[at + static(DIGITS)], (count >> word(half)) | flag)


@func
def _look_back(scratch: template(), first: Any, words: Any, tile: Any, digit: Any) -> Any:
    """Decoupled look-back: the number of keys with this digit in earlier tiles."""
    word = static(scratch.dtype)
    shift = static(width(scratch.dtype) - 2)
    mask = word(static((1 << (width(scratch.dtype) - 2)) - 1))
    before = word(0)
    earlier = tile - 1
    while earlier >= 0:
        at = first + cast(earlier, i64) * static(DIGITS) * words + cast(digit, i64)
        low = volatile_load(scratch[at])
        state, count = low >> shift, low & mask
        if words == 2:
            high = volatile_load(scratch[at + static(DIGITS)])
            count = count | ((high & mask) << word(static(width(scratch.dtype) // 2)))
            if high >> shift != state:
                # One half is of the tile only, the other is not: read both again.
                state = word(0)
        if state != 0:
            before += count
            earlier -= 1
            if state == static(_UP_TO_TILE):
                earlier = -1
    return before


@func
def _digit_in_tile(key: Any, is_left: Any, shift: template(), key_dtype: template(), descending: template()) -> Any:
    """The digit of a key. Positions past the last key get the largest digit, so they stay at the end."""
    digit = i32(static(DIGITS - 1))
    if is_left:
        digit = digit_of(key, shift, key_dtype, descending)
    return digit


@func
def _places_in_tile(
    keys: Any,
    rest: Any,
    counts: template(),
    lanes: template(),
    shift: template(),
    key_dtype: template(),
    descending: template(),
    items: template(),
) -> Any:
    """The position of each of the thread's keys in the sorted tile. `counts` holds the start of each digit's keys per
    subgroup, and on return their end. `lanes` holds zeros before and after.

    The threads of a subgroup with equal digits find each other through a bit mask in a word of `lanes`: the ranking by
    matching of Adinets and Merrill.
    """
    mask = static(lanes.dtype)
    own = mask(1) << cast(invocation_id(), mask)
    group = block.thread_idx() // group_size()
    places = Vector.zero(i32, static(items))
    for k in static(range(items)):
        digit = _digit_in_tile(keys[k], k * group_size() < rest, shift, key_dtype, descending)
        at = group * static(DIGITS) + digit
        atomic_or(lanes[at], own)
        subgroup.sync()
        same = lanes[at]
        first = counts[at]
        subgroup.sync()
        before = cast(popcnt(same & (own - mask(1))), i32)
        if before == 0:
            counts[at] = first + cast(popcnt(same), i32)
            lanes[at] = mask(0)
        subgroup.sync()
        places[k] = first + before
    return places


@func
def _exchange(held: template(), elements: Any, places: Any, items: template()) -> Any:
    """Moves each element of the block to its position in the tile; returns every `BLOCK`-th element to a thread."""
    word = static(held.dtype)
    block.sync()
    for k in static(range(items)):
        held[places[k]] = bit_cast(elements[k], word)
    block.sync()
    result = Vector.zero(word, static(items))
    for k in static(range(items)):
        result[k] = held[block.thread_idx() + static(k * BLOCK)]
    return result


@func
def _copy_tile(source: template(), target: template(), begin: Any, left: Any, items: template()) -> None:
    at = begin + cast(block.thread_idx(), i64)
    for k in static(range(items)):
        if static(k * BLOCK) < left - block.thread_idx():
            target[at + static(k * BLOCK)] = source[at + static(k * BLOCK)]


@func
def _clear_state(scratch: template(), at: Any, words: Any) -> None:
    word = static(scratch.dtype)
    scratch[at] = word(0)
    if words == 2:
        scratch[at + static(DIGITS)] = word(0)


@func
def _move_values(
    source: template(),
    target: template(),
    held: template(),
    begin: Any,
    left: Any,
    ranks: Any,
    places: Any,
    items: template(),
) -> None:
    values = _exchange(held, _load(source, begin, left, static(source.dtype), items), ranks, items)
    rest = left - block.thread_idx()
    for k in static(range(items)):
        if static(k * BLOCK) < rest:
            target[places[k]] = bit_cast(values[k], static(source.dtype))


@func(requires_top_level=True)
def sort_by_digit_in_tiles(
    source: template(),
    target: template(),
    source_values: template(),
    target_values: template(),
    scratch: template(),
    n,
    shift: template(),
    key_dtype: template(),
    has_values: template(),
    descending: template(),
) -> None:
    """Moves the keys to `target`, stably sorted by one digit."""
    items = static(items_of_pairs(key_dtype, source_values.dtype, has_values))
    number = static(shift // DIGIT_BITS)
    word = static(scratch.dtype)
    key_bits = static(bits_type(key_dtype))
    groups = static(BLOCK // group_size())
    loop_config(block_dim=static(BLOCK))
    for _ in range(static(GRID * BLOCK)):
        taken = block.SharedArray(1, i32)
        counts = block.SharedArray(static(groups * DIGITS), i32)
        offsets = block.SharedArray(static(DIGITS), word)
        held = block.SharedArray(static(BLOCK * items), key_bits)
        lanes = block.SharedArray(static(groups * DIGITS), static(u32 if group_size() == 32 else u64))
        thread = block.thread_idx()
        group = thread // group_size()
        tiles = cast((cast(n, i64) + static(BLOCK * items - 1)) // static(BLOCK * items), i32)
        words = _state_words(scratch, n)
        area = cast(tiles, i64) * static(DIGITS) * words
        states = static(_STATES) + area * static(number % 2)
        others = static(_STATES) + area * static(1 - number % 2)
        for k in static(range(groups * DIGITS // BLOCK)):
            lanes[thread + static(k * BLOCK)] = static(lanes.dtype)(0)
        tile = take_tile(scratch, number, taken)
        if static(_copies_passes(key_dtype, has_values)):
            if scratch[static(_OF_ONE_DIGIT + number)] != 0:
                while tile < tiles:
                    begin = cast(tile, i64) * static(BLOCK * items)
                    left = cast(min(cast(n, i64) - begin, i64(static(BLOCK * items))), i32)
                    _copy_tile(source, target, begin, left, items)
                    _clear_state(scratch, others + cast(tile, i64) * static(DIGITS) * words + cast(thread, i64), words)
                    # All threads have read the number of this tile.
                    block.sync()
                    tile = take_tile(scratch, number, taken)
        while tile < tiles:
            begin = cast(tile, i64) * static(BLOCK * items)
            left = cast(min(cast(n, i64) - begin, i64(static(BLOCK * items))), i32)
            row = cast(tile, i64) * static(DIGITS) * words + cast(thread, i64)
            keys = _load(source, begin, left, key_dtype, items)
            rest = left - first_in_tile(items)
            for k in static(range(groups * DIGITS // BLOCK)):
                counts[thread + static(k * BLOCK)] = 0
            block.sync()
            for k in static(range(items)):
                digit = _digit_in_tile(keys[k], k * group_size() < rest, shift, key_dtype, descending)
                atomic_add(counts[group * static(DIGITS) + digit], 1)
            block.sync()
            # Each thread now handles one digit: first its count in the tile, which others may be waiting for.
            total = 0
            for k in static(range(groups)):
                total += counts[static(k * DIGITS) + thread]
            if tile == 0:
                _publish(scratch, states + row, words, cast(total, word), _UP_TO_TILE)
            else:
                _publish(scratch, states + row, words, cast(total, word), _OF_TILE)
            smaller = block.exclusive_add(total, static(BLOCK), i32)
            first = smaller
            for k in static(range(groups)):
                count = counts[static(k * DIGITS) + thread]
                counts[static(k * DIGITS) + thread] = first
                first += count
            block.sync()
            ranks = _places_in_tile(keys, rest, counts, lanes, shift, key_dtype, descending, items)
            before = _look_back(scratch, states, words, tile, thread)
            if tile > 0:
                _publish(scratch, states + row, words, before + cast(total, word), _UP_TO_TILE)
            _clear_state(scratch, others + row, words)
            offsets[thread] = scratch[static(_COUNTS + number * DIGITS) + thread] + before - cast(smaller, word)
            sorted_keys = _exchange(held, keys, ranks, items)
            places = Vector.zero(word, static(items))
            rest = left - thread
            for k in static(range(items)):
                key = bit_cast(sorted_keys[k], key_dtype)
                local = cast(thread + static(k * BLOCK), word)
                places[k] = offsets[digit_of(key, shift, key_dtype, descending)] + local
                if static(k * BLOCK) < rest:
                    target[places[k]] = key
            if static(has_values):
                if static(width(source_values.dtype) == width(key_dtype)):
                    _move_values(source_values, target_values, held, begin, left, ranks, places, items)
                else:
                    value_bits = static(bits_type(source_values.dtype))
                    held_values = block.SharedArray(static(BLOCK * items), value_bits)
                    _move_values(source_values, target_values, held_values, begin, left, ranks, places, items)
            tile = take_tile(scratch, number, taken)
