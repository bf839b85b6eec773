//! Argument words of scalars, vectors, matrices and structs, and the errors for values of other types.

use octants_engine::ir::{Scalar, Type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use super::Place;
use crate::element_types::scalar_of;
use crate::errors;
use crate::names::marker;
use crate::scalar::{ScalarError, scalar_to_slot};

pub fn bad_scalar(error: ScalarError, value: &Bound<'_, PyAny>, scalar: Scalar, place: &Place<'_>) -> PyErr {
    let (name, kernel) = (place.path(), place.kernel);
    match error {
        ScalarError::Raised(e) => e,
        ScalarError::OutOfRange => PyTypeError::new_err(format!(
            "argument `{name}` of kernel `{kernel}`: {} does not fit {scalar}",
            value.repr().map_or_else(|_| "the value".to_string(), |r| r.to_string())
        )),
        ScalarError::WrongType => errors::exception(
            value.py(),
            "OctantsRuntimeTypeError",
            format!(
                "Argument ({},) (type={}) cannot be converted into required type {scalar} (parameter `{name}` of \
                 kernel `{kernel}`)",
                place.index,
                value.get_type().repr().map_or_else(|_| "?".to_string(), |r| r.to_string())
            ),
        ),
    }
}

/// Appends the words of a vector or matrix given as a tensor value, a (nested) sequence, or a numpy array.
pub fn tensor_words(words: &mut SmallVec<[u64; 48]>, ty: &Type, value: &Bound<'_, PyAny>) -> Result<(), ScalarError> {
    let scalar = scalar_of(ty);
    let raised = ScalarError::Raised;
    let value = match marker(value).as_deref() {
        Some("tensor") => value.call_method0(pyo3::intern!(value.py(), "to_list")).unwrap_or_else(|_| value.clone()),
        _ => value.clone(),
    };
    let one = |words: &mut SmallVec<[u64; 48]>, item: &Bound<'_, PyAny>| -> Result<(), ScalarError> {
        let slot = match scalar_to_slot(item, scalar) {
            // Booleans of numpy arrays.
            Err(ScalarError::WrongType) if item.hasattr("item").map_err(raised)? => {
                scalar_to_slot(&item.call_method0("item").map_err(raised)?, scalar)?
            }
            other => other?,
        };
        words.push(slot);
        Ok(())
    };
    let items = |object: &Bound<'_, PyAny>, n: u32| -> Result<Vec<Py<PyAny>>, ScalarError> {
        let out: Vec<Py<PyAny>> = object
            .try_iter()
            .map_err(raised)?
            .map(|i| i.map(Bound::unbind))
            .collect::<PyResult<_>>()
            .map_err(raised)?;
        if out.len() != n as usize {
            return Err(raised(PyValueError::new_err(format!("{} components given, but {n} are needed", out.len()))));
        }
        Ok(out)
    };
    let py = value.py();
    match ty {
        Type::Vector(_, n) => items(&value, *n)?.iter().try_for_each(|i| one(words, i.bind(py))),
        Type::Matrix(_, n, m) => {
            for row in items(&value, *n)? {
                items(row.bind(py), *m)?.iter().try_for_each(|i| one(words, i.bind(py)))?;
            }
            Ok(())
        }
        _ => unreachable!("compiler bug: not a tensor type"),
    }
}

pub fn bad_tensor(error: ScalarError, value: &Bound<'_, PyAny>, ty: &Type, place: &Place<'_>) -> PyErr {
    let reason = match &error {
        ScalarError::Raised(e) => format!(": {}", e.value(value.py())),
        ScalarError::OutOfRange => ": a component is out of range".to_string(),
        ScalarError::WrongType => String::new(),
    };
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!(
            "Argument cannot be converted into required type {} (parameter `{}` of kernel `{}` is a {ty}){reason}",
            scalar_of(ty),
            place.path(),
            place.kernel
        ),
    )
}

/// Appends the words of a struct value's members. `Err(None)` if it lacks a member of the type.
pub fn struct_words(words: &mut SmallVec<[u64; 48]>, ty: &Type, value: &Bound<'_, PyAny>) -> Result<(), Option<PyErr>> {
    match ty {
        Type::Struct(s) => {
            let entries = match marker(value).as_deref() {
                Some("struct") => value.getattr(pyo3::intern!(value.py(), "entries")).map_err(Some)?,
                _ => value.clone(),
            };
            let Ok(entries) = entries.cast_into::<PyDict>() else { return Err(None) };
            if entries.len() != s.members.len() {
                return Err(None);
            }
            for (name, member) in &s.members {
                let Some(item) = entries.get_item(name).map_err(Some)? else { return Err(None) };
                struct_words(words, member, &item)?;
            }
            Ok(())
        }
        Type::Scalar(scalar) => match scalar_to_slot(value, *scalar) {
            Ok(slot) => {
                words.push(slot);
                Ok(())
            }
            Err(ScalarError::Raised(e)) => Err(Some(e)),
            Err(_) => Err(None),
        },
        _ => tensor_words(words, ty, value).map_err(|e| match e {
            // Another number of components is another type.
            ScalarError::Raised(e) if !e.is_instance_of::<PyValueError>(value.py()) => Some(e),
            _ => None,
        }),
    }
}

pub fn bad_struct(value: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>, place: &Place<'_>) -> PyErr {
    let text = |o: &Bound<'_, PyAny>| o.repr().map_or_else(|_| "?".to_string(), |r| r.to_string());
    errors::exception(
        value.py(),
        "OctantsRuntimeTypeError",
        format!(
            "Argument {} cannot be converted into required type {} (parameter `{}` of kernel `{}`)",
            text(value.get_type().as_any()),
            text(object),
            place.path(),
            place.kernel
        ),
    )
}
