"""Binary operators, and the identity element of each."""

from __future__ import annotations

import math
from typing import Any

from octants._language.kernel_decorators import func
from octants._language.ops import static, zero
from octants.types import f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = ["add", "bit_and", "bit_or", "bit_xor", "largest", "multiply", "smallest"]

_SIGNED = {i8: 8, i16: 16, i32: 32, i64: 64}
_UNSIGNED = {u8: 8, u16: 16, u32: 32, u64: 64}
_FLOATS = (f16, f32, f64)
_LARGEST = (
    *((t, (1 << (bits - 1)) - 1) for t, bits in _SIGNED.items()),
    *((t, (1 << bits) - 1) for t, bits in _UNSIGNED.items()),
    *((t, math.inf) for t in _FLOATS),
)
_SMALLEST = (
    *((t, -(1 << (bits - 1))) for t, bits in _SIGNED.items()),
    *((t, 0) for t in _UNSIGNED),
    *((t, -math.inf) for t in _FLOATS),
)


@func
def add(a: Any, b: Any) -> Any:
    """The sum."""
    return a + b


@func
def multiply(a: Any, b: Any) -> Any:
    """The product."""
    return a * b


@func
def bit_and(a: Any, b: Any) -> Any:
    """The bitwise and."""
    return a & b


@func
def bit_or(a: Any, b: Any) -> Any:
    """The bitwise or."""
    return a | b


@func
def bit_xor(a: Any, b: Any) -> Any:
    """The bitwise exclusive or."""
    return a ^ b


@func
def largest(value: Any) -> Any:
    """The largest value of the value's type: infinity for floats."""
    result = zero(value)
    for dtype, number in static(_LARGEST):
        if static(isinstance(result, dtype)):
            result = number
    return result


@func
def smallest(value: Any) -> Any:
    """The smallest value of the value's type: minus infinity for floats."""
    result = zero(value)
    for dtype, number in static(_SMALLEST):
        if static(isinstance(result, dtype)):
            result = number
    return result
