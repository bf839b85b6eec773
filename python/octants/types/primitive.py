"""The scalar types: one `DataType` object per machine scalar.

`int`, `float` and `bool` mean the session's default integer and float types and `u1` wherever a type is expected;
`resolve_dtype` does the mapping. Arithmetic rules belong to the compiler; this file only names and measures types.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from octants._language.python_scope import STAND_INS
from octants.exceptions import OctantsSyntaxError

Kind = Literal["bool", "signed", "unsigned", "float"]


class DataType:
    """A scalar type such as `qd.f32`. There is one object per type, so `is` and `==` agree."""

    __slots__ = ("bits", "kind", "name", "nbytes", "numpy")
    _octants_entity = "dtype"

    def __init__(self, name: str, kind: Kind, bits: int, numpy_name: str) -> None:
        self.name = name
        self.kind: Kind = kind
        self.bits = bits
        self.nbytes = (bits + 7) // 8
        self.numpy: np.dtype[Any] = np.dtype(numpy_name)

    def __repr__(self) -> str:
        return self.name

    def to_string(self) -> str:
        """The type's name."""
        return self.name

    def __call__(self, *args: object) -> Any:
        if "dtype" in STAND_INS:
            return STAND_INS["dtype"](self, *args)
        raise OctantsSyntaxError(
            f"Octants data types cannot be called outside kernels, where {self.name}(...) converts a value: in Python "
            f"use int(), float() or numpy.{self.numpy.name}()"
        )

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _by_name, (self.name,)

    @property
    def is_float(self) -> bool:
        """Whether it is f16, f32 or f64."""
        return self.kind == "float"

    def convert(self, value: Any) -> int | float:
        """A Python scalar converted to this type, as a Python scalar; a `u1` is 0 or 1."""
        if self.kind == "float":
            return float(value)
        if self.kind == "bool":
            return int(bool(value))
        return wrap_integer(int(value), self)

    def check_element(self, value: Any) -> None:
        """Raises if a Python float is stored to an element of an integer type, which would lose the fraction."""
        if self.kind != "float" and isinstance(value, float):
            raise TypeError(
                f"an element of type {self.name} must be set to an integer, got {value!r}: use int(...) or round(...)"
            )

    def check_components(self, values: np.ndarray[Any, Any]) -> None:
        """Like `check_element`, for the components of a vector or matrix."""
        if self.kind != "float" and values.dtype == np.float64:
            raise TypeError(
                f"components of type {self.name} must be set to integers, got {values.tolist()}: use int(...)"
            )


def wrap_integer(value: int, dtype: DataType) -> int:
    """`value` modulo the range of an integer type."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def _by_name(name: str) -> DataType:
    return BY_NAME[name]


u1: Final = DataType("u1", "bool", 1, "bool")
i8: Final = DataType("i8", "signed", 8, "int8")
i16: Final = DataType("i16", "signed", 16, "int16")
i32: Final = DataType("i32", "signed", 32, "int32")
i64: Final = DataType("i64", "signed", 64, "int64")
u8: Final = DataType("u8", "unsigned", 8, "uint8")
u16: Final = DataType("u16", "unsigned", 16, "uint16")
u32: Final = DataType("u32", "unsigned", 32, "uint32")
u64: Final = DataType("u64", "unsigned", 64, "uint64")
f16: Final = DataType("f16", "float", 16, "float16")
f32: Final = DataType("f32", "float", 32, "float32")
f64: Final = DataType("f64", "float", 64, "float64")

uint1, int8, int16, int32, int64 = u1, i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float16, float32, float64 = f16, f32, f64

ALL: Final = (u1, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64)
BY_NAME: Final = {dtype.name: dtype for dtype in ALL}
BY_NUMPY: Final = {dtype.numpy: dtype for dtype in ALL}

PLAIN_NUMBERS: Final = frozenset((int, float))


def is_plain_number(value: Any) -> bool:
    """Whether `value` is a Python float, or a Python integer that fits in 64 bits."""
    return type(value) is float or (type(value) is int and value.bit_length() < 64)


_defaults = {"ip": i32, "fp": f32}


def set_default_types(integer: DataType, floating: DataType) -> None:
    """Sets the types that `int` and `float` mean. Called by `init` and `reset`."""
    _defaults["ip"] = integer
    _defaults["fp"] = floating


def default_ip() -> DataType:
    """The default integer type, which `int` means."""
    return _defaults["ip"]


def default_fp() -> DataType:
    """The default float type, which `float` means."""
    return _defaults["fp"]


def resolve_dtype(dtype: Any) -> DataType:
    """The scalar type named by `dtype`: a `DataType`, `int`, `float` or `bool`."""
    if isinstance(dtype, DataType):
        return dtype
    if dtype is int:
        return _defaults["ip"]
    if dtype is float:
        return _defaults["fp"]
    if dtype is bool:
        return u1
    if getattr(type(dtype), "_octants_entity", None) == "quant_type":
        raise ValueError(
            f"Invalid data type {dtype!r}: quantized types are only for "
            "fields in qd.BitpackedFields or quant_array levels"
        )
    if getattr(type(dtype), "_octants_entity", None) == "unpacked_vector":
        dtype._refuse("create elements of")
    raise ValueError(f"Invalid data type {dtype!r}: expected one of {', '.join(BY_NAME)}, int, float or bool")


def value_dtype(dtype: Any) -> DataType:
    """The scalar type of values; for a quantized type, its compute type."""
    is_quantized = getattr(type(dtype), "_octants_entity", None) == "quant_type"
    return resolve_dtype(dtype.compute if is_quantized else dtype)


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a scalar type or a numpy type."""
    return dtype.numpy if isinstance(dtype, DataType) else np.dtype(dtype)


def is_signed(dtype: DataType) -> bool:
    """Whether `dtype` is i8, i16, i32 or i64."""
    return _checked(dtype).kind == "signed"


def is_real(dtype: DataType) -> bool:
    """Whether `dtype` is f16, f32 or f64."""
    return _checked(dtype).kind == "float"


def is_integral(dtype: DataType) -> bool:
    """Whether `dtype` is an integer type, including `u1`."""
    return _checked(dtype).kind != "float"


def is_tensor(dtype: object) -> bool:
    """Whether `dtype` is a vector or matrix type."""
    return getattr(type(dtype), "_octants_entity", None) == "tensor_type"


def _checked(dtype: DataType) -> DataType:
    if not isinstance(dtype, DataType):
        raise TypeError(f"expected a scalar type such as qd.f32, got {dtype!r}")
    return dtype
