"""What stands in scratch memory: values as unsigned words, and words that tell whether their value is there yet.

A block hands a value to others through words that it writes once: a word holds a flag besides bits of the value, so
that whoever reads it knows without a fence whether it has been written. A word that is wider than the value holds all
of it (`packed`); else two words hold a half each.
"""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from __future__ import annotations

from typing import Any

from octants.algorithms.element_types import bits_type, width
from octants.kernel_decorators import func
from octants.ops import atomic_exchange, bit_cast, cast, static, volatile_load
from octants.types import template

__all__ = ["awaited", "from_word", "publish", "to_word", "words_of_value"]


def is_packed(scratch_dtype: Any, dtype: Any) -> bool:
    """Whether a word of scratch memory holds a value of `dtype` and a flag."""
    return width(scratch_dtype) > width(dtype)


def words_of_value(scratch_dtype: Any, dtype: Any) -> int:
    """Words of scratch memory for a value and its flag."""
    return 1 if is_packed(scratch_dtype, dtype) else 2


@func
def to_word(value: Any, scratch: template(), dtype: template()) -> Any:
    """The bits of a value of `dtype` as a word of the scratch memory."""
    return cast(bit_cast(value, static(bits_type(dtype))), static(scratch.dtype))


@func
def from_word(word: Any, dtype: template()) -> Any:
    """The value of `dtype` whose bits a word has."""
    return bit_cast(cast(word, static(bits_type(dtype))), dtype)


@func
def publish(scratch: template(), first: template(), slot: Any, value: Any, dtype: template()) -> None:
    """Writes a value to a slot; the slots begin at the word `first`, and were zero."""
    word = static(scratch.dtype)
    bits = to_word(value, scratch, dtype)
    if static(is_packed(scratch.dtype, dtype)):
        flag = word(static(1 << width(dtype)))
        atomic_exchange(scratch[static(first) + slot], bits | flag)
    else:
        half = word(static(width(dtype) // 2))
        flag = word(static(1 << (width(dtype) // 2)))
        atomic_exchange(scratch[static(first) + 2 * slot], (bits & (flag - word(1))) | flag)
        atomic_exchange(scratch[static(first) + 2 * slot + 1], (bits >> half) | flag)


@func
def _written(scratch: template(), at: Any, flag: Any) -> Any:
    """A word, when its flag is set."""
    word = volatile_load(scratch[at])
    while (word & flag) == 0:
        word = volatile_load(scratch[at])
    return word


@func
def awaited(scratch: template(), first: template(), slot: Any, dtype: template()) -> Any:
    """The value of a slot, which another block writes: it waits until that is done."""
    word = static(scratch.dtype)
    bits = word(0)
    if static(is_packed(scratch.dtype, dtype)):
        bits = _written(scratch, static(first) + slot, word(static(1 << width(dtype))))
    else:
        half = word(static(width(dtype) // 2))
        flag = word(static(1 << (width(dtype) // 2)))
        low = _written(scratch, static(first) + 2 * slot, flag)
        high = _written(scratch, static(first) + 2 * slot + 1, flag)
        bits = (low & (flag - word(1))) | (high << half)
    return from_word(bits, dtype)
