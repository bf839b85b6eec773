"""Reductions, scans and histograms as calls from Python."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._arrays.ndarrays import ndarray
from octants._language.kernel_decorators import kernel
from octants._language.ops import static
from octants.algorithms.element_types import check_type
from octants.algorithms.element_types import identity as identity_of
from octants.algorithms.histograms import histogram as _histogram
from octants.algorithms.launch.arguments import (
    ANY_CAPACITY,
    Array,
    check_length,
    count_of,
    counted,
    dtype_of,
    length_of,
    on,
)
from octants.algorithms.reductions import reduce as _reduce
from octants.algorithms.scans import OPERATORS
from octants.algorithms.scans import exclusive_scan as _exclusive_scan
from octants.algorithms.scans import inclusive_scan as _inclusive_scan
from octants.algorithms.scratch_slots import exclusive_scan_scratch_slots, reduce_scratch_slots
from octants.types import f64, i64, template, u64
from octants.types.primitive import DataType

__all__ = ["exclusive_scan", "histogram", "inclusive_scan", "reduce"]


def _operator(op: Any, dtype: DataType, neutral: Any) -> tuple[Any, Any]:
    """The function and the identity of an operator."""
    check_type(dtype)
    if isinstance(op, str):
        if op not in OPERATORS:
            raise ValueError(f"`op` must be one of {', '.join(OPERATORS)} or a @qd.func, not {op!r}")
        return OPERATORS[op], identity_of(op, dtype)
    if neutral is None:
        raise ValueError("a custom operator needs `identity`: the value for which op(identity, x) == x")
    return op, neutral


@kernel
def _run_reduce(
    arr: Array,
    out: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
    op: template(),
    neutral: template(),
):
    size = count_of(counts, n, on_device)
    _reduce(arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(ANY_CAPACITY))


def reduce(arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None) -> None:
    """Reduces the elements of `arr` to `out[0]`. `op` is "add", "mul", "min", "max", "and", "or", "xor", or an
    associative and commutative `@qd.func` of two values, with its `identity`.

    Raises `NotImplementedError` for elements that are not numbers of 8 to 64 bits, `TypeError` for a bitwise operator
    on floats and for an argument that is not an array, and `ValueError` for an unknown operator, an invalid `n`, an
    array that is not one-dimensional, or an empty `out`.
    """
    length = length_of("arr", arr)
    combine, neutral = _operator(op, dtype_of(arr), identity)
    counts, size, on_device = counted(arr, n, length)
    check_length("out", out, 1)
    scratch = ndarray(u64, reduce_scratch_slots(1))
    _run_reduce(arr, out, scratch, counts, size, on_device, combine, neutral, **on(qd_stream))


@kernel
def _run_scan(
    arr: Array,
    out: Array,
    scratch: Array,
    counts: Array,
    n: i64,
    on_device: template(),
    op: template(),
    neutral: template(),
    inclusive: template(),
):
    size = count_of(counts, n, on_device)
    if static(inclusive):
        _inclusive_scan(
            arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(ANY_CAPACITY)
        )
    else:
        _exclusive_scan(
            arr, out, scratch, size, static(arr.dtype), op, static(arr.dtype)(static(neutral)), static(ANY_CAPACITY)
        )


def _scan(arr: Any, out: Any, op: Any, neutral: Any, n: Any, qd_stream: Any, inclusive: bool) -> None:
    length = length_of("arr", arr)
    combine, neutral = _operator(op, dtype_of(arr), neutral)
    counts, size, on_device = counted(arr, n, length)
    check_length("out", out, size)
    scratch = ndarray(u64, exclusive_scan_scratch_slots(length))
    _run_scan(arr, out, scratch, counts, size, on_device, combine, neutral, inclusive, **on(qd_stream))


def inclusive_scan(
    arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None
) -> None:
    """Sets `out[i]` to the reduction of `arr[0:i + 1]`, in order. `op` is the name of an operator or an associative
    `@qd.func`. `out` may be `arr`. See `reduce` for operators and errors. Raises `ValueError` if `out` has fewer
    elements than are processed (than `arr` has, if `n` is an array).
    """
    _scan(arr, out, op, identity, n, qd_stream, True)


def exclusive_scan(
    arr: Any, out: Any, op: Any = "add", *, identity: Any = None, n: Any = None, qd_stream: Any = None
) -> None:
    """Sets `out[i]` to the reduction of `arr[0:i]`, in order; the identity for `i == 0`. See `inclusive_scan`."""
    _scan(arr, out, op, identity, n, qd_stream, False)


@kernel
def _run_histogram(arr: Array, out: Array, lower: f64, upper: f64, counts: Array, n: i64, on_device: template()):
    _histogram(arr, out, count_of(counts, n, on_device), lower, upper)


def histogram(arr: Any, counts: Any, lower: float, upper: float, *, n: Any = None, qd_stream: Any = None) -> None:
    """Counts the elements in each of `counts.shape[0]` bins of equal width from `lower` to `upper`.

    Bins are half-open, except that the last one includes `upper`. Elements outside and NaNs are not counted. `counts`
    is an array of integers. Raises `ValueError` if `upper` is not larger than `lower`, for an invalid `n`, for an empty
    `counts`, and for an array that is not one-dimensional; `TypeError` for an argument that is not an array.
    """
    if not upper > lower:
        raise ValueError(f"`upper` must be larger than `lower`, got upper={upper} and lower={lower}")
    size_at, size, on_device = counted(arr, n, length_of("arr", arr))
    check_length("counts", counts, 1)
    _run_histogram(arr, counts, lower, upper, size_at, size, on_device, **on(qd_stream))
