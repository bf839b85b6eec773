//! Work that the device executes instead of the host, on the default stream, ordered with other uses of the same
//! memory.

use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::program;
use crate::stream::{Kind, Stream};
use crate::waiting::{raised, waiting};

/// Makes the default stream wait for all work that uses these buffers, and returns it. For work that a device does in
/// place of the host.
#[pyfunction]
pub fn default_stream_after(py: Python<'_>, buffers: Vec<Py<Buffer>>) -> PyResult<Stream> {
    let program = program::require(py)?;
    let memory: Vec<_> = buffers.iter().map(|b| b.get().memory()).collect();
    let stream = program.session.device().default_stream_after(&memory).map_err(|e| raised(py, e))?;
    Ok(Stream::new(&program, stream, Kind::Default))
}

/// Call this once such work is queued. Later launches on any stream come after it.
#[pyfunction]
pub fn end_host_work(py: Python<'_>) -> PyResult<()> {
    let program = program::require(py)?;
    waiting(py, |caller| program.session.device().end_host_work(caller))
}
