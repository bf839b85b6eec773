"""A stable least-significant-digit radix sort (Knuth, The Art of Computer Programming, volume 3, section 5.2.5)."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import static
from octants.algorithms.element_types import check_key, sortable_type, width
from octants.algorithms.sort_in_chunks import sort_by_digit_in_chunks
from octants.algorithms.sort_in_tiles import count_digits, sort_by_digit_in_tiles
from octants.algorithms.tile_shapes import DIGIT_BITS, check_capacity, runs_in_blocks
from octants.types import template

__all__ = ["sort", "sort_descending"]


def _passes(key_dtype: Any, end_bit: int, log256_max_n: int) -> range:
    """The start bit of the first digit of each pair of passes."""
    check_key(key_dtype)
    check_capacity(log256_max_n)
    bits = width(sortable_type(key_dtype))
    if end_bit <= 0 or end_bit > bits or end_bit % (2 * DIGIT_BITS) != 0:
        raise ValueError(f"end_bit must be a multiple of {2 * DIGIT_BITS} up to {bits}, got {end_bit}")
    return range(0, end_bit, 2 * DIGIT_BITS)


@func(requires_top_level=True)
def _pass(
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
    if static(runs_in_blocks()):
        sort_by_digit_in_tiles(
            source, target, source_values, target_values, scratch, n, shift, key_dtype, has_values, descending
        )
    else:
        sort_by_digit_in_chunks(
            source, target, source_values, target_values, scratch, n, shift, key_dtype, has_values, descending
        )


@func(requires_top_level=True)
def sort_digits(
    keys: template(),
    tmp_keys: template(),
    values: template(),
    tmp_values: template(),
    scratch: template(),
    n,
    key_dtype: template(),
    has_values: template(),
    descending: template(),
    end_bit: template(),
    log256_max_n: template(),
) -> None:
    """Sorts `keys[0:n]` in place: see `sort`."""
    if static(runs_in_blocks()):
        count_digits(keys, values, scratch, n, end_bit, key_dtype, has_values, descending)
    for shift in static(_passes(key_dtype, end_bit, log256_max_n)):
        _pass(keys, tmp_keys, values, tmp_values, scratch, n, shift, key_dtype, has_values, descending)
        second = static(shift + DIGIT_BITS)
        _pass(tmp_keys, keys, tmp_values, values, scratch, n, second, key_dtype, has_values, descending)


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
) -> None:
    """Sorts `keys[0:n[()]]` in ascending order, in place; the sort is stable. With `has_values`, values move along.

    Compares the low `end_bit` bits only, a multiple of 16; signed integers and floats need all bits. Zeros of either
    sign are equal, and each NaN follows infinity. `tmp_keys` (and `tmp_values`) are other arrays as large as `keys`.
    `scratch` has `sort_scratch_slots(n, log256_max_n)` words, u32 or u64. Raises `NotImplementedError` for keys that
    are not numbers and `ValueError` for an invalid `end_bit`, when the kernel is compiled.
    """
    sort_digits(keys, tmp_keys, values, tmp_values, scratch, n[()], key_dtype, has_values, False, end_bit, log256_max_n)


@func(requires_top_level=True)
def sort_descending(
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
) -> None:
    """Sorts `keys[0:n[()]]` in descending order, in place. Stable; each NaN comes last. See `sort`."""
    sort_digits(keys, tmp_keys, values, tmp_values, scratch, n[()], key_dtype, has_values, True, end_bit, log256_max_n)
