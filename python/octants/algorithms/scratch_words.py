"""What stands in scratch memory: values as unsigned words, and words that tell whether their value is there yet.

A block hands a value to others through words that it writes once: a word holds a flag besides bits of the value, so
that whoever reads it knows without a fence whether it has been written. A word that is wider than the value holds all
of it; else each word holds as many bits as half of it has.
"""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from __future__ import annotations

from typing import Any

from octants.algorithms.element_types import bits_type, width
from octants.kernel_decorators import func
from octants.ops import atomic_exchange, bit_cast, cast, static, volatile_load
from octants.types import template

__all__ = ["awaited", "publish", "published_words", "save", "saved"]


def _bits_of_word(scratch_dtype: Any, dtype: Any) -> int:
    """Bits of a value of `dtype` in a word that has a flag too."""
    return width(dtype) if width(scratch_dtype) > width(dtype) else width(scratch_dtype) // 2


def published_words(scratch_dtype: Any, dtype: Any) -> int:
    """Words of scratch memory for a value that is published."""
    return width(dtype) // _bits_of_word(scratch_dtype, dtype)


def _saved_words(scratch_dtype: Any, dtype: Any) -> int:
    """Words of scratch memory for a value that is saved."""
    return -(-width(dtype) // width(scratch_dtype))


@func
def save(scratch: template(), slot: Any, value: Any, dtype: template()) -> None:
    """Writes a value to a slot, for a later task."""
    bits = bit_cast(value, static(bits_type(dtype)))
    words = static(_saved_words(scratch.dtype, dtype))
    for k in static(range(words)):
        scratch[slot * words + k] = cast(bits >> static(k * width(scratch.dtype)), static(scratch.dtype))


@func
def saved(scratch: template(), slot: Any, dtype: template()) -> Any:
    """The value that was saved in a slot."""
    words = static(_saved_words(scratch.dtype, dtype))
    bits = cast(scratch[slot * words], static(bits_type(dtype)))
    for k in static(range(1, words)):
        word = cast(scratch[slot * words + k], static(bits_type(dtype)))
        bits = bits | (word << static(k * width(scratch.dtype)))
    return bit_cast(bits, dtype)


@func
def publish(scratch: template(), first: template(), slot: Any, value: Any, dtype: template()) -> None:
    """Writes a value to a slot for other blocks of the task. Slots begin at the word `first`, and were zero."""
    word = static(scratch.dtype)
    bits = bit_cast(value, static(bits_type(dtype)))
    held = static(_bits_of_word(scratch.dtype, dtype))
    words = static(published_words(scratch.dtype, dtype))
    for k in static(range(words)):
        part = cast(bits >> static(k * held), word) & word(static((1 << held) - 1))
        atomic_exchange(scratch[static(first + k) + words * slot], part | word(static(1 << held)))


@func
def awaited(scratch: template(), first: template(), slot: Any, dtype: template()) -> Any:
    """The value that another block publishes in a slot: waits until it is there."""
    word = static(scratch.dtype)
    bits = static(bits_type(dtype))(0)
    held = static(_bits_of_word(scratch.dtype, dtype))
    words = static(published_words(scratch.dtype, dtype))
    for k in static(range(words)):
        at = static(first + k) + words * slot
        read = volatile_load(scratch[at])
        while (read >> static(held)) == 0:
            read = volatile_load(scratch[at])
        part = cast(read & word(static((1 << held) - 1)), static(bits_type(dtype)))
        bits = bits | (part << static(k * held))
    return bit_cast(bits, dtype)
