"""How the input is cut into chunks, how much scratch memory that takes, and what may stand in it."""

from __future__ import annotations

from typing import Any

from octants.types import f32, f64, i32, i64, u32, u64

CHUNKS = 64
"""Pieces the input is cut into: enough to keep the threads of a CPU busy."""

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS

_MOST_LEVELS = 4
_TYPES = (i32, u32, f32, i64, u64, f64)


def check_capacity(log256_max_n: int | None) -> None:
    """Refuses a declared capacity that no 32-bit index reaches."""
    if log256_max_n is not None and not 1 <= log256_max_n <= _MOST_LEVELS:
        raise ValueError(f"log256_max_n must be between 1 and {_MOST_LEVELS}, got {log256_max_n}")


def check_type(dtype: Any) -> None:
    """Refuses element types that the algorithms do not handle."""
    if dtype not in _TYPES:
        names = ", ".join(str(t) for t in _TYPES)
        raise NotImplementedError(f"the algorithms work on {names}, not on {dtype}")


def bits_type(dtype: Any) -> Any:
    """The unsigned type that holds the bits of `dtype` in scratch memory."""
    return u64 if dtype in (i64, u64, f64) else u32


def is_float(dtype: Any) -> bool:
    """f32 or f64."""
    return dtype in (f32, f64)


def is_signed(dtype: Any) -> bool:
    """i32 or i64."""
    return dtype in (i32, i64)


def width(dtype: Any) -> int:
    """Bits of `dtype`."""
    return 64 if dtype in (i64, u64, f64) else 32


def identity(op: str, dtype: Any) -> int | float:
    """What leaves every other operand of `op` as it is."""
    if op == "add":
        return 0.0 if is_float(dtype) else 0
    largest = op == "min"
    if is_float(dtype):
        return float("inf") if largest else float("-inf")
    bits = width(dtype)
    if is_signed(dtype):
        return (1 << (bits - 1)) - 1 if largest else -(1 << (bits - 1))
    return (1 << bits) - 1 if largest else 0


def reduce_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Slots of scratch memory that a reduction of `n` elements wants."""
    check_capacity(log256_max_n)
    return CHUNKS


def exclusive_scan_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Slots of scratch memory that a scan of `n` elements wants."""
    check_capacity(log256_max_n)
    return CHUNKS


def select_scratch_slots(n: int) -> int:
    """Slots of scratch memory that `select` wants for `n` elements."""
    return CHUNKS


def reduce_by_key_scratch_slots(n: int) -> int:
    """Slots of scratch memory that `reduce_by_key_add` wants for `n` elements."""
    return CHUNKS


def sort_scratch_slots(n: int, log256_max_n: int | None = None) -> int:
    """Slots of scratch memory that `sort` wants for `n` elements: a histogram of digits for each chunk."""
    check_capacity(log256_max_n)
    return CHUNKS * DIGITS
