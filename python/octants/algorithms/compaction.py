"""Selection: moves the selected elements of an array together, in order. Unique: keeps one element of each run of
equal neighbors."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import bit_cast, cast, max, static
from octants.algorithms.compact_in_tiles import compact_in_tiles
from octants.algorithms.element_types import PAIR, bits_type, check_type, infinity_bits, is_float, width
from octants.algorithms.scans import scan
from octants.algorithms.tile_shapes import check_capacity, runs_in_blocks
from octants.simt.identities import add
from octants.types import template, u32, u64
from octants.types.values import Vector

__all__ = ["reduce_by_key_add", "run_length_encode", "select", "unique"]


def _check(log256_max_n: int | None) -> int:
    check_capacity(log256_max_n)
    return 0


def _check_value(dtype: Any) -> int:
    if dtype is None:
        raise NotImplementedError("reduce_by_key_add needs the type of the values")
    check_type(dtype)
    return 0


@func
def _differ(a: Any, b: Any, dtype: template()) -> Any:
    """Whether neighbors belong to different runs. Zeros of either sign are equal, and each NaN is a separate run.

    Compares the bits of floats, because `fast_math` flushes subnormals to zero.
    """
    result = False
    if static(is_float(dtype)):
        bits = static(bits_type(dtype))
        x, y = bit_cast(a, bits), bit_cast(b, bits)
        # Equal bits differ only if they are above those of infinity; other bits differ unless both are zeros.
        bound = bits(static(infinity_bits(dtype)))
        if x != y:
            bound = bits(0)
        result = ((x | y) & bits(static((1 << (width(dtype) - 1)) - 1))) > bound
    else:
        result = a != b
    return result


@func
def _starts_run(keys: template(), i: Any) -> Any:
    starts = i == 0
    if i > 0:
        starts = _differ(keys[i], keys[i - 1], static(keys.dtype))
    return starts


@func(requires_top_level=True)
def _clear_count(count: template()) -> None:
    """Zeroes a count: the compaction of no elements writes none."""
    for _ in range(1):
        count[0] = 0


@func
def _flag(source: template(), i: Any) -> Any:
    return cast(source[0][i] != 0, u32)


@func
def _keep(sink: template(), i: Any, place: Any, flag: Any) -> None:
    arr, out, count, n = sink
    if flag != 0:
        out[place] = arr[i]
    if i == n - 1:
        count[0] = cast(place + flag, static(count.dtype))


@func(requires_top_level=True)
def _compact(
    arr: template(), source: template(), keeps: template(), out: template(), count: template(), scratch: template(), n
) -> None:
    _clear_count(count)
    if static(runs_in_blocks() and getattr(arr, "element_shape", None) == ()):
        compact_in_tiles(arr, source, keeps, out, count, scratch, n)
    else:
        scan(source, keeps, (arr, out, count, n), _keep, scratch, n, u32, add, u32(0), False)


@func(requires_top_level=True)
def select(
    arr: template(),
    flags: template(),
    out: template(),
    num_out: template(),
    scratch: template(),
    n,
    log256_max_n: template(),
) -> None:
    """Copies each `arr[i]` whose `flags[i]` is not 0 to the front of `out`, in order, and writes their number to
    `num_out[0]`.

    `n` is the number of elements. `scratch` has `select_scratch_slots(n)` words, u32 or u64. `out` must not alias
    `arr`, and must have room for the selected elements.
    """
    static(_check(log256_max_n))
    _compact(arr, (flags,), _flag, out, num_out, scratch, n)


@func
def _head(source: template(), i: Any) -> Any:
    return cast(_starts_run(source[0], i), u32)


@func(requires_top_level=True)
def unique(
    arr: template(), out: template(), num_out: template(), scratch: template(), n, log256_max_n: template()
) -> None:
    """Copies the first element of each run of equal neighbors to the front of `out`, and writes the number of runs to
    `num_out[0]`.

    Each NaN is a run of its own. `scratch` has `select_scratch_slots(n)` words, u32 or u64. `out` must not alias `arr`.
    """
    static(_check(log256_max_n))
    _compact(arr, (arr,), _head, out, num_out, scratch, n)


# Run-length codes and sums by key scan pairs: the number of runs started so far, in the high half of a word, and the
# accumulated value of the last run, in the low half. The element that starts a run writes the result of the previous
# run.


@func
def _runs(pair: Any) -> Any:
    return cast(pair >> u64(32), u32)


@func
def _pair(runs: Any, low: Any) -> Any:
    return (cast(runs, u64) << u64(32)) | cast(low, u64)


@func
def _head_and_start(source: template(), i: Any) -> Any:
    result = u64(0)
    if _starts_run(source[0], i):
        result = _pair(u32(1), cast(i, u32))
    return result


@func
def _later_start(a: Any, b: Any) -> Any:
    # Starts ascend, so the larger one belongs to the later run.
    return _pair(_runs(a) + _runs(b), max(cast(a, u32), cast(b, u32)))


@func
def _write_length(sink: template(), i: Any, before: Any, value: Any) -> None:
    keys, unique_keys, lengths, count, n = sink
    run = _runs(before)
    start = cast(before, u32)
    if _runs(value) != 0:
        unique_keys[run] = keys[i]
        if i > 0:
            lengths[run - u32(1)] = cast(cast(i, u32) - start, static(lengths.dtype))
        run += u32(1)
        start = cast(i, u32)
    if i == n - 1:
        lengths[run - u32(1)] = cast(cast(n, u32) - start, static(lengths.dtype))
        count[0] = cast(run, static(count.dtype))


@func(requires_top_level=True)
def run_length_encode(
    arr: template(),
    unique_out: template(),
    counts_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    log256_max_n: template(),
) -> None:
    """For each run of equal neighbors in `arr[0:n]`, writes its first element to `unique_out` and its length to
    `counts_out`; writes the number of runs to `num_runs[0]`.

    Each NaN is a run of its own. `scratch` has `reduce_by_key_scratch_slots(n)` words, u32 or u64. The outputs must not
    alias `arr`.
    """
    static(_check(log256_max_n))
    _clear_count(num_runs)
    sink = (arr, unique_out, counts_out, num_runs, n)
    scan((arr,), _head_and_start, sink, _write_length, scratch, n, u64, _later_start, u64(0), False)


@func
def _head_and_value(source: template(), i: Any) -> Any:
    keys, values = source
    return _pair(cast(_starts_run(keys, i), u32), bit_cast(values[i], static(bits_type(values.dtype))))


@func
def _head_and_wide_value(source: template(), i: Any) -> Any:
    keys, values = source
    return Vector([cast(_starts_run(keys, i), u64), bit_cast(values[i], u64)])


def _sum_of_wide_runs(value_dtype: Any) -> Any:
    """The operator on pairs of words: a number of runs and a 64-bit sum of `value_dtype`."""

    @func
    def sum_of_wide_runs(a: Any, b: Any) -> Any:
        total = b[1]
        if b[0] == 0:
            total = bit_cast(bit_cast(a[1], value_dtype) + bit_cast(total, value_dtype), u64)
        return Vector([a[0] + b[0], total])

    return sum_of_wide_runs


def _write_wide_sum(value_dtype: Any) -> Any:
    @func
    def write_wide_sum(sink: template(), i: Any, before: Any, value: Any) -> None:
        keys, keys_out, values_out, count, n = sink
        if value[0] != 0:
            keys_out[before[0]] = keys[i]
            if i > 0:
                values_out[before[0] - u64(1)] = bit_cast(before[1], static(values_out.dtype))
        if i == n - 1:
            last = static(_sum_of_wide_runs(value_dtype))(before, value)
            values_out[last[0] - u64(1)] = bit_cast(last[1], static(values_out.dtype))
            count[0] = cast(last[0], static(count.dtype))

    return write_wide_sum


def _sum_of_runs(value_dtype: Any) -> Any:
    """The operator on pairs of a number of runs and a sum of `value_dtype`."""

    @func
    def sum_of_runs(a: Any, b: Any) -> Any:
        total = cast(b, static(bits_type(value_dtype)))
        if _runs(b) == 0:
            before = bit_cast(cast(a, static(bits_type(value_dtype))), value_dtype)
            summed = cast(before + bit_cast(total, value_dtype), value_dtype)
            total = bit_cast(summed, static(bits_type(value_dtype)))
        return _pair(_runs(a) + _runs(b), total)

    return sum_of_runs


def _write_sum(value_dtype: Any) -> Any:
    @func
    def write(values_out: template(), pair: Any) -> None:
        bits = cast(pair, static(bits_type(values_out.dtype)))
        values_out[_runs(pair) - u32(1)] = bit_cast(bits, static(values_out.dtype))

    @func
    def write_sum(sink: template(), i: Any, before: Any, value: Any) -> None:
        keys, keys_out, values_out, count, n = sink
        if _runs(value) != 0:
            keys_out[_runs(before)] = keys[i]
            if i > 0:
                write(values_out, before)
        if i == n - 1:
            last = static(_sum_of_runs(value_dtype))(before, value)
            write(values_out, last)
            count[0] = cast(_runs(last), static(count.dtype))

    return write_sum


@func(requires_top_level=True)
def reduce_by_key_add(
    keys_in: template(),
    values_in: template(),
    keys_out: template(),
    values_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    value_dtype: template(),
    log256_max_n: template(),
) -> None:
    """For each run of equal neighbors in `keys_in[0:n]`, writes its key to `keys_out` and the sum of its values to
    `values_out`; writes the number of runs to `num_runs[0]`.

    Values are integers or floats of 8 to 64 bits, and so are their sums. Sums of floats are reproducible from run to
    run of the program. Each NaN is a run of its own. `scratch` has `reduce_by_key_scratch_slots(n)` words, u32 or u64.
    The outputs must not alias `keys_in`. Raises `NotImplementedError` for other value types, when the kernel is
    compiled.
    """
    static(_check(log256_max_n))
    static(_check_value(value_dtype))
    _clear_count(num_runs)
    sink = (keys_in, keys_out, values_out, num_runs, n)
    source = (keys_in, values_in)
    if static(width(value_dtype) == 64):
        op = static(_sum_of_wide_runs(value_dtype))
        nothing = Vector([u64(0), u64(0)])
        store = static(_write_wide_sum(value_dtype))
        scan(source, _head_and_wide_value, sink, store, scratch, n, PAIR, op, nothing, False)
    else:
        op = static(_sum_of_runs(value_dtype))
        scan(source, _head_and_value, sink, static(_write_sum(value_dtype)), scratch, n, u64, op, u64(0), False)
