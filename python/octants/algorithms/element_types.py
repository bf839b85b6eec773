"""Element types of the algorithms, their bits as unsigned integers, and identities of operators."""

from __future__ import annotations

import math
from typing import Any

from octants.types import f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, vector

PAIR = vector(2, u64)
"""Two words that are scanned together."""

_SIGNED = (i8, i16, i32, i64)
_UNSIGNED = {1: u8, 2: u16, 4: u32, 8: u64}
_INFINITIES = {f16: 0x7C00, f32: 0x7F80_0000, f64: 0x7FF0_0000_0000_0000}


def _is_number(dtype: Any) -> bool:
    return dtype in (*_SIGNED, *_UNSIGNED.values(), *_INFINITIES)


def check_type(dtype: Any) -> None:
    """Raises `NotImplementedError` for an element type that reductions and scans do not support."""
    if not _is_number(dtype):
        raise NotImplementedError(f"the algorithms support integers and floats of 8 to 64 bits, not {dtype}")


def check_key(dtype: Any) -> None:
    """Raises `NotImplementedError` for a type that is not numeric."""
    if not _is_number(dtype):
        raise NotImplementedError(f"keys must be integers or floats, not {dtype}")


def bits_type(dtype: Any) -> Any:
    """The unsigned type with as many bits as `dtype`; for a pair, as one of its components."""
    return u64 if is_pair(dtype) else _UNSIGNED[dtype.nbytes]


def sortable_type(dtype: Any) -> Any:
    """The unsigned type to which keys of `dtype` are mapped for sorting."""
    return u64 if dtype.nbytes == 8 else u32


def is_float(dtype: Any) -> bool:
    """Whether `dtype` is a float type."""
    return dtype in _INFINITIES


def is_signed(dtype: Any) -> bool:
    """Whether `dtype` is a signed integer type."""
    return dtype in _SIGNED


def is_pair(dtype: Any) -> bool:
    """Whether values of `dtype` are pairs of words."""
    return dtype is PAIR


def components(dtype: Any) -> int:
    """Number of scalars in a scanned value."""
    return 2 if is_pair(dtype) else 1


def width(dtype: Any) -> int:
    """Bits of `dtype`; for a pair, of one component."""
    return 64 if is_pair(dtype) else 8 * int(dtype.nbytes)


def infinity_bits(dtype: Any) -> int:
    """The bits of infinity of a float type. Larger bits, without the sign, are NaNs."""
    return _INFINITIES[dtype]


def identity(op: str, dtype: Any) -> int | float:
    """The identity of `op`: `add`, `mul`, `min`, `max`, `and`, `or` or `xor`.

    Raises `TypeError` for a bitwise operator on a float type.
    """
    if op in ("and", "or", "xor") and is_float(dtype):
        raise TypeError(f"`{op}` supports only integers, not {dtype}")
    if op in ("add", "or", "xor"):
        return 0.0 if is_float(dtype) else 0
    if op == "mul":
        return 1.0 if is_float(dtype) else 1
    if op == "and":
        return -1 if is_signed(dtype) else (1 << width(dtype)) - 1
    sign = 1 if op == "min" else -1
    if is_float(dtype):
        return sign * math.inf
    largest = (1 << (width(dtype) - is_signed(dtype))) - 1
    smallest = -(1 << (width(dtype) - 1)) if is_signed(dtype) else 0
    return largest if op == "min" else smallest
