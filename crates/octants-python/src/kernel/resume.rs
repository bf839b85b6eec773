//! Launches that resume at a checkpoint, and the results of launches with checkpoints.

use octants_engine::ir::AutodiffMode;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};

use super::Kernel;
use crate::argument::Gathered;
use crate::errors;
use crate::package::Package;
use crate::program;
use crate::specialization::{Slots, Specialization};
use crate::stream::scope_stream;

impl Kernel {
    /// A launch from a checkpoint on, of a function or of a method of `instance`.
    pub fn resume_from<'py>(
        slf: &Bound<'py, Self>,
        instance: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyTuple>,
        from_checkpoint: &Bound<'py, PyAny>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        let label = from_checkpoint.cast::<PyInt>().ok().and_then(|n| n.extract::<i64>().ok()).ok_or_else(|| {
            let given = from_checkpoint.repr().map_or_else(|_| "this object".into(), |r| r.to_string());
            let text = "must be an int or IntEnum value that labels a qd.checkpoint() of the kernel";
            errors::runtime_error(py, format!("kernel `{}`: from_checkpoint= {text}; got {given}", this.name))
        })?;
        let given: Vec<_> = instance.cloned().into_iter().chain(args.iter()).collect();
        let args = this.bind(py, &given, kwargs)?;
        let (prepared, _) = this.prepared(py)?;
        let _call = prepared.program.begin_call();
        let mut slots = Slots::new();
        let mut gathered: Gathered<'_> = this.gather(&prepared, &args, AutodiffMode::None)?;
        let spec = Self::find_or_compile(slf, &prepared, &mut gathered, &args, &mut slots, AutodiffMode::None)?;
        if !spec.checkpoints.iter().any(|(known, _)| *known == label) {
            return Err(this.refuse_resume(py, &spec, from_checkpoint));
        }
        gathered.resumes_at = Some(label);
        let result = this.launch(py, &prepared, &spec, (&gathered, &[]), &slots, scope_stream(py)?.as_ref())?;
        program::write_printed(py)?;
        Ok(result)
    }

    #[cold]
    fn refuse_resume(&self, py: Python<'_>, spec: &Specialization, label: &Bound<'_, PyAny>) -> PyErr {
        let shown = |o: &Bound<'_, PyAny>| o.repr().map_or_else(|_| "?".into(), |r| r.to_string());
        let known: Vec<String> = spec.checkpoints.iter().map(|(_, o)| shown(o.bind(py))).collect();
        let text = if known.is_empty() {
            "`from_checkpoint=` is only valid for kernels with at least one qd.checkpoint(), but this one has none"
                .into()
        } else {
            format!(
                "from_checkpoint={} does not match any of its qd.checkpoint() labels: {}",
                shown(label),
                known.join(", ")
            )
        };
        errors::runtime_error(py, format!("kernel `{}`: {text}", self.name))
    }
}

impl Specialization {
    /// The result of a launch that stopped after this checkpoint, or of one that completed.
    pub fn graph_status(&self, py: Python<'_>, ended_at: Option<i64>) -> PyResult<Py<PyAny>> {
        let found = ended_at.and_then(|at| self.checkpoints.iter().find(|(label, _)| *label == at));
        let object = found.map(|(_, object)| object.clone_ref(py));
        Package::get(py)?.graph_status.call1(py, (ended_at.is_some(), object))
    }
}
