//! The table of a session's options: name, default value, check.
//!
//! Options that affect the generated code are read where kernels are lowered and built (`session`). Options of the
//! Python layer (log level, full tracebacks) are also here, so that one table lists all names.

use std::path::PathBuf;

use octants_ir::Scalar;

use crate::accepted_options::{self, AcceptedOptions};
pub use crate::arch::Arch;
use crate::backend::{Backends, DeviceSettings};
use crate::error::Error;
pub use crate::option_values::OptionValue;
use crate::option_values::{ToValue, arch, choice, device, flag, int, numbers, part, scalar, schedule, seed, text};
use crate::suggest::nearest;

/// An option's name and what it does.
#[derive(Debug)]
pub struct OptionInfo {
    /// Keyword of `init`.
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
}

/// Defines [`Config`], [`OPTIONS`], and access to options by name. Each option has a type, a default, a function that
/// checks a given value, and a sentence. The leading identifier names the back ends in these functions.
macro_rules! options {
    (|$backends:ident| $($name:ident: $type:ty = $default:expr, $check:expr, $doc:literal;)*) => {
        /// All options of a session.
        #[derive(Debug, Clone)]
        pub struct Config {
            /// The back ends that `arch` may name.
            pub(crate) backends: Backends,
            /// Options that are accepted without effect.
            pub(crate) accepted: AcceptedOptions,
            $(#[doc = $doc] pub $name: $type,)*
        }

        /// All options that have an effect.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo { name: stringify!($name), doc: $doc },)*];

        impl Config {
            /// All options with their defaults.
            pub fn new(backends: Backends) -> Config {
                Config { backends, accepted: AcceptedOptions::default(), $($name: $default,)* }
            }

            /// Sets one option after checking its value. `None` keeps the default.
            pub fn set(&mut self, name: &str, value: &OptionValue) -> Result<(), Error> {
                let $backends = self.backends;
                match name {
                    $(stringify!($name) if *value == OptionValue::None => {})*
                    $(stringify!($name) => self.$name = $check(name, value)?,)*
                    _ if self.accepted.set(name, value) => {}
                    _ => {
                        return Err(Error::UnknownOption { name: name.to_string(), suggestion: nearest(name, names()) });
                    }
                }
                Ok(())
            }

            /// The option's value, for reading a configuration back.
            pub fn get(&self, name: &str) -> Option<OptionValue> {
                match name {
                    $(stringify!($name) => Some(self.$name.to_value()),)*
                    _ => self.accepted.get(name),
                }
            }
        }
    };
}

options! {
    |backends|
    arch: Arch = Arch::CPU, arch(backends),
        "Where kernels run: cpu, gpu, cuda, amdgpu, vulkan, metal.";
    device: Option<u32> = None, device,
        "Number of the GPU, counted from 0 among those visible to the process.";
    visible_devices: String = String::new(), numbers,
        "Numbers of the visible GPUs, in the order in which `device` counts them, such as `2,0`; empty means all.";
    device_library: String = String::new(), text,
        "Path of the GPU vendor's library of math functions, if it is not found automatically.";
    driver_library: String = String::new(), text,
        "Path of the GPU driver's library, if it is not the system's.";
    default_fp: Scalar = Scalar::F32, scalar(&[Scalar::F16, Scalar::F32, Scalar::F64]),
        "Type of float literals and of `float`: f16, f32 or f64.";
    default_ip: Scalar = Scalar::I32, scalar(&[Scalar::I32, Scalar::I64, Scalar::U32, Scalar::U64]),
        "Type of integer literals and of `int`: i32 or i64; a running program may also take u32 or u64.";
    debug: bool = false, flag,
        "Check assertions, indices and integer overflow in kernels at run time.";
    check_out_of_bound: bool = false, flag,
        "Check indices in kernels.";
    fast_math: bool = true, flag,
        "Relaxed floating-point arithmetic: reassociation, contraction, no signed zeros, approximate math functions.";
    opt_level: u8 = 3, int(0, 3),
        "Optimization level, 0 to 3.";
    cpu_target: String = String::new(), text,
        "For tests: the processor to compile CPU code for, by LLVM's name; empty means this machine's processor.";
    cpu_max_num_threads: u32 = 0, int(0, 1 << 16),
        "Maximum number of threads of a launch on the CPU; 0 means all processors.";
    cpu_streams: bool = false, flag,
        "Real streams on the CPU: launches return immediately, and streams run concurrently.";
    concurrency: String = String::from("off"), choice(CONCURRENCY),
        "auto: launches on the default stream run concurrently unless they conflict; auto+fuse: repeated ones fuse.";
    check_races: String = String::from("off"), choice(CHECK_RACES),
        "static: races that are proved are errors before the launch; full: kernels also detect races at run time.";
    cpu_stream_schedule: String = String::new(), schedule,
        "For tests, `seed:N`: real CPU streams run queued work as late as allowed, in an order shuffled with seed N.";
    cpu_separate_memory: bool = false, flag,
        "For tests: the CPU emulates a device whose memory the host cannot address; implies cpu_streams.";
    vulkan_portability: bool = false, flag,
        "For tests: a Vulkan device is used with the features and limits that Vulkan has on Metal.";
    follow_torch_stream: bool = false, flag,
        "Launches without a stream run on torch's current stream, if torch is imported.";
    num_compile_threads: u32 = 0, int(0, 1 << 16),
        "Maximum number of threads that compile the tasks of one kernel; 0 means all processors.";
    offline_cache: bool = true, flag,
        "Cache compiled kernels on disk for later processes.";
    offline_cache_file_path: String = String::new(), text,
        "Folder of the cache; empty means octants/kernels in the user's cache folder.";
    offline_cache_max_size_of_files: u64 = 512 << 20, int(0, i64::MAX),
        "Size limit of the cache in bytes.";
    offline_cache_cleaning_policy: String = String::from("lru"), choice(CLEANING_POLICIES),
        "Which entries a cleanup removes: lru, fifo, version (those of other compiler versions) or never.";
    offline_cache_cleaning_factor: f64 = 0.25, part,
        "Fraction of the size limit that a cleanup frees.";
    short_circuit_operators: bool = true, flag,
        "`and` and `or` evaluate their right side only when needed.";
    unrolling_limit: u32 = 32, int(0, u32::MAX as i64),
        "Warn when qd.static unrolls more iterations than this; 0 never warns.";
    graph_max_iterations: u32 = 0, int(0, u32::MAX as i64),
        "Maximum number of iterations of a qd.graph.do_while loop; more are an error; 0 means no limit.";
    ad_store_bytes: u64 = 0, int(0, i64::MAX),
        "Maximum memory in bytes in which a gradient may store values that loops change; 0 means no limit.";
    random_seed: u64 = 0, seed,
        "Seed of random numbers in kernels.";
    enable_fallback: bool = true, flag,
        "Use the CPU when the requested arch is not available, instead of raising.";
    raise_on_templated_floats: bool = false, flag,
        "Reject floats as template arguments.";
    kernel_profiler: bool = false, flag,
        "Measure the device time of every launch from the start: see qd.profiler.";
    print_ir: bool = false, flag,
        "Print the IR of every compiled kernel to standard error.";
    print_kernel_llvm_ir: bool = false, flag,
        "Write the LLVM IR of every compiled kernel, before optimization, to the working directory.";
    print_kernel_llvm_ir_optimized: bool = false, flag,
        "Write the LLVM IR of every compiled kernel, after optimization, to the working directory.";
    print_kernel_asm: bool = false, flag,
        "Write the assembly of every compiled kernel to the working directory.";
    print_kernel_amdgcn: bool = false, flag,
        "Write the assembly of every kernel compiled for an AMD GPU to the working directory.";
    debug_dump_path: String = String::from("/tmp/ir"), text,
        "Folder for the stages of every compiled kernel, if QD_DUMP_IR or OCTANTS_DUMP_IR is set.";
    print_non_pure: bool = false, flag,
        "Print the name of every compiled kernel that is not declared pure.";
    print_full_traceback: bool = false, flag,
        "Keep the package's own frames in tracebacks.";
    log_level: String = String::from("info"), choice(LOG_LEVELS),
        "Minimum level of log messages: trace, debug, info, warn, error, critical or off.";
}

/// The names of all options, including those without effect.
pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|o| o.name).chain(accepted_options::names())
}

const CLEANING_POLICIES: &[&str] = &["lru", "fifo", "version", "never"];

const CONCURRENCY: &[&str] = &["off", "auto", "auto+fuse"];

const CHECK_RACES: &[&str] = &["off", "static", "full"];

const LOG_LEVELS: &[&str] = &["trace", "debug", "info", "warn", "warning", "error", "critical", "off"];

/// A path given as an option, unless it is empty.
pub fn given_path(option: &str) -> Option<PathBuf> {
    Some(option).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Options that a running program cannot change: its device, its streams and its cache were created with them.
const FIXED: &[&str] = &[
    "arch",
    "device",
    "visible_devices",
    "device_library",
    "driver_library",
    "cpu_target",
    "cpu_max_num_threads",
    "cpu_streams",
    "check_races",
    "cpu_stream_schedule",
    "cpu_separate_memory",
    "vulkan_portability",
    "follow_torch_stream",
    "offline_cache_file_path",
    "offline_cache_max_size_of_files",
    "offline_cache_cleaning_policy",
    "offline_cache_cleaning_factor",
    "random_seed",
    "enable_fallback",
    "kernel_profiler",
];

impl Config {
    /// The seed of `cpu_stream_schedule`.
    pub fn schedule_seed(&self) -> Option<u64> {
        self.cpu_stream_schedule.strip_prefix("seed:")?.parse().ok()
    }

    /// The visible devices, by their numbers among all devices; `None` for all of them.
    pub(crate) fn visible(&self) -> Option<Vec<u32>> {
        let numbers: Vec<u32> = self.visible_devices.split(',').filter_map(|n| n.trim().parse().ok()).collect();
        (!numbers.is_empty()).then_some(numbers)
    }

    /// The requested device, by its number among all devices. The error is a sentence without a full stop.
    pub(crate) fn chosen_device(&self) -> Result<Option<u32>, String> {
        let Some(visible) = self.visible() else { return Ok(self.device) };
        let chosen = visible.get(self.device.unwrap_or(0) as usize).copied();
        chosen.map(Some).ok_or_else(|| {
            let (number, shown) = (self.device.unwrap_or(0), &self.visible_devices);
            let count = visible.len();
            format!("there is no device {number}: `visible_devices` ({shown}) shows {count}, counted from 0")
        })
    }

    /// The requested device as users name it: the arch, and its number if known.
    pub fn device_name(&self) -> String {
        let usual = || match self.visible() {
            // The first visible one.
            Some(_) if self.arch != Arch::CPU => Some(0),
            _ => self.backends.named(self.arch.name())?.usual_device(&self.device_settings(&[])),
        };
        let number = self.device.filter(|_| self.arch != Arch::CPU).or_else(usual);
        format!("{}{}", self.arch.name(), number.map_or_else(String::new, |n| format!(":{n}")))
    }

    /// The settings with which to open the device, whose libraries may be in `packages`.
    pub(crate) fn device_settings(&self, packages: &[PathBuf]) -> DeviceSettings {
        DeviceSettings {
            packages: packages.to_vec(),
            device: self.device,
            driver_library: given_path(&self.driver_library),
            max_threads: Some(self.cpu_max_num_threads).filter(|n| *n > 0),
            streams: self.cpu_streams,
            only_graphics_processors: self.arch == Arch::GPU,
            schedule: self.schedule_seed(),
            separate_memory: self.cpu_separate_memory,
            portable: self.vulkan_portability,
        }
    }

    /// These options with one changed by a running program. Setting a fixed option to its current value is allowed.
    pub(crate) fn changed(&self, name: &str, value: &OptionValue) -> Result<Config, Error> {
        let mut changed = self.clone();
        changed.set(name, value)?;
        if FIXED.contains(&name) && changed.get(name) != self.get(name) {
            return Err(Error::FixedOption(name.to_string()));
        }
        Ok(changed)
    }

    /// Whether the user observes compilations, so kernels must not come from the cache.
    pub fn shows_compilation(&self) -> bool {
        self.print_ir || self.dumps_code()
    }

    /// Whether options dump the code of compiled kernels to files. The environment may request further dumps.
    pub fn dumps_code(&self) -> bool {
        self.print_kernel_llvm_ir
            || self.print_kernel_llvm_ir_optimized
            || self.print_kernel_asm
            || self.print_kernel_amdgcn
    }

    /// Whether race checks make the CPU's streams real, although the program does not: so that missing waits between
    /// them are found.
    pub(crate) fn implies_streams(&self) -> bool {
        self.checks_races() && !self.cpu_streams
    }

    /// Whether launches on the default stream run concurrently if their accesses do not conflict.
    pub(crate) fn infers_concurrency(&self) -> bool {
        self.concurrency != "off"
    }

    /// Whether repeated launches are fused.
    pub(crate) fn fuses_launches(&self) -> bool {
        self.concurrency == "auto+fuse"
    }

    /// Whether to report races that are proved statically.
    pub fn checks_races(&self) -> bool {
        self.check_races != "off"
    }

    /// Whether to instrument kernels with run-time race checks.
    pub fn instruments_races(&self) -> bool {
        self.check_races == "full"
    }

    /// Whether to check bounds, which `debug` includes.
    pub fn bounds_checked(&self) -> bool {
        self.debug || self.check_out_of_bound
    }
}
