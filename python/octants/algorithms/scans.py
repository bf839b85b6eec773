"""Scans of an array: each element combined with all before it, or all before it combined."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from __future__ import annotations

from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import max, min, static
from octants.algorithms.element_types import check_type, identity
from octants.algorithms.scan_in_chunks import scan_in_chunks
from octants.algorithms.scan_in_tiles import scan_in_tiles
from octants.algorithms.tile_shapes import check_capacity, runs_in_blocks
from octants.simt.identities import add, bit_and, bit_or, bit_xor, multiply
from octants.types import template

OPERATORS = {"add": add, "mul": multiply, "min": min, "max": max, "and": bit_and, "or": bit_or, "xor": bit_xor}
"""The operators by name, as functions of two values."""


def check(dtype: Any, log256_max_n: int | None) -> int:
    """Rejects unsupported element types and capacities at compile time."""
    check_type(dtype)
    check_capacity(log256_max_n)
    return 0


@func
def element(source: template(), i: Any) -> Any:
    """An element of the first array of a tuple."""
    return source[0][i]


@func
def _put(sink: template(), i: Any, result: Any, value: Any) -> None:
    sink[0][i] = result


@func(requires_top_level=True)
def scan(
    source: template(),
    load: template(),
    sink: template(),
    store: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    inclusive: template(),
) -> None:
    """Calls `store(sink, i, result, value)` once for each `i` below `n`: see `scan_in_tiles`."""
    if static(runs_in_blocks()):
        scan_in_tiles(source, load, sink, store, scratch, n, dtype, op, identity, inclusive)
    else:
        scan_in_chunks(source, load, sink, store, scratch, n, dtype, op, identity, inclusive)


def _scan_by(name: str, inclusive: bool) -> Any:
    @func(requires_top_level=True)
    def scan_by(
        arr: template(), out: template(), scratch: template(), n, dtype: template(), log256_max_n: template()
    ) -> None:
        static(check(dtype, log256_max_n))
        neutral = dtype(static(identity(name, dtype)))
        scan((arr,), element, (out,), _put, scratch, n, dtype, static(OPERATORS[name]), neutral, inclusive)

    kind, end = ("inclusive", "i + 1") if inclusive else ("exclusive", "i")
    scan_by.__name__ = scan_by.__qualname__ = f"{kind}_scan_{name}"
    scan_by.__doc__ = f"""Sets `out[i]` to the `{name}` reduction of `arr[0:{end}]`, for each `i` below `n`; to the
    identity if the range is empty.

    `scratch` has `exclusive_scan_scratch_slots(n, log256_max_n)` words, u32 or u64, at least as wide as `dtype`.
    `out` may be `arr`. Raises `NotImplementedError` unless `dtype` is a number of 8 to 64 bits, and `TypeError` for a
    bitwise operator on floats, when the kernel is compiled.
    """
    return scan_by


exclusive_scan_add = _scan_by("add", False)
exclusive_scan_mul = _scan_by("mul", False)
exclusive_scan_min = _scan_by("min", False)
exclusive_scan_max = _scan_by("max", False)
exclusive_scan_and = _scan_by("and", False)
exclusive_scan_or = _scan_by("or", False)
exclusive_scan_xor = _scan_by("xor", False)
inclusive_scan_add = _scan_by("add", True)
inclusive_scan_mul = _scan_by("mul", True)
inclusive_scan_min = _scan_by("min", True)
inclusive_scan_max = _scan_by("max", True)
inclusive_scan_and = _scan_by("and", True)
inclusive_scan_or = _scan_by("or", True)
inclusive_scan_xor = _scan_by("xor", True)


@func(requires_top_level=True)
def exclusive_scan(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    log256_max_n: template(),
) -> None:
    """Sets `out[i]` to the reduction of `arr[0:i]`, in order, by `op`, an associative `@qd.func` of two values; to
    `identity` for `i == 0`.

    Other arguments and errors: see `exclusive_scan_add`.
    """
    static(check(dtype, log256_max_n))
    scan((arr,), element, (out,), _put, scratch, n, dtype, op, dtype(identity), False)


@func(requires_top_level=True)
def inclusive_scan(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    op: template(),
    identity,
    log256_max_n: template(),
) -> None:
    """Sets `out[i]` to the reduction of `arr[0:i + 1]`, in order, by `op`, an associative `@qd.func` of two values with
    an `identity`.

    Other arguments and errors: see `exclusive_scan_add`.
    """
    static(check(dtype, log256_max_n))
    scan((arr,), element, (out,), _put, scratch, n, dtype, op, dtype(identity), True)
