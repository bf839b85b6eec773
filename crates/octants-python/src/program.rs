//! The current program: what `init` makes and `reset` ends. The only global state of the system.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use octants_backends::backends;
use octants_engine::environment::apply_environment;
use octants_engine::runtime::{Renewable, Stream};
use octants_engine::{Config, OptionValue, Session};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::names::text_attribute;
use crate::stream::interruptible;
use crate::{errors, fork};

/// A session and the number of the `init` that made it.
pub struct Program {
    /// The device and its options.
    pub session: Session,
    /// Equal to [`generation`] as long as this program is the current one.
    pub generation: u64,
    /// Specialisations of kernels compiled so far.
    pub compiled: AtomicU64,
    /// Torch's streams that launches have followed.
    pub followed: Mutex<Vec<Stream>>,
}

static CURRENT: Renewable<Option<Arc<Program>>> = Renewable::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Counts calls of `init` and `reset`; objects keep the number they were made under.
pub fn current_generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

static FOLLOWS_TORCH: AtomicBool = AtomicBool::new(false);

/// Whether work that names no stream goes to torch's current one.
#[inline]
pub fn follows_torch() -> bool {
    FOLLOWS_TORCH.load(Ordering::Acquire)
}

/// The current program, if `init` was called.
pub fn current() -> Option<Arc<Program>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The current program, or the error that says what to do.
pub fn require(py: Python<'_>) -> PyResult<Arc<Program>> {
    current().ok_or_else(|| errors::no_program(py, FORKED.load(Ordering::Acquire)))
}

pub fn replace(program: Option<Session>) {
    let old = {
        let mut slot = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
        FOLLOWS_TORCH.store(program.as_ref().is_some_and(|s| s.config().follow_torch_stream), Ordering::Release);
        std::mem::replace(
            &mut *slot,
            program.map(|session| {
                Arc::new(Program { session, generation, compiled: AtomicU64::new(0), followed: Mutex::default() })
            }),
        )
    };
    // Outside the lock: closing waits for the program's work. What failed in it has no one left to be told.
    if let Some(old) = old {
        let _ = old.session.close();
    }
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// In a child process: lets go of the parent's program where streams are real, since the threads that serve them are the
/// parent's. Without streams the program goes on.
///
/// # Safety
/// The process has just been made by a fork, and this is its only thread.
pub unsafe fn go_on_after_fork() {
    // SAFETY: the contract above; nothing here is called with a guard of the locks.
    unsafe {
        CURRENT.renew_if_held();
        PRINTED.renew_if_held();
    }
    let mut slot = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as above.
    let goes_on = |p: &mut Arc<Program>| unsafe { p.session.device().go_on_after_fork() };
    if let Some(program) = slot.take_if(|p| !goes_on(p)) {
        GENERATION.fetch_add(1, Ordering::AcqRel);
        FORKED.store(true, Ordering::Release);
        // Its end would wait for the threads.
        std::mem::forget(program);
    }
}

static PRINTED: Renewable<String> = Renewable::new(String::new());
static ANYTHING_PRINTED: AtomicBool = AtomicBool::new(false);

/// Takes what kernels print, from whatever thread, without the interpreter.
pub fn keep_printed(text: &str) {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    ANYTHING_PRINTED.store(true, Ordering::Release);
}

/// Writes what kernels have printed to `sys.stdout`.
#[inline]
pub fn write_printed(py: Python<'_>) -> PyResult<()> {
    if !ANYTHING_PRINTED.load(Ordering::Acquire) {
        return Ok(());
    }
    let text = {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        ANYTHING_PRINTED.store(false, Ordering::Release);
        std::mem::take(&mut *printed)
    };
    let stdout = py.import("sys")?.getattr("stdout")?;
    if !stdout.is_none() {
        stdout.call_method1("write", (text,))?;
        stdout.call_method0("flush")?;
    }
    Ok(())
}

fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    let py = value.py();
    if value.is_none() {
        return Ok(OptionValue::None);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(OptionValue::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(OptionValue::Int(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(OptionValue::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(OptionValue::Str(value.extract()?));
    }
    let builtins = py.import("builtins")?;
    if value.is(&builtins.getattr("float")?) || value.is(&builtins.getattr("int")?) {
        return Ok(OptionValue::None);
    }
    // Ahead of names, which paths have too.
    if let Ok(path) = value.call_method0(pyo3::intern!(py, "__fspath__")) {
        return Ok(OptionValue::Str(path.extract()?));
    }
    // `qd.f32`, `qd.cpu` and the like carry a name.
    match text_attribute(value, pyo3::intern!(py, "name")) {
        Some(text) => Ok(OptionValue::Str(text)),
        None => Err(PyTypeError::new_err(format!("option `{name}`: unexpected value {}", value.repr()?))),
    }
}

/// Starts a program under the given options, ending the one before. Returns the notices to log.
#[pyfunction]
#[pyo3(signature = (options = None))]
pub fn init(py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<String>> {
    let mut config = Config::new(backends());
    apply_environment(&mut config).map_err(|e| errors::from_engine(py, e))?;
    for (name, value) in options.into_iter().flat_map(|d| d.iter()) {
        let name: String = name.extract()?;
        config.set(&name, &option_value(&name, &value)?).map_err(|e| errors::from_engine(py, e))?;
    }
    let packages: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract().unwrap_or_default();
    let made = fork::working(py, || {
        replace(None);
        Session::new(config, Arc::new(keep_printed), &packages)
    });
    let session = made.map_err(|e| errors::from_engine(py, e))?;
    let notices = session.take_notices();
    FORKED.store(false, Ordering::Release);
    replace(Some(session));
    Ok(notices)
}

/// Ends the program; its fields, ndarrays and compiled kernels can no longer be used.
#[pyfunction]
pub fn reset(py: Python<'_>) {
    fork::working(py, || replace(None));
}

/// The current program's device as DLPack names it; the host where there is no program.
pub fn dlpack_device() -> (i32, i32) {
    current().map_or((1, 0), |p| p.session.device().dlpack_device())
}

/// The attribute by which Python objects show arrays in the memory of the current program's device.
pub fn array_protocol() -> Option<&'static str> {
    current().and_then(|p| p.session.device().array_protocol())
}

/// Name of the current program's device.
pub fn device_name() -> String {
    current().map_or_else(|| "the CPU".to_string(), |p| p.session.device().name().to_string())
}

/// True while the current program does all work within the call that asks for it.
pub fn is_immediate() -> bool {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(|p| p.session.device().is_immediate())
}

/// Waits until everything launched before is done, on every stream.
#[pyfunction]
pub fn sync(py: Python<'_>) -> PyResult<()> {
    let program = require(py)?;
    interruptible(py, |caller| program.session.sync(caller))?.map_err(|e| errors::from_engine(py, e))
}

/// How many specialisations of kernels the current program has compiled.
#[pyfunction]
pub fn compiled_count(py: Python<'_>) -> PyResult<u64> {
    Ok(require(py)?.compiled.load(Ordering::Relaxed))
}

/// The processor of the current program's device that code is made for; `None` where that is the host's.
#[pyfunction]
pub fn device_processor() -> Option<String> {
    current().and_then(|p| p.session.processor().map(str::to_string))
}

/// Whether `init` was called (and `reset` was not).
#[pyfunction]
pub fn is_initialized() -> bool {
    current().is_some()
}

/// Counts `init` and `reset`.
#[pyfunction]
pub fn generation() -> u64 {
    current_generation()
}

/// The options in force, by name.
#[pyfunction]
pub fn config<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let program = require(py)?;
    let dict = PyDict::new(py);
    for option in octants_engine::config::OPTIONS {
        match program.session.config().get(option.name) {
            Some(OptionValue::Bool(b)) => dict.set_item(option.name, b)?,
            Some(OptionValue::Int(i)) => dict.set_item(option.name, i)?,
            Some(OptionValue::Float(x)) => dict.set_item(option.name, x)?,
            Some(OptionValue::Str(s)) => dict.set_item(option.name, s)?,
            Some(OptionValue::None) => dict.set_item(option.name, py.None())?,
            None => {}
        }
    }
    Ok(dict)
}

/// Name and one line of documentation of every option.
#[pyfunction]
pub fn options() -> Vec<(&'static str, &'static str)> {
    octants_engine::config::OPTIONS.iter().map(|o| (o.name, o.doc)).collect()
}
