//! Finds the traces of a kernel and replays their questions.
//!
//! The lookup key is cheap to compute: the kernel's name and file, its argument types, a first look at its
//! compile-time arguments and captured names, the options, the machine. The key only locates traces. Whether a trace
//! is valid is decided by its questions only.

use std::sync::Arc;

use octants_artifact::{Dependence, Key, KeyBuilder, Lookup, Outcome, StoreOfGradient, StoredWarning, Trace};
use octants_frontend::{ArgSpec, Obj, World};
use octants_ir::{ArgLayout, AutodiffMode, Type};
use octants_runtime::Pointer;

use super::answer::{Answer, ask};
use super::fingerprint::fingerprint;
use super::outcome::{Binding, argument_plan, binding_and_layout, type_of, type_to_stored};
use super::record::Tracing;
use crate::artifact_cache::ArtifactCache;
use crate::compile_times::{Phase, Stopwatch};
use crate::config::Config;

/// A kernel to compile.
pub struct Request<'a> {
    /// The kernel.
    pub kernel: Obj,
    /// Its arguments.
    pub args: &'a [ArgSpec],
    /// The mode of differentiation.
    pub mode: AutodiffMode,
    /// Its identity: module, name, file, and the external state that affects its compilation.
    pub identity: Vec<String>,
    /// Names that it takes from the functions around it.
    pub captured: Vec<String>,
}

/// The traces found for a kernel.
pub struct Search<'w> {
    /// The world for a compilation, if one is needed.
    pub tracing: Tracing<'w>,
    /// The outcomes of earlier compilations with the same questions and answers: for arrays that share memory, and for
    /// others.
    pub recalled: Vec<Recalled>,
    /// The duration of the search.
    pub watch: Stopwatch,
    /// Why no trace was valid, for diagnostics.
    pub reason: String,
    /// Traces of the same kernel that will probably not hold again.
    outdated: Vec<Key>,
}

impl Search<'_> {
    /// Whether traces of the kernel can be stored.
    pub fn is_kept(&self) -> bool {
        self.tracing.key.is_some()
    }
}

/// The outcome of an earlier compilation.
pub struct Recalled {
    /// How the outside's objects fill its arguments.
    pub binding: Binding,
    pub(crate) layout: ArgLayout,
    pub(crate) pointers: Vec<Pointer>,
    pub(crate) exposes_addresses: bool,
    pub(crate) artifact: Key,
    pub(crate) ret: Type,
    pub(crate) store: Option<StoreOfGradient>,
    pub(crate) depends: Option<Dependence>,
    pub(crate) access_lines: Arc<Vec<Vec<String>>>,
    may_alias: bool,
    /// It has `stream_parallel` groups.
    pub has_groups: bool,
    /// The length of some loop may come from memory.
    pub may_record_trip_counts: bool,
    /// The warnings.
    pub warnings: Vec<StoredWarning>,
    /// The printed lines.
    pub printed: Vec<String>,
}

impl Recalled {
    fn new(outcome: Outcome) -> Recalled {
        let (binding, layout, pointers) = binding_and_layout(&outcome);
        Recalled {
            binding,
            layout,
            pointers,
            exposes_addresses: outcome.arguments.exposes_addresses,
            artifact: outcome.artifact,
            ret: type_of(&outcome.result),
            store: outcome.store,
            depends: outcome.depends,
            access_lines: Arc::new(outcome.access_lines),
            may_alias: outcome.may_alias,
            has_groups: outcome.has_groups,
            may_record_trip_counts: outcome.may_record_trip_counts,
            warnings: outcome.warnings,
            printed: outcome.printed,
        }
    }

    /// Whether it is valid for a call whose arrays share memory (or do not). Aliases would have to be checked against
    /// the `stream_parallel` groups, which requires the code.
    pub fn fits(&self, may_alias: bool) -> bool {
        self.may_alias == may_alias && !(may_alias && self.has_groups)
    }
}

/// Finds the traces of a kernel that are valid now.
pub(crate) fn search<'w>(
    world: &'w dyn World,
    cache: Option<&ArtifactCache>,
    common: Option<KeyBuilder>,
    config: &Config,
    request: &Request<'_>,
) -> Search<'w> {
    let mut watch = Stopwatch::default();
    let (Some(cache), Some(mut key)) = (cache, common) else {
        let reason = String::from("compiled kernels are not cached");
        let tracing = Tracing::new(world, None, Vec::new());
        return Search { tracing, recalled: Vec::new(), watch, reason, outdated: Vec::new() };
    };
    key.add("trace", &request.identity).add("args", request.args).add("mode", &request.mode);
    add_options(&mut key, config);
    // Compile-time arguments and captured names: many kernels differ in these only.
    for obj in request.args.iter().flat_map(compile_time_values) {
        let lookup = Lookup::Entity(obj.0);
        key.add("value", &fingerprint(&lookup, &ask(world, &lookup)));
    }
    for name in &request.captured {
        let lookup = Lookup::Global(request.kernel.0, name.clone());
        let answer = ask(world, &lookup);
        key.add("captured", &fingerprint(&lookup, &answer));
        if let Answer::Perhaps(Ok(Some(obj))) = answer {
            let lookup = Lookup::Entity(obj.0);
            key.add("value", &fingerprint(&lookup, &ask(world, &lookup)));
        }
    }
    let key = key.key();
    let traces = cache.traces(&key);
    let mut reason = if traces.is_empty() { "it was not compiled before" } else { "" }.to_string();
    let (found, outdated, answered) = ask_again(world, &traces, &mut reason);
    let recalled = found.into_iter().map(Recalled::new).collect();
    watch.lap(Phase::Load, "ask again");
    Search { tracing: Tracing::new(world, Some(key), answered), recalled, watch, reason, outdated }
}

/// The compile-time values among the arguments, however deep.
fn compile_time_values(arg: &ArgSpec) -> Vec<Obj> {
    match arg {
        ArgSpec::Template(obj) => vec![*obj],
        ArgSpec::Dataclass(_, members) => members.iter().flat_map(|(_, m)| compile_time_values(m)).collect(),
        ArgSpec::Value(..) | ArgSpec::Array(_) => Vec::new(),
    }
}

/// Replays the questions of the traces while some trace had the same answers. Returns the outcomes of the traces that
/// match completely, the names of those of other source code, and the questions asked.
fn ask_again(
    world: &dyn World,
    traces: &[Trace],
    reason: &mut String,
) -> (Vec<Outcome>, Vec<Key>, Vec<(Lookup, Answer)>) {
    let mut holding: Vec<usize> = (0..traces.len()).collect();
    let mut outdated = Vec::new();
    let mut answered = Vec::new();
    let mut at = 0;
    while let Some(&first) = holding.first() {
        let Some((lookup, _)) = traces[first].lookups.get(at) else { break };
        let answer = ask(world, lookup);
        let print = fingerprint(lookup, &answer);
        answered.push((lookup.clone(), answer));
        holding.retain(|&i| {
            let same = traces[i].lookups.get(at).is_some_and(|(l, p)| l == lookup && *p == print);
            if !same && matches!(lookup, Lookup::Source(_)) {
                // A function was edited. Unlike other differences, an earlier source text rarely returns.
                outdated.push(traces[i].name());
            }
            same
        });
        if holding.is_empty() {
            *reason = difference(world, lookup, &answered);
        }
        at += 1;
    }
    let found =
        holding.iter().filter(|&&i| traces[i].lookups.len() == at).map(|&i| traces[i].outcome.clone()).collect();
    (found, outdated, answered)
}

/// The difference between the recorded and the current answer. Asks the world nothing that could introduce a new
/// object, because the following compilation must number objects as if nothing had been asked.
fn difference(world: &dyn World, lookup: &Lookup, answered: &[(Lookup, Answer)]) -> String {
    let name = |func: u32| {
        let source = answered.iter().find_map(|(lookup, answer)| match (lookup, answer) {
            (Lookup::Source(f), Answer::Source(Ok(source))) if *f == func => Some(source),
            _ => None,
        });
        source.map_or_else(|| String::from("a function"), |s| format!("`{}`", s.name))
    };
    let kind = |obj: u32| world.type_name(Obj(obj));
    match lookup {
        Lookup::Entity(obj) => format!("a value of type {} changed", kind(*obj)),
        Lookup::Global(func, global) => format!("`{global}` in {} is a different object", name(*func)),
        Lookup::Attribute(obj, attribute) => format!("attribute `{attribute}` of {} changed", kind(*obj)),
        Lookup::Subscript(obj, _) | Lookup::Iterate(obj) => format!("items of {} changed", kind(*obj)),
        Lookup::Call { function, .. } => {
            format!("a call of {} at compile time returned a different object", kind(*function))
        }
        Lookup::Binary(op, ..) | Lookup::Unary(op, _) => format!("the result of `{op}` at compile time changed"),
        Lookup::Truth(obj) => format!("the truth value of {} changed", kind(*obj)),
        Lookup::Format(obj, _) => format!("the text of {} changed", kind(*obj)),
        Lookup::Source(func) => format!("the text or the signature of {} changed", name(*func)),
        Lookup::Freeze(obj) => format!("a number of type {} changed", kind(*obj)),
        Lookup::TensorMethod(method) => format!("the method `{method}` changed"),
        Lookup::Dtype(_) | Lookup::Make(_) | Lookup::TypeName(_) => {
            String::from("the relations between objects changed")
        }
    }
}

/// Stores the questions of a compilation and their outcome; returns whether they were written.
pub(crate) fn keep(cache: &ArtifactCache, search: Search<'_>, outcome: Outcome) -> Result<bool, String> {
    let Some(key) = &search.tracing.key else { return Ok(false) };
    let trace = Trace { lookups: search.tracing.take_lookups(), outcome };
    let written = cache.put_trace(key, &trace)?;
    search.outdated.iter().for_each(|name| cache.remove_trace(key, name));
    Ok(written)
}

/// The outcome of a compilation, to be stored.
pub(crate) fn outcome(
    binding: &Binding,
    (layout, pointers, exposes_addresses, ret): (&ArgLayout, &[Pointer], bool, &Type),
    (artifact, store, depends, lines): (Key, Option<StoreOfGradient>, Option<Dependence>, &[Vec<String>]),
    (may_alias, has_groups, may_record_trip_counts): (bool, bool, bool),
    (warnings, printed): (Vec<StoredWarning>, Vec<String>),
) -> Outcome {
    Outcome {
        artifact,
        may_alias,
        has_groups,
        may_record_trip_counts,
        arguments: argument_plan(binding, layout, (pointers, exposes_addresses)),
        store,
        depends,
        access_lines: lines.to_vec(),
        result: type_to_stored(ret),
        returns: binding.returns.iter().map(|o| o.0).collect(),
        checkpoints: binding.checkpoints.iter().map(|(label, o)| (*label, o.0)).collect(),
        warnings,
        printed,
    }
}

/// The options that affect a kernel's code. Destructured by name, so that a new option cannot be forgotten.
fn add_options(key: &mut KeyBuilder, config: &Config) {
    let Config {
        default_fp,
        default_ip,
        debug,
        check_out_of_bound,
        fast_math,
        opt_level,
        cpu_target,
        short_circuit_operators,
        unrolling_limit,
        graph_max_iterations,
        raise_on_templated_floats,
        // They decide the target, which the common part of keys names.
        backends: _,
        arch: _,
        device: _,
        visible_devices: _,
        device_library: _,
        driver_library: _,
        vulkan_portability: _,
        concurrency: _,
        // With race checks, nothing is recalled.
        check_races: _,
        cpu_streams: _,
        // They affect scheduling, or output.
        cpu_max_num_threads: _,
        cpu_stream_schedule: _,
        cpu_separate_memory: _,
        follow_torch_stream: _,
        num_compile_threads: _,
        random_seed: _,
        enable_fallback: _,
        ad_store_bytes: _,
        kernel_profiler: _,
        print_ir: _,
        print_kernel_llvm_ir: _,
        print_kernel_llvm_ir_optimized: _,
        print_kernel_asm: _,
        print_kernel_amdgcn: _,
        debug_dump_path: _,
        print_non_pure: _,
        accepted: _,
        print_full_traceback: _,
        log_level: _,
        // They affect where and how long entries are stored.
        offline_cache: _,
        offline_cache_file_path: _,
        offline_cache_max_size_of_files: _,
        offline_cache_cleaning_policy: _,
        offline_cache_cleaning_factor: _,
    } = config;
    key.add("default_fp", default_fp)
        .add("default_ip", default_ip)
        .add("debug", debug)
        .add("check_out_of_bound", check_out_of_bound)
        .add("fast_math", fast_math)
        .add("opt_level", opt_level)
        .add("cpu_target", cpu_target)
        .add("short_circuit_operators", short_circuit_operators)
        .add("unrolling_limit", unrolling_limit)
        .add("graph_max_iterations", graph_max_iterations)
        .add("raise_on_templated_floats", raise_on_templated_floats);
}
