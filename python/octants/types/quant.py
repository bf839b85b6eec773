"""Quantized types: values of a few bits, packed into words of memory.

Fields of these types are placed in `qd.BitpackedFields` or in a `quant_array` level. Kernels compute with them in
another type, `compute`, and convert at each load and store. The formats are those of QuanTaichi (Hu et al., SIGGRAPH
2021).
"""

from __future__ import annotations

import builtins
import math
from typing import Any, NoReturn

from octants.exceptions import OctantsRuntimeError
from octants.types.primitive import BY_NAME, DataType, default_fp, default_ip, f16, f32, f64, resolve_dtype

__all__ = ["fixed", "float", "int"]

_MOST_EXPONENT_BITS = 8
_MOST_FRACTION_BITS = 23
_MOST_FIXED_BITS = 32


class QuantType:
    """A quantized type, made by `qd.types.quant.int`, `fixed` and `float`."""

    _octants_entity = "quant_type"

    def __init__(
        self,
        name: str,
        bits: builtins.int,
        signed: bool,
        compute: DataType,
        scale: builtins.float | None = None,
        exponent_bits: builtins.int = 0,
    ) -> None:
        self.name = name
        self.bits = bits
        """Bits of the integer, of the fixed-point number, or of the significand of a float."""
        self.signed = signed
        self.compute = compute
        """The type of loaded values, in kernels and in Python."""
        self.scale = scale
        """The unit of fixed-point numbers."""
        self.exponent_bits = exponent_bits
        """Bits of the exponent of a float; 0 for other types."""

    @property
    def all_bits(self) -> builtins.int:
        """Total bits of a value, including the exponent."""
        return self.bits + self.exponent_bits

    @property
    def digits_are_integers(self) -> bool:
        """Whether it is an integer or a fixed-point type."""
        return self.exponent_bits == 0

    def to_string(self) -> str:
        """The type's name."""
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *args: object) -> NoReturn:
        raise OctantsRuntimeError(
            f"{self.name} can only be the type of a field: convert to {self.compute.name} instead"
        )


def int(bits: builtins.int, signed: bool = True, compute: Any = None) -> QuantType:
    """An integer of 1 to 64 bits. A store keeps the low bits of the value.

    `compute` is the integer type of loaded values; by default `default_ip`, or the unsigned type of its width if
    `signed` is false. Raises `OctantsRuntimeError` for another number of bits, and for a float `compute` type.
    """
    bits = _count(bits, "bits", 64)
    if compute is None:
        dtype = default_ip() if signed else BY_NAME[f"u{default_ip().bits}"]
    else:
        dtype = resolve_dtype(compute)
    if dtype.kind not in ("signed", "unsigned"):
        raise OctantsRuntimeError(f"the compute type of a quantized integer must be an integer type, not {dtype.name}")
    return QuantType(f"q{'i' if signed else 'u'}{bits}", bits, bool(signed), dtype)


def fixed(
    bits: builtins.int,
    signed: bool = True,
    max_value: builtins.float = 1.0,
    compute: Any = None,
    scale: builtins.float | None = None,
) -> QuantType:
    """A fixed-point number of 1 to 32 bits: an integer times `scale`. A store rounds to nearest, ties away from zero,
    and saturates.

    Without `scale`, the range extends to `max_value` (exclusive), and down to its negative if `signed`. `compute` is
    the float type of loaded values, by default `default_fp`. Raises `OctantsRuntimeError` for another number of bits,
    for a scale that is not positive, and for an integer `compute` type.
    """
    bits = _count(bits, "bits", _MOST_FIXED_BITS)
    dtype = _float_type(compute)
    step = max_value / 2 ** (bits - 1 if signed else bits) if scale is None else scale
    step = builtins.float(step)
    if not (math.isfinite(step) and step > 0):
        raise OctantsRuntimeError(f"the scale of a fixed-point type must be positive and finite, got {step}")
    return QuantType(f"q{'fx' if signed else 'ufx'}{bits}", bits, bool(signed), dtype, scale=step)


def float(exp: builtins.int, frac: builtins.int, signed: bool = True, compute: Any = None) -> QuantType:
    """A floating-point number with an exponent of `exp` bits, 1 to 8, and `frac` bits for the fraction and the sign.

    The fraction has at most 23 bits. A store rounds to nearest, ties away from zero. Underflow gives zero, overflow the
    largest finite value; an unsigned type stores the magnitude. `compute` is the float type of loaded values, by
    default `default_fp`. Raises `OctantsRuntimeError` for other numbers of bits, and for an integer `compute` type.
    """
    exp = _count(exp, "exponent bits", _MOST_EXPONENT_BITS)
    frac = _count(frac, "fraction bits", _MOST_FRACTION_BITS + (1 if signed else 0))
    if signed and frac < 2:
        raise OctantsRuntimeError("a signed float needs at least 2 fraction bits: one is the sign")
    dtype = _float_type(compute)
    name = f"q{'f' if signed else 'uf'}{frac}e{exp}"
    return QuantType(name, frac, bool(signed), dtype, exponent_bits=exp)


def _count(given: Any, what: str, most: builtins.int) -> builtins.int:
    if isinstance(given, bool) or not isinstance(given, builtins.int) or not 1 <= given <= most:
        raise OctantsRuntimeError(f"this quantized type needs 1 to {most} {what}, got {given!r}")
    return given


def _float_type(compute: Any) -> DataType:
    dtype = default_fp() if compute is None else resolve_dtype(compute)
    if dtype not in (f16, f32, f64):
        raise OctantsRuntimeError(f"the compute type of this quantized type must be a float type, not {dtype.name}")
    return dtype
