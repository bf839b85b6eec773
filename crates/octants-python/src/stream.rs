//! [`Stream`] and [`Event`] as Python objects, and this thread's current stream.
//!
//! A Python object holds its runtime stream until it is destroyed; a launch on it holds another reference, so that a stream
//! that one thread destroys stays whole for what another is just launching.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::runtime::{self, DeviceError, HostAccess, Patient};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::program::{self, Program};
use crate::{buffer, errors, exchange_table};

thread_local! {
    /// The streams of the scopes that this thread is in, innermost last.
    static SCOPES: RefCell<Vec<Py<Stream>>> = const { RefCell::new(Vec::new()) };
    /// Their number, which a launch looks at.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// An in-order queue of work on the device. Kernels launched on different streams may run at the same time.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Stream {
    inner: Mutex<Option<runtime::Stream>>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Made by `create_stream`.
    Own,
    /// The program's default stream.
    Default,
    /// Someone else's.
    Wrapped,
}

/// A point in a stream's work, for other streams or the host to wait for.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Event {
    inner: Mutex<Option<Arc<runtime::Event>>>,
}

/// What `stream_scope` returns.
#[pyclass(module = "octants._octants", frozen)]
pub struct StreamScope {
    stream: Py<Stream>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn raised(py: Python<'_>, error: DeviceError) -> PyErr {
    errors::from_engine(py, error.into())
}

/// Waits without the interpreter, and writes what was printed meanwhile.
pub fn waiting<T: Send>(py: Python<'_>, wait: impl FnOnce() -> Result<T, DeviceError> + Send) -> PyResult<T> {
    let end = py.detach(wait);
    program::write_printed(py)?;
    end.map_err(|e| raised(py, e))
}

impl Stream {
    fn new(stream: runtime::Stream, kind: Kind) -> Stream {
        Stream { inner: Mutex::new(Some(stream)), kind }
    }

    fn open(&self, py: Python<'_>) -> PyResult<runtime::Stream> {
        let stream = lock(&self.inner).clone();
        match stream {
            Some(stream) if stream.alive() => Ok(stream),
            Some(_) => Err(errors::dead_object(py, "stream")),
            None => Err(errors::runtime_error(py, "this stream was destroyed: create another with create_stream()")),
        }
    }

    fn get_handle(&self) -> u64 {
        lock(&self.inner).as_ref().map_or(0, runtime::Stream::handle)
    }

    fn finish(&self, py: Python<'_>, report: bool) -> PyResult<()> {
        let Some(stream) = lock(&self.inner).take() else { return Ok(()) };
        if self.kind == Kind::Own && stream.alive() && report {
            waiting(py, || stream.synchronize(&Patient))
        } else {
            // The last reference drains the stream; a failure is left for whoever waits for the program.
            py.detach(|| drop(stream));
            Ok(())
        }
    }
}

/// The parameter of [`Stream::wait`].
const EVENT_OR_STREAM: &str = "event_or_stream";

/// A stream argument: ours, or one of another library. `name` is the parameter's.
pub fn stream_argument(value: &Bound<'_, PyAny>, name: &str) -> PyResult<runtime::Stream> {
    let py = value.py();
    if let Ok(stream) = value.cast_exact::<Stream>() {
        return stream.get().open(py);
    }
    let handle = match value.getattr_opt(pyo3::intern!(py, "__cuda_stream__"))? {
        Some(protocol) => {
            let (version, handle): (i64, u64) = protocol.call0()?.extract()?;
            if version != 0 {
                return Err(PyTypeError::new_err(format!("{name}: version {version} of __cuda_stream__ is not known")));
            }
            Some(handle)
        }
        None => value.getattr_opt(pyo3::intern!(py, "cuda_stream"))?.and_then(|h| h.extract::<u64>().ok()),
    };
    let Some(handle) = handle else {
        // Only there may an event stand as well.
        let event = if name == EVENT_OR_STREAM { "an Event or " } else { "" };
        return Err(PyTypeError::new_err(format!(
            "{name} must be {event}a Stream (or an object with __cuda_stream__), got {}",
            value.get_type().name()?
        )));
    };
    let program = program::require(py)?;
    program.session.device().stream_from_handle(handle).map_err(|e| raised(py, e))
}

/// Torch's current stream; `None` for the default stream.
#[cold]
fn followed_stream(py: Python<'_>) -> PyResult<Option<runtime::Stream>> {
    let program = program::require(py)?;
    let device = program.session.device();
    let handle = match exchange_table::torch_stream(py, device.dlpack_device())? {
        None | Some(0) => return Ok(None),
        Some(handle) => handle,
    };
    let known = lock(&program.followed).iter().find(|s| s.handle() == handle).cloned();
    if known.is_some() {
        return Ok(known);
    }
    let stream = device.stream_from_handle(handle).map_err(|e| raised(py, e))?;
    lock(&program.followed).push(stream.clone());
    Ok(Some(stream))
}

/// This thread is in a `stream_scope`.
pub fn in_stream_scope() -> bool {
    DEPTH.with(Cell::get) > 0
}

/// The stream of the scope that this thread is in, or torch's where the program follows that; `None` for the default stream.
#[inline]
pub fn scope_stream(py: Python<'_>) -> PyResult<Option<runtime::Stream>> {
    if DEPTH.with(Cell::get) > 0 {
        innermost(py).map(|s| s.get().open(py)).transpose()
    } else if program::follows_torch() {
        followed_stream(py)
    } else {
        Ok(None)
    }
}

#[cold]
fn innermost(py: Python<'_>) -> Option<Py<Stream>> {
    SCOPES.with(|s| s.borrow().last().map(|s| s.clone_ref(py)))
}

/// The stream of an optional argument; the current one for `None`.
fn stream_or_current(py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<runtime::Stream> {
    if let Some(value) = value {
        return stream_argument(value, "qd_stream");
    }
    match scope_stream(py)? {
        Some(stream) => Ok(stream),
        None => Ok(program::require(py)?.session.device().default_stream().clone()),
    }
}

#[pymethods]
impl Stream {
    /// Wraps a stream that someone else made, by the driver's handle. Zero is the default stream. It is never destroyed.
    #[staticmethod]
    fn from_handle(py: Python<'_>, handle: u64) -> PyResult<Stream> {
        let program = program::require(py)?;
        let stream = program.session.device().stream_from_handle(handle).map_err(|e| raised(py, e))?;
        Ok(Stream::new(stream, if handle == 0 { Kind::Default } else { Kind::Wrapped }))
    }

    /// The driver's handle; 0 for the default stream, without streams of its own, and after `destroy()`.
    #[getter]
    fn handle(&self) -> u64 {
        self.get_handle()
    }

    /// Waits until all work of the stream is done, and raises what failed in it.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.open(py)?;
        waiting(py, || stream.synchronize(&Patient))
    }

    /// Its number in the program, by which messages and profiles name it; 0 for the default stream.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.open(py)?.number())
    }

    /// Whether all queued work is done.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let stream = self.open(py)?;
        waiting(py, || stream.query())
    }

    /// Makes later work of this stream wait for an event, or for what is queued on another stream now.
    fn wait(&self, event_or_stream: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = event_or_stream.py();
        let stream = self.open(py)?;
        let end = match event_or_stream.cast_exact::<Event>() {
            Ok(event) => event.get().open(py)?.wait(&stream),
            Err(_) => stream.wait_for(&stream_argument(event_or_stream, EVENT_OR_STREAM)?),
        };
        end.map_err(|e| raised(py, e))
    }

    /// Waits for the stream's work and gives the stream back. Doing so twice is fine. A wrapped stream is only let go of.
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
        kind: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.finish(py, kind.is_none())
    }

    /// The protocol by which other libraries take the stream: version and handle.
    fn __cuda_stream__(&self, py: Python<'_>) -> PyResult<(i64, u64)> {
        Ok((0, self.open(py)?.handle()))
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast_exact::<Stream>() else { return false };
        let (a, b) = (slf.get(), other.get());
        if slf.is(other) || (a.kind == Kind::Default && b.kind == Kind::Default) {
            return true;
        }
        let handle = a.get_handle();
        handle != 0 && handle == b.get_handle()
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

impl Event {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<runtime::Event>> {
        let event = lock(&self.inner).clone();
        match event {
            Some(event) if event.alive() => Ok(event),
            Some(_) => Err(errors::dead_object(py, "event")),
            None => Err(errors::runtime_error(py, "this event was destroyed: create another with create_event()")),
        }
    }
}

#[pymethods]
impl Event {
    /// The driver's handle; 0 without streams of the device's own, and after `destroy()`.
    #[getter]
    fn handle(&self) -> u64 {
        lock(&self.inner).as_ref().map_or(0, |e| e.handle())
    }

    /// Lets the event stand for all work queued on the stream until now.
    #[pyo3(signature = (qd_stream = None))]
    fn record(&self, py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let event = self.open(py)?;
        event.record(&stream_or_current(py, qd_stream)?).map_err(|e| raised(py, e))
    }

    /// Makes later work of the stream wait for what the event stands for. The host goes on.
    #[pyo3(signature = (qd_stream = None))]
    fn wait(&self, py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let event = self.open(py)?;
        event.wait(&stream_or_current(py, qd_stream)?).map_err(|e| raised(py, e))
    }

    /// Makes the host wait for what the event stands for, and raises what failed on its stream.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let event = self.open(py)?;
        waiting(py, || event.synchronize(&Patient))
    }

    /// Whether what the event stands for is done; True where it was never recorded.
    fn query(&self, py: Python<'_>) -> PyResult<bool> {
        let event = self.open(py)?;
        waiting(py, || event.query())
    }

    /// Milliseconds from this event to a later one. Both were made with `timing=True` and recorded; waits for both.
    fn elapsed_ms(&self, py: Python<'_>, later: &Bound<'_, PyAny>) -> PyResult<f64> {
        let Ok(later) = later.cast_exact::<Event>() else {
            return Err(PyTypeError::new_err(format!("later must be an Event, got {}", later.get_type().name()?)));
        };
        let (event, later) = (self.open(py)?, later.get().open(py)?);
        waiting(py, || event.elapsed_ms(&later, &Patient))
    }

    /// Gives the event back. Work that waits for it still does. Doing so twice is fine.
    fn destroy(&self) {
        drop(lock(&self.inner).take());
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.destroy();
    }

    fn __repr__(&self) -> String {
        match &*lock(&self.inner) {
            None => "<octants event, destroyed>".into(),
            Some(e) if !e.alive() => "<octants event of a program that has ended>".into(),
            Some(e) => format!("<octants event {:#x}>", e.handle()),
        }
    }
}

#[pymethods]
impl StreamScope {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Stream>> {
        self.stream.get().open(py)?;
        SCOPES.with(|s| s.borrow_mut().push(self.stream.clone_ref(py)));
        DEPTH.with(|d| d.set(d.get() + 1));
        Ok(self.stream.bind(py).clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        let left = SCOPES.with(|s| {
            let mut scopes = s.borrow_mut();
            match scopes.last() {
                Some(last) if last.is(&self.stream) => scopes.pop(),
                _ => None,
            }
        });
        if left.is_none() {
            let text = "a stream scope ends on the thread it began on, after the scopes within it";
            return Err(errors::runtime_error(py, text));
        }
        DEPTH.with(|d| d.set(d.get() - 1));
        Ok(())
    }
}

/// Makes a stream. Streams of a higher priority come first where the device has a choice.
#[pyfunction]
#[pyo3(signature = (priority = 0))]
pub fn create_stream(py: Python<'_>, priority: i32) -> PyResult<Stream> {
    let program = program::require(py)?;
    let stream = program.session.device().create_stream(priority).map_err(|e| raised(py, e))?;
    Ok(Stream::new(stream, Kind::Own))
}

/// Makes an event; only those with `timing` can be asked for the time between them.
#[pyfunction]
#[pyo3(signature = (timing = false))]
pub fn create_event(py: Python<'_>, timing: bool) -> PyResult<Event> {
    let program = program::require(py)?;
    let event = program.session.device().create_event(timing).map_err(|e| raised(py, e))?;
    Ok(Event { inner: Mutex::new(Some(Arc::new(event))) })
}

/// Makes a stream this thread's current one for the length of a `with` block.
#[pyfunction]
pub fn stream_scope(stream: &Bound<'_, PyAny>) -> PyResult<StreamScope> {
    let py = stream.py();
    let stream = match stream.cast_exact::<Stream>() {
        Ok(stream) => stream.clone().unbind(),
        Err(_) => Py::new(py, Stream::new(stream_argument(stream, "stream")?, Kind::Wrapped))?,
    };
    stream.get().open(py)?;
    Ok(StreamScope { stream })
}

fn default_of(program: &Program) -> Stream {
    Stream::new(program.session.device().default_stream().clone(), Kind::Default)
}

/// The stream on which kernels run unless told otherwise.
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
            Some(stream) => Py::new(py, Stream::new(stream, Kind::Wrapped)),
            None => Py::new(py, default_stream(py)?),
        },
    }
}

/// Counts of the pool of streams that the groups of kernels run on.
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

/// Gives back the pool's idle streams.
#[pyfunction]
pub fn trim_stream_pool(py: Python<'_>) -> PyResult<()> {
    let program = program::require(py)?;
    py.detach(|| program.session.device().trim_stream_pool());
    Ok(())
}

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
    work: impl FnOnce(&runtime::Stream) -> Result<(), DeviceError> + Send,
) -> PyResult<()> {
    let py = stream.py();
    let stream = stream.get().open(py)?;
    waiting(py, || work(&stream))
}

/// For work that the host does in place of a kernel: waits for what is queued on the stream given to it, if one is.
#[pyfunction]
pub fn before_host_work(py: Python<'_>, qd_stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let stream = match qd_stream {
        Some(value) => Some(stream_argument(value, "qd_stream")?),
        None => scope_stream(py)?,
    };
    stream.map_or(Ok(()), |s| waiting(py, || s.synchronize(&Patient)))
}

/// Waits until the host may read (or, with `write`, also change) a buffer's memory.
pub fn wait_for_buffer(py: Python<'_>, buffer: &buffer::Buffer, write: bool) -> PyResult<()> {
    let access = if write { HostAccess::Write } else { HostAccess::Read };
    waiting(py, || buffer.memory().wait(access, &Patient))
}

/// Copies bytes of a buffer to the host, behind the work that writes to it.
pub fn read_buffer(py: Python<'_>, buffer: &buffer::Buffer, offset: u64, to: &mut [u8]) -> PyResult<()> {
    waiting(py, || buffer.memory().read(offset, to, &Patient))
}

/// Copies bytes of the host to a buffer, behind the work that uses it.
pub fn write_buffer(py: Python<'_>, buffer: &buffer::Buffer, offset: u64, from: &[u8]) -> PyResult<()> {
    waiting(py, || buffer.memory().write(offset, from, &Patient))
}

/// Lets another library's stream wait for the work that uses a buffer.
pub fn hand_over(py: Python<'_>, buffer: &buffer::Buffer, stream: Option<u64>) -> PyResult<Option<u64>> {
    waiting(py, || buffer.memory().hand_over(stream, &Patient))
}

/// The default stream, once what is queued there next comes behind all work that uses these buffers: for work that a device does in place of
/// the host.
#[pyfunction]
pub fn default_stream_behind(py: Python<'_>, buffers: Vec<Py<buffer::Buffer>>) -> PyResult<Stream> {
    let program = program::require(py)?;
    let memory: Vec<_> = buffers.iter().map(|b| b.get().memory()).collect();
    let stream = program.session.device().default_stream_behind(&memory).map_err(|e| raised(py, e))?;
    Ok(Stream::new(stream, Kind::Default))
}

/// To be called once such work is queued: what is launched later comes behind it, on whichever stream.
#[pyfunction]
pub fn end_host_work(py: Python<'_>) -> PyResult<()> {
    let program = program::require(py)?;
    waiting(py, || program.session.device().end_host_work(&Patient))
}
