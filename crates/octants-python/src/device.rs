//! [`Device`]: a device of this process as a Python object, and opening additional devices.
//!
//! A device has its own program, which starts with the options of the default one. Programs are looked up by device
//! name, so each device has one program.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use octants_engine::{Arch, Config, OptionValue, Session};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::package::Package;
use crate::program::{self, Program, collect_printed};
use crate::program_functions::{option_value, sync_one};
use crate::stream::{OnDevice, enter_device, leave_device};
use crate::{detached, errors, plain_python, races};

/// Options that all devices of a process share, or that the name of the device implies.
const SHARED: &[&str] = &[
    "arch",
    "device",
    "visible_devices",
    "default_fp",
    "default_ip",
    "default_up",
    "enable_fallback",
    "log_level",
    "print_full_traceback",
    "follow_torch_stream",
];

/// A device that this process uses. In `with device:` kernels run there, and fields, ndarrays and streams are made
/// there.
#[pyclass(module = "octants._octants", frozen)]
pub struct Device {
    serial: u64,
    name: String,
}

impl Device {
    fn of(program: &Program) -> Device {
        Device { serial: program.serial, name: program.name.clone() }
    }

    fn program(&self, py: Python<'_>) -> PyResult<Arc<Program>> {
        program::require_of(py, self.serial, "device")
    }
}

#[pymethods]
impl Device {
    /// Its name: the kind, and the number if it is known, such as `gpu:1`.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The name of its kind.
    #[getter]
    fn kind(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// The number of its program.
    #[getter]
    fn serial(&self) -> u64 {
        self.serial
    }

    /// False once `init` or `reset` has ended its program.
    #[getter]
    fn alive(&self) -> bool {
        program::by_serial(self.serial).is_some()
    }

    /// Waits for the work of this device, on all of its streams.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        sync_one(py, &*self.program(py)?)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().program(slf.py())?;
        enter_device(slf.get().serial);
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if leave_device(self.serial) {
            return Ok(());
        }
        let text = "a `with device:` block must end on the thread on which it began, after the blocks inside it";
        Err(errors::runtime_error(py, text))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Device>().is_ok_and(|other| other.get().serial == self.serial)
    }

    fn __hash__(&self) -> u64 {
        self.serial
    }

    fn __repr__(&self) -> String {
        let end = if self.alive() { "" } else { " of a program that has ended" };
        format!("<octants device {}{end}>", self.name)
    }
}

/// The scope of a program's device, for work with an object of that program. Has no effect on a thread that already
/// uses this device.
#[pyclass(module = "octants._octants", frozen)]
pub struct ProgramScope {
    serial: u64,
    /// Number of times it was entered from another device.
    entered: AtomicU32,
}

#[pymethods]
impl ProgramScope {
    fn __enter__(&self) {
        if self.serial != program::current_serial() {
            enter_device(self.serial);
            self.entered.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        if self.entered.load(Ordering::Relaxed) > 0 && leave_device(self.serial) {
            self.entered.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The scope of the device of the program with this number.
#[pyfunction]
pub fn on_program(serial: u64) -> ProgramScope {
    ProgramScope { serial, entered: AtomicU32::new(0) }
}

/// The device of this thread.
#[pyfunction]
pub fn current_device(py: Python<'_>) -> PyResult<Device> {
    Ok(Device::of(&*program::require(py)?))
}

/// The device of the program with this number.
#[pyfunction]
pub fn device_of(py: Python<'_>, serial: u64) -> PyResult<Device> {
    Ok(Device::of(&*program::require_of(py, serial, "device")?))
}

/// The device of a name such as `gpu:1`, which is opened on first use, with these options in place of those of `init`.
#[pyfunction]
#[pyo3(signature = (name, options = None))]
pub fn open_device(py: Python<'_>, name: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Device> {
    if plain_python::is_active() {
        return Err(errors::runtime_error(py, "arch=qd.python has only one device"));
    }
    let epoch = program::current_epoch();
    let default = program::default(py)?;
    let options = Options::of(options)?;
    let (mut config, number) = configuration(py, name, &default)?;
    let is_host = config.arch == Arch::CPU;
    let known = if is_host { format!("{}:{}", config.arch.name(), number.unwrap_or(0)) } else { config.device_name() };
    if let Some(program) = program::by_name(&known) {
        options.check(py, &program)?;
        return Ok(Device::of(&program));
    }
    options.set(py, &mut config)?;
    let packages: Vec<PathBuf> = py.import("sys")?.getattr("path")?.extract().unwrap_or_default();
    let beside = default.clone();
    let made = detached::working(py, || Session::beside(&beside.session, config, Arc::new(collect_printed), &packages));
    let session = made.map_err(|e| errors::from_engine(py, e))?;
    races::collect_of(&session);
    for notice in session.take_warnings() {
        Package::get(py)?.logging.call_method1(py, "warn", (notice,))?;
    }
    // The name of a kind may denote several.
    let name = if is_host { known } else { session.device_name() };
    match detached::working(py, || program::join(session, name, epoch)) {
        Some(program) => Ok(Device::of(&program)),
        None => Err(errors::dead_object(py, "device")),
    }
}

/// The device that an argument names; `None` for the current one.
pub fn device_argument(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<Device>>> {
    let Some(value) = value.filter(|v| !v.is_none()) else { return Ok(None) };
    let py = value.py();
    if let Ok(device) = value.cast_exact::<Device>() {
        device.get().program(py)?;
        return Ok(Some(device.clone().unbind()));
    }
    match value.cast::<PyString>() {
        Ok(name) => Py::new(py, open_device(py, name.to_str()?, None)?).map(Some),
        Err(_) => Err(PyTypeError::new_err(format!("device must be a qd.device() or its name; got {}", value.repr()?))),
    }
}

/// Runs a function on the device that an argument names.
pub fn on_device<T>(value: Option<&Bound<'_, PyAny>>, run: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let device = device_argument(value)?;
    let _here = device.as_ref().and_then(|device| OnDevice::of(device.get().serial));
    run()
}

/// The options of the default program for the device of a name, and its number if the name has one.
fn configuration(py: Python<'_>, name: &str, default: &Program) -> PyResult<(Config, Option<u32>)> {
    let (kind, number) = match name.split_once(':') {
        None => (name, None),
        Some((kind, number)) => {
            let number = number.parse().map_err(|_| {
                PyValueError::new_err(format!(
                    "a device name must be a kind and a number, as in \"gpu:1\"; got {name:?}"
                ))
            })?;
            (kind, Some(number))
        }
    };
    let mut config = default.session.config().clone();
    let own = config.arch;
    config.set("arch", &OptionValue::Str(kind.into())).map_err(|e| errors::from_engine(py, e))?;
    if config.arch == Arch::GPU && own != Arch::CPU {
        config.arch = own;
    }
    config.enable_fallback = false;
    config.device = number.filter(|_| config.arch != Arch::CPU);
    Ok((config, number))
}

/// Options that are given for a device.
struct Options(Vec<(String, OptionValue)>);

impl Options {
    fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
        let mut options = Vec::new();
        for (name, value) in given.into_iter().flat_map(|d| d.iter()) {
            let name: String = name.extract()?;
            if SHARED.contains(&name.as_str()) {
                let text = format!("option `{name}` cannot be set for a single device: pass it to qd.init()");
                return Err(errors::exception(value.py(), "OctantsOptionError", text));
            }
            let value = option_value(&name, &value)?;
            options.push((name, value));
        }
        Ok(Options(options))
    }

    fn set(&self, py: Python<'_>, config: &mut Config) -> PyResult<()> {
        let mut all = self.0.iter();
        all.try_for_each(|(name, value)| config.set(name, value)).map_err(|e| errors::from_engine(py, e))
    }

    /// Raises if an open device has other values for these options.
    fn check(&self, py: Python<'_>, program: &Program) -> PyResult<()> {
        let was = program.session.config();
        let mut wanted = was.clone();
        self.set(py, &mut wanted)?;
        match self.0.iter().find(|(name, _)| wanted.get(name) != was.get(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let text = format!(
                    "{} is in use with another value of `{name}`: pass options when a device is used for the first \
                     time",
                    program.name
                );
                Err(errors::exception(py, "OctantsOptionError", text))
            }
        }
    }
}
