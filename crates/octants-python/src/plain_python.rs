//! Kernels and functions that run as Python, for `arch=qd.python`. The package registers the function that runs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors;

static RUNNER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The kind of function to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A kernel.
    Kernel,
    /// A function that kernels call.
    Function,
}

/// Sets the function that runs kernels and functions from then on; `None` compiles kernels again. It is called with the
/// Python function, its arguments as a tuple and a dict, and whether it is a kernel.
#[pyfunction]
#[pyo3(signature = (runner))]
pub fn run_as_python(runner: Option<Py<PyAny>>) {
    ACTIVE.store(runner.is_some(), Ordering::Release);
    let old = std::mem::replace(&mut *RUNNER.lock().unwrap_or_else(PoisonError::into_inner), runner);
    // Outside the lock: dropping Python objects may run Python code.
    drop(old);
}

/// Whether kernels run as Python. Called at every launch.
#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Runs a kernel or function.
pub fn run<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    caller: Caller,
) -> PyResult<Py<PyAny>> {
    let py = function.py();
    let runner = RUNNER.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|r| r.clone_ref(py));
    // Another thread has just started another program.
    let Some(runner) = runner else { return Err(errors::no_program(py, false)) };
    let none = PyDict::new(py);
    runner.call1(py, (function, args, kwargs.unwrap_or(&none), caller == Caller::Kernel))
}
