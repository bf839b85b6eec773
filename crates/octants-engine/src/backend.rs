//! [`Backends`]: the kinds of machine that a build supports. Each is a [`Backend`]: the names that users give, a
//! [`CodeGenerator`] and a driver.
//!
//! The engine uses back ends through these traits only. The outer binding passes the table as part of the
//! configuration.

use std::fmt;
use std::path::PathBuf;

use octants_artifact::{Artifact, CodeTarget};
use octants_diag::Span;
use octants_ir::{CodegenError, CodegenOptions, Scheduled, TargetInfo};
use octants_runtime::Driver;

use crate::arch::Arch;

/// Compiles programs and their schedules.
pub trait CodeGenerator: Sync {
    /// The capabilities of a machine, for scheduling.
    fn info(&self, target: &CodeTarget) -> TargetInfo;

    /// Whether code can be generated for a machine; the error lists the known ones.
    fn check_target(&self, target: &CodeTarget) -> Result<(), CodegenError>;

    /// Whether the host runs code for a processor as the option `cpu_target` names it; the error says what it lacks.
    fn check_processor(&self, processor: &str) -> Result<(), CodegenError>;

    /// Compiles a program. `location` gives `path:line` of a span, for messages at run time; `after` is called with the
    /// name of each step when it is done.
    fn compile(
        &self,
        scheduled: &Scheduled,
        location: &dyn Fn(Span) -> String,
        options: &CodegenOptions,
        target: &CodeTarget,
        after: &mut dyn FnMut(&'static str),
    ) -> Result<Artifact, CodegenError>;

    /// The forms in which [`CodeGenerator::show`] gives code.
    fn forms(&self) -> &'static [CodeForm];

    /// A program's code in one of [`CodeGenerator::forms`], as one module.
    fn show(
        &self,
        scheduled: &Scheduled,
        options: &CodegenOptions,
        target: &CodeTarget,
        form: CodeForm,
    ) -> Result<Vec<u8>, CodegenError>;

    /// The generator's name and version, and the host's processor when that is the target: part of the key under which
    /// an artifact is kept. An error if the host cannot be named.
    fn identity(&self, target: &CodeTarget) -> Result<String, CodegenError>;
}

/// A form of code for people and their tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeForm {
    /// Its name for users.
    pub name: &'static str,
    /// The usual ending of the name of a file with such code.
    pub ending: &'static str,
}

/// The settings with which a device is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Its number among those of its kind; by default the first one, or the driver's choice.
    pub device: Option<u32>,
    /// The driver's library; by default, the system's.
    pub driver_library: Option<PathBuf>,
    /// Folders of installed packages, in which a device's own libraries are looked for.
    pub packages: Vec<PathBuf>,
    /// Maximum number of threads of a launch; by default, all processors.
    pub max_threads: Option<u32>,
    /// Whether streams run concurrently.
    pub streams: bool,
    /// Software devices are not used.
    pub only_graphics_processors: bool,
    /// For tests: the seed of a random order of the work of streams.
    pub schedule: Option<u64>,
    /// For tests: memory that the host cannot address.
    pub separate_memory: bool,
    /// For tests: features and limits are reduced to those that all devices of this kind have.
    pub portable: bool,
}

/// A device as a list of devices shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Bytes of its memory, if known.
    pub memory_bytes: Option<u64>,
    /// A note for the user, such as why it is not usable.
    pub note: Option<String>,
}

/// A kind of machine.
pub trait Backend: Sync {
    /// The names that users give as `arch`. The first one is used in messages and includes all machines of the kind;
    /// the others may include only some of them.
    fn names(&self) -> &'static [&'static str];

    /// Its code generator.
    fn code_generator(&self) -> &'static dyn CodeGenerator;

    /// Opens the requested device. The error is a sentence for the user, without a full stop.
    fn open(&self, settings: &DeviceSettings) -> Result<Box<dyn Driver>, String>;

    /// The number of the device that is opened by default; `None` if there is no device.
    fn usual_device(&self, _settings: &DeviceSettings) -> Option<u32> {
        Some(0)
    }

    /// All devices of the kind, in the order of the numbers that a user gives, whether they can be used or not. The
    /// error says why there are none: a sentence for the user, without a full stop.
    fn devices(&self, settings: &DeviceSettings) -> Result<Vec<DeviceInfo>, String>;

    /// The vendor's library of math functions: in `packages`, folders of installed packages, or where systems have it.
    fn find_device_library(&self, _packages: &[PathBuf]) -> Option<PathBuf> {
        None
    }

    /// The supported targets, by the names that users give, the most common ones first.
    fn targets(&self) -> Vec<String>;

    /// False for targets that a list of all kinds of machines leaves out.
    fn is_listed(&self, _target: &str) -> bool {
        true
    }

    /// The default target for `arch`, one of the back end's names.
    fn usual_target(&self, arch: &str) -> &'static str;

    /// The target of this name among the machines that `arch`, one of the back end's names, includes.
    fn target(&self, arch: &str, name: &str) -> Option<CodeTarget>;

    /// Whether this back end owns the name, even if it does not know the target.
    fn claims(&self, target: &str) -> bool {
        self.target(self.name(), target).is_some()
    }

    /// The usual ending of the name of a file with code for a target.
    fn file_ending(&self, _target: &CodeTarget, form: CodeForm) -> &'static str {
        form.ending
    }

    /// The name used in messages.
    fn name(&self) -> &'static str {
        self.names()[0]
    }
}

/// The back ends of a build.
#[derive(Clone, Copy, Default)]
pub struct Backends {
    /// In the order of preference. The first one is the host's, which always exists and is named `cpu`.
    pub entries: &'static [&'static dyn Backend],
    /// Accepted names without an entry: opening such a device fails with a message.
    pub unsupported: &'static [&'static str],
}

impl Backends {
    /// The back end of the machine that the process runs on.
    pub(crate) fn host(self) -> &'static dyn Backend {
        *self.entries.first().expect("compiler bug: a session without back ends")
    }

    /// Whether a back end is the host's.
    pub(crate) fn is_host(self, backend: &dyn Backend) -> bool {
        backend.name() == self.host().name()
    }

    /// The back ends that a value of `arch` refers to.
    pub(crate) fn matching(self, arch: Arch) -> impl Iterator<Item = &'static dyn Backend> {
        let of_any = move |b: &dyn Backend| arch == Arch::GPU && !self.is_host(b);
        self.entries.iter().copied().filter(move |b| of_any(*b) || b.name() == arch.name())
    }

    /// The back end that has this name.
    pub(crate) fn named(self, name: &str) -> Option<&'static dyn Backend> {
        self.entries.iter().copied().find(|b| b.names().contains(&name))
    }

    /// The names of all back ends.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        self.entries.iter().flat_map(|b| b.names()).copied()
    }

    /// The names accepted for `arch`.
    pub(crate) fn arches(self) -> Vec<(&'static str, Arch)> {
        let own = |b: &&'static dyn Backend| {
            let arch = Arch::new(b.name());
            b.names().iter().map(move |name| (*name, arch))
        };
        let (host, devices) = self.entries.split_at(self.entries.len().min(1));
        let any = [(Arch::GPU.name(), Arch::GPU)];
        let unsupported = self.unsupported.iter().map(|name| (*name, Arch::new(name)));
        host.iter().flat_map(own).chain(any).chain(devices.iter().flat_map(own)).chain(unsupported).collect()
    }

    /// The forms of code that some back end has.
    pub(crate) fn forms(self) -> Vec<CodeForm> {
        let mut forms: Vec<CodeForm> = Vec::new();
        for form in self.entries.iter().flat_map(|b| b.code_generator().forms()) {
            if !forms.iter().any(|known| known.name == form.name) {
                forms.push(*form);
            }
        }
        forms
    }

    /// Kinds of machines, and the targets of each that code can be made for.
    pub fn code_targets(self) -> Vec<(&'static str, Vec<String>)> {
        self.entries.iter().map(|b| (b.name(), b.targets())).collect()
    }
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
