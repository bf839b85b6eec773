"""Sorts and the first k elements as calls from Python."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._arrays.ndarrays import ndarray
from octants._language.kernel_decorators import func, kernel
from octants._language.ops import cast, min, static
from octants.algorithms.element_types import check_key, width
from octants.algorithms.launch.arguments import (
    ANY_CAPACITY,
    MOST_INDEXED,
    Array,
    check_length,
    count_of,
    counted,
    dtype_of,
    indexed_length,
    length_of,
    on,
)
from octants.algorithms.radix_sort import sort_digits
from octants.algorithms.scratch_slots import exclusive_scan_scratch_slots, sort_scratch_slots
from octants.algorithms.top_k import SEARCH_WORDS, find_threshold, take_up_to_threshold
from octants.types import i64, template, u32, u64
from octants.types.primitive import DataType

__all__ = ["sort", "sort_segments", "top_k"]


@kernel
def _run_sort(
    keys: Array,
    tmp_keys: Array,
    values: Array,
    tmp_values: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
    has_values: template(),
    descending: template(),
    end_bit: template(),
):
    size = count_of(counts, n, on_device)
    key_dtype = static(keys.dtype)
    sort_digits(
        keys,
        tmp_keys,
        values,
        tmp_values,
        scratch,
        size,
        key_dtype,
        has_values,
        descending,
        end_bit,
        static(ANY_CAPACITY),
    )


def _bits(dtype: DataType) -> int:
    """The key bits that a sort processes; at least one pair of digits."""
    check_key(dtype)
    return max(16, width(dtype))


def _as_long(dtype: DataType, length: int) -> Any:
    """Scratch memory for that many elements, at least one: arrays cannot be empty."""
    return ndarray(dtype, max(length, 1))


def _sort_scratch(length: int) -> Any:
    return ndarray(u32 if length < MOST_INDEXED else u64, sort_scratch_slots(length))


def sort(keys: Any, values: Any = None, *, descending: bool = False, n: Any = None, qd_stream: Any = None) -> None:
    """Sorts `keys` in place, and `values` along with them, ascending or descending. The sort is stable.

    Keys are integers or floats of 8 to 64 bits. Zeros of either sign are equal, and each NaN comes last, even in
    descending order. Allocates another array of keys (and of values). Raises `NotImplementedError` for other key types,
    `ValueError` for an invalid `n`, an array that is not one-dimensional, or fewer values than keys to sort (than
    `keys` has, if `n` is an array), and `TypeError` for an argument that is not an array.
    """
    length, key_dtype = length_of("keys", keys), dtype_of(keys)
    end_bit = _bits(key_dtype)
    counts, size, on_device = counted(keys, n, length)
    tmp_keys = _as_long(key_dtype, length)
    moved, tmp_moved = keys, tmp_keys
    if values is not None:
        check_length("values", values, size)
        moved, tmp_moved = values, _as_long(dtype_of(values), length)
    scratch = _sort_scratch(length)
    has_values = values is not None
    _run_sort(
        keys,
        tmp_keys,
        moved,
        tmp_moved,
        scratch,
        counts,
        size,
        on_device,
        has_values,
        descending,
        end_bit,
        **on(qd_stream),
    )


@func
def _segment_of(offsets: template(), i: Any) -> Any:
    """The last segment that begins at or before an element."""
    low, high = 0, offsets.shape[0] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if cast(offsets[middle], i64) <= cast(i, i64):
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def _run_sort_segments(
    keys: Array,
    tmp_keys: Array,
    kept_keys: Array,
    values: Array,
    kept_values: Array,
    offsets: Array,
    order: Array,
    tmp_order: Array,
    segments: Array,
    tmp_segments: Array,
    scratch: Array,
    has_values: template(),
    descending: template(),
    end_bit: template(),
    segment_bits: template(),
):
    n = keys.shape[0]
    for i in range(n):
        order[i] = cast(i, u32)
        kept_keys[i] = keys[i]
        if static(has_values):
            kept_values[i] = values[i]
    key_dtype = static(keys.dtype)
    sort_digits(
        keys, tmp_keys, order, tmp_order, scratch, n, key_dtype, True, descending, end_bit, static(ANY_CAPACITY)
    )
    # The keys are in order; a stable sort by segments puts those of each segment together.
    for i in range(n):
        segments[i] = cast(_segment_of(offsets, order[i]), u32)
    sort_digits(
        segments, tmp_segments, order, tmp_order, scratch, n, u32, True, False, segment_bits, static(ANY_CAPACITY)
    )
    for i in range(n):
        keys[i] = kept_keys[order[i]]
        if static(has_values):
            values[i] = kept_values[order[i]]


def sort_segments(
    keys: Any, offsets: Any, values: Any = None, *, descending: bool = False, qd_stream: Any = None
) -> None:
    """Sorts each segment of `keys` in place, and `values` along with them. The sort is stable.

    Segment `s` begins at `offsets[s]`, where segment `s - 1` ends: `offsets` is an ascending array of integers that
    starts with 0. The last segment ends with `keys`; segments may be empty. Allocates two more arrays of keys, one of
    values and four of u32. Errors: see `sort`; also `ValueError` for 2**32 keys or more and for empty `offsets`.

    Offsets are not checked, because they may be in device memory. Invalid ones cause no out-of-bounds accesses: a
    segment that begins after the last key is empty, and keys before the first offset belong to the first segment.
    """
    length, key_dtype = indexed_length("keys", keys), dtype_of(keys)
    end_bit = _bits(key_dtype)
    tmp_keys, kept_keys = _as_long(key_dtype, length), _as_long(key_dtype, length)
    moved, kept_moved = keys, kept_keys
    if values is not None:
        check_length("values", values, length)
        moved, kept_moved = values, _as_long(dtype_of(values), length)
    indices = [_as_long(u32, length) for _ in range(4)]
    check_length("offsets", offsets, 1)
    segment_bits = 16 if length_of("offsets", offsets) <= 1 << 16 else 32
    _run_sort_segments(
        keys,
        tmp_keys,
        kept_keys,
        moved,
        kept_moved,
        offsets,
        *indices,
        _sort_scratch(length),
        values is not None,
        descending,
        end_bit,
        segment_bits,
        **on(qd_stream),
    )


@kernel
def _run_top_k(
    arr: Array,
    out: Array,
    indices: Array,
    tmp_out: Array,
    tmp_indices: Array,
    search: Array,
    scratch: Array,
    k: i64,
    counts: Array,
    n: i64,
    on_device: template(),
    descending: template(),
    end_bit: template(),
):
    size = count_of(counts, n, on_device)
    found = min(k, size)
    key_dtype = static(arr.dtype)
    find_threshold(arr, search, size, found, key_dtype, descending)
    take_up_to_threshold(arr, search, out, indices, scratch, size, found, descending)
    sort_digits(
        out, tmp_out, indices, tmp_indices, scratch, found, key_dtype, True, descending, end_bit, static(ANY_CAPACITY)
    )


def top_k(
    arr: Any, out: Any, indices: Any = None, *, largest: bool = True, n: Any = None, qd_stream: Any = None
) -> None:
    """Writes the `out.shape[0]` largest elements to `out` in descending order, or the smallest ones in ascending order,
    and their indices, u32, to `indices`.

    Of equal elements, those with the lowest indices are taken; each NaN comes last. If there are fewer than
    `out.shape[0]` elements, all are sorted, and the rest of `out` is unchanged. Errors: see `sort`; also `ValueError`
    for 2**32 elements or more, and for fewer `indices` than `out` receives.
    """
    length, key_dtype = indexed_length("arr", arr), dtype_of(arr)
    end_bit = _bits(key_dtype)
    counts, size, on_device = counted(arr, n, length)
    wanted = length_of("out", out)
    if indices is None:
        indices = _as_long(u32, wanted)
    check_length("indices", indices, min(wanted, size))
    slots = max(exclusive_scan_scratch_slots(length), sort_scratch_slots(wanted))
    _run_top_k(
        arr,
        out,
        indices,
        _as_long(key_dtype, wanted),
        _as_long(u32, wanted),
        ndarray(u64, SEARCH_WORDS),
        ndarray(u64, slots),
        wanted,
        counts,
        size,
        on_device,
        largest,
        end_bit,
        **on(qd_stream),
    )
