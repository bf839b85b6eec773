//! What kernels do not take: streams where they are differentiated or are a graph, floats where options allow none,
//! methods of just any class.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat};

use super::Kernel;
use crate::annotation::ParamKind;
use crate::argument::templated_float;
use crate::errors;

/// Why a kernel cannot be differentiated.
pub const GROUPS: &str = "it has qd.stream_parallel() blocks";
/// Likewise.
pub const IN_SCOPE: &str = "it is launched in a qd.stream_scope()";

impl Kernel {
    /// A stream cannot be told to a graph.
    #[cold]
    pub(super) fn refuse_stream_of_graph(&self, py: Python<'_>) -> PyErr {
        let text = "qd_stream is not compatible with graph=True kernels: leave out one of the two";
        errors::runtime_error(py, format!("kernel `{}`: {text}", self.name))
    }

    /// Derivatives and streams exclude each other.
    #[cold]
    pub(super) fn refuse_differentiation(&self, py: Python<'_>, why: &str) -> PyErr {
        let text = format!(
            "kernel `{}` cannot be differentiated: {why}, and streams are not supported with `.grad`, in a qd.ad.Tape \
             or in a qd.ad.FwdMode",
            self.name
        );
        errors::runtime_error(py, text)
    }
}

/// Floats among the attributes of compile-time objects, where the options allow none.
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
    let class = instance.get_type();
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
