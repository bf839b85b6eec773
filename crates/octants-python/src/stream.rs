//! [`Stream`] as a Python object, and this thread's current stream.
//!
//! A Python object holds its runtime stream until it is destroyed; a launch on it holds another reference, so that a stream
//! that one thread destroys stays whole for what another is just launching.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_engine::Error as EngineError;
use octants_engine::runtime::{self, Caller, DeviceError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::event::Event;
use crate::interpreter::Interpreter;
use crate::program::{self, Program};
use crate::{errors, exchange_table, fork};

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

/// Whose a stream is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Made by `create_stream`.
    Own,
    /// The program's default stream.
    Default,
    /// Someone else's.
    Wrapped,
}

/// What `stream_scope` returns.
#[pyclass(module = "octants._octants", frozen)]
pub struct StreamScope {
    stream: Py<Stream>,
}

/// Its value, whatever a thread that panicked left there.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of the device as an exception.
pub fn raised(py: Python<'_>, error: DeviceError) -> PyErr {
    errors::from_engine(py, error.into())
}

/// Waits without the interpreter, and writes what was printed meanwhile.
pub fn waiting<T>(py: Python<'_>, wait: impl FnOnce(&dyn Caller) -> Result<T, DeviceError>) -> PyResult<T> {
    let end = interruptible(py, |caller| wait(caller).map_err(Into::into))?;
    end.map_err(|e| errors::from_engine(py, e))
}

/// The same, for what a session waits for. What a handler of signals raises meanwhile ends the wait.
pub fn interruptible<T>(
    py: Python<'_>,
    wait: impl FnOnce(&dyn Caller) -> Result<T, EngineError>,
) -> PyResult<Result<T, EngineError>> {
    fork::before_launch(py);
    let interpreter = Interpreter::held(py);
    interpreter.will_block();
    let end = wait(&interpreter);
    let interrupted = interpreter.take();
    program::write_printed(py)?;
    interrupted.map_or(Ok(end), Err)
}

impl Stream {
    /// Around a stream of the device.
    pub fn new(stream: runtime::Stream, kind: Kind) -> Stream {
        Stream { inner: Mutex::new(Some(stream)), kind }
    }

    /// The device's stream, unless it was destroyed or its program has ended.
    pub fn open(&self, py: Python<'_>) -> PyResult<runtime::Stream> {
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

    /// Waits for the stream's work, unless it is someone else's, and lets go of the stream. Where the wait is left, the
    /// stream stays.
    fn finish(&self, py: Python<'_>, report: bool) -> PyResult<()> {
        let Some(stream) = lock(&self.inner).take() else { return Ok(()) };
        if self.kind != Kind::Own || !stream.alive() {
            fork::waiting(py, || drop(stream));
            return Ok(());
        }
        let end = waiting(py, |caller| if report { stream.synchronize(caller) } else { stream.finish(caller) });
        if end.is_err() && !stream.query().unwrap_or(true) {
            *lock(&self.inner) = Some(stream);
            return end;
        }
        fork::waiting(py, || drop(stream));
        end
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
pub fn stream_or_current(py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<runtime::Stream> {
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
    fork::waiting(py, || program.session.device().trim_stream_pool());
    Ok(())
}
