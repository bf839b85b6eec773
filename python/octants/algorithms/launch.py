"""The algorithms as calls from Python: each launches a kernel on a stream, with scratch memory of its own.

Arrays are one-dimensional fields, ndarrays, or arrays of other libraries. `n`, where it is given, says how many elements
count, from the first one on: an integer, or a one-element array of integers, which the device reads when it gets there.
`qd_stream` is the stream, the current one if it is None. Nothing waits for the device, except where an array is one of
numpy's: then the call returns when it holds the result. Scratch memory is given back behind the work that uses it.
"""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from __future__ import annotations

from typing import Any

import numpy as np

from octants.algorithms.compaction import reduce_by_key_add as _reduce_by_key_add
from octants.algorithms.compaction import run_length_encode as _run_length_encode
from octants.algorithms.compaction import select as _select
from octants.algorithms.compaction import unique as _unique
from octants.algorithms.element_types import check_key, check_type, width
from octants.algorithms.element_types import identity as identity_of
from octants.algorithms.histograms import histogram as _histogram
from octants.algorithms.radix_sort import sort_digits
from octants.algorithms.reductions import reduce as _reduce
from octants.algorithms.scans import OPERATORS
from octants.algorithms.scans import exclusive_scan as _exclusive_scan
from octants.algorithms.scans import inclusive_scan as _inclusive_scan
from octants.algorithms.scratch_slots import (
    exclusive_scan_scratch_slots,
    reduce_by_key_scratch_slots,
    select_scratch_slots,
    sort_scratch_slots,
)
from octants.algorithms.top_k import SEARCH_WORDS, find_threshold, take_up_to_threshold
from octants.kernel_decorators import func, kernel
from octants.ndarrays import ndarray
from octants.ops import cast, min, static
from octants.types import f64, i64, template, u32, u64
from octants.types import ndarray as array_type
from octants.types.primitive import BY_NAME, DataType

__all__ = [
    "exclusive_scan",
    "histogram",
    "inclusive_scan",
    "reduce",
    "reduce_by_key_add",
    "run_length_encode",
    "select",
    "sort",
    "sort_segments",
    "top_k",
    "unique",
]

_Array = array_type()
# The capacity of kernels whose scratch memory counts with 64 bits is not bounded by it.
_ANY = 4
_MOST_INDEXED = 1 << 32


def _length(name: str, arr: Any) -> int:
    if len(arr.shape) != 1:
        raise ValueError(f"`{name}` is a one-dimensional array, not one of shape {tuple(arr.shape)}")
    return int(arr.shape[0])


def _counted(arr: Any, n: Any, capacity: int) -> tuple[Any, int, bool]:
    """What a kernel is passed for the number of elements: an array, a number, and whether it is in the array."""
    if n is None:
        return arr, capacity, False
    if hasattr(n, "shape"):
        return n, capacity, True
    if not 0 <= n <= capacity:
        raise ValueError(f"`n` is from 0 to the {capacity} elements of the array, not {n}")
    return arr, int(n), False


def _on(stream: Any) -> dict[str, Any]:
    return {} if stream is None else {"qd_stream": stream}


def _dtype(arr: Any) -> DataType:
    """The type of an array's elements; arrays of other libraries name it as numpy does."""
    if isinstance(arr.dtype, DataType):
        return arr.dtype
    named = np.dtype(str(arr.dtype).rpartition(".")[2])
    for dtype in BY_NAME.values():
        if dtype.numpy == named:
            return dtype
    raise NotImplementedError(f"the algorithms do not work on elements of type {arr.dtype}")


@func
def _count(counts: template(), n: Any, on_device: template()) -> Any:
    result = cast(n, i64)
    if static(on_device):
        result = min(cast(counts[0], i64), result)
    return result


def _operator(op: Any, dtype: DataType, neutral: Any) -> tuple[Any, Any]:
    """The function of an operator, and its identity."""
    check_type(dtype)
    if isinstance(op, str):
        if op not in OPERATORS:
            raise ValueError(f"`op` is one of {', '.join(OPERATORS)} or a @qd.func, not {op!r}")
        return OPERATORS[op], identity_of(op, dtype)
    if neutral is None:
        raise ValueError("an operator of your own needs its `identity`: the value that changes no other")
    return op, neutral


@kernel
def _run_reduce(
    arr: _Array,
    out: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
    op: template(),
    neutral: template(),
):
    size = _count(counts, n, on_device)
    _reduce(arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(_ANY))


def reduce(arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None) -> None:
    """`out[0]` is the elements of `arr` combined by `op`: "add", "mul", "min", "max", "and", "or", "xor", or an
    associative and commutative `@qd.func` of two values, with its `identity`.

    Raises `NotImplementedError` for other elements than 32- and 64-bit numbers, `TypeError` for a bitwise operator on
    floats, and `ValueError` for an unknown operator or a wrong `n`.
    """
    combine, neutral = _operator(op, _dtype(arr), identity)
    counts, size, on_device = _counted(arr, n, _length("arr", arr))
    scratch = ndarray(u64, exclusive_scan_scratch_slots(1))
    _run_reduce(arr, out, scratch, counts, size, on_device, combine, neutral, **_on(qd_stream))


@kernel
def _run_scan(
    arr: _Array,
    out: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
    op: template(),
    neutral: template(),
    inclusive: template(),
):
    size = _count(counts, n, on_device)
    if static(inclusive):
        _inclusive_scan(
            arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(_ANY)
        )
    else:
        _exclusive_scan(
            arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(_ANY)
        )


def _scan(arr: Any, out: Any, op: Any, neutral: Any, n: Any, qd_stream: Any, inclusive: bool) -> None:
    combine, neutral = _operator(op, _dtype(arr), neutral)
    length = _length("arr", arr)
    counts, size, on_device = _counted(arr, n, length)
    scratch = ndarray(u64, exclusive_scan_scratch_slots(length))
    _run_scan(arr, out, scratch, counts, size, on_device, combine, neutral, inclusive, **_on(qd_stream))


def inclusive_scan(
    arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None
) -> None:
    """`out[i]` is `arr[0:i + 1]` combined in order by `op`, an operator's name or an associative `@qd.func`. `out` may be
    `arr`. See `reduce` for operators and errors.
    """
    _scan(arr, out, op, identity, n, qd_stream, True)


def exclusive_scan(
    arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None
) -> None:
    """`out[i]` is `arr[0:i]` combined in order by `op`, and the identity for `i == 0`. See `inclusive_scan`."""
    _scan(arr, out, op, identity, n, qd_stream, False)


@kernel
def _run_select(
    arr: _Array,
    flags: _Array,
    out: _Array,
    num_out: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
):
    _select(arr, flags, out, num_out, scratch, _count(counts, n, on_device), static(_ANY))


def select(arr: Any, flags: Any, out: Any, num_out: Any, *, n: Any = None, qd_stream: Any = None) -> None:
    """Copies each `arr[i]` whose `flags[i]` is not 0 to the front of `out`, in order, and their number to `num_out[0]`.

    `out` is another array than `arr`. Arrays have at most 2**32 elements; `ValueError` otherwise, or for a wrong `n`.
    """
    length = _indexed("arr", arr)
    counts, size, on_device = _counted(arr, n, length)
    scratch = ndarray(u64, select_scratch_slots(length))
    _run_select(arr, flags, out, num_out, scratch, counts, size, on_device, **_on(qd_stream))


def _indexed(name: str, arr: Any) -> int:
    length = _length(name, arr)
    if length > _MOST_INDEXED:
        raise ValueError(f"`{name}` has {length} elements: this algorithm counts up to 2**32 of them")
    return length


@kernel
def _run_unique(
    arr: _Array, out: _Array, num_out: _Array, scratch: _Array, counts: _Array, n: i64, on_device: template()
):
    _unique(arr, out, num_out, scratch, _count(counts, n, on_device), static(_ANY))


def unique(arr: Any, out: Any, num_out: Any, *, n: Any = None, qd_stream: Any = None) -> None:
    """Copies the first element of each run of equal neighbors to the front of `out`, and their number to `num_out[0]`.

    Sort `arr` first for the distinct elements. `out` is another array than `arr`. Errors: see `select`.
    """
    length = _indexed("arr", arr)
    counts, size, on_device = _counted(arr, n, length)
    scratch = ndarray(u64, select_scratch_slots(length))
    _run_unique(arr, out, num_out, scratch, counts, size, on_device, **_on(qd_stream))


@kernel
def _run_length_codes(
    arr: _Array,
    unique_out: _Array,
    counts_out: _Array,
    num_runs: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
):
    size = _count(counts, n, on_device)
    _run_length_encode(arr, unique_out, counts_out, num_runs, scratch, size, static(_ANY))


def run_length_encode(
    arr: Any, unique_out: Any, counts_out: Any, num_runs: Any, *, n: Any = None, qd_stream: Any = None
) -> None:
    """For each run of equal neighbors: its element to `unique_out`, its length to `counts_out`; the number of runs to
    `num_runs[0]`. The outputs are other arrays than `arr`. Errors: see `select`.
    """
    length = _indexed("arr", arr)
    counts, size, on_device = _counted(arr, n, length)
    scratch = ndarray(u64, reduce_by_key_scratch_slots(length))
    _run_length_codes(arr, unique_out, counts_out, num_runs, scratch, counts, size, on_device, **_on(qd_stream))


@kernel
def _run_sums_by_key(
    keys: _Array,
    values: _Array,
    keys_out: _Array,
    values_out: _Array,
    num_runs: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
):
    size = _count(counts, n, on_device)
    _reduce_by_key_add(keys, values, keys_out, values_out, num_runs, scratch, size, static(values.dtype), static(_ANY))


def reduce_by_key_add(
    keys: Any, values: Any, keys_out: Any, values_out: Any, num_runs: Any, *, n: Any = None, qd_stream: Any = None
) -> None:
    """For each run of equal neighbors in `keys`: the key to `keys_out`, the sum of its values to `values_out`; the number
    of runs to `num_runs[0]`. The outputs are other arrays than `keys`.

    Values are i32, u32 or f32; `NotImplementedError` for others. Other errors: see `select`.
    """
    length = _indexed("keys", keys)
    counts, size, on_device = _counted(keys, n, length)
    scratch = ndarray(u64, reduce_by_key_scratch_slots(length))
    _run_sums_by_key(keys, values, keys_out, values_out, num_runs, scratch, counts, size, on_device, **_on(qd_stream))


@kernel
def _run_histogram(arr: _Array, out: _Array, lower: f64, upper: f64, counts: _Array, n: i64, on_device: template()):
    _histogram(arr, out, _count(counts, n, on_device), lower, upper)


def histogram(arr: Any, counts: Any, lower: float, upper: float, *, n: Any = None, qd_stream: Any = None) -> None:
    """Counts the elements in each of `counts.shape[0]` ranges of equal width from `lower` to `upper`.

    An element at the end of a range belongs to the next one, at `upper` to the last one; elements outside and NaNs are
    left out. `counts` is an array of integers. Raises `ValueError` if `upper` is not larger, or for a wrong `n`.
    """
    if not upper > lower:
        raise ValueError(f"`upper` is larger than `lower`: {upper} and {lower} are not")
    size_at, size, on_device = _counted(arr, n, _length("arr", arr))
    _run_histogram(arr, counts, lower, upper, size_at, size, on_device, **_on(qd_stream))


@kernel
def _run_sort(
    keys: _Array,
    tmp_keys: _Array,
    values: _Array,
    tmp_values: _Array,
    scratch: _Array,
    counts: _Array,
    n: i64,
    on_device: template(),
    has_values: template(),
    descending: template(),
    end_bit: template(),
):
    size = _count(counts, n, on_device)
    key_dtype = static(keys.dtype)
    sort_digits(
        keys, tmp_keys, values, tmp_values, scratch, size, key_dtype, has_values, descending, end_bit, static(_ANY)
    )


def _bits(dtype: DataType) -> int:
    """The digits of a key that a sort looks at; a pair of digits at least."""
    check_key(dtype)
    return max(16, width(dtype))


def _sort_scratch(length: int) -> Any:
    return ndarray(u32 if length < _MOST_INDEXED else u64, sort_scratch_slots(length))


def sort(keys: Any, values: Any = None, *, descending: bool = False, n: Any = None, qd_stream: Any = None) -> None:
    """Sorts `keys` in place, and `values` along with them, ascending or descending; equal keys keep their order.

    Keys are integers or floats of 8 to 64 bits. Zeros of either sign are equal, and each NaN comes last, descending too.
    Takes memory for another array of keys (and of values). Raises `NotImplementedError` for other keys, `ValueError` for
    values of another length or a wrong `n`.
    """
    length, key_dtype = _length("keys", keys), _dtype(keys)
    end_bit = _bits(key_dtype)
    counts, size, on_device = _counted(keys, n, length)
    tmp_keys = ndarray(key_dtype, length)
    moved, tmp_moved = keys, tmp_keys
    if values is not None:
        if _length("values", values) < length:
            raise ValueError(f"{length} keys have as many values, not {values.shape[0]}")
        moved, tmp_moved = values, ndarray(_dtype(values), length)
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
        **_on(qd_stream),
    )


@func
def _segment_of(offsets: template(), i: Any) -> Any:
    """The number of the last segment that begins at or before an element."""
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
    keys: _Array,
    tmp_keys: _Array,
    kept_keys: _Array,
    values: _Array,
    kept_values: _Array,
    offsets: _Array,
    order: _Array,
    tmp_order: _Array,
    segments: _Array,
    tmp_segments: _Array,
    scratch: _Array,
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
    sort_digits(keys, tmp_keys, order, tmp_order, scratch, n, key_dtype, True, descending, end_bit, static(_ANY))
    # The keys are in order; a stable sort by segments puts those of each segment together.
    for i in range(n):
        segments[i] = cast(_segment_of(offsets, order[i]), u32)
    sort_digits(segments, tmp_segments, order, tmp_order, scratch, n, u32, True, False, segment_bits, static(_ANY))
    for i in range(n):
        keys[i] = kept_keys[order[i]]
        if static(has_values):
            values[i] = kept_values[order[i]]


def sort_segments(
    keys: Any, offsets: Any, values: Any = None, *, descending: bool = False, qd_stream: Any = None
) -> None:
    """Sorts each segment of `keys` in place, and `values` along with them; equal keys keep their order.

    Segment `s` begins at `offsets[s]`, where the one before ends: `offsets` is an ascending array of integers that
    begins with 0. The last segment ends with `keys`; segments may be empty. Takes memory for two more arrays of keys,
    one of values and four of u32. Errors: see `sort`; `ValueError` for more than 2**32 keys.
    """
    length, key_dtype = _indexed("keys", keys), _dtype(keys)
    end_bit = _bits(key_dtype)
    tmp_keys, kept_keys = ndarray(key_dtype, length), ndarray(key_dtype, length)
    moved, kept_moved = keys, kept_keys
    if values is not None:
        if _length("values", values) < length:
            raise ValueError(f"{length} keys have as many values, not {values.shape[0]}")
        moved, kept_moved = values, ndarray(_dtype(values), length)
    indices = [ndarray(u32, length) for _ in range(4)]
    segment_bits = 16 if _length("offsets", offsets) <= 1 << 16 else 32
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
        **_on(qd_stream),
    )


@kernel
def _run_top_k(
    arr: _Array,
    out: _Array,
    indices: _Array,
    tmp_out: _Array,
    tmp_indices: _Array,
    search: _Array,
    scratch: _Array,
    k: i64,
    counts: _Array,
    n: i64,
    on_device: template(),
    descending: template(),
    end_bit: template(),
):
    size = _count(counts, n, on_device)
    found = min(k, size)
    key_dtype = static(arr.dtype)
    find_threshold(arr, search, size, found, key_dtype, descending)
    take_up_to_threshold(arr, search, out, indices, scratch, size, found, descending)
    sort_digits(out, tmp_out, indices, tmp_indices, scratch, found, key_dtype, True, descending, end_bit, static(_ANY))


def top_k(
    arr: Any, out: Any, indices: Any = None, *, largest: bool = True, n: Any = None, qd_stream: Any = None
) -> None:
    """The `out.shape[0]` largest elements in descending order, or the smallest ones in ascending order, to `out`; their
    indices, u32, to `indices`.

    Of equal elements those with the lowest indices come first; each NaN comes last. Of fewer than `out.shape[0]` elements
    all are sorted, and the rest of `out` stays as it is. Errors: see `sort`; `ValueError` for more than 2**32 elements.
    """
    length, key_dtype = _indexed("arr", arr), _dtype(arr)
    end_bit = _bits(key_dtype)
    counts, size, on_device = _counted(arr, n, length)
    wanted = _length("out", out)
    if indices is None:
        indices = ndarray(u32, wanted)
    slots = max(exclusive_scan_scratch_slots(length), sort_scratch_slots(wanted))
    _run_top_k(
        arr,
        out,
        indices,
        ndarray(key_dtype, wanted),
        ndarray(u32, wanted),
        ndarray(u64, SEARCH_WORDS),
        ndarray(u64, slots),
        wanted,
        counts,
        size,
        on_device,
        largest,
        end_bit,
        **_on(qd_stream),
    )
