//! What the host does with buffers, or has a stream or the device do in place of a kernel, in the order of the work that uses them.

use octants_engine::runtime::{self, Caller, DeviceError, HostAccess};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::program;
use crate::stream::{Kind, Stream, raised, scope_stream, stream_argument, waiting};

/// The stream on which work in place of a kernel is queued: the one given, or that of a scope. `None` where neither is, or where all
/// work is done at once.
#[pyfunction]
#[pyo3(signature = (qd_stream = None))]
pub fn queueing_stream(py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Stream>> {
    let stream = match qd_stream {
        Some(value) => Some(stream_argument(value, "qd_stream")?),
        None => scope_stream(py)?,
    };
    Ok(stream.filter(|_| !program::is_immediate()).map(|s| Stream::new(s, Kind::Wrapped)))
}

/// Queues what sets or copies memory. The stream is one of the program's.
pub fn queue_on(
    stream: &Bound<'_, Stream>,
    work: impl FnOnce(&runtime::Stream, &dyn Caller) -> Result<(), DeviceError>,
) -> PyResult<()> {
    let py = stream.py();
    let stream = stream.get().open(py)?;
    waiting(py, |caller| work(&stream, caller))
}

/// For work that the host does in place of a kernel: waits for what is queued on the stream given to it, if one is.
#[pyfunction]
pub fn before_host_work(py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let stream = match qd_stream {
        Some(value) => Some(stream_argument(value, "qd_stream")?),
        None => scope_stream(py)?,
    };
    stream.map_or(Ok(()), |s| waiting(py, |caller| s.synchronize(caller)))
}

/// Waits until the host may read (or, with `write`, also change) a buffer's memory.
pub fn wait_for_buffer(py: Python<'_>, buffer: &Buffer, write: bool) -> PyResult<()> {
    let access = if write { HostAccess::Write } else { HostAccess::Read };
    waiting(py, |caller| buffer.memory().wait(access, caller))
}

/// Copies bytes of a buffer to the host, behind the work that writes to it.
pub fn read_buffer(py: Python<'_>, buffer: &Buffer, offset: u64, to: &mut [u8]) -> PyResult<()> {
    waiting(py, |caller| buffer.memory().read(offset, to, caller))
}

/// Copies bytes of the host to a buffer, behind the work that uses it.
pub fn write_buffer(py: Python<'_>, buffer: &Buffer, offset: u64, from: &[u8]) -> PyResult<()> {
    waiting(py, |caller| buffer.memory().write(offset, from, caller))
}

/// Lets another library's stream wait for the work that uses a buffer.
pub fn hand_over(py: Python<'_>, buffer: &Buffer, stream: Option<u64>) -> PyResult<Option<u64>> {
    waiting(py, |caller| buffer.memory().hand_over(stream, caller))
}

/// The default stream, once what is queued there next comes behind all work that uses these buffers: for work that a device does in place of
/// the host.
#[pyfunction]
pub fn default_stream_behind(py: Python<'_>, buffers: Vec<Py<Buffer>>) -> PyResult<Stream> {
    let program = program::require(py)?;
    let memory: Vec<_> = buffers.iter().map(|b| b.get().memory()).collect();
    let stream = program.session.device().default_stream_behind(&memory).map_err(|e| raised(py, e))?;
    Ok(Stream::new(stream, Kind::Default))
}

/// To be called once such work is queued: what is launched later comes behind it, on whichever stream.
#[pyfunction]
pub fn end_host_work(py: Python<'_>) -> PyResult<()> {
    let program = program::require(py)?;
    waiting(py, |caller| program.session.device().end_host_work(caller))
}
