//! The Python interface of concurrent launches on the default stream.

use octants_engine::runtime::nesting::set_concurrency;
use pyo3::prelude::*;

use crate::program;
use crate::waiting::waiting;

/// Restores a thread's concurrency setting when dropped.
pub struct Restored(Option<bool>);

impl Drop for Restored {
    fn drop(&mut self) {
        set_concurrency(self.0);
    }
}

/// Keeps this thread's launches in order until the value is dropped.
pub fn keep_order() -> Restored {
    Restored(set_concurrency(Some(false)))
}

/// Sets whether this thread's launches on the default stream may run concurrently; `None` uses the program's option.
/// Returns the previous setting.
#[pyfunction]
pub fn request_concurrency(py: Python<'_>, concurrent: Option<bool>) -> PyResult<Option<bool>> {
    if concurrent == Some(true) {
        let program = program::require(py)?;
        waiting(py, |caller| {
            program.session.device().prepare_concurrency(caller);
            Ok(())
        })?;
    }
    Ok(set_concurrency(concurrent))
}

/// The streams of launches since the last call: number, kernel, lane, and the launches that each waited for, with the
/// conflicting buffer and the elements.
type Decided = (u64, String, Option<usize>, Vec<(u64, String)>, Vec<String>);

/// The decisions about concurrent launches since the last call, the latest 4,096 of them, and how many rounds the
/// program has launched as graphs.
#[pyfunction]
pub fn take_decisions(py: Python<'_>) -> PyResult<(Vec<Decided>, u64)> {
    let program = program::require(py)?;
    let device = program.session.device();
    let decisions = device.take_decisions();
    Ok((
        decisions.into_iter().map(|d| (d.number, d.kernel, d.lane, d.depends_on, d.reasons)).collect(),
        device.replays(),
    ))
}
