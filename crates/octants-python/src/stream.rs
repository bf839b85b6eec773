//! [`Stream`] as a Python object, and this thread's current stream. What Python calls is in [`crate::stream_methods`].
//!
//! Stream scopes and device scopes form one stack. The innermost scope determines the thread's device and stream: a
//! stream scope also selects the stream's device, and a device scope selects that device's default stream. The current
//! stream therefore always belongs to the current program.
//!
//! A Python object holds its runtime stream until it is destroyed. A launch holds another reference, so one thread may
//! destroy a stream while another thread launches on it.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_engine::runtime;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::program::Program;
use crate::waiting::{raised, waiting};
use crate::{detached, errors, exchange_table, program};

/// A scope that a thread is in.
struct Scope {
    /// The stream; `None` for a scope of a device.
    stream: Option<Py<Stream>>,
    /// The program.
    serial: u64,
    /// The token that restores the thread's previous program.
    before: u64,
}

thread_local! {
    /// The scopes that this thread is in, innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
    /// The innermost one belongs to a stream: launches look here.
    static ON_STREAM: Cell<bool> = const { Cell::new(false) };
}

/// An in-order queue of work on the device. Kernels launched on different streams may run at the same time.
#[pyclass(module = "octants._octants", frozen, weakref)]
pub struct Stream {
    /// None once it was destroyed.
    pub inner: Mutex<Option<runtime::Stream>>,
    /// Its origin.
    pub kind: Kind,
    /// Its program.
    pub serial: u64,
}

/// A stream's origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Made by `create_stream`.
    Own,
    /// The program's default stream.
    Default,
    /// External: made by another library.
    Wrapped,
}

/// Locks, ignoring poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Dropping the Python object must not block.
        if self.kind == Kind::Own
            && let Some(stream) = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            stream.release();
        }
    }
}

impl Stream {
    /// Around a stream of a program's device.
    pub fn new(program: &Program, stream: runtime::Stream, kind: Kind) -> Stream {
        Stream::of_program(program.serial, stream, kind)
    }

    /// As [`Stream::new`], from the program's serial number.
    pub fn of_program(serial: u64, stream: runtime::Stream, kind: Kind) -> Stream {
        Stream { inner: Mutex::new(Some(stream)), kind, serial }
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

    /// Call this before another library gets the stream: it may capture launches there into a graph, which it launches
    /// at any time.
    pub fn lend(&self, py: Python<'_>) -> PyResult<()> {
        let _its_device = OnDevice::of(self.serial);
        match program::require(py) {
            Ok(program) if self.kind == Kind::Own => end_order(py, program.session.device()).map_err(|e| raised(py, e)),
            _ => Ok(()),
        }
    }

    /// The driver's handle; zero once it was destroyed.
    pub fn get_handle(&self) -> u64 {
        lock(&self.inner).as_ref().map_or(0, runtime::Stream::handle)
    }

    /// Waits for the stream's work, unless the stream is external, and releases the stream. If the wait is interrupted,
    /// the stream stays.
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

/// A stream argument: one of the current program's streams, or one of another library. `name` is the parameter's.
#[inline]
pub fn stream_argument(value: &Bound<'_, PyAny>, name: &str) -> PyResult<runtime::Stream> {
    match value.cast_exact::<Stream>() {
        Ok(stream) => own_stream(stream.get(), value.py(), name),
        Err(_) => foreign_stream(value, name),
    }
}

/// As [`stream_argument`], but also accepts streams of other devices.
pub fn stream_of_any_device(value: &Bound<'_, PyAny>, name: &str) -> PyResult<runtime::Stream> {
    match value.cast_exact::<Stream>() {
        Ok(stream) => stream.get().open(value.py()),
        Err(_) => foreign_stream(value, name),
    }
}

#[inline]
fn own_stream(stream: &Stream, py: Python<'_>, name: &str) -> PyResult<runtime::Stream> {
    let open = stream.open(py)?;
    if stream.serial == program::current_serial() {
        return Ok(open);
    }
    Err(wrong_device(py, stream, name))
}

#[cold]
fn wrong_device(py: Python<'_>, stream: &Stream, name: &str) -> PyErr {
    let (own, here) = (program::name_of(stream.serial), program::name_of(program::current_serial()));
    let text = format!(
        "{name} is a stream of {own}, and the current device is {here}: enter the stream's device first, with \
         `with qd.device(\"{own}\"):`"
    );
    errors::runtime_error(py, text)
}

/// A stream of another library's.
fn foreign_stream(value: &Bound<'_, PyAny>, name: &str) -> PyResult<runtime::Stream> {
    let py = value.py();
    let handle = match value.getattr_opt(pyo3::intern!(py, "__cuda_stream__"))? {
        Some(protocol) => {
            let (version, handle): (i64, u64) = protocol.call0()?.extract()?;
            if version != 0 {
                return Err(PyTypeError::new_err(format!(
                    "{name}: version {version} of __cuda_stream__ is not supported"
                )));
            }
            Some(handle)
        }
        None => value.getattr_opt(pyo3::intern!(py, "cuda_stream"))?.and_then(|h| h.extract::<u64>().ok()),
    };
    let Some(handle) = handle else {
        // Only this parameter also accepts events.
        let event = if name == EVENT_OR_STREAM { "an Event or " } else { "" };
        return Err(PyTypeError::new_err(format!(
            "{name} must be {event}a Stream (or an object with __cuda_stream__), got {}",
            value.get_type().name()?
        )));
    };
    let program = program::require(py)?;
    check_index(value, &program, name)?;
    stream_of_handle(py, program.session.device(), handle)
}

/// Rejects a stream that reports another device of the same kind, as torch's streams do.
fn check_index(value: &Bound<'_, PyAny>, program: &Program, name: &str) -> PyResult<()> {
    let py = value.py();
    let Some(device) = value.getattr_opt(pyo3::intern!(py, "device"))? else { return Ok(()) };
    let Some(index) = device.getattr_opt(pyo3::intern!(py, "index"))? else { return Ok(()) };
    let (_, own) = program.session.device().dlpack_device();
    match index.extract::<i32>() {
        Ok(index) if index != own && !program.session.device().is_immediate() => {
            let text = format!("{name} is a stream of {}, and the current device is {}", device.str()?, program.name);
            Err(errors::runtime_error(py, text))
        }
        _ => Ok(()),
    }
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
    let stream = stream_of_handle(py, device, handle)?;
    lock(&program.followed).push(stream.clone());
    Ok(Some(stream))
}

/// Whether this thread's innermost scope is a stream scope.
pub fn in_stream_scope() -> bool {
    ON_STREAM.get()
}

/// The stream of this thread's scope, or torch's current one if the program follows it; `None` for the default stream.
#[inline]
pub fn scope_stream(py: Python<'_>) -> PyResult<Option<runtime::Stream>> {
    if ON_STREAM.get() {
        innermost(py).map(|s| s.get().open(py)).transpose()
    } else if program::follows_torch() {
        followed_stream(py)
    } else {
        Ok(None)
    }
}

/// The stream of the innermost scope that this thread is in, if that is one of a stream.
#[cold]
pub fn innermost(py: Python<'_>) -> Option<Py<Stream>> {
    SCOPES.with_borrow(|scopes| scopes.last()?.stream.as_ref().map(|s| s.clone_ref(py)))
}

/// Enters a scope of a stream on this thread.
pub fn enter_scope(stream: Py<Stream>) {
    let serial = stream.get().serial;
    push(Some(stream), serial);
}

/// Leaves the innermost scope of this thread, if it is this stream's; whether it is.
pub fn leave_scope(stream: &Py<Stream>) -> bool {
    pop(|scope| scope.stream.as_ref().is_some_and(|s| s.is(stream)))
}

/// Enters a scope of a program's device on this thread.
pub fn enter_device(serial: u64) {
    push(None, serial);
}

/// Leaves the innermost scope of this thread, if it is one of this program's device; whether it is.
pub fn leave_device(serial: u64) -> bool {
    pop(|scope| scope.stream.is_none() && scope.serial == serial)
}

fn push(stream: Option<Py<Stream>>, serial: u64) {
    ON_STREAM.set(stream.is_some());
    let before = program::go_to(serial);
    SCOPES.with_borrow_mut(|scopes| scopes.push(Scope { stream, serial, before }));
}

fn pop(is_it: impl FnOnce(&Scope) -> bool) -> bool {
    let left = SCOPES.with_borrow_mut(|scopes| {
        let left = scopes.pop_if(|scope| is_it(scope));
        ON_STREAM.set(scopes.last().is_some_and(|scope| scope.stream.is_some()));
        left
    });
    if let Some(scope) = &left {
        program::go_back(scope.before);
    }
    left.is_some()
}

/// The scope of a device, until dropped, for operations on an object of that device.
pub struct OnDevice {
    serial: u64,
}

impl OnDevice {
    /// Enters the scope of a program's device, unless this thread is on it. The stream that is current there stays so.
    #[inline]
    pub fn of(serial: u64) -> Option<OnDevice> {
        (serial != program::current_serial()).then(|| {
            enter_device(serial);
            OnDevice { serial }
        })
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        leave_device(self.serial);
    }
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

/// The stream of a handle, which may belong to another library; the default stream for zero.
pub fn stream_of_handle(py: Python<'_>, device: &runtime::Device, handle: u64) -> PyResult<runtime::Stream> {
    if handle != 0 {
        end_order(py, device).map_err(|e| raised(py, e))?;
    }
    device.stream_from_handle(handle).map_err(|e| raised(py, e))
}

/// Before a device gets another library's stream, or that library one of its streams: waits for code that assumes the
/// order of launches, which this thread launches no more. The interpreter's lock, which launching threads hold,
/// separates these launches from later ones.
pub fn end_order(py: Python<'_>, device: &runtime::Device) -> Result<(), runtime::DeviceError> {
    if device.end_order() { detached::waiting(py, || device.wait_for_ordered()) } else { Ok(()) }
}
