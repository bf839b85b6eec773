//! How a thread waits for the device: without the interpreter, until the work is done or the user interrupts.

use octants_engine::Error as EngineError;
use octants_engine::runtime::{Caller, DeviceError};
use pyo3::prelude::*;

use crate::interpreter::Interpreter;
use crate::{detached, errors, program};

/// An error of the device as an exception.
pub fn raised(py: Python<'_>, error: DeviceError) -> PyErr {
    errors::from_engine(py, error.into())
}

/// Waits without the interpreter, and writes text that was printed meanwhile.
pub fn waiting<T>(py: Python<'_>, wait: impl FnOnce(&dyn Caller) -> Result<T, DeviceError>) -> PyResult<T> {
    let end = interruptible(py, |caller| wait(caller).map_err(Into::into))?;
    end.map_err(|e| errors::from_engine(py, e))
}

/// The same, for waits inside a session. An exception from a signal handler ends the wait.
pub fn interruptible<T>(
    py: Python<'_>,
    wait: impl FnOnce(&dyn Caller) -> Result<T, EngineError>,
) -> PyResult<Result<T, EngineError>> {
    detached::before_launch(py);
    let interpreter = Interpreter::held(py);
    interpreter.will_block();
    let end = wait(&interpreter);
    let interrupted = interpreter.take();
    program::write_printed(py)?;
    interrupted.map_or(Ok(end), Err)
}
