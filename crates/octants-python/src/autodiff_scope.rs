//! The thread's scope in which launches are differentiated or recorded.

use std::cell::{Cell, RefCell};

use octants_engine::ir::AutodiffMode;
use pyo3::prelude::*;

/// The extra work of launches on a thread while a scope is open.
pub enum Scope {
    /// They compute tangents.
    Forward,
    /// They are handed to `record(kernel, arguments)` when they have run.
    Record {
        /// The tape's method.
        record: Py<PyAny>,
        /// Whether launches check the assumptions of their gradients.
        validation: bool,
    },
}

thread_local! {
    // Stored in addition to the scope, for the hot path.
    static OPEN: Cell<bool> = const { Cell::new(false) };
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// This thread differentiates or records its launches.
#[inline]
pub fn in_scope() -> bool {
    OPEN.with(Cell::get)
}

/// How to handle a launch: its mode, and the function that records it.
#[cold]
pub fn scope(py: Python<'_>) -> (AutodiffMode, Option<Py<PyAny>>) {
    SCOPE.with(|s| match &*s.borrow() {
        None => (AutodiffMode::None, None),
        Some(Scope::Forward) => (AutodiffMode::Forward, None),
        Some(Scope::Record { record, validation }) => {
            let mode = if *validation { AutodiffMode::Validation } else { AutodiffMode::None };
            (mode, Some(record.clone_ref(py)))
        }
    })
}

/// Whether this thread differentiates or records its launches.
#[pyfunction]
pub fn in_autodiff_scope() -> bool {
    in_scope()
}

/// Opens a scope for this thread, replacing its current one: "forward", or "record" with the function that records
/// launches; `None` closes it. Returns nothing: the package keeps track of its scopes.
#[pyfunction]
#[pyo3(signature = (kind, record = None, validation = false))]
pub fn set_autodiff_scope(kind: Option<&str>, record: Option<Py<PyAny>>, validation: bool) -> PyResult<()> {
    let scope = match (kind, record) {
        (None, _) => None,
        (Some("forward"), _) => Some(Scope::Forward),
        (Some("record"), Some(record)) => Some(Scope::Record { record, validation }),
        (Some(other), _) => {
            return Err(pyo3::exceptions::PyValueError::new_err(format!("no autodiff scope {other:?}")));
        }
    };
    OPEN.with(|o| o.set(scope.is_some()));
    let old = SCOPE.with(|s| std::mem::replace(&mut *s.borrow_mut(), scope));
    // Outside the borrow: dropping Python objects may run Python code.
    drop(old);
    Ok(())
}
