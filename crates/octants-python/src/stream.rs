//! [`Stream`] as a Python object, and this thread's current stream. What Python calls is in [`crate::stream_methods`].
//!
//! A Python object holds its runtime stream until it is destroyed; a launch on it holds another reference, so that a
//! stream that one thread destroys stays whole for what another is just launching.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_engine::runtime;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::waiting::{raised, waiting};
use crate::{detached, errors, exchange_table, program};

thread_local! {
    /// The streams of the scopes that this thread is in, innermost last.
    static SCOPES: RefCell<Vec<Py<Stream>>> = const { RefCell::new(Vec::new()) };
    /// Their number, which a launch looks at.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// An in-order queue of work on the device. Kernels launched on different streams may run at the same time.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Stream {
    /// None once it was destroyed.
    pub inner: Mutex<Option<runtime::Stream>>,
    /// Whose it is.
    pub kind: Kind,
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

/// Its value, whatever a thread that panicked left there.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Nobody is kept waiting who only stops naming a stream.
        if self.kind == Kind::Own
            && let Some(stream) = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            stream.let_go();
        }
    }
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

    /// The driver's handle; zero once it was destroyed.
    pub fn get_handle(&self) -> u64 {
        lock(&self.inner).as_ref().map_or(0, runtime::Stream::handle)
    }

    /// Waits for the stream's work, unless it is someone else's, and lets go of the stream. Where the wait is left, the
    /// stream stays.
    pub fn finish(&self, py: Python<'_>, report: bool) -> PyResult<()> {
        let Some(stream) = lock(&self.inner).take() else { return Ok(()) };
        if self.kind != Kind::Own || !stream.alive() {
            detached::waiting(py, || drop(stream));
            return Ok(());
        }
        let end = waiting(py, |caller| if report { stream.synchronize(caller) } else { stream.finish(caller) });
        if end.is_err() && !stream.query().unwrap_or(true) {
            *lock(&self.inner) = Some(stream);
            return end;
        }
        detached::waiting(py, || drop(stream));
        end
    }
}

/// The parameter of `Stream.wait`.
pub const EVENT_OR_STREAM: &str = "event_or_stream";

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

/// The stream of the scope that this thread is in, or torch's where the program follows that; `None` for the default
/// stream.
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

/// The stream of the innermost scope that this thread is in.
#[cold]
pub fn innermost(py: Python<'_>) -> Option<Py<Stream>> {
    SCOPES.with(|s| s.borrow().last().map(|s| s.clone_ref(py)))
}

/// Enters a scope on this thread.
pub fn enter_scope(stream: Py<Stream>) {
    SCOPES.with(|s| s.borrow_mut().push(stream));
    DEPTH.with(|d| d.set(d.get() + 1));
}

/// Leaves the innermost scope of this thread, if it is this stream's; whether it is.
pub fn leave_scope(stream: &Py<Stream>) -> bool {
    let left = SCOPES.with(|s| {
        let mut scopes = s.borrow_mut();
        match scopes.last() {
            Some(last) if last.is(stream) => scopes.pop(),
            _ => None,
        }
    });
    if left.is_some() {
        DEPTH.with(|d| d.set(d.get() - 1));
    }
    left.is_some()
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
