"""Types of values and annotations of parameters."""

from typing import NoReturn

from octants.types import primitive_types
from octants.types.annotations import (
    BufferViewType,
    NDArray,
    NdarrayType,
    RefType,
    Template,
    ndarray,
    ref,
    sparse_matrix_builder,
    template,
)
from octants.types.primitive import (
    DataType,
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
    is_integral,
    is_real,
    is_signed,
    is_tensor,
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
from octants.types.struct_type import StructType, struct
from octants.types.tensor_types import MatrixType, VectorType, matrix, vector

__all__ = [
    "BufferViewType",
    "DataType",
    "MatrixType",
    "NDArray",
    "NdarrayType",
    "RefType",
    "StructType",
    "Template",
    "VectorType",
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
    "is_integral",
    "is_real",
    "is_signed",
    "is_tensor",
    "matrix",
    "ndarray",
    "primitive_types",
    "ref",
    "sparse_matrix_builder",
    "struct",
    "template",
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
    "vector",
]


def __getattr__(name: str) -> NoReturn:
    if name == "quant":
        raise AttributeError(
            "octants.types has no 'quant': quantized types are not there yet, use i8, u8, i16, u16 or f16"
        )
    raise AttributeError(f"module 'octants.types' has no attribute {name!r}")
