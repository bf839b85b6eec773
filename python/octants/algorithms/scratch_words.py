"""The contents of scratch memory: values as unsigned words, with a flag that tells whether the value has been written.

A block passes a value to others through words that it writes once. A word holds a flag besides bits of the value, so a
reader can tell without a fence whether it has been written. A word wider than the value holds all of it; otherwise
each word holds half of the word's bits.
"""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import atomic_exchange, bit_cast, cast, static, volatile_load
from octants.algorithms.element_types import bits_type, components, is_pair, width
from octants.types import template
from octants.types.values import Vector

__all__ = ["awaited", "publish", "published_words", "save", "saved"]


def _bits_of_word(scratch_dtype: Any, dtype: Any) -> int:
    """Bits of a `dtype` value that fit in a word next to a flag."""
    return width(dtype) if width(scratch_dtype) > width(dtype) else width(scratch_dtype) // 2


def published_words(scratch_dtype: Any, dtype: Any) -> int:
    """Words of scratch memory per published value."""
    return components(dtype) * width(dtype) // _bits_of_word(scratch_dtype, dtype)


def _saved_words(scratch_dtype: Any, dtype: Any) -> int:
    """Words of scratch memory per saved value."""
    return -(-width(dtype) // width(scratch_dtype))


@func
def _bits(value: Any, component: template(), dtype: template()) -> Any:
    """The bits of a value, or of one component of a pair."""
    if static(is_pair(dtype)):
        return bit_cast(value[component], static(bits_type(dtype)))
    else:
        return bit_cast(value, static(bits_type(dtype)))


@func
def _saved_bits(scratch: template(), first: Any, dtype: template()) -> Any:
    words = static(_saved_words(scratch.dtype, dtype))
    bits = cast(scratch[first], static(bits_type(dtype)))
    for k in static(range(1, words)):
        word = cast(scratch[first + k], static(bits_type(dtype)))
        bits = bits | (word << static(k * width(scratch.dtype)))
    return bits


@func
def save(scratch: template(), slot: Any, value: Any, dtype: template()) -> None:
    """Writes a value to a slot for a later task."""
    words = static(_saved_words(scratch.dtype, dtype))
    for c in static(range(components(dtype))):
        bits = _bits(value, c, dtype)
        first = (slot * static(components(dtype)) + c) * words
        for k in static(range(words)):
            scratch[first + k] = cast(bits >> static(k * width(scratch.dtype)), static(scratch.dtype))


@func
def saved(scratch: template(), slot: Any, dtype: template()) -> Any:
    """The value saved in a slot."""
    words = static(_saved_words(scratch.dtype, dtype))
    if static(is_pair(dtype)):
        first = slot * static(2) * words
        return Vector([_saved_bits(scratch, first, dtype), _saved_bits(scratch, first + words, dtype)])
    else:
        return bit_cast(_saved_bits(scratch, slot * words, dtype), dtype)


@func
def publish(scratch: template(), first: template(), slot: Any, value: Any, dtype: template()) -> None:
    """Writes a value to a slot for other blocks of the task. Slots start at word `first` and must be zero before."""
    word = static(scratch.dtype)
    held = static(_bits_of_word(scratch.dtype, dtype))
    words = static(published_words(scratch.dtype, dtype))
    each = static(words // components(dtype))
    for c in static(range(components(dtype))):
        bits = _bits(value, c, dtype)
        for k in static(range(each)):
            part = cast(bits >> static(k * held), word) & word(static((1 << held) - 1))
            atomic_exchange(scratch[static(first + c * each + k) + words * slot], part | word(static(1 << held)))


@func
def _awaited_bits(scratch: template(), at: Any, each: template(), dtype: template()) -> Any:
    word = static(scratch.dtype)
    bits = static(bits_type(dtype))(0)
    held = static(_bits_of_word(scratch.dtype, dtype))
    for k in static(range(each)):
        read = volatile_load(scratch[at + k])
        while (read >> static(held)) == 0:
            read = volatile_load(scratch[at + k])
        part = cast(read & word(static((1 << held) - 1)), static(bits_type(dtype)))
        bits = bits | (part << static(k * held))
    return bits


@func
def awaited(scratch: template(), first: template(), slot: Any, dtype: template()) -> Any:
    """Spins until another block has published a value in a slot, and returns it."""
    words = static(published_words(scratch.dtype, dtype))
    at = first + words * slot
    if static(is_pair(dtype)):
        each = static(words // 2)
        return Vector([_awaited_bits(scratch, at, each, dtype), _awaited_bits(scratch, at + each, each, dtype)])
    else:
        return bit_cast(_awaited_bits(scratch, at, words, dtype), dtype)
