//! Element types: by name, by shape, by numpy's kind, and as words of a key.

use octants_engine::ir::{Scalar, Type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A scalar type by name, or the error that lists them.
pub fn scalar_by_name(name: &str) -> PyResult<Scalar> {
    Scalar::from_name(name).ok_or_else(|| PyTypeError::new_err(format!("`{name}` is not a scalar type")))
}

/// The type of an element of 0, 1 or 2 axes.
pub fn element_type(scalar: Scalar, shape: &[u32]) -> PyResult<Type> {
    match shape.len() {
        0..=2 => Ok(Type::tensor(scalar, shape)),
        n => Err(PyValueError::new_err(format!("an element can have at most two axes, not {n}"))),
    }
}

/// The scalar of a scalar or tensor type.
pub fn scalar_of(ty: &Type) -> Scalar {
    match ty {
        Type::Scalar(s) | Type::Vector(s, _) | Type::Matrix(s, _, _) => *s,
        _ => unreachable!("compiler bug: an array element that is neither a scalar nor a tensor"),
    }
}

/// A scalar or tensor type in 32 bits.
pub fn type_word(ty: &Type) -> u64 {
    let scalar = scalar_of(ty) as u64;
    let shape = ty.shape();
    let extent = |i: usize| u64::from(shape.get(i).copied().unwrap_or(0)) & 0xfff;
    scalar | (shape.len() as u64) << 4 | extent(0) << 8 | extent(1) << 20
}

/// The scalar of numpy's kind of a type and its size.
pub fn scalar_of_kind(kind: u8, size: usize) -> Option<Scalar> {
    Some(match (kind, size) {
        (b'b', 1) => Scalar::U1,
        (b'i', 1) => Scalar::I8,
        (b'i', 2) => Scalar::I16,
        (b'i', 4) => Scalar::I32,
        (b'i', 8) => Scalar::I64,
        (b'u', 1) => Scalar::U8,
        (b'u', 2) => Scalar::U16,
        (b'u', 4) => Scalar::U32,
        (b'u', 8) => Scalar::U64,
        (b'f', 2) => Scalar::F16,
        (b'f', 4) => Scalar::F32,
        (b'f', 8) => Scalar::F64,
        _ => return None,
    })
}
