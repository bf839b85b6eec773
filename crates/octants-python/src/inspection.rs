//! [`Inspection`]: a kernel as a call would compile it. Its code can be inspected for any machine.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use octants_engine::Lowering;
use octants_engine::environment::dumps_stages;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::back_ends::backends;
use crate::package::Package;
use crate::program::Program;
use crate::{detached, errors};

/// The callback that receives each compiled kernel.
static OBSERVER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// A kernel with arguments of certain types, before code is made.
#[pyclass(module = "octants._octants", frozen)]
pub struct Inspection {
    program: Arc<Program>,
    lowering: Arc<Lowering>,
    arrays_may_alias: bool,
    /// Name of the kernel.
    #[pyo3(get)]
    kernel: String,
}

impl Inspection {
    pub fn new(kernel: &str, program: &Arc<Program>, lowering: &Arc<Lowering>, arrays_may_alias: bool) -> Inspection {
        let (program, lowering) = (program.clone(), lowering.clone());
        Inspection { program, lowering, arrays_may_alias, kernel: kernel.into() }
    }
}

#[pymethods]
impl Inspection {
    /// The code in a given form, for a machine named by kind, chip or both, and the usual file extension.
    #[pyo3(signature = (form, arch = None, target = None))]
    fn emit<'py>(
        &self,
        py: Python<'py>,
        form: &str,
        arch: Option<&str>,
        target: Option<&str>,
    ) -> PyResult<(Bound<'py, PyBytes>, &'static str)> {
        let packages: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract().unwrap_or_default();
        let session = &self.program.session;
        let made = detached::working(py, || {
            let form = session.form(form)?;
            let machine = session.machine(arch, target, &packages)?;
            let code = session.inspect(&self.lowering, self.arrays_may_alias, &machine, form)?;
            Ok((code, machine.file_ending(form)))
        });
        let (code, ending) = made.map_err(|e| errors::from_engine(py, e))?;
        Ok((PyBytes::new(py, &code), ending))
    }
}

/// Calls `callback` with the [`Inspection`] of each kernel compiled from now on; `None` removes the callback.
#[pyfunction]
#[pyo3(signature = (callback))]
pub fn observe_compilations(callback: Option<Py<PyAny>>) {
    let old = std::mem::replace(&mut *OBSERVER.lock().unwrap_or_else(PoisonError::into_inner), callback);
    // Outside the lock: dropping Python objects may run Python code.
    drop(old);
}

/// The kinds of machines, and the available targets of each.
#[pyfunction]
pub fn code_targets() -> Vec<(&'static str, Vec<String>)> {
    backends().code_targets()
}

/// Whether options or the environment request files.
fn dumps(program: &Program) -> bool {
    program.session.config().dumps_code() || dumps_stages()
}

/// Whether compilations of a program are observed: by the observer, or by files that options request.
pub fn is_observed(program: &Program) -> bool {
    dumps(program) || OBSERVER.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Calls the observer, if there is one, and writes the files that options request.
pub fn show(py: Python<'_>, program: &Program, inspection: impl Fn() -> Inspection) -> PyResult<()> {
    if dumps(program) {
        Package::get(py)?.write_code.bind(py).call1((inspection(), dumps_stages()))?;
    }
    let observer = OBSERVER.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|o| o.clone_ref(py));
    if let Some(observer) = observer {
        observer.call1(py, (inspection(),))?;
    }
    Ok(())
}
