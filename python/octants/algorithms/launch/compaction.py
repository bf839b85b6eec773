"""Selection, unique, run-length codes and sums by key as calls from Python."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._arrays.ndarrays import ndarray
from octants._fields.struct import StructField
from octants._language.kernel_decorators import kernel
from octants._language.ops import static
from octants.algorithms.compaction import reduce_by_key_add as _reduce_by_key_add
from octants.algorithms.compaction import run_length_encode as _run_length_encode
from octants.algorithms.compaction import select as _select
from octants.algorithms.compaction import unique as _unique
from octants.algorithms.launch.arguments import ANY_CAPACITY, Array, check_length, count_of, counted, indexed_length, on
from octants.algorithms.scratch_slots import reduce_by_key_scratch_slots, select_scratch_slots
from octants.types import i64, template, u64

__all__ = ["reduce_by_key_add", "run_length_encode", "select", "unique"]


@kernel
def _run_select(
    arr: Array,
    flags: Array,
    out: Array,
    num_out: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
):
    _select(arr, flags, out, num_out, scratch, count_of(counts, n, on_device), static(ANY_CAPACITY))


@kernel
def _run_select_of_structs(
    arr: template(),
    flags: Array,
    out: template(),
    num_out: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
):
    _select(arr, flags, out, num_out, scratch, count_of(counts, n, on_device), static(ANY_CAPACITY))


def select(arr: Any, flags: Any, out: Any, num_out: Any, *, n: Any = None, qd_stream: Any = None) -> None:
    """Copies each `arr[i]` whose `flags[i]` is not 0 to the front of `out`, in order, and writes their number to
    `num_out[0]`. The elements may be scalars, vectors, matrices and structs.

    `out` must not alias `arr`, and must have room for all elements. Raises `ValueError` for 2**32 elements or more, an
    invalid `n`, an array that is not one-dimensional, or one that is too short: `flags` and `out` need as many elements
    as are processed (the length of `arr` if `n` is an array), `num_out` needs one. Raises `TypeError` for an argument
    that is not an array.
    """
    length = indexed_length("arr", arr)
    counts, size, on_device = counted(arr, n, length)
    check_length("flags", flags, size)
    check_length("out", out, size)
    check_length("num_out", num_out, 1)
    scratch = ndarray(u64, select_scratch_slots(length))
    if isinstance(arr, StructField):
        # Kernels take structs of fields as templates only.
        counts = counts if on_device else num_out
        _run_select_of_structs(arr, flags, out, num_out, scratch, counts, size, on_device, **on(qd_stream))
    else:
        _run_select(arr, flags, out, num_out, scratch, counts, size, on_device, **on(qd_stream))


@kernel
def _run_unique(arr: Array, out: Array, num_out: Array, scratch: Array, counts: Array, n: i64, on_device: template()):
    _unique(arr, out, num_out, scratch, count_of(counts, n, on_device), static(ANY_CAPACITY))


def unique(arr: Any, out: Any, num_out: Any, *, n: Any = None, qd_stream: Any = None) -> None:
    """Copies the first element of each run of equal neighbors to the front of `out`, and writes the number of runs to
    `num_out[0]`.

    For the distinct elements, sort `arr` first. `out` must not alias `arr`, and must have room for all elements.
    Errors: see `select`.
    """
    length = indexed_length("arr", arr)
    counts, size, on_device = counted(arr, n, length)
    check_length("out", out, size)
    check_length("num_out", num_out, 1)
    scratch = ndarray(u64, select_scratch_slots(length))
    _run_unique(arr, out, num_out, scratch, counts, size, on_device, **on(qd_stream))


@kernel
def _run_length_codes(
    arr: Array,
    unique_out: Array,
    counts_out: Array,
    num_runs: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
):
    size = count_of(counts, n, on_device)
    _run_length_encode(arr, unique_out, counts_out, num_runs, scratch, size, static(ANY_CAPACITY))


def run_length_encode(
    arr: Any, unique_out: Any, counts_out: Any, num_runs: Any, *, n: Any = None, qd_stream: Any = None
) -> None:
    """For each run of equal neighbors, writes its first element to `unique_out` and its length to `counts_out`; writes
    the number of runs to `num_runs[0]`. The outputs must not alias `arr`, and need room for as many runs as elements.
    Errors: see `select`.
    """
    length = indexed_length("arr", arr)
    counts, size, on_device = counted(arr, n, length)
    check_length("unique_out", unique_out, size)
    check_length("counts_out", counts_out, size)
    check_length("num_runs", num_runs, 1)
    scratch = ndarray(u64, reduce_by_key_scratch_slots(length))
    _run_length_codes(arr, unique_out, counts_out, num_runs, scratch, counts, size, on_device, **on(qd_stream))


@kernel
def _run_sums_by_key(
    keys: Array,
    values: Array,
    keys_out: Array,
    values_out: Array,
    num_runs: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
):
    size = count_of(counts, n, on_device)
    _reduce_by_key_add(
        keys, values, keys_out, values_out, num_runs, scratch, size, static(values.dtype), static(ANY_CAPACITY)
    )


def reduce_by_key_add(
    keys: Any, values: Any, keys_out: Any, values_out: Any, num_runs: Any, *, n: Any = None, qd_stream: Any = None
) -> None:
    """For each run of equal neighbors in `keys`, writes its key to `keys_out` and the sum of its values to
    `values_out`; writes the number of runs to `num_runs[0]`. The outputs must not alias `keys`, and need room for as
    many runs as keys.

    Values are numbers of 8 to 64 bits; raises `NotImplementedError` for others. Other errors: see `select`.
    """
    length = indexed_length("keys", keys)
    counts, size, on_device = counted(keys, n, length)
    check_length("values", values, size)
    check_length("keys_out", keys_out, size)
    check_length("values_out", values_out, size)
    check_length("num_runs", num_runs, 1)
    scratch = ndarray(u64, reduce_by_key_scratch_slots(length))
    _run_sums_by_key(keys, values, keys_out, values_out, num_runs, scratch, counts, size, on_device, **on(qd_stream))
