//! The program's functions for Python: `init`, `reset`, `sync`, and options.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use octants_engine::environment::{apply_environment, check_variables};
use octants_engine::runtime::Caller;
use octants_engine::{Config, OptionValue, Session};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::back_ends::backends;
use crate::interpreter::Interpreter;
use crate::names::text_attribute;
use crate::program::{
    Program, all, begin, cancel_work, collect_printed, current, current_epoch, current_serial, end, require,
    write_printed,
};
use crate::waiting::interruptible;
use crate::{detached, errors, races};

/// An option as Python gives it.
pub fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
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
    // Checked before names: paths have a name too.
    if let Ok(path) = value.call_method0(pyo3::intern!(py, "__fspath__")) {
        return Ok(OptionValue::Str(path.extract()?));
    }
    // `qd.f32`, `qd.cpu` and similar carry a name.
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
    let unheeded = check_variables().map_err(|e| errors::from_engine(py, e))?;
    let usual = config.arch;
    apply_environment(&mut config).map_err(|e| errors::from_engine(py, e))?;
    let of_environment = config.arch;
    for (name, value) in options.into_iter().flat_map(|d| d.iter()) {
        let name: String = name.extract()?;
        config.set(&name, &option_value(&name, &value)?).map_err(|e| errors::from_engine(py, e))?;
    }
    let is_overridden = of_environment != usual && of_environment != config.arch;
    let packages: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract().unwrap_or_default();
    end_program(py)?;
    let made = detached::working(py, || Session::new(config, Arc::new(collect_printed), &packages));
    let session = made.map_err(|e| errors::from_engine(py, e))?;
    races::collect_of(&session);
    let mut notices = session.take_warnings();
    notices.extend(unheeded);
    if is_overridden {
        notices.push(format!("`arch` of the program overrides that of the environment, {}", of_environment.name()));
    }
    begin(session);
    Ok(notices)
}

/// Maximum time for the process to exit while the device runs work that does not end.
const LONGEST_EXIT: Duration = Duration::from_secs(5);
/// Exit status after Ctrl-C, as shells report it.
const INTERRUPTED: i32 = 130;

/// Ends all programs; their fields, ndarrays and compiled kernels can no longer be used. Waits for queued work, unless
/// `wait` is false and the device can end it early.
#[pyfunction]
#[pyo3(signature = (wait = true))]
pub fn reset(py: Python<'_>, wait: bool) -> PyResult<()> {
    if !wait {
        cancel_work();
    }
    end_program(py)
}

/// Ends the program with the process. Does not wait for queued work if `wait` is false or the user has interrupted a
/// wait: the work ends early, or the device is abandoned after a short time. The process then ends within some seconds,
/// even if the driver waits for the device.
#[pyfunction]
pub fn end_process(py: Python<'_>, wait: bool) -> PyResult<()> {
    let programs = all();
    for device in programs.iter().map(|p| p.session.device()) {
        if !wait || device.wait_was_abandoned() {
            device.cancel();
        }
    }
    let end = end_program(py);
    if programs.iter().any(|p| p.session.device().is_abandoned()) {
        // The thread is not joined: it ends with the process.
        std::thread::spawn(|| {
            std::thread::sleep(LONGEST_EXIT);
            eprintln!("octants: the device is still running, so the process cannot exit normally: terminating it");
            // SAFETY: the call does not return.
            unsafe { libc::_exit(INTERRUPTED) }
        });
    }
    end
}

/// Ends the program. If a signal handler raises meanwhile, ends its work early and raises the exception.
fn end_program(py: Python<'_>) -> PyResult<()> {
    let busy = py.detach(detached::begin_work);
    let interpreter = Interpreter::held(py);
    interpreter.will_block();
    end(&interpreter);
    drop(busy);
    let interrupted = interpreter.take();
    write_printed(py)?;
    interrupted.map_or(Ok(()), Err)
}

/// Waits until everything launched before is done, on every stream of every device. Reports the first failure.
#[pyfunction]
pub fn sync(py: Python<'_>) -> PyResult<()> {
    require(py)?;
    let programs = all();
    let sync_all = |caller: &dyn Caller| {
        // Waits for the other devices even if one fails.
        let ends: Vec<_> = programs.iter().map(|program| program.session.sync(caller)).collect();
        ends.into_iter().collect()
    };
    interruptible(py, sync_all)?.map_err(|e| errors::from_engine(py, e))
}

/// Waits for the work of one program.
pub fn sync_one(py: Python<'_>, program: &Program) -> PyResult<()> {
    interruptible(py, |caller| program.session.sync(caller))?.map_err(|e| errors::from_engine(py, e))
}

/// The numbers of all programs that run, the one of `init` first.
#[pyfunction]
pub fn program_serials() -> Vec<u64> {
    all().iter().map(|program| program.serial).collect()
}

/// How many specializations of kernels the current program has compiled.
#[pyfunction]
pub fn compiled_count(py: Python<'_>) -> PyResult<u64> {
    Ok(require(py)?.compiled.load(Ordering::Relaxed))
}

/// The target processor of the current program's device; `None` for the host.
#[pyfunction]
pub fn device_processor() -> Option<String> {
    current().and_then(|p| p.session.processor().map(str::to_string))
}

/// Nominal frequency of the clock that device code reads, in hertz, if known.
#[pyfunction]
pub fn clock_hz(py: Python<'_>) -> PyResult<Option<f64>> {
    Ok(require(py)?.session.device().clock_hz())
}

/// Threads of a subgroup of the running program's device; zero without a program.
#[pyfunction]
pub fn subgroup_size() -> u32 {
    current().map_or(0, |p| p.session.target_info().subgroup_size)
}

/// Maximum number of bytes of shared memory that the arrays of a block may take on the running program's device.
#[pyfunction]
pub fn max_shared_bytes() -> u64 {
    current().map_or(0, |p| p.session.target_info().max_shared_bytes)
}

/// Whether `init` was called (and `reset` was not).
#[pyfunction]
pub fn is_initialized() -> bool {
    current().is_some()
}

/// Counts `init` and `reset`.
#[pyfunction]
pub fn generation() -> u64 {
    current_epoch()
}

/// The `arch` that the environment requests, if any.
#[pyfunction]
pub fn requested_arch() -> Option<String> {
    octants_engine::environment::requested_arch()
}

/// The unique number of this thread's current program; 0 without one.
#[pyfunction]
pub fn program_serial() -> u64 {
    current_serial()
}

/// The options in force, by name.
#[pyfunction]
pub fn config<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let program = require(py)?;
    let dict = PyDict::new(py);
    for name in octants_engine::config::names() {
        match program.session.config().get(name) {
            Some(OptionValue::Bool(b)) => dict.set_item(name, b)?,
            Some(OptionValue::Int(i)) => dict.set_item(name, i)?,
            Some(OptionValue::Float(x)) => dict.set_item(name, x)?,
            Some(OptionValue::Str(s)) => dict.set_item(name, s)?,
            Some(OptionValue::None) => dict.set_item(name, py.None())?,
            None => {}
        }
    }
    Ok(dict)
}

/// Changes an option of the current program for later compilations and launches.
#[pyfunction]
pub fn set_option(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let value = option_value(name, value)?;
    require(py)?.session.set_option(name, &value).map_err(|e| errors::from_engine(py, e))
}

/// Name and one line of documentation of every option.
#[pyfunction]
pub fn options() -> Vec<(&'static str, &'static str)> {
    octants_engine::config::OPTIONS.iter().map(|o| (o.name, o.doc)).collect()
}
