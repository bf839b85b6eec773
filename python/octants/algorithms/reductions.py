"""Sum, minimum and maximum of an array, and of all that stands before each element (Blelloch 1990)."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from octants.algorithms.chunks import CHUNKS, bits_type, check_capacity, check_type, identity
from octants.kernel_decorators import func
from octants.ops import bit_cast, max, min, static
from octants.types import template


@func
def _combine(a, b, op: template()):
    result = a
    if static(op == "add"):
        result = a + b
    elif static(op == "min"):
        result = min(a, b)
    else:
        result = max(a, b)
    return result


@func(requires_top_level=True)
def _partials(arr: template(), scratch: template(), n, dtype: template(), op: template()):
    """Puts the fold of each chunk in `scratch`."""
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        total = dtype(static(identity(op, dtype)))
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            total = _combine(total, arr[i], op)
        scratch[chunk] = bit_cast(total, static(bits_type(dtype)))


@func(requires_top_level=True)
def _reduce(arr: template(), out: template(), scratch: template(), n, dtype: template(), op: template()):
    _partials(arr, scratch, n, dtype, op)
    for _ in range(1):
        total = dtype(static(identity(op, dtype)))
        for chunk in range(static(CHUNKS)):
            total = _combine(total, bit_cast(scratch[chunk], dtype), op)
        out[0] = total


@func(requires_top_level=True)
def _exclusive_scan(arr: template(), out: template(), scratch: template(), n, dtype: template(), op: template()):
    _partials(arr, scratch, n, dtype, op)
    for _ in range(1):
        total = dtype(static(identity(op, dtype)))
        for chunk in range(static(CHUNKS)):
            following = _combine(total, bit_cast(scratch[chunk], dtype), op)
            scratch[chunk] = bit_cast(total, static(bits_type(dtype)))
            total = following
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        total = bit_cast(scratch[chunk], dtype)
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            following = _combine(total, arr[i], op)
            out[i] = total
            total = following


def _check(dtype, log256_max_n):
    check_type(dtype)
    check_capacity(log256_max_n)
    return 0


@func(requires_top_level=True)
def reduce_add(arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()):
    """`out[0] = sum(arr[0:n])`."""
    static(_check(dtype, log256_max_n))
    _reduce(arr, out, scratch, n, dtype, "add")


@func(requires_top_level=True)
def reduce_min(arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()):
    """`out[0] = min(arr[0:n])`; the largest number of the type for `n == 0`."""
    static(_check(dtype, log256_max_n))
    _reduce(arr, out, scratch, n, dtype, "min")


@func(requires_top_level=True)
def reduce_max(arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()):
    """`out[0] = max(arr[0:n])`; the smallest number of the type for `n == 0`."""
    static(_check(dtype, log256_max_n))
    _reduce(arr, out, scratch, n, dtype, "max")


@func(requires_top_level=True)
def exclusive_scan_add(
    arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()
):
    """`out[i] = sum(arr[0:i])`. `out` is another array than `arr`."""
    static(_check(dtype, log256_max_n))
    _exclusive_scan(arr, out, scratch, n, dtype, "add")


@func(requires_top_level=True)
def exclusive_scan_min(
    arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()
):
    """`out[i] = min(arr[0:i])`, and the largest number of the type for `i == 0`."""
    static(_check(dtype, log256_max_n))
    _exclusive_scan(arr, out, scratch, n, dtype, "min")


@func(requires_top_level=True)
def exclusive_scan_max(
    arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()
):
    """`out[i] = max(arr[0:i])`, and the smallest number of the type for `i == 0`."""
    static(_check(dtype, log256_max_n))
    _exclusive_scan(arr, out, scratch, n, dtype, "max")
