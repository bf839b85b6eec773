//! CPUs: entry points as defined by `octants_artifact`, glibc's vector math, the machine's own features. Code runs on
//! the host. For other CPUs it can be inspected.
//!
//! The fields of `HostContext` are addressed by their offsets, which that type documents.

use std::sync::OnceLock;

use inkwell::OptimizationLevel;
use inkwell::targets::{CodeModel, InitializationConfig, RelocMode, TargetMachine, TargetTriple};
use octants_artifact::ScatterCopies;
use octants_ir::{CostTable, Scalar, TargetInfo};

use super::{EntryPointers, Share, Target, TaskEntry, VectorForm, processors};
use crate::emit::{Emitter, T, V};
use crate::{CodegenError, CodegenOptions};

/// A processor with its system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Processor {
    pub triple: String,
    pub cpu: String,
    /// Features that differ from those that its name implies.
    pub features: String,
    abilities: Abilities,
}

/// The processor features on which code depends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Abilities {
    avx2: bool,
    /// Vectors of 512 bits, and the same instructions on shorter ones.
    avx512: bool,
    fma: bool,
}

/// The machine this process runs on.
pub(crate) struct Host {
    pub processor: Processor,
    /// All features that processors of its architecture may have, with a plus sign or a minus sign.
    features: String,
}

impl Processor {
    // `changes` are relative to the features that the name implies.
    fn new(triple: String, cpu: String, changes: String) -> Processor {
        processors::set_up();
        let mut made = Processor { triple, cpu, features: changes, abilities: Abilities::default() };
        made.abilities = Abilities {
            avx2: made.has(&["+avx2"]),
            avx512: made.has(&["+avx512f", "+avx512vl"]),
            fma: made.has(&["+fma"]),
        };
        made
    }

    /// A processor that LLVM knows by name; `generic` is the baseline of the architecture.
    pub fn named(triple: &str, cpu: &str) -> Result<Processor, CodegenError> {
        processors::set_up();
        let known = processors::names(triple);
        if cpu != "generic" && !known.iter().any(|name| name == cpu) {
            return Err(CodegenError::new(format!(
                "code generation does not support the processor {cpu}, only {}",
                known.join(", ")
            )));
        }
        Ok(Processor::new(triple.into(), cpu.into(), String::new()))
    }

    /// A processor whose code this machine can run: a name, and features to exclude (`znver5,-sse4a`). The error names
    /// the features that this machine lacks.
    pub fn on_host(text: &str) -> Result<Processor, CodegenError> {
        let host = host_machine()?;
        let (name, without) = text.split_once(',').unwrap_or((text, ""));
        let known = |feature: &str| host.features.split(',').any(|f| f.get(1..) == Some(feature));
        for change in without.split(',').filter(|f| !f.is_empty()) {
            if !change.strip_prefix('-').is_some_and(known) {
                return Err(CodegenError::new(format!("`{change}` must be a minus sign and a processor feature")));
            }
        }
        let named = Processor::named(&host.processor.triple, name)?;
        let chosen = Processor::new(named.triple, named.cpu, without.into());
        let missing = host.features.split(',').filter_map(|f| f.strip_prefix('-'));
        let lacking: Vec<&str> = missing.filter(|f| chosen.has(&[f])).collect();
        if !lacking.is_empty() {
            return Err(CodegenError::new(format!(
                "this machine ({}) cannot run code for {text}: it lacks {}",
                host.processor.cpu,
                lacking.join(", ")
            )));
        }
        Ok(chosen)
    }

    // All features of the machine are listed, because a virtual machine may lack features that its processor's name
    // implies.
    fn has(&self, features: &[&str]) -> bool {
        processors::has(&self.triple, &self.cpu, &self.features, &features.join(","))
    }
}

/// The machine this process runs on: constant, and queried once because the query is slow on virtual machines.
pub(crate) fn host_machine() -> Result<&'static Host, CodegenError> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    HOST.get_or_init(|| {
        inkwell::targets::Target::initialize_native(&InitializationConfig::default())?;
        let triple = TargetMachine::get_default_triple().as_str().to_string_lossy().into_owned();
        let cpu = TargetMachine::get_host_cpu_name().to_string();
        let features = TargetMachine::get_host_cpu_features().to_string();
        let changes = processors::changes(&triple, &cpu, &features);
        Ok(Host { processor: Processor::new(triple, cpu, changes), features })
    })
    .as_ref()
    .map_err(|message| CodegenError::new(format!("LLVM cannot generate code for this machine: {message}")))
}

/// A processor as a target.
pub(crate) struct Cpu {
    widest_vector: u32,
    vector_math: bool,
    prefer_width: u32,
    flush_denormals: bool,
    fuses: bool,
    counts_cycles: bool,
    polls: bool,
}

const ARGS: i64 = 0;
const FRAME: i64 = 8;
const RESULT: i64 = 16;
const PRINT: i64 = 24;
const FAIL: i64 = 32;
const SEED: i64 = 40;
const LAUNCH: i64 = 48;
const COPIES: i64 = 64;
const COPY_COUNT: i64 = 72;
const COPY_OFFSET: i64 = 80;
const POLL: i64 = 88;
const CONTEXT_BYTES: u64 = 96;

/// Width in bits of vectors in large functions.
const NARROW: u32 = 256;

/// Tuning features that LLVM's model of a processor omits. On Zen processors up to Zen 5, a gather is slower than the
/// equivalent loads and inserts, and a scatter is slower than the stores.
fn tuning(cpu: &str) -> &'static str {
    if cpu.starts_with("znver") { ",+prefer-no-gather,+prefer-no-scatter" } else { "" }
}

impl Cpu {
    /// The target and LLVM's machine for it.
    pub fn new(processor: &Processor, options: &CodegenOptions) -> Result<(Cpu, TargetMachine), CodegenError> {
        let Processor { triple: name, cpu, features, abilities } = processor;
        let triple = TargetTriple::create(name);
        let target = inkwell::targets::Target::from_triple(&triple)
            .map_err(|e| CodegenError::new(format!("LLVM does not know the target {name}: {e}")))?;
        let level = match options.opt_level {
            0 => OptimizationLevel::None,
            1 => OptimizationLevel::Less,
            2 => OptimizationLevel::Default,
            _ => OptimizationLevel::Aggressive,
        };
        let features = &format!("{features}{}", tuning(cpu));
        let machine = target
            .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Small)
            .ok_or_else(|| CodegenError::new(format!("LLVM has no code generator for {name}")))?;
        let x86 = name.starts_with("x86_64");
        let widest_vector = match () {
            () if !x86 => 0,
            () if abilities.avx512 => 512,
            () if abilities.avx2 => 256,
            () => 128,
        };
        let glibc = name.contains("linux") && name.contains("gnu");
        let target = Cpu {
            widest_vector,
            counts_cycles: x86,
            polls: !name.contains("windows"),
            fuses: options.fast_math && (!x86 || abilities.fma),
            flush_denormals: options.fast_math && x86 && !name.contains("windows"),
            vector_math: options.fast_math && options.vector_math && glibc,
            prefer_width: options.vector_bits.unwrap_or(widest_vector).min(widest_vector),
        };
        Ok((target, machine))
    }

    fn field(&self, e: &Emitter, ty: T, context: V, offset: i64) -> V {
        e.load(ty, e.byte_offset(context, offset), 8)
    }

    fn call_host(&self, e: &Emitter, context: V, field: i64, site: u32, values: V) {
        let f = self.field(e, e.ptr, context, field);
        let ty = e.function_type(e.void, &mut [e.ptr, e.i32, e.ptr]);
        e.call_pointer(f, ty, &[context, e.i32c(i64::from(site)), values]);
    }
}

/// Processors have vector units, and execute loads out of order.
pub(crate) const INFO: TargetInfo = TargetInfo {
    has_grid: false,
    subgroup_size: 32,
    // As much as any GPU has, so that programs written for a GPU run here.
    max_shared_bytes: 227 << 10,
    assertion_bytes: 0,
    has_vectors: true,
    shared_bytes: 0,
    private_bytes: ScatterCopies::MOST_BYTES,
    registers: 0,
    full_grid: 0,
    waits_for_loads: false,
    counts_in_32_bits: false,
    has_constant_loads: false,
    products: &[],
    loads_matrices: false,
    copies_async: false,
    merges_accesses: true,
    unrolls_parallel_loops: true,
    types_shared_memory: false,
    costs: CostTable::GENERIC,
};

impl Target for Cpu {
    fn info(&self) -> TargetInfo {
        INFO
    }

    fn task_symbol(&self, name: &str) -> String {
        format!("octants.{name}")
    }

    fn declare_task(&self, e: &Emitter, symbol: &str, pointers: usize, _threads: Option<u32>) -> TaskEntry {
        let mut params = vec![e.ptr, e.i64, e.i64];
        params.resize(3 + pointers, e.ptr);
        let ty = e.function_type(e.i32, &mut params);
        let function = e.add_function(symbol, ty);
        self.describe_context(e, function, 0);
        let share = Share::Range { begin: e.param(function, 1), end: e.param(function, 2) };
        TaskEntry { function, context: e.param(function, 0), share }
    }

    fn poll_offset(&self) -> Option<u32> {
        self.polls.then_some(POLL as u32)
    }

    fn return_from_task(&self, e: &Emitter, status: V) {
        e.ret(status);
    }

    fn declare_count(&self, e: &Emitter, symbol: &str) -> (V, V) {
        let function = e.add_function(symbol, e.function_type(e.i64, &mut [e.ptr]));
        self.describe_context(e, function, 0);
        (function, e.param(function, 0))
    }

    fn describe_context(&self, e: &Emitter, function: V, index: usize) {
        e.param_attribute(function, index, "noalias", 0);
        e.param_attribute(function, index, "readonly", 0);
        e.param_attribute(function, index, "noundef", 0);
        e.param_attribute(function, index, "nonnull", 0);
        e.param_attribute(function, index, "align", 8);
        e.param_attribute(function, index, "dereferenceable", CONTEXT_BYTES);
    }

    fn entry_pointers(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> EntryPointers {
        let args = self.field(e, e.ptr, context, ARGS);
        let frame = self.field(e, e.ptr, context, FRAME);
        invariant(args);
        invariant(frame);
        EntryPointers { args, frame }
    }

    fn result_slot(&self, e: &Emitter, context: V, i: usize) -> V {
        e.byte_offset(self.field(e, e.ptr, context, RESULT), 8 * i as i64)
    }

    fn clock(&self, e: &Emitter) -> V {
        if self.counts_cycles {
            return e.call(e.declare("llvm.readcyclecounter", e.i64, &mut []), &[]);
        }
        // On AArch64, programs may not read the cycle counter, but they may read the timer's counter.
        e.read_register("CNTVCT_EL0", e.i64)
    }

    fn random_key(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> (V, V) {
        let seed = self.field(e, e.i64, context, SEED);
        let launch = self.field(e, e.i64, context, LAUNCH);
        invariant(seed);
        invariant(launch);
        (seed, launch)
    }

    fn print(&self, e: &Emitter, context: V, site: u32, values: V, _count: usize) {
        self.call_host(e, context, PRINT, site, values);
    }

    fn fail(&self, e: &Emitter, context: V, site: u32, values: V, _count: usize) {
        self.call_host(e, context, FAIL, site, values);
    }

    fn flushes_denormals(&self) -> bool {
        self.flush_denormals
    }

    fn fuses_shared_products(&self) -> bool {
        self.fuses
    }

    fn copies(&self, e: &Emitter, context: V) -> V {
        self.field(e, e.ptr, context, COPIES)
    }

    fn count_copies(&self, e: &Emitter, context: V) -> V {
        self.field(e, e.i64, context, COPY_COUNT)
    }

    fn copy_offset(&self, e: &Emitter, context: V) -> V {
        self.field(e, e.i64, context, COPY_OFFSET)
    }

    fn vector_forms(&self, name: &str, scalar: Scalar, operands: usize) -> Vec<VectorForm> {
        let (suffix, bits) = match scalar {
            Scalar::F32 => ("f", 32),
            Scalar::F64 => ("", 64),
            _ => return Vec::new(),
        };
        if !self.vector_math {
            return Vec::new();
        }
        let operands = "v".repeat(operands);
        [(128, 'b'), (256, 'd'), (512, 'e')]
            .into_iter()
            .filter(|(width, _)| *width <= self.widest_vector)
            .map(|(width, isa)| {
                let lanes = width / bits;
                VectorForm { lanes, symbol: format!("_ZGV{isa}N{lanes}{operands}_{name}{suffix}") }
            })
            .collect()
    }

    fn masks_vectors(&self) -> bool {
        self.widest_vector == 512
    }

    fn prefer_narrow_vectors(&self, e: &Emitter, function: V) {
        if self.prefer_width > NARROW {
            e.function_text_attribute(function, "prefer-vector-width", &NARROW.to_string());
        }
    }

    fn finish_function(&self, e: &Emitter, function: V) {
        e.function_attribute(function, "nounwind", 0);
        e.function_text_attribute(function, "no-trapping-math", "true");
        if self.flush_denormals {
            e.function_text_attribute(function, "denormal-fp-math", "preserve-sign,preserve-sign");
        }
        if self.prefer_width > 0 {
            e.function_text_attribute(function, "prefer-vector-width", &self.prefer_width.to_string());
        }
    }
}
