"""Element types that the algorithms take, what their bits look like as unsigned integers, and identities of operators."""

from __future__ import annotations

import math
from typing import Any

from octants.types import f32, f64, i32, i64, u32, u64

_TYPES = (i32, u32, f32, i64, u64, f64)


def check_type(dtype: Any) -> None:
    """Raises `NotImplementedError` for an element type that the algorithms do not take."""
    if dtype not in _TYPES:
        names = ", ".join(str(t) for t in _TYPES)
        raise NotImplementedError(f"the algorithms work on {names}, not on {dtype}")


def bits_type(dtype: Any) -> Any:
    """The unsigned type with as many bits as `dtype`."""
    return u64 if width(dtype) == 64 else u32


def is_float(dtype: Any) -> bool:
    """f32 or f64."""
    return dtype in (f32, f64)


def is_signed(dtype: Any) -> bool:
    """i32 or i64."""
    return dtype in (i32, i64)


def width(dtype: Any) -> int:
    """Bits of `dtype`."""
    return 64 if dtype in (i64, u64, f64) else 32


def infinity_bits(dtype: Any) -> int:
    """The bits of infinity of a float type: larger bits without the sign are those of a NaN."""
    return 0x7F80_0000 if dtype == f32 else 0x7FF0_0000_0000_0000


def identity(op: str, dtype: Any) -> int | float:
    """The value that leaves every other operand of `op` as it is: of `add`, `mul`, `min`, `max`, `and`, `or` or `xor`.

    Raises `TypeError` for a bitwise operator on a float type.
    """
    if op in ("and", "or", "xor") and is_float(dtype):
        raise TypeError(f"`{op}` combines integers, not {dtype}")
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
