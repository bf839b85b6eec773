//! Errors for calls that kernels do not support: floats where options forbid them, methods of unsupported classes,
//! gradients of kernels without any.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyType};

use crate::annotation::ParamKind;
use crate::argument::templated_float;
use crate::errors;

/// Rejects floats among the attributes of compile-time objects if the options allow none.
pub fn refuse_floats(kinds: &[(&str, &ParamKind)], args: &[Bound<'_, PyAny>], kernel: &str) -> PyResult<()> {
    for ((name, kind), arg) in kinds.iter().zip(args) {
        let attributes = match kind {
            ParamKind::Template => arg.getattr_opt(pyo3::intern!(arg.py(), "__dict__"))?,
            _ => None,
        };
        let Some(Ok(attributes)) = attributes.map(|a| a.cast_into::<PyDict>()) else { continue };
        for (key, value) in attributes.iter() {
            if value.is_exact_instance_of::<PyFloat>() {
                return Err(templated_float(&format!("{name}.{key}"), kernel));
            }
        }
    }
    Ok(())
}

/// Methods are kernels of data-oriented classes only.
pub fn check_class(instance: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = instance.py();
    // A class method gets the class itself.
    let class = instance.cast::<PyType>().map_or_else(|_| instance.get_type(), Clone::clone);
    if class.hasattr(pyo3::intern!(py, "_octants_data_oriented"))?
        || class.hasattr(pyo3::intern!(py, "__dataclass_fields__"))?
    {
        return Ok(());
    }
    Err(errors::syntax_error(
        py,
        format!("Please decorate class {} with @qd.data_oriented: one of its methods is a kernel", class.name()?),
    ))
}

/// A gradient that would add to nothing.
#[cold]
pub fn no_gradients(py: Python<'_>, kernel: &str) -> PyErr {
    let text = format!(
        "the gradient of kernel `{kernel}` computes nothing: no field or array that the kernel uses has a gradient \
         (`needs_grad=True`, or a placed `.grad`)"
    );
    errors::runtime_error(py, text)
}
