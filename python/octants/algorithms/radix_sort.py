"""A stable sort by digits, the lowest first (Knuth, The Art of Computer Programming, volume 3, section 5.2.5)."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from octants.algorithms.element_types import bits_type, check_type, is_float, is_signed, width
from octants.algorithms.tile_shapes import CHUNKS, DIGIT_BITS, DIGITS, check_capacity
from octants.kernel_decorators import func
from octants.ops import bit_cast, cast, min, static
from octants.types import i32, template, u32


def _passes(key_dtype, end_bit, log256_max_n):
    """The position of the digit of each pair of passes."""
    check_type(key_dtype)
    check_capacity(log256_max_n)
    if end_bit <= 0 or end_bit > width(key_dtype) or end_bit % (2 * DIGIT_BITS) != 0:
        raise ValueError(f"end_bit must be a multiple of {2 * DIGIT_BITS} up to {width(key_dtype)}, got {end_bit}")
    return range(0, end_bit, 2 * DIGIT_BITS)


@func
def _digit(key, shift: template(), key_dtype: template()):
    """Eight bits of the unsigned number that sorts as the key does: negative floats have all bits flipped, and positive ones
    and signed integers the sign bit.
    """
    bits = bit_cast(key, static(bits_type(key_dtype)))
    top = cast(1, static(bits_type(key_dtype))) << static(width(key_dtype) - 1)
    if static(is_signed(key_dtype)):
        bits = bits ^ top
    if static(is_float(key_dtype)):
        if bits >= top:
            bits = ~bits
        else:
            bits = bits ^ top
    return cast((bits >> static(shift)) & static(DIGITS - 1), i32)


@func(requires_top_level=True)
def _pass(
    source: template(),
    target: template(),
    source_values: template(),
    target_values: template(),
    scratch: template(),
    n: template(),
    shift: template(),
    key_dtype: template(),
    has_values: template(),
):
    for chunk in range(static(CHUNKS)):
        length = (n[()] + static(CHUNKS - 1)) // static(CHUNKS)
        for digit in range(static(DIGITS)):
            scratch[digit * static(CHUNKS) + chunk] = u32(0)
        for i in range(chunk * length, min(n[()], (chunk + 1) * length)):
            slot = _digit(source[i], shift, key_dtype) * static(CHUNKS) + chunk
            scratch[slot] = scratch[slot] + 1
    for _ in range(1):
        total = u32(0)
        for slot in range(static(DIGITS * CHUNKS)):
            count = scratch[slot]
            scratch[slot] = total
            total += count
    for chunk in range(static(CHUNKS)):
        length = (n[()] + static(CHUNKS - 1)) // static(CHUNKS)
        for i in range(chunk * length, min(n[()], (chunk + 1) * length)):
            slot = _digit(source[i], shift, key_dtype) * static(CHUNKS) + chunk
            place = cast(scratch[slot], i32)
            scratch[slot] = scratch[slot] + 1
            target[place] = source[i]
            if static(has_values):
                target_values[place] = source_values[i]


@func(requires_top_level=True)
def sort(
    keys: template(),
    tmp_keys: template(),
    values: template(),
    tmp_values: template(),
    scratch: template(),
    n: template(),
    key_dtype: template(),
    has_values: template(),
    end_bit: template(),
    log256_max_n: template(),
):
    """Sorts `keys[0:n[()]]` ascending, in place, by their low `end_bit` bits; equal keys keep their order. `tmp_keys` (and
    `tmp_values`) are as large as `keys`. With `has_values` the values move along.
    """
    for shift in static(_passes(key_dtype, end_bit, log256_max_n)):
        _pass(keys, tmp_keys, values, tmp_values, scratch, n, shift, key_dtype, has_values)
        _pass(tmp_keys, keys, tmp_values, values, scratch, n, static(shift + DIGIT_BITS), key_dtype, has_values)
