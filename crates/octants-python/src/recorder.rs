//! [`Recorder`]: a program on the recording driver. Tests of decisions in Python (stream scopes, tapes) use it to
//! check which launches reached which stream. Nothing runs, and wheels do not contain it.

use std::sync::Arc;

use octants_backends::recording::{Log, RecordingDriver};
use octants_engine::runtime::Uninterruptible;
use octants_engine::{Config, OptionValue, Session};
use pyo3::prelude::*;

use crate::back_ends::backends;
use crate::{detached, errors, program};

/// The log of the program's driver.
#[pyclass(module = "octants._octants", frozen)]
pub struct Recorder(Arc<Log>);

#[pymethods]
impl Recorder {
    /// The stream handle of each task queued since the last call.
    fn streams(&self) -> Vec<u64> {
        self.0.take_launched().iter().map(|task| task.stream).collect()
    }

    /// Unordered uses of memory, and leaks.
    fn mistakes(&self) -> Vec<String> {
        self.0.mistakes()
    }
}

/// Replaces the current program by one on the recording driver.
#[pyfunction]
pub fn record_calls(py: Python<'_>) -> PyResult<Recorder> {
    let log = Arc::new(Log::default());
    let mut config = Config::new(backends());
    let off = config.set("offline_cache", &OptionValue::Bool(false));
    let driver = RecordingDriver::new(log.clone());
    let session = off.and_then(|()| Session::on(driver, config, Arc::new(program::collect_printed)));
    let session = session.map_err(|e| errors::from_engine(py, e))?;
    detached::working(py, || program::replace(Some(session), &Uninterruptible));
    Ok(Recorder(log))
}
