//! Kernel coverage: the Python function that returns the field element that marks a line.

use std::sync::{Mutex, PoisonError};

use octants_engine::frontend::LineEvent;
use pyo3::prelude::*;

static ASKED: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Sets the function called during compilation with a file, a line, and whether the line's condition is false. It
/// returns a field and an index, or `None`. Setting `None` disables coverage.
#[pyfunction]
#[pyo3(signature = (asked))]
pub fn probe_lines(asked: Option<Py<PyAny>>) {
    let old = std::mem::replace(&mut *ASKED.lock().unwrap_or_else(PoisonError::into_inner), asked);
    // Outside the lock: dropping Python objects may run Python code.
    drop(old);
}

/// Whether coverage is enabled.
pub fn is_asked() -> bool {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Calls the function for a line. Its exceptions are reported as unraisable, because a kernel is being compiled.
pub fn ask<'py>(py: Python<'py>, path: &str, line: u32, event: LineEvent) -> Option<(Bound<'py, PyAny>, i128)> {
    let asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|a| a.clone_ref(py))?;
    let answer = asked.bind(py).call1((path, line, event == LineEvent::Skipped));
    match answer.and_then(|answer| answer.extract::<Option<(Bound<'py, PyAny>, i128)>>()) {
        Ok(found) => found,
        Err(error) => {
            error.write_unraisable(py, None);
            None
        }
    }
}
