//! Converts Python scalars to 8-byte slots and back. A slot holds the value in its low bytes.

use half::f16;
use octants_engine::ir::Scalar;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::names::Known;

/// Why a value is not a scalar of the requested type.
#[derive(Debug)]
pub enum ScalarError {
    /// Not convertible at all.
    WrongType,
    /// An integer out of range of the requested type.
    OutOfRange,
    /// Python raised.
    Raised(PyErr),
}

/// The slot of `value` as a `scalar`.
///
/// Integers and booleans convert to floats; floats convert to floats only. Out-of-range integers are rejected, unless
/// they are the type's bits read as an unsigned number.
#[inline]
pub fn scalar_to_slot(value: &Bound<'_, PyAny>, scalar: Scalar) -> Result<u64, ScalarError> {
    if scalar.is_float() {
        return Ok(float_bits(to_float(value)?, scalar));
    }
    to_integer(value, scalar)
}

/// A float's bits in the low bytes of a slot.
#[inline]
pub fn float_bits(x: f64, scalar: Scalar) -> u64 {
    match scalar {
        Scalar::F64 => x.to_bits(),
        Scalar::F16 => u64::from(f16::from_f64(x).to_bits()),
        _ => u64::from((x as f32).to_bits()),
    }
}

#[inline]
fn to_float(value: &Bound<'_, PyAny>) -> Result<f64, ScalarError> {
    let p = value.as_ptr();
    // SAFETY: `p` is a live object; the type checks come before the accesses they allow.
    unsafe {
        if ffi::PyFloat_Check(p) != 0 {
            return Ok(ffi::PyFloat_AS_DOUBLE(p));
        }
        if ffi::PyLong_Check(p) != 0 {
            let x = ffi::PyLong_AsDouble(p);
            return match PyErr::take(value.py()) {
                Some(_) if x == -1.0 => Err(ScalarError::OutOfRange),
                _ => Ok(x),
            };
        }
    }
    if is_numpy_number(value, true)? {
        return value.extract().map_err(ScalarError::Raised);
    }
    Err(ScalarError::WrongType)
}

#[inline]
fn to_integer(value: &Bound<'_, PyAny>, scalar: Scalar) -> Result<u64, ScalarError> {
    let p = value.as_ptr();
    // SAFETY: `p` is a live object.
    if unsafe { ffi::PyLong_Check(p) } != 0 {
        return long_bits(value, scalar);
    }
    if is_numpy_number(value, false)? {
        let int = value.call_method0(pyo3::intern!(value.py(), "__int__")).map_err(ScalarError::Raised)?;
        return long_bits(&int, scalar);
    }
    Err(ScalarError::WrongType)
}

#[inline]
fn long_bits(value: &Bound<'_, PyAny>, scalar: Scalar) -> Result<u64, ScalarError> {
    let mut overflow = 0;
    // SAFETY: the caller checked that `value` is an int.
    let wide = unsafe { ffi::PyLong_AsLongLongAndOverflow(value.as_ptr(), &mut overflow) };
    let bits = match overflow {
        0 if wide < 0 && scalar.is_unsigned() => return Err(ScalarError::OutOfRange),
        0 => wide as u64,
        1.. if scalar == Scalar::U64 => {
            // SAFETY: as above.
            let bits = unsafe { ffi::PyLong_AsUnsignedLongLong(value.as_ptr()) };
            if PyErr::take(value.py()).is_some() {
                return Err(ScalarError::OutOfRange);
            }
            bits
        }
        _ => return Err(ScalarError::OutOfRange),
    };
    if scalar == Scalar::U1 {
        return Ok(u64::from(bits != 0));
    }
    let width = scalar.bits();
    if width >= 64 {
        return Ok(bits);
    }
    // A pattern of bits may be given for a signed type: 255 for an i8.
    let lowest = if scalar.is_unsigned() { 0 } else { -1 << (width - 1) };
    if !(lowest..1 << width).contains(&(bits as i64)) {
        return Err(ScalarError::OutOfRange);
    }
    Ok(bits & ((1 << width) - 1))
}

/// Numpy's integers, and its floats if requested.
fn is_numpy_number(value: &Bound<'_, PyAny>, floats: bool) -> Result<bool, ScalarError> {
    let py = value.py();
    let known = Known::get(py).map_err(ScalarError::Raised)?;
    let is = |ty: &Py<pyo3::types::PyType>| value.is_instance(ty.bind(py).as_any()).map_err(ScalarError::Raised);
    Ok(is(&known.np_integer)? || (floats && is(&known.np_floating)?))
}

/// The Python object of a slot.
pub fn slot_to_python<'py>(py: Python<'py>, scalar: Scalar, slot: u64) -> PyResult<Bound<'py, PyAny>> {
    let any = match scalar {
        Scalar::F16 => f16::from_bits(slot as u16).to_f64().into_pyobject(py)?.into_any(),
        Scalar::F32 => f64::from(f32::from_bits(slot as u32)).into_pyobject(py)?.into_any(),
        Scalar::F64 => f64::from_bits(slot).into_pyobject(py)?.into_any(),
        Scalar::U1 => i64::from(slot & 0xff != 0).into_pyobject(py)?.into_any(),
        Scalar::I8 => (slot as i8).into_pyobject(py)?.into_any(),
        Scalar::I16 => (slot as i16).into_pyobject(py)?.into_any(),
        Scalar::I32 => (slot as i32).into_pyobject(py)?.into_any(),
        Scalar::I64 => (slot as i64).into_pyobject(py)?.into_any(),
        Scalar::U8 => (slot as u8).into_pyobject(py)?.into_any(),
        Scalar::U16 => (slot as u16).into_pyobject(py)?.into_any(),
        Scalar::U32 => (slot as u32).into_pyobject(py)?.into_any(),
        Scalar::U64 => slot.into_pyobject(py)?.into_any(),
    };
    Ok(any)
}
