"""The scalar types under the module name that programs written for Quadrants import them from."""

from octants.types.annotations import ref
from octants.types.primitive import (
    f16,
    f32,
    f64,
    float16,
    float32,
    float64,
    i8,
    i16,
    i32,
    i64,
    int8,
    int16,
    int32,
    int64,
    u1,
    u8,
    u16,
    u32,
    u64,
    uint1,
    uint8,
    uint16,
    uint32,
    uint64,
)

real_types = {f16, f32, f64, float}
integer_types = {i8, i16, i32, i64, u1, u8, u16, u32, u64, int, bool}
all_types = real_types | integer_types
real_type_ids = {id(t) for t in real_types}
integer_type_ids = {id(t) for t in integer_types}
type_ids = {id(t) for t in all_types}

__all__ = [
    "f16",
    "f32",
    "f64",
    "float16",
    "float32",
    "float64",
    "i8",
    "i16",
    "i32",
    "i64",
    "int8",
    "int16",
    "int32",
    "int64",
    "ref",
    "u1",
    "u8",
    "u16",
    "u32",
    "u64",
    "uint1",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
