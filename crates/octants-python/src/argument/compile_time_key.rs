//! Compile-time values in the key of a specialization.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use smallvec::SmallVec;

use super::{Place, TAG_BOOL, TAG_FLOAT, TAG_INT, TAG_NONE, TAG_NUMPY, TAG_OBJECT, TAG_STR, TAG_TUPLE};
use crate::errors;
use crate::names::Known;
use crate::ndarray::Ndarray;

/// Appends a compile-time value's part of the key: numbers, strings and tuples by value, anything else by identity.
pub fn template_key(key: &mut SmallVec<[u64; 16]>, value: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<()> {
    let py = value.py();
    let p = value.as_ptr();
    if value.is_none() {
        key.push(TAG_NONE);
        return Ok(());
    }
    // SAFETY: `p` is a live object.
    let ty = unsafe { ffi::Py_TYPE(p) };
    if ty == &raw mut ffi::PyBool_Type {
        key.extend_from_slice(&[TAG_BOOL, u64::from(value.is_truthy()?)]);
        return Ok(());
    }
    if value.is_exact_instance_of::<PyInt>() {
        if let Ok(i) = value.extract::<i64>() {
            key.extend_from_slice(&[TAG_INT, i as u64]);
            return Ok(());
        }
    } else if value.is_exact_instance_of::<PyFloat>() {
        key.extend_from_slice(&[TAG_FLOAT, value.extract::<f64>()?.to_bits()]);
        return Ok(());
    } else if value.is_exact_instance_of::<PyString>() {
        key.extend_from_slice(&[TAG_STR, value.hash()? as u64]);
        return Ok(());
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        key.extend_from_slice(&[TAG_TUPLE, tuple.len() as u64, ty as u64]);
        for item in tuple.iter() {
            template_key(key, &item, place)?;
        }
        return Ok(());
    } else if value.is_instance_of::<Ndarray>() {
        return Err(errors::exception(
            py,
            "OctantsRuntimeTypeError",
            format!(
                "Ndarray shouldn't be passed in via `qd.template()`: annotate parameter `{}` of kernel `{}` with \
                 `qd.types.ndarray(...)` instead",
                place.path(),
                place.kernel
            ),
        ));
    }
    if is_numpy_scalar(value)? {
        // A scalar of numpy: its type and its value.
        key.extend_from_slice(&[TAG_NUMPY, ty as u64]);
        return template_key(key, &value.call_method0(pyo3::intern!(py, "item"))?, place);
    }
    key.extend_from_slice(&[TAG_OBJECT, p as u64]);
    Ok(())
}

/// Whether a key contains this compile-time value's address, so that the value must live as long as the key.
pub fn by_identity(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let by_value = value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
        || (value.is_exact_instance_of::<PyInt>() && value.extract::<i64>().is_ok());
    if by_value {
        return Ok(false);
    }
    Ok(!is_numpy_scalar(value)?)
}

/// Checks only the type: `isinstance` would also look up the object's `__class__`.
fn is_numpy_scalar(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let scalars = Known::get(value.py())?.np_generic.as_ptr();
    // SAFETY: both are live types.
    Ok(unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(value.as_ptr()), scalars.cast()) } != 0)
}
