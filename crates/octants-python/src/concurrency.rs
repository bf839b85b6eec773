//! The Python interface of concurrent launches on the default stream.

use octants_engine::runtime::nesting::{set_concurrency, set_fusion};
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

/// Sets whether this thread's repeated launches are fused even if the program's option does not enable it. Returns the
/// previous setting.
#[pyfunction]
pub fn request_fusion(py: Python<'_>, fuses: bool) -> PyResult<bool> {
    if fuses {
        program::require(py)?.session.prepare_fusion();
    }
    Ok(set_fusion(fuses))
}

/// The streams of launches since the last call: number, kernel, lane, and the launches that each waited for, with the
/// conflicting buffer and the elements; and the replay that it is part of.
type Decided = (u64, String, Option<usize>, Vec<(u64, String)>, Vec<String>, Option<u64>);

/// Kernels that were fused, the temporaries that are no longer stored, and the reason why not.
type Fused = (Vec<String>, Vec<String>, String);

/// The decisions about concurrent launches since the last call, the latest 4,096 of them, how many rounds the program
/// has launched as graphs, and which launches were fused.
#[pyfunction]
pub fn take_decisions(py: Python<'_>) -> PyResult<(Vec<Decided>, u64, Vec<Fused>)> {
    let program = program::require(py)?;
    let device = program.session.device();
    let (decisions, fusions) = device.take_decisions();
    Ok((
        decisions.into_iter().map(|d| (d.number, d.kernel, d.lane, d.depends_on, d.reasons, d.replay)).collect(),
        device.replays(),
        fusions.into_iter().map(|f| (f.kernels, f.removed, f.refusal)).collect(),
    ))
}
