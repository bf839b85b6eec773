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

/// Makes [`Config`] and all that goes through its options by name. Each has a type, a default, a function that checks a
/// value given for it, and a sentence. The name ahead of them stands for the back ends.
macro_rules! options {
    (|$backends:ident| $($name:ident: $type:ty = $default:expr, $check:expr, $doc:literal;)*) => {
        /// All options of a session.
        #[derive(Debug, Clone)]
        pub struct Config {
            /// What `arch` may name.
            pub(crate) backends: Backends,
            /// Options that steer nothing.
            pub(crate) accepted: AcceptedOptions,
            $(#[doc = $doc] pub $name: $type,)*
        }

        /// Every option that has an effect.
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
        "Which GPU, counted from 0 among those the process may see.";
    visible_devices: String = String::new(), numbers,
        "Numbers of the GPUs that `device` counts, in this order, such as `2,0`; all of them where empty.";
    device_library: String = String::new(), text,
        "Path of the GPU vendor's library of math functions, where it is not found by itself.";
    driver_library: String = String::new(), text,
        "Path of the GPU driver's library, where it is not the one that the system has.";
    default_fp: Scalar = Scalar::F32, scalar(&[Scalar::F16, Scalar::F32, Scalar::F64]),
        "Type of float literals and of `float`: f16, f32 or f64.";
    default_ip: Scalar = Scalar::I32, scalar(&[Scalar::I32, Scalar::I64, Scalar::U32, Scalar::U64]),
        "Type of integer literals and of `int`: i32 or i64; a running program may also take u32 or u64.";
    debug: bool = false, flag,
        "Assertions, bounds and overflow checks in kernels.";
    check_out_of_bound: bool = false, flag,
        "Bounds checks alone.";
    fast_math: bool = true, flag,
        "Relaxed floating-point arithmetic: reassociation, contraction, no signed zeros, vector math functions.";
    opt_level: u8 = 3, int(0, 3),
        "0 to 3, as a C compiler's -O.";
    cpu_target: String = String::new(), text,
        "For tests: the processor that code for the CPU is made for, as LLVM calls it; this machine's own where empty.";
    cpu_max_num_threads: u32 = 0, int(0, 1 << 16),
        "Most threads a launch uses; 0 for all processors.";
    cpu_streams: bool = false, flag,
        "Streams on the CPU are real: launches return at once, streams run side by side.";
    concurrency: String = String::from("off"), choice(CONCURRENCY),
        "auto: launches on the default stream run side by side where what they touch allows it; off: in order.";
    check_races: String = String::from("off"), choice(CHECK_RACES),
        "static: races that are proved are errors ahead of the launch; full: kernels also look for races while they run.";
    cpu_stream_schedule: String = String::new(), schedule,
        "For tests, `seed:N`: work of real CPU streams is done late and in an order shuffled by N.";
    cpu_separate_memory: bool = false, flag,
        "For tests: the CPU as a device whose memory the host cannot address, so that all is copied; implies cpu_streams.";
    follow_torch_stream: bool = false, flag,
        "What names no stream runs on torch's current one, if torch is imported.";
    num_compile_threads: u32 = 0, int(0, 1 << 16),
        "Most threads that compile the tasks of one kernel; 0 for all processors.";
    offline_cache: bool = true, flag,
        "Keep compiled kernels on disk, for later processes.";
    offline_cache_file_path: String = String::new(), text,
        "Folder of kept kernels; octants/kernels in the user's cache folder where empty.";
    offline_cache_max_size_of_files: u64 = 512 << 20, int(0, i64::MAX),
        "Bytes that kept kernels may take.";
    offline_cache_cleaning_policy: String = String::from("lru"), choice(CLEANING_POLICIES),
        "What goes when they take more: lru, fifo, version (what other versions of the compiler made) or never.";
    offline_cache_cleaning_factor: f64 = 0.25, part,
        "Part of the bytes that is then freed.";
    short_circuit_operators: bool = true, flag,
        "`and` and `or` evaluate their right side only when needed.";
    unrolling_limit: u32 = 32, int(0, u32::MAX as i64),
        "Warn when qd.static unrolls more iterations than this; 0 never warns.";
    graph_max_iterations: u32 = 0, int(0, u32::MAX as i64),
        "Most rounds of a qd.graph.do_while loop, and an error where there would be more; 0 for any number.";
    ad_store_bytes: u64 = 0, int(0, i64::MAX),
        "Most memory that a gradient may take to keep what loops change; 0 takes what there is.";
    random_seed: u64 = 0, seed,
        "Seed of random numbers in kernels.";
    enable_fallback: bool = true, flag,
        "Use the CPU when the requested arch is not available, instead of raising.";
    raise_on_templated_floats: bool = false, flag,
        "Refuse floats as template arguments.";
    kernel_profiler: bool = false, flag,
        "Measure the device time of every launch from the start: see qd.profiler.";
    print_ir: bool = false, flag,
        "Print the intermediate representation of every compiled kernel to standard error.";
    print_kernel_llvm_ir: bool = false, flag,
        "Write LLVM's text of every compiled kernel, before optimization, to the working directory.";
    print_kernel_llvm_ir_optimized: bool = false, flag,
        "Write LLVM's text of every compiled kernel, after optimization, to the working directory.";
    print_kernel_asm: bool = false, flag,
        "Write the assembly of every compiled kernel to the working directory.";
    print_kernel_amdgcn: bool = false, flag,
        "Write the assembly of every kernel compiled for an AMD GPU to the working directory.";
    debug_dump_path: String = String::from("/tmp/ir"), text,
        "Folder of what the variable QD_DUMP_IR or OCTANTS_DUMP_IR has written of every compiled kernel.";
    print_non_pure: bool = false, flag,
        "Print the name of every launched kernel that is not declared pure.";
    print_full_traceback: bool = false, flag,
        "Keep the package's own frames in tracebacks.";
    log_level: String = String::from("info"), choice(LOG_LEVELS),
        "trace, debug, info, warn, error, critical or off.";
}

/// The names of all options, of those that steer nothing too.
pub fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|o| o.name).chain(accepted_options::names())
}

const CLEANING_POLICIES: &[&str] = &["lru", "fifo", "version", "never"];

const CONCURRENCY: &[&str] = &["off", "auto"];

const CHECK_RACES: &[&str] = &["off", "static", "full"];

const LOG_LEVELS: &[&str] = &["trace", "debug", "info", "warn", "warning", "error", "critical", "off"];

/// A path given as an option, unless it is empty.
pub fn given_path(option: &str) -> Option<PathBuf> {
    Some(option).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Options that a running program cannot change: its device, its streams and its place on disk were made with them.
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

    /// The devices that `device` counts, by their numbers among all; `None` for all of them.
    pub(crate) fn visible(&self) -> Option<Vec<u32>> {
        let numbers: Vec<u32> = self.visible_devices.split(',').filter_map(|n| n.trim().parse().ok()).collect();
        (!numbers.is_empty()).then_some(numbers)
    }

    /// The number among all devices of the one that is asked for. The error is a sentence, without a full stop.
    pub(crate) fn chosen_device(&self) -> Result<Option<u32>, String> {
        let Some(visible) = self.visible() else { return Ok(self.device) };
        let chosen = visible.get(self.device.unwrap_or(0) as usize).copied();
        chosen.map(Some).ok_or_else(|| {
            let (number, shown) = (self.device.unwrap_or(0), &self.visible_devices);
            let count = visible.len();
            format!("there is no device {number}: `visible_devices` ({shown}) shows {count}, counted from 0")
        })
    }

    /// The device that is asked for, as users name it: its kind, and its number where that is known.
    pub fn device_name(&self) -> String {
        let usual = || match self.visible() {
            // The first of those that are counted.
            Some(_) if self.arch != Arch::CPU => Some(0),
            _ => self.backends.named(self.arch.name())?.usual_device(&self.device_settings(&[])),
        };
        let number = self.device.filter(|_| self.arch != Arch::CPU).or_else(usual);
        format!("{}{}", self.arch.name(), number.map_or_else(String::new, |n| format!(":{n}")))
    }

    /// What is asked of a device, whose own libraries may be in `packages`.
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
        }
    }

    /// These options with one of them changed, as a running program may. Setting one to the value that it has is no
    /// change.
    pub(crate) fn changed(&self, name: &str, value: &OptionValue) -> Result<Config, Error> {
        let mut changed = self.clone();
        changed.set(name, value)?;
        if FIXED.contains(&name) && changed.get(name) != self.get(name) {
            return Err(Error::FixedOption(name.to_string()));
        }
        Ok(changed)
    }

    /// Whether the user wants to see how kernels are compiled, so that they must be compiled.
    pub fn shows_compilation(&self) -> bool {
        self.print_ir || self.dumps_code()
    }

    /// Whether the code of compiled kernels goes to files. The environment may ask for more of them.
    pub fn dumps_code(&self) -> bool {
        self.print_kernel_llvm_ir
            || self.print_kernel_llvm_ir_optimized
            || self.print_kernel_asm
            || self.print_kernel_amdgcn
    }

    /// Races that can be proved are looked for.
    pub fn checks_races(&self) -> bool {
        self.check_races != "off"
    }

    /// Kernels look for races while they run.
    pub fn instruments_races(&self) -> bool {
        self.check_races == "full"
    }

    /// Bounds checks are part of `debug`.
    pub fn bounds_checked(&self) -> bool {
        self.debug || self.check_out_of_bound
    }
}
