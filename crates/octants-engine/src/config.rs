//! Every option of a session, its default, its check, in one table.
//!
//! Options that change what is compiled are read by the pipeline in `session.rs`; those of the Python layer (log level,
//! full tracebacks) are kept here too, so that one place knows all names.

use octants_ir::Scalar;

use crate::error::Error;
use crate::suggest::nearest;

/// The kinds of machine a session can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// This machine's processor, by code made for it.
    Cpu,
    /// The best graphics processor found.
    Gpu,
    /// NVIDIA's graphics processors.
    Cuda,
    /// AMD's graphics processors.
    Amdgpu,
    /// An accelerator of a kind that this build does not drive.
    Other(&'static str),
}

/// Names accepted for `arch`.
pub const ARCHES: &[(&str, Arch)] = &[
    ("cpu", Arch::Cpu),
    ("x64", Arch::Cpu),
    ("arm64", Arch::Cpu),
    ("gpu", Arch::Gpu),
    ("cuda", Arch::Cuda),
    ("amdgpu", Arch::Amdgpu),
    ("vulkan", Arch::Other("vulkan")),
    ("metal", Arch::Other("metal")),
];

impl Arch {
    /// The name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Cpu => "cpu",
            Arch::Gpu => "gpu",
            Arch::Cuda => "cuda",
            Arch::Amdgpu => "amdgpu",
            Arch::Other(name) => name,
        }
    }
}

/// A value as the user gave it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum OptionValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

/// All options of a session. Defaults: [`Config::default`]; one line of documentation each: [`OPTIONS`].
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Config {
    pub arch: Arch,
    pub device: Option<u32>,
    pub device_library: String,
    pub driver_library: String,
    pub default_fp: Scalar,
    pub default_ip: Scalar,
    pub debug: bool,
    pub check_out_of_bound: bool,
    pub fast_math: bool,
    pub opt_level: u8,
    pub cpu_max_num_threads: u32,
    pub cpu_streams: bool,
    pub cpu_stream_schedule: String,
    pub cpu_separate_memory: bool,
    pub follow_torch_stream: bool,
    pub num_compile_threads: u32,
    pub offline_cache: bool,
    pub offline_cache_file_path: String,
    pub offline_cache_max_size_of_files: u64,
    pub offline_cache_cleaning_policy: String,
    pub offline_cache_cleaning_factor: f64,
    pub short_circuit_operators: bool,
    pub unrolling_limit: u32,
    pub ad_store_bytes: u64,
    pub random_seed: u64,
    pub enable_fallback: bool,
    pub raise_on_templated_floats: bool,
    pub kernel_profiler: bool,
    pub print_ir: bool,
    pub print_full_traceback: bool,
    pub log_level: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            arch: Arch::Cpu,
            device: None,
            device_library: String::new(),
            driver_library: String::new(),
            default_fp: Scalar::F32,
            default_ip: Scalar::I32,
            debug: false,
            check_out_of_bound: false,
            fast_math: true,
            opt_level: 3,
            cpu_max_num_threads: 0,
            cpu_streams: false,
            cpu_stream_schedule: String::new(),
            cpu_separate_memory: false,
            follow_torch_stream: false,
            num_compile_threads: 0,
            offline_cache: true,
            offline_cache_file_path: String::new(),
            offline_cache_max_size_of_files: 512 << 20,
            offline_cache_cleaning_policy: String::from("lru"),
            offline_cache_cleaning_factor: 0.25,
            short_circuit_operators: true,
            unrolling_limit: 32,
            ad_store_bytes: 0,
            random_seed: 0,
            enable_fallback: true,
            raise_on_templated_floats: false,
            kernel_profiler: false,
            print_ir: false,
            print_full_traceback: false,
            log_level: String::from("info"),
        }
    }
}

/// An option's name and what it does.
#[derive(Debug)]
pub struct OptionInfo {
    /// Keyword of `init`.
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
}

const fn option(name: &'static str, doc: &'static str) -> OptionInfo {
    OptionInfo { name, doc }
}

/// Every option that has an effect.
pub const OPTIONS: &[OptionInfo] = &[
    option("arch", "Where kernels run: cpu, gpu, cuda, amdgpu, vulkan, metal."),
    option("device", "Which GPU, counted from 0 among those the process may see."),
    option("device_library", "Path of the GPU vendor's library of math functions, where it is not found by itself."),
    option("driver_library", "Path of the GPU driver's library, where it is not the one that the system has."),
    option("default_fp", "Type of float literals and of `float`: f16, f32 or f64."),
    option("default_ip", "Type of integer literals and of `int`: i32 or i64."),
    option("debug", "Assertions, bounds and overflow checks in kernels."),
    option("check_out_of_bound", "Bounds checks alone."),
    option(
        "fast_math",
        "Relaxed floating-point arithmetic: reassociation, contraction, no signed zeros, vector math functions.",
    ),
    option("opt_level", "0 to 3, as a C compiler's -O."),
    option("cpu_max_num_threads", "Most threads a launch uses; 0 for all processors."),
    option("cpu_streams", "Streams on the CPU are real: launches return at once, streams run side by side."),
    option(
        "cpu_stream_schedule",
        "For tests, `seed:N`: work of real CPU streams is done late and in an order shuffled by N.",
    ),
    option(
        "cpu_separate_memory",
        "For tests: the CPU as a device whose memory the host cannot address, so that all is copied; implies cpu_streams.",
    ),
    option("follow_torch_stream", "What names no stream runs on torch's current one, if torch is imported."),
    option("num_compile_threads", "Most threads that compile the tasks of one kernel; 0 for all processors."),
    option("offline_cache", "Keep compiled kernels on disk, for later processes."),
    option(
        "offline_cache_file_path",
        "Folder of kept kernels; octants/kernels in the user's cache folder where empty.",
    ),
    option("offline_cache_max_size_of_files", "Bytes that kept kernels may take."),
    option(
        "offline_cache_cleaning_policy",
        "What goes when they take more: lru, fifo, version (what other versions of the compiler made) or never.",
    ),
    option("offline_cache_cleaning_factor", "Part of the bytes that is then freed."),
    option("short_circuit_operators", "`and` and `or` evaluate their right side only when needed."),
    option("unrolling_limit", "Warn when qd.static unrolls more iterations than this; 0 never warns."),
    option("ad_store_bytes", "Most memory that a gradient may take to keep what loops change; 0 takes what there is."),
    option("random_seed", "Seed of random numbers in kernels."),
    option("enable_fallback", "Use the CPU when the requested arch is not available, instead of raising."),
    option("raise_on_templated_floats", "Refuse floats as template arguments."),
    option("kernel_profiler", "Measure the device time of every launch from the start: see qd.profiler."),
    option("print_ir", "Print the intermediate representation of every compiled kernel to standard error."),
    option("print_full_traceback", "Keep the package's own frames in tracebacks."),
    option("log_level", "trace, debug, info, warn, error, critical or off."),
];

/// Options of programs written for Quadrants that have nothing to steer here. They are accepted, and ignored.
pub const IGNORED: &[&str] = &[
    "ad_stack_experimental_enabled",
    "ad_stack_size",
    "ad_stack_sparse_threshold_bytes",
    "advanced_optimization",
    "cache_loop_invariant_global_vars",
    "cfg_optimization",
    "cuda_stack_limit",
    "debug_dump_path",
    "default_cpu_block_dim",
    "default_gpu_block_dim",
    "demote_dense_struct_fors",
    "detect_read_only",
    "device_memory_GB",
    "device_memory_fraction",
    "external_metal_command_queue",
    "external_metal_command_queue_is_torch_queue",
    "flatten_if",
    "force_scalarize_matrix",
    "gdb_trigger",
    "half2_vectorization",
    "make_block_local",
    "make_cpu_multithreading_loop",
    "make_thread_local",
    "max_block_dim",
    "move_loop_invariant_outside_if",
    "print_accessor_ir",
    "print_ir_dbg_info",
    "print_kernel_amdgcn",
    "print_kernel_asm",
    "print_kernel_llvm_ir",
    "print_kernel_llvm_ir_optimized",
    "print_non_pure",
    "print_preprocessed_ir",
    "print_struct_llvm_ir",
    "quant_opt_atomic_demotion",
    "quant_opt_store_fusion",
    "real_matrix_scalarize",
    "require_version",
    "saturating_grid_dim",
    "src_ll_cache",
    "timeline",
    "vk_api_version",
];

const CLEANING_POLICIES: &[&str] = &["lru", "fifo", "version", "never"];

const LOG_LEVELS: &[&str] = &["trace", "debug", "info", "warn", "warning", "error", "critical", "off"];

impl Config {
    /// Sets one option after checking its value. `None` keeps the default.
    pub fn set(&mut self, name: &str, value: &OptionValue) -> Result<(), Error> {
        if *value == OptionValue::None && OPTIONS.iter().any(|o| o.name == name) {
            return Ok(());
        }
        match name {
            "arch" => self.arch = parse_arch(value)?,
            "device" => self.device = Some(parse_int(name, value, 0, 1 << 16)? as u32),
            "device_library" => self.device_library = parse_text(name, value)?,
            "driver_library" => self.driver_library = parse_text(name, value)?,
            "default_fp" => self.default_fp = parse_scalar(name, value, &[Scalar::F16, Scalar::F32, Scalar::F64])?,
            "default_ip" => self.default_ip = parse_scalar(name, value, &[Scalar::I32, Scalar::I64])?,
            "debug" => self.debug = parse_bool(name, value)?,
            "check_out_of_bound" => self.check_out_of_bound = parse_bool(name, value)?,
            "fast_math" => self.fast_math = parse_bool(name, value)?,
            "opt_level" => self.opt_level = parse_int(name, value, 0, 3)? as u8,
            "cpu_max_num_threads" => self.cpu_max_num_threads = parse_int(name, value, 0, 1 << 16)? as u32,
            "cpu_streams" => self.cpu_streams = parse_bool(name, value)?,
            "cpu_stream_schedule" => self.cpu_stream_schedule = parse_schedule(name, value)?,
            "cpu_separate_memory" => self.cpu_separate_memory = parse_bool(name, value)?,
            "follow_torch_stream" => self.follow_torch_stream = parse_bool(name, value)?,
            "num_compile_threads" => self.num_compile_threads = parse_int(name, value, 0, 1 << 16)? as u32,
            "offline_cache" => self.offline_cache = parse_bool(name, value)?,
            "offline_cache_file_path" => self.offline_cache_file_path = parse_text(name, value)?,
            "offline_cache_max_size_of_files" => {
                self.offline_cache_max_size_of_files = parse_int(name, value, 0, i64::MAX)? as u64;
            }
            "offline_cache_cleaning_policy" => {
                self.offline_cache_cleaning_policy = parse_choice(name, value, CLEANING_POLICIES)?;
            }
            "offline_cache_cleaning_factor" => self.offline_cache_cleaning_factor = parse_part(name, value)?,
            "short_circuit_operators" => self.short_circuit_operators = parse_bool(name, value)?,
            "unrolling_limit" => self.unrolling_limit = parse_int(name, value, 0, u32::MAX.into())? as u32,
            "ad_store_bytes" => self.ad_store_bytes = parse_int(name, value, 0, i64::MAX)? as u64,
            "random_seed" => self.random_seed = parse_int(name, value, i64::MIN, i64::MAX)? as u64,
            "enable_fallback" => self.enable_fallback = parse_bool(name, value)?,
            "raise_on_templated_floats" => self.raise_on_templated_floats = parse_bool(name, value)?,
            "kernel_profiler" => self.kernel_profiler = parse_bool(name, value)?,
            "print_ir" => self.print_ir = parse_bool(name, value)?,
            "print_full_traceback" => self.print_full_traceback = parse_bool(name, value)?,
            "log_level" => self.log_level = parse_choice(name, value, LOG_LEVELS)?,
            _ if IGNORED.contains(&name) => {}
            _ => {
                let names = OPTIONS.iter().map(|o| o.name).chain(IGNORED.iter().copied());
                return Err(Error::UnknownOption { name: name.to_string(), suggestion: nearest(name, names) });
            }
        }
        Ok(())
    }

    /// The seed of `cpu_stream_schedule`.
    pub fn schedule_seed(&self) -> Option<u64> {
        self.cpu_stream_schedule.strip_prefix("seed:")?.parse().ok()
    }

    /// Bounds checks are part of `debug`.
    pub fn bounds_checked(&self) -> bool {
        self.debug || self.check_out_of_bound
    }

    /// The option's value, for reading a configuration back.
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        Some(match name {
            "arch" => OptionValue::Str(self.arch.name().to_string()),
            "device" => self.device.map_or(OptionValue::None, |n| OptionValue::Int(n.into())),
            "device_library" => OptionValue::Str(self.device_library.clone()),
            "driver_library" => OptionValue::Str(self.driver_library.clone()),
            "default_fp" => OptionValue::Str(self.default_fp.name().to_string()),
            "default_ip" => OptionValue::Str(self.default_ip.name().to_string()),
            "debug" => OptionValue::Bool(self.debug),
            "check_out_of_bound" => OptionValue::Bool(self.check_out_of_bound),
            "fast_math" => OptionValue::Bool(self.fast_math),
            "opt_level" => OptionValue::Int(self.opt_level.into()),
            "cpu_max_num_threads" => OptionValue::Int(self.cpu_max_num_threads.into()),
            "cpu_streams" => OptionValue::Bool(self.cpu_streams),
            "cpu_stream_schedule" => OptionValue::Str(self.cpu_stream_schedule.clone()),
            "cpu_separate_memory" => OptionValue::Bool(self.cpu_separate_memory),
            "follow_torch_stream" => OptionValue::Bool(self.follow_torch_stream),
            "num_compile_threads" => OptionValue::Int(self.num_compile_threads.into()),
            "offline_cache" => OptionValue::Bool(self.offline_cache),
            "offline_cache_file_path" => OptionValue::Str(self.offline_cache_file_path.clone()),
            "offline_cache_max_size_of_files" => OptionValue::Int(self.offline_cache_max_size_of_files as i64),
            "offline_cache_cleaning_policy" => OptionValue::Str(self.offline_cache_cleaning_policy.clone()),
            "offline_cache_cleaning_factor" => OptionValue::Float(self.offline_cache_cleaning_factor),
            "short_circuit_operators" => OptionValue::Bool(self.short_circuit_operators),
            "unrolling_limit" => OptionValue::Int(self.unrolling_limit.into()),
            "ad_store_bytes" => OptionValue::Int(self.ad_store_bytes as i64),
            "random_seed" => OptionValue::Int(self.random_seed as i64),
            "enable_fallback" => OptionValue::Bool(self.enable_fallback),
            "raise_on_templated_floats" => OptionValue::Bool(self.raise_on_templated_floats),
            "kernel_profiler" => OptionValue::Bool(self.kernel_profiler),
            "print_ir" => OptionValue::Bool(self.print_ir),
            "print_full_traceback" => OptionValue::Bool(self.print_full_traceback),
            "log_level" => OptionValue::Str(self.log_level.clone()),
            _ => return None,
        })
    }
}

fn bad<T>(name: &str, reason: String) -> Result<T, Error> {
    Err(Error::BadOption { name: name.to_string(), reason })
}

fn parse_bool(name: &str, value: &OptionValue) -> Result<bool, Error> {
    match value {
        OptionValue::Bool(b) => Ok(*b),
        OptionValue::Int(i @ (0 | 1)) => Ok(*i == 1),
        other => bad(name, format!("expected True or False, got {}", show(other))),
    }
}

fn parse_int(name: &str, value: &OptionValue, low: i64, high: i64) -> Result<i64, Error> {
    match value {
        OptionValue::Int(i) if (low..=high).contains(i) => Ok(*i),
        OptionValue::Int(i) => bad(name, format!("{i} is not within {low} and {high}")),
        other => bad(name, format!("expected an integer, got {}", show(other))),
    }
}

fn parse_part(name: &str, value: &OptionValue) -> Result<f64, Error> {
    let part = match value {
        OptionValue::Int(i) => *i as f64,
        OptionValue::Float(x) => *x,
        other => return bad(name, format!("expected a number, got {}", show(other))),
    };
    if (0.0..=1.0).contains(&part) { Ok(part) } else { bad(name, format!("{part} is not within 0 and 1")) }
}

fn parse_text(name: &str, value: &OptionValue) -> Result<String, Error> {
    match value {
        OptionValue::Str(s) => Ok(s.clone()),
        other => bad(name, format!("expected a string, got {}", show(other))),
    }
}

fn parse_choice(name: &str, value: &OptionValue, choices: &[&'static str]) -> Result<String, Error> {
    let text = match value {
        OptionValue::Str(s) => s.to_lowercase(),
        // The environment's reader takes "off" for a boolean.
        OptionValue::Bool(false) if choices.contains(&"off") => String::from("off"),
        other => return bad(name, format!("expected one of {}, got {}", choices.join(", "), show(other))),
    };
    if choices.contains(&text.as_str()) {
        return Ok(text);
    }
    let hint = nearest(&text, choices.iter().copied()).map(|s| format!(" (did you mean `{s}`?)")).unwrap_or_default();
    bad(name, format!("`{text}` is not one of {}{hint}", choices.join(", ")))
}

fn parse_schedule(name: &str, value: &OptionValue) -> Result<String, Error> {
    match value {
        OptionValue::Str(s) if s.is_empty() => Ok(String::new()),
        OptionValue::Str(s) if s.strip_prefix("seed:").is_some_and(|n| n.parse::<u64>().is_ok()) => Ok(s.clone()),
        other => bad(name, format!("expected `seed:` and a number, got {}", show(other))),
    }
}

fn parse_scalar(name: &str, value: &OptionValue, allowed: &[Scalar]) -> Result<Scalar, Error> {
    let names: Vec<&'static str> = allowed.iter().map(|s| s.name()).collect();
    let text = parse_choice(name, value, &names)?;
    Ok(Scalar::from_name(&text).expect("compiler bug: the choices are scalar names"))
}

fn parse_arch(value: &OptionValue) -> Result<Arch, Error> {
    let names: Vec<&'static str> = ARCHES.iter().map(|(n, _)| *n).collect();
    let text = parse_choice("arch", value, &names)?;
    Ok(ARCHES.iter().find(|(n, _)| *n == text).map(|(_, a)| *a).expect("compiler bug: the choices are arch names"))
}

fn show(value: &OptionValue) -> String {
    match value {
        OptionValue::None => String::from("None"),
        OptionValue::Bool(true) => String::from("True"),
        OptionValue::Bool(false) => String::from("False"),
        OptionValue::Int(i) => i.to_string(),
        OptionValue::Float(x) => x.to_string(),
        OptionValue::Str(s) => format!("'{s}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_table_can_be_read_back_and_set() {
        let mut config = Config::default();
        for option in OPTIONS {
            let value = config.get(option.name).unwrap_or_else(|| panic!("{} cannot be read", option.name));
            config.set(option.name, &value).unwrap_or_else(|e| panic!("{}: {e}", option.name));
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn unknown_options_are_refused_with_the_near_miss() {
        let e = Config::default().set("fastmath", &OptionValue::Bool(true)).expect_err("unknown");
        assert!(e.to_string().contains("did you mean `fast_math`"), "{e}");
    }

    #[test]
    fn values_are_checked() {
        let mut config = Config::default();
        assert!(config.set("default_fp", &OptionValue::Str("i32".into())).is_err());
        assert!(config.set("opt_level", &OptionValue::Int(9)).is_err());
        assert!(config.set("debug", &OptionValue::Str("maybe".into())).is_err());
        assert!(config.set("offline_cache_cleaning_factor", &OptionValue::Float(1.5)).is_err());
        assert!(config.set("offline_cache_cleaning_policy", &OptionValue::Str("mru".into())).is_err());
        assert!(config.set("arch", &OptionValue::Str("cdua".into())).expect_err("typo").to_string().contains("cuda"));
    }
}
