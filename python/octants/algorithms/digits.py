"""Digits of sort keys: each key is mapped to an unsigned integer with the same order."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import bit_cast, cast, static
from octants.algorithms.element_types import bits_type, infinity_bits, is_float, is_signed, sortable_type, width
from octants.algorithms.tile_shapes import DIGITS
from octants.types import i32, template

__all__ = ["digit_of", "sortable_bits"]


@func
def sortable_bits(key: Any, key_dtype: template(), descending: template()) -> Any:
    """Maps a key to an unsigned integer of 32 bits or more with the same order.

    Flips the sign bit of signed integers. Of floats with the bits `u`, takes `u` plus the sign bit for positive ones
    and `-u` for negative ones, minus the bits of minus infinity, which are then zero: both zeros are equal, and each
    NaN, of either sign, follows infinity, so that a minimum makes them equal. Descending order subtracts from the
    maximum.
    """
    word = static(sortable_type(key_dtype))
    mask = word(static((1 << width(key_dtype)) - 1))
    top = word(static(1 << (width(key_dtype) - 1)))
    bits = cast(bit_cast(key, static(bits_type(key_dtype))), word)
    if static(is_float(key_dtype)):
        largest = word(static(2 * infinity_bits(key_dtype)))
        sign = word(0) - (bits >> static(width(key_dtype) - 1))
        bits = (
            (bits ^ (sign | top)) - sign - word(static((1 << (width(key_dtype) - 1)) - infinity_bits(key_dtype)))
        ) & mask
        bits = min(bits, largest + word(1))
        if static(descending):
            bits = (largest - bits) & mask
    else:
        if static(is_signed(key_dtype)):
            bits = bits ^ top
        if static(descending):
            bits = ~bits & mask
    return bits


@func
def digit_of(key: Any, shift: template(), key_dtype: template(), descending: template()) -> Any:
    """The digit of a key that starts at bit `shift`, i32."""
    bits = sortable_bits(key, key_dtype, descending) >> static(shift)
    return cast(bits & static(sortable_type(key_dtype))(static(DIGITS - 1)), i32)
