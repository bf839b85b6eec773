//! Host access to buffers, and stream operations that replace a kernel, ordered with the work that uses the buffers.

use octants_engine::runtime::{self, Caller, DeviceError, HostAccess, nesting};
use pyo3::prelude::*;

use crate::program;
use crate::stream::{Kind, Stream, scope_stream, stream_argument};
use crate::waiting::waiting;

/// The stream for work in place of a kernel: the one given, or that of a scope. `None` without either, or if all work
/// is synchronous and nothing is captured.
#[pyfunction]
#[pyo3(signature = (qd_stream = None))]
pub fn queueing_stream(py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Stream>> {
    let stream = match qd_stream {
        Some(value) => Some(stream_argument(value, "qd_stream")?),
        None => scope_stream(py)?,
    };
    let Some(stream) = stream else { return Ok(None) };
    let program = program::require(py)?;
    let queues = !program.session.device().is_immediate() || nesting::capturing();
    Ok(queues.then(|| Stream::new(&program, stream, Kind::Wrapped)))
}

/// Queues a fill or copy on a stream of the program.
pub fn queue_on(
    stream: &Bound<'_, Stream>,
    work: impl FnOnce(&runtime::Stream, &dyn Caller) -> Result<(), DeviceError>,
) -> PyResult<()> {
    let py = stream.py();
    let stream = stream.get().open(py)?;
    waiting(py, |caller| work(&stream, caller))
}

/// For work that the host does in place of a kernel: waits for the given stream, if there is one.
#[pyfunction]
pub fn before_host_work(py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let stream = match qd_stream {
        Some(value) => Some(stream_argument(value, "qd_stream")?),
        None => scope_stream(py)?,
    };
    stream.map_or(Ok(()), |s| waiting(py, |caller| s.synchronize(caller)))
}

/// Waits until the host may read (or, with `write`, also change) a buffer's memory.
pub fn wait_for_buffer(py: Python<'_>, buffer: &runtime::Buffer, write: bool) -> PyResult<()> {
    let access = if write { HostAccess::Write } else { HostAccess::Read };
    waiting(py, |caller| buffer.wait(access, caller))
}

/// Copies bytes of a buffer to the host, after the work that writes to it.
pub fn read_buffer(py: Python<'_>, buffer: &runtime::Buffer, offset: u64, to: &mut [u8]) -> PyResult<()> {
    waiting(py, |caller| buffer.read(offset, to, caller))
}

/// Copies bytes of the host to a buffer, after the work that uses it.
pub fn write_buffer(py: Python<'_>, buffer: &runtime::Buffer, offset: u64, from: &[u8]) -> PyResult<()> {
    waiting(py, |caller| buffer.write(offset, from, caller))
}

/// Lets another library's stream wait for the work that uses a buffer.
pub fn hand_over(py: Python<'_>, buffer: &runtime::Buffer, stream: Option<u64>) -> PyResult<Option<u64>> {
    waiting(py, |caller| buffer.hand_over(stream, caller))
}
