//! The Python methods of [`Stream`], stream scopes, and the package's stream functions.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyType};

use octants_engine::runtime::{self, Uninterruptible};

use crate::buffer::Buffer;
use crate::device::on_device;
use crate::event::Event;
use crate::program::{self, Program};
use crate::stream::{
    EVENT_OR_STREAM, Kind, Stream, enter_scope, innermost, leave_scope, lock, scope_stream, stream_argument,
    stream_of_any_device, stream_of_handle,
};
use crate::waiting::{raised, waiting};
use crate::{detached, errors};

/// The result of `stream_scope`.
#[pyclass(module = "octants._octants", frozen)]
pub struct StreamScope {
    stream: Py<Stream>,
}

#[pymethods]
impl Stream {
    /// Wraps an external stream, given as the driver's handle. Zero is the default stream. A wrapped stream is never
    /// destroyed.
    #[staticmethod]
    fn from_handle(py: Python<'_>, handle: u64) -> PyResult<Stream> {
        let program = program::require(py)?;
        let stream = stream_of_handle(py, program.session.device(), handle)?;
        Ok(Stream::new(&program, stream, if handle == 0 { Kind::Default } else { Kind::Wrapped }))
    }

    /// The driver's handle; 0 for the default stream, on a device without native streams, and after `destroy()`.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.lend(py)?;
        Ok(self.get_handle())
    }

    /// The vendor's handle, also of the default stream.
    #[getter]
    fn _native_handle(&self, py: Python<'_>) -> PyResult<u64> {
        self.lend(py)?;
        Ok(self.open(py)?.native_handle())
    }

    /// Waits until all work of the stream is done, and raises its failures.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.open(py)?;
        waiting(py, |caller| stream.synchronize(caller))
    }

    /// Its number in the program, by which messages and profiles name it; 0 for the default stream.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.open(py)?.number())
    }

    /// Whether all queued work is done.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let stream = self.open(py)?;
        waiting(py, |_| stream.query())
    }

    /// Makes later work of this stream wait for an event, or for all work queued so far on another stream. Either may
    /// belong to another device.
    fn wait(&self, event_or_stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = event_or_stream.py();
        let stream = self.open(py)?;
        if let Ok(event) = event_or_stream.cast_exact::<Event>() {
            return event.get().order_before(py, &stream);
        }
        let other = stream_of_any_device(event_or_stream, EVENT_OR_STREAM)?;
        if stream.is_of_device_of(&other) {
            return stream.wait_for(&other, &Uninterruptible).map_err(|e| raised(py, e));
        }
        waiting(py, |caller| stream.wait_for(&other, caller))
    }

    /// Sets elements in the device's memory, from an address on, to copies of one. Returns when that is queued. The
    /// caller keeps the memory alive.
    fn _fill(&self, py: Python<'_>, address: u64, element: &[u8], count: u64) -> PyResult<()> {
        let stream = self.open(py)?;
        // SAFETY: the package passes memory of arrays that it keeps.
        waiting(py, |caller| unsafe { stream.fill_at(address, element, count, caller) })
    }

    /// Bytes of the device's memory, from an address on. Waits for the stream.
    fn _read<'py>(&self, py: Python<'py>, address: u64, nbytes: usize) -> PyResult<Bound<'py, PyByteArray>> {
        let stream = self.open(py)?;
        let mut bytes = vec![0; nbytes];
        // SAFETY: as above.
        waiting(py, |caller| unsafe { stream.read_at(address, &mut bytes, caller) })?;
        Ok(PyByteArray::new(py, &bytes))
    }

    /// Copies bytes into the device's memory, from an address on. Waits for the stream.
    fn _write(&self, py: Python<'_>, address: u64, data: &[u8]) -> PyResult<()> {
        let stream = self.open(py)?;
        // SAFETY: as above.
        waiting(py, |caller| unsafe { stream.write_at(address, data, caller) })
    }

    /// Notes that work on this stream which no launch queued uses and changes an array's memory: the host waits for the
    /// stream before it accesses the memory.
    fn _note_use(&self, py: Python<'_>, buffer: &Bound<'_, Buffer>) -> PyResult<()> {
        self.open(py)?.note_use(buffer.get().memory());
        Ok(())
    }

    /// Waits for the stream's work and destroys the stream. Calling this twice is allowed. A wrapped stream is only
    /// released.
    fn destroy(&self, py: Python<'_>) -> PyResult<()> {
        self.finish(py, true)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (kind = None, _value = None, _traceback = None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if let Some(kind) = kind
            && self.kind == Kind::Own
            && kind.is_subclass_of::<PyKeyboardInterrupt>()?
        {
            // The user has just interrupted a wait: do not wait again.
            let endless = lock(&self.inner).take_if(|stream| !stream.cancel());
            detached::waiting(py, || endless.map(runtime::Stream::release));
        }
        self.finish(py, kind.is_none())
    }

    /// The protocol by which other libraries accept the stream: version and handle.
    fn __cuda_stream__(&self, py: Python<'_>) -> PyResult<(i64, u64)> {
        self.lend(py)?;
        Ok((0, self.open(py)?.handle()))
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast_exact::<Stream>() else { return false };
        let (a, b) = (slf.get(), other.get());
        if slf.is(other) || (a.kind == Kind::Default && b.kind == Kind::Default && a.serial == b.serial) {
            return true;
        }
        // Handles of different devices may be equal.
        let handle = a.get_handle();
        handle != 0 && handle == b.get_handle() && a.serial == b.serial
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        let this = slf.get();
        match (this.kind, this.get_handle()) {
            (Kind::Default, _) => 0,
            (_, 0) => slf.as_ptr() as isize,
            (_, handle) => handle as isize,
        }
    }

    fn __repr__(&self) -> String {
        let what = match self.kind {
            Kind::Default => "default stream",
            Kind::Own => "stream",
            Kind::Wrapped => "wrapped stream",
        };
        let handle = self.get_handle();
        match &*lock(&self.inner) {
            None => format!("<octants {what}, destroyed>"),
            Some(s) if !s.alive() => format!("<octants {what} of a program that has ended>"),
            Some(_) => format!("<octants {what} {handle:#x}>"),
        }
    }
}

#[pymethods]
impl StreamScope {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Stream>> {
        self.stream.get().open(py)?;
        enter_scope(self.stream.clone_ref(py));
        Ok(self.stream.bind(py).clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        if !leave_scope(&self.stream) {
            let text = "a `with stream:` block must end on the thread on which it began, after the blocks inside it";
            return Err(errors::runtime_error(py, text));
        }
        Ok(())
    }
}

/// Creates a stream, by default on the current device. The device prefers streams of higher priority.
#[pyfunction]
#[pyo3(signature = (priority = 0, device = None))]
pub fn create_stream(py: Python<'_>, priority: i32, device: Option<&Bound<'_, PyAny>>) -> PyResult<Stream> {
    on_device(device, || {
        let program = program::require(py)?;
        let device = program.session.device();
        if device.admit_streams() {
            detached::waiting(py, || device.wait_for_ordered()).map_err(|e| raised(py, e))?;
        }
        let stream = device.create_stream(priority).map_err(|e| raised(py, e))?;
        Ok(Stream::new(&program, stream, Kind::Own))
    })
}

/// Makes a stream this thread's current one for the length of a `with` block.
#[pyfunction]
pub fn stream_scope(stream: &Bound<'_, PyAny>) -> PyResult<StreamScope> {
    let py = stream.py();
    let stream = match stream.cast_exact::<Stream>() {
        Ok(stream) => stream.clone().unbind(),
        Err(_) => {
            let program = program::require(py)?;
            Py::new(py, Stream::new(&program, stream_argument(stream, "stream")?, Kind::Wrapped))?
        }
    };
    stream.get().open(py)?;
    Ok(StreamScope { stream })
}

fn default_of(program: &Program) -> Stream {
    Stream::new(program, program.session.device().default_stream().clone(), Kind::Default)
}

/// The stream on which kernels run by default.
#[pyfunction]
pub fn default_stream(py: Python<'_>) -> PyResult<Stream> {
    Ok(default_of(&*program::require(py)?))
}

/// The stream of the innermost `stream_scope` of this thread; else the default stream.
#[pyfunction]
pub fn current_stream(py: Python<'_>) -> PyResult<Py<Stream>> {
    match innermost(py) {
        Some(stream) => Ok(stream),
        None => match scope_stream(py)? {
            Some(stream) => Py::new(py, Stream::new(&*program::require(py)?, stream, Kind::Wrapped)),
            None => Py::new(py, default_stream(py)?),
        },
    }
}

/// Statistics of the stream pool for groups of kernels.
#[pyfunction]
pub fn stream_pool_stats<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let stats = program::require(py)?.session.device().stream_pool_stats();
    let dict = PyDict::new(py);
    for (name, count) in
        [("created", stats.created), ("in_use", stats.in_use), ("idle", stats.idle), ("reused", stats.reused)]
    {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}

/// Destroys the pool's idle streams.
#[pyfunction]
pub fn trim_stream_pool(py: Python<'_>) -> PyResult<()> {
    let program = program::require(py)?;
    detached::waiting(py, || program.session.device().trim_stream_pool());
    Ok(())
}
