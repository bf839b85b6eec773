//! [`Session`]: one device, one configuration, and the path of a kernel from source to running code: [`lowering`],
//! then [`build`] or [`recall`], then [`launch`].

mod access;
mod build;
pub(crate) mod check_blocks;
mod counters;
mod fuse;
mod launch;
mod lowering;
mod map_arguments;
mod name_machine;
mod race_check;
mod race_words;
mod races;
mod recall;
mod saved_graphs;
mod split_arrays;
mod stream_groups;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_artifact::{CodeTarget, StoreCounts};
use octants_ir::TargetInfo;
use octants_runtime::{
    Buffer, Caller, Device, DeviceConfig, DeviceError, Driver, ErrorKind, TextSink, Uninterruptible,
};

pub use self::build::Executable;
pub use self::lowering::Lowering;
pub(crate) use self::lowering::keeping_on;
use crate::artifact_cache::{ArtifactCache, open_store};
use crate::compile_times::{Compilation, CompileLog};
use crate::config::{Arch, Config, OptionValue};
use crate::current_config::CurrentConfig;
use crate::driver_cache::{keep_driver_cache, load_driver_cache};
use crate::error::Error;
use crate::machine::Machine;
use crate::open_device::open_device;
use crate::shared_code::SharedCode;

/// A device with the options that programs on it are compiled under.
pub struct Session {
    config: CurrentConfig,
    notices: Mutex<Vec<String>>,
    device: Device,
    /// The machine that code is generated for.
    pub(crate) machine: Machine,
    /// Compiled kernels on disk.
    cache: Option<ArtifactCache>,
    /// Compiled kernels of this process, if there is no such folder.
    shared: Option<SharedCode>,
    compilations: CompileLog,
    race_words: race_words::RaceWords,
    fusions: fuse::Fusions,
    /// A launch on the default stream waits for it, as on a device without streams: the program did not ask for any,
    /// and race checks use them only to know the order of its work.
    waits_for_default: bool,
    lowered: AtomicU64,
    recalled: AtomicU64,
}

/// How kernels obtained their code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrontEndCounts {
    /// Their sources were parsed and lowered.
    pub lowered: u64,
    /// The queries of an earlier process were replayed, and no source was parsed.
    pub recalled: u64,
}

impl Session {
    /// Opens the device that `config` requests, or the CPU if it is not available and fallback is allowed. Printed text
    /// goes to `sink`. `packages` are folders of installed packages in which a device's libraries are searched.
    pub fn new(config: Config, sink: TextSink, packages: &[PathBuf]) -> Result<Session, Error> {
        Session::open(config, sink, packages, (SharedCode::new(), None))
    }

    /// The same for another device of a process: kernels are compiled once for all devices of one target.
    pub fn beside(other: &Session, config: Config, sink: TextSink, packages: &[PathBuf]) -> Result<Session, Error> {
        let shared = other.shared.as_ref().map_or_else(SharedCode::new, SharedCode::beside);
        Session::open(config, sink, packages, (shared, Some(&other.device)))
    }

    /// `shared` is the state that devices of a process share: compiled code, and the other device.
    fn open(
        mut config: Config,
        sink: TextSink,
        packages: &[PathBuf],
        shared: (SharedCode, Option<&Device>),
    ) -> Result<Session, Error> {
        let mut notices = Vec::new();
        if config.arch != Arch::CPU {
            match open_device(&config, packages) {
                Ok((driver, machine)) => {
                    config.arch = Arch::new(machine.backend.name());
                    return Session::over(driver, machine, config, notices, (sink, shared));
                }
                Err(reason) => fall_back(&mut config, &mut notices, &reason)?,
            }
        }
        let host = config.backends.host();
        if !config.cpu_target.is_empty() {
            let checked = host.code_generator().check_processor(&config.cpu_target);
            checked.map_err(|e| Error::BadOption { name: "cpu_target".into(), reason: e.to_string() })?;
        }
        // A device with separate memory works asynchronously.
        config.cpu_streams |= config.cpu_separate_memory;
        let waits_for_default = config.implies_streams();
        config.cpu_streams |= waits_for_default;
        let driver = host.open(&config.device_settings(packages)).map_err(Error::Unavailable)?;
        let machine = Machine::new(host, driver.code_target());
        let mut made = Session::over(driver, machine, config, notices, (sink, shared))?;
        made.waits_for_default = waits_for_default;
        Ok(made)
    }

    /// A session on a driver that the caller has opened, regardless of the device in `config`. Its code is that of the
    /// host's back end.
    pub fn on(driver: impl Driver, config: Config, sink: TextSink) -> Result<Session, Error> {
        let machine = Machine::new(config.backends.host(), driver.code_target());
        Session::over(Box::new(driver), machine, config, Vec::new(), (sink, (SharedCode::new(), None)))
    }

    fn over(
        driver: Box<dyn Driver>,
        machine: Machine,
        config: Config,
        mut notices: Vec<String>,
        (sink, (shared, beside)): (TextSink, (SharedCode, Option<&Device>)),
    ) -> Result<Session, Error> {
        let options = DeviceConfig { seed: config.random_seed, sink };
        let device = match beside {
            None => Device::over(driver, options),
            Some(other) => other.beside(driver, options),
        };
        if config.kernel_profiler {
            device.profiler().start()?;
        }
        if config.checks_races() {
            device.watch_launches(config.instruments_races());
        }
        if config.infers_concurrency() {
            device.infer_concurrency(&Uninterruptible);
        }
        let store = open_store(&config).unwrap_or_else(|reason| {
            notices.push(reason);
            None
        });
        let store = store.filter(|store| {
            notices.extend(store.distrust());
            store.distrust().is_none()
        });
        let cache = store.map(ArtifactCache::new);
        cache.iter().for_each(|cache| load_driver_cache(cache, &device));
        let shared = cache.is_none().then_some(shared);
        let (notices, compilations) = (Mutex::new(notices), CompileLog::default());
        let (race_words, fusions, lowered, recalled) = Default::default();
        let config = CurrentConfig::new(config);
        Ok(Session {
            config,
            notices,
            device,
            machine,
            cache,
            shared,
            compilations,
            race_words,
            fusions,
            waits_for_default: false,
            lowered,
            recalled,
        })
    }

    /// The compilations so far, in order.
    pub fn compilations(&self) -> Vec<Compilation> {
        self.compilations.all()
    }

    /// Drops the recorded compilations.
    pub fn clear_compilations(&self) {
        self.compilations.clear();
    }

    /// The options in force.
    pub fn config(&self) -> &Config {
        self.config.get()
    }

    /// Changes an option for later compilations and launches. Compiled kernels do not change.
    pub fn set_option(&self, name: &str, value: &OptionValue) -> Result<(), Error> {
        self.config.change(|config| config.changed(name, value))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device as users name it: its kind, and its number if known.
    pub fn device_name(&self) -> String {
        self.config().device_name()
    }

    /// The capabilities of the session's device for the program, whose tasks may contain assertions in debug mode.
    pub fn target_info(&self) -> TargetInfo {
        self.info_of(&self.machine)
    }

    /// The capabilities of a machine for the program.
    pub(crate) fn info_of(&self, machine: &Machine) -> TargetInfo {
        let info = machine.info();
        if self.config().debug || self.config().instruments_races() { info.with_assertions() } else { info }
    }

    /// The processor that code is made for, as the code generator calls it; `None` for the host's own.
    pub fn processor(&self) -> Option<&str> {
        match &self.machine.target {
            CodeTarget::Host => None,
            CodeTarget::Device { cpu, .. } => Some(cpu),
        }
    }

    /// Takes pending messages for the user, after opening and after each build of a kernel.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut notices = std::mem::take(&mut *self.lock_notices());
        notices.extend(self.cache.as_ref().and_then(ArtifactCache::take_warning));
        notices
    }

    fn lock_notices(&self) -> MutexGuard<'_, Vec<String>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of the cache and its statistics so far; `None` without a cache.
    pub fn kept_kernels(&self) -> Option<(&Path, StoreCounts)> {
        self.cache.as_ref().map(|cache| (cache.folder(), cache.counts()))
    }

    /// How many kernels were parsed and lowered, and how many did without.
    pub fn front_end_counts(&self) -> FrontEndCounts {
        FrontEndCounts {
            lowered: self.lowered.load(Ordering::Relaxed),
            recalled: self.recalled.load(Ordering::Relaxed),
        }
    }

    /// Allocates zeroed memory.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        Ok(self.device.allocate(bytes)?)
    }

    /// Waits for everything launched before.
    pub fn sync(&self, caller: &dyn Caller) -> Result<(), Error> {
        Ok(self.device.synchronize(caller)?)
    }

    /// Ends the session: waits for its work and gives its memory back. Its objects raise from now on. If the caller is
    /// interrupted, work is canceled if the device supports it.
    pub fn close(&self, caller: &dyn Caller) -> Result<(), Error> {
        Ok(self.device.close(caller)?)
    }
}

/// Falls back to the CPU if the device is missing, with a notice, if that is allowed.
fn fall_back(config: &mut Config, notices: &mut Vec<String>, why: &str) -> Result<(), Error> {
    let reason = format!("arch `{}` is not available: {why}", config.arch.name());
    if !config.enable_fallback {
        return Err(Error::Unavailable(reason));
    }
    notices.push(format!("{reason}; falling back to the CPU"));
    config.arch = Arch::CPU;
    Ok(())
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cache.iter().for_each(|cache| keep_driver_cache(cache, &self.device));
        // An error here belongs to work that was not waited for, and can no longer be reported.
        let _ = self.device.close(&Uninterruptible);
    }
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Error {
        match e.kind() {
            ErrorKind::OutOfMemory { .. } | ErrorKind::StoreTooLarge { .. } => {
                Error::OutOfMemory { message: e.to_string() }
            }
            ErrorKind::Assertion(_) => Error::Assertion(e.to_string()),
            ErrorKind::Races(races) => Error::Races(races.clone(), e.to_string()),
            _ => Error::Device(e.to_string()),
        }
    }
}
