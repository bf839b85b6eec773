//! [`Executable`]: loaded code, compiled from IR or found on disk.

use std::sync::Arc;

use octants_analysis::{CostModel, is_short, task_order};
use octants_artifact::{Access, Artifact, Dependence, Key, SplitTask};
use octants_autodiff::StoredState;
use octants_diag::Span;
use octants_frontend::Lowered;
use octants_ir::{
    ArgLayout, CodegenOptions, DeviceLibrary, Kernel, Layout, Op, Program, ScheduleOptions, TargetInfo, Type,
    run_pipeline_with,
};
use octants_passes::check_races::add_unused_arguments;
use octants_passes::{PIPELINE, PassOptions, RaceWatch, guard_iterations, offload, restrict_loops};
use octants_runtime::{LoadedKernel, Pointer};
use octants_schedule::schedule_program;

use super::access::{access_lines, access_of_tasks};
use super::check_blocks::{check_block_dims, check_block_memory, check_cooperating_functions};
use super::counters::counters_of;
use super::race_check::RaceCheck;
use super::race_words::RaceSlots;
use super::split_arrays::{of_gradient, split_tasks_of};
use super::{Lowering, Session};
use crate::artifact_cache::{ArtifactCache, Ingredients};
use crate::compile_times::{Phase, Stopwatch};
use crate::error::Error;
use crate::gradient_store::GradientStore;
use crate::known_results::{KnownResults, dependence};

/// Fewer elements than this do not keep a GPU busy: adding to them atomically takes less time.
const LEAST_GATHERED: u32 = 512;

/// Stack size for passes and code generation. Only used pages take memory.
pub(super) const STACK: usize = 256 << 20;

/// Code ready to be launched.
pub struct Executable {
    /// The slots of each argument.
    pub layout: ArgLayout,
    /// Type of the result; a struct for several.
    pub ret: Type,
    pub(super) kernel: LoadedKernel,
    pub(super) launching: Launching,
    /// The slots for race checks, if it has them.
    pub(super) watched: Option<Box<RaceSlots>>,
    /// The cache key of its code.
    pub(crate) key: Option<Key>,
    pub(crate) pointers: Vec<Pointer>,
    /// It converts addresses to integers.
    pub(crate) exposes_addresses: bool,
    /// The trip counts that a launch records, or that a gradient reads.
    pub(super) trips: Option<TripSlots>,
    /// Checks launches for races, if enabled and if races are possible.
    pub(super) races: Option<Box<RaceCheck>>,
    /// Its machine code was found on disk.
    pub was_kept: bool,
}

/// The arguments that describe recorded trip counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct TripSlots {
    /// The first slot of the buffer.
    pub slot: u32,
    /// Its length, in elements of type i64.
    pub elements: u64,
    /// The code is a gradient, which reads them.
    pub is_read: bool,
}

/// The kind of a launch.
pub(super) enum Launching {
    /// One of the code.
    Plain,
    /// One with a store.
    WithStore(Arc<GradientStore>),
    /// One of code that writes nothing, unless the results are known.
    ResultOnly(KnownResults),
}

impl Launching {
    /// For code whose results depend on this.
    pub fn result_only(depends: Option<Dependence>) -> Launching {
        depends.map_or(Launching::Plain, |on| Launching::ResultOnly(KnownResults::new(on)))
    }
}

impl Executable {
    /// Loaded code that is launched without a store, without recorded trip counts and without race checks.
    pub(super) fn new(
        (layout, ret): (ArgLayout, Type),
        (kernel, pointers, exposes_addresses): (LoadedKernel, Vec<Pointer>, bool),
        (key, was_kept): (Option<Key>, bool),
    ) -> Executable {
        Executable {
            layout,
            ret,
            kernel,
            launching: Launching::Plain,
            watched: None,
            key,
            pointers,
            exposes_addresses,
            trips: None,
            races: None,
            was_kept,
        }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.kernel.name()
    }

    /// Whether it can be launched now: code that assumes the order of launches is outdated once they may run
    /// concurrently.
    #[inline]
    pub fn suits_order(&self, session: &Session) -> bool {
        !self.kernel.assumes_order() || !session.device().is_unordered()
    }

    /// Its code on the device.
    pub(crate) fn kernel(&self) -> &LoadedKernel {
        &self.kernel
    }

    /// The store that launches are made with.
    pub(super) fn store(&self) -> Option<&GradientStore> {
        match &self.launching {
            Launching::WithStore(store) => Some(store),
            _ => None,
        }
    }

    /// The inputs of the results, if results may be cached.
    pub(crate) fn depends(&self) -> Option<&Dependence> {
        match &self.launching {
            Launching::ResultOnly(known) => Some(known.on()),
            _ => None,
        }
    }

    /// Declares that code made of this kernel only computes its results.
    fn mark_result_only(&mut self, kernel: &Kernel) {
        assert!(!self.pointers.iter().any(|p| p.written), "compiler bug: code that computes results writes to memory");
        self.launching = Launching::result_only(dependence(&kernel.body, &kernel.buffers, &self.layout));
    }

    /// The argument slots that hold addresses.
    pub fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// The number of tasks of a launch. Each unconditional task runs at least once.
    #[inline]
    pub fn task_count(&self) -> usize {
        self.kernel.meta().tasks.len()
    }

    /// How each task runs on arrays that are split over ranks, if it touches any.
    pub fn split_tasks(&self) -> impl Iterator<Item = Option<&SplitTask>> {
        self.kernel.meta().tasks.iter().map(|t| t.split.as_ref())
    }

    /// Whether some task writes to the buffer of this index.
    pub fn writes_buffer(&self, index: u32) -> bool {
        self.kernel.meta().tasks.iter().any(|t| t.writes.contains(&index))
    }

    /// Whether its launches record the trip counts of loops, or its gradient reads them.
    pub fn has_loop_trips(&self) -> bool {
        self.trips.is_some()
    }

    /// Whether data-dependent loops change counters in memory, which a launch leaves at their final values.
    pub fn has_counters(&self) -> bool {
        !self.kernel.meta().counters.is_empty()
    }
}

/// The launch metadata of a task, besides its code.
struct TaskFacts {
    access: Vec<Access>,
    depends_on: Vec<u32>,
    is_short: bool,
}

/// The facts of a program that is not scheduled: a schedule may hide what is affine here.
fn facts_of_tasks(program: &Program, layout: &ArgLayout, arrays_may_alias: bool, info: &TargetInfo) -> Vec<TaskFacts> {
    let costs = CostModel::of(&info.costs);
    let short = program.tasks.iter().map(|t| is_short(t, &program.functions, costs));
    let facts = access_of_tasks(program, layout).into_iter().zip(task_order(program, arrays_may_alias)).zip(short);
    facts.map(|((access, depends_on), is_short)| TaskFacts { access, depends_on, is_short }).collect()
}

fn add_facts(artifact: &mut Artifact, facts: Vec<TaskFacts>, splits: Vec<Option<SplitTask>>) {
    for (task, (TaskFacts { access, depends_on, is_short }, split)) in
        artifact.tasks.iter_mut().zip(facts.into_iter().zip(splits))
    {
        (task.access, task.depends_on, task.is_short, task.split) = (access, Some(depends_on), is_short, split);
    }
}

impl Session {
    /// Whether code made now must expect that other launches run while it does. A program that requests streams on the
    /// CPU will create some.
    pub(crate) fn launches_concurrently(&self) -> bool {
        let (device, config) = (&self.device, self.config());
        let expects_streams = config.checks_races() || config.infers_concurrency() || !self.target_info().has_grid;
        !device.is_immediate() && (device.is_unordered() || expects_streams)
    }

    /// IR to callable code.
    pub fn build(&self, lowering: &Lowering, arrays_may_alias: bool) -> Result<Executable, Error> {
        stacker::grow(STACK, || self.build_here(lowering, arrays_may_alias))
    }

    fn build_here(&self, lowering: &Lowering, arrays_may_alias: bool) -> Result<Executable, Error> {
        let mut watch = lowering.watch.clone();
        watch.resume();
        let watches = self.config().instruments_races() && !lowering.result_only;
        let made = self.make(&lowering.lowered, (arrays_may_alias, watches), &mut watch);
        let mut code = made.map_err(|error| of_gradient(error, lowering))?;
        if let Some(store) = &lowering.store {
            let mut lowered = Lowered { kernel: store.count.clone(), ..lowering.lowered.clone() };
            // It is given the gradient's arguments.
            if let Some(watched) = &code.watched {
                add_unused_arguments(&mut lowered.kernel, watched.watched_buffers());
            }
            let mut count = self.make(&lowered, (arrays_may_alias, false), &mut watch)?;
            count.mark_result_only(&lowered.kernel);
            let place = |k: &StoredState| format!("`{}` of the loop at {}", k.name, lowered.sources.location(k.span));
            let names = store.kept.iter().map(place).collect::<Vec<_>>().join(" and ");
            code.was_kept &= count.was_kept;
            let store = GradientStore::new(count, &store.arguments, &code.layout, names);
            code.launching = Launching::WithStore(Arc::new(store));
        }
        code.trips = lowering.trips.map(|trips| {
            let slot = code.layout.buffers[trips.buffer as usize];
            let slot = slot.expect("compiler bug: trip counts are not in an ndarray");
            TripSlots { slot, elements: trips.elements, is_read: lowering.is_gradient() }
        });
        if self.config().checks_races() {
            self.look_for_races(lowering, &mut code);
        } else if let Some(source) = self.fusion_source(lowering, &code, arrays_may_alias) {
            code.kernel = code.kernel.with_source(source);
        }
        if lowering.result_only {
            code.mark_result_only(&lowering.lowered.kernel);
        }
        self.compilations.add(code.kernel.name(), code.was_kept, watch);
        Ok(code)
    }

    /// The code, found on disk or made.
    fn make(
        &self,
        lowered: &Lowered,
        (arrays_may_alias, watches): (bool, bool),
        watch: &mut Stopwatch,
    ) -> Result<Executable, Error> {
        let info = self.target_info();
        let asked = (arrays_may_alias, self.launches_concurrently(), watches);
        let split =
            self.split_watched(lowered, asked, &info, self.config().print_ir, |pass| watch.lap(Phase::Passes, pass))?;
        self.generate(lowered, split, arrays_may_alias, watch)
    }

    /// The code of a program that was made of a kernel, found on disk or made.
    pub(super) fn generate(
        &self,
        lowered: &Lowered,
        (mut program, watched, assumes_order): (Program, Option<RaceWatch>, bool),
        arrays_may_alias: bool,
        watch: &mut Stopwatch,
    ) -> Result<Executable, Error> {
        let sources = &lowered.sources;
        let ret = lowered.kernel.ret.clone();
        let concurrent = self.launches_concurrently();
        let (machine, info) = (&self.machine, self.target_info());
        let layout = ArgLayout::new(program.roots, &program.buffers, &program.params);
        let watched = watched.map(|watch| Box::new(RaceSlots::of(&watch, &layout, &program.buffers)));
        check_block_dims(&program, &info)?;
        check_cooperating_functions(&program, &info)?;
        let options = self.codegen_options(&machine.library);
        let schedule_options = self.schedule_options(lowered, (arrays_may_alias, concurrent));
        // Only a device apart can be lost. A kernel's own source is the first that was read.
        let own = sources.get(0).filter(|_| self.config().debug && !self.device.is_immediate());
        let defined_at = own.map(|file| format!("{}:{}", file.path, file.first_line));
        let from = Ingredients {
            program: &program,
            sources,
            defined_at: defined_at.as_deref(),
            options: &options,
            schedule_options: &schedule_options,
            split: &lowered.split_arrays,
        };
        let key = self.cache.as_ref().and_then(|cache| Some((cache, cache.key(machine, &from)?)));
        let shared = self.shared.as_ref().and_then(|shared| Some((shared, shared.key(machine, &from)?)));
        let kept = key.and_then(|(cache, key)| cache.get(&key).map(Arc::new));
        let kept = kept.or_else(|| shared.and_then(|(shared, key)| shared.get(&key)));
        let kept_under = key.map(|(_, key)| key);
        watch.lap(Phase::Load, "look up");
        let buffers = program.buffers.clone();
        let pointers = |artifact: &Artifact| pointers(&layout, &buffers, artifact);
        let exposes_addresses = exposes_addresses(&program);
        let lines = Arc::new(access_lines(&program, sources));
        // Code that this device rejects is compiled again.
        let load = |artifact: &Artifact| {
            let pointers = pointers(artifact);
            let kernel = self.device.load(artifact)?.with_pointers(pointers.clone());
            let kernel = kernel.telling_addresses(exposes_addresses).kept_under(kept_under);
            Ok::<_, Error>((kernel.with_access_lines(lines.clone()), pointers))
        };
        let executable = |layout, (kernel, pointers), watched, was_kept| {
            let code = Executable::new((layout, ret), (kernel, pointers, exposes_addresses), (kept_under, was_kept));
            Executable { watched, ..code }
        };
        let found = kept.and_then(|a| load(&a).ok());
        if let Some((kernel, pointers)) = found {
            watch.lap(Phase::Link, "");
            return Ok(executable(layout, (kernel, pointers), watched, true));
        }
        let location = |span: Span| sources.location_with_call(span);
        let facts = facts_of_tasks(&program, &layout, arrays_may_alias, &info);
        let counters = counters_of(&program, &layout);
        let splits = split_tasks_of(&mut program, &layout, &lowered.split_arrays)?;
        watch.lap(Phase::Passes, "access sets");
        let scheduled = schedule_program(program, &info, schedule_options);
        watch.lap(Phase::Passes, "schedule");
        check_block_memory(&scheduled, &info)?;
        let mut after = |step| watch.lap(Phase::Codegen, step);
        let mut artifact = machine
            .code_generator()
            .compile(&scheduled, &location, &options, &machine.target, &mut after)
            .map_err(|e| Error::Codegen(e.to_string()))?;
        (artifact.defined_at, artifact.counters) = (defined_at, counters);
        artifact.assumes_order = assumes_order && !self.device.is_immediate();
        add_facts(&mut artifact, facts, splits);
        watch.lap(Phase::Codegen, "free");
        // Without a cache here, the device's driver may cache the code that it assembles from the text.
        let assembled = key.and_then(|_| self.device.assemble(&artifact, options.threads));
        let loaded = assembled.as_ref().and_then(|a| load(a).ok());
        let (artifact, (kernel, pointers)) = match (loaded, assembled) {
            (Some(loaded), Some(assembled)) => (assembled, loaded),
            _ => {
                let loaded = load(&artifact)?;
                (artifact, loaded)
            }
        };
        watch.lap(Phase::Link, "");
        if let Some((cache, key)) = key {
            self.keep(cache, &key, &artifact);
            watch.lap(Phase::Load, "store");
        }
        if let Some((shared, key)) = shared {
            shared.put(key, &artifact);
        }
        Ok(executable(layout, (kernel, pointers), watched, false))
    }

    /// IR to a program of tasks for a kind of machine; printed after each step if `shows` requests it. `done` is called
    /// after each pass.
    pub(crate) fn split(
        &self,
        lowered: &Lowered,
        (arrays_may_alias, concurrent_launches): (bool, bool),
        info: &TargetInfo,
        shows: bool,
        done: impl FnMut(&'static str),
    ) -> Result<Program, Error> {
        let asked = (arrays_may_alias, concurrent_launches, false);
        self.split_watched(lowered, asked, info, shows, done).map(|(program, ..)| program)
    }

    /// The same for an instrumented kernel, which records unproved accesses at run time; and the additional launch
    /// arguments.
    fn split_watched(
        &self,
        lowered: &Lowered,
        (arrays_may_alias, concurrent_launches, watches): (bool, bool, bool),
        info: &TargetInfo,
        shows: bool,
        mut done: impl FnMut(&'static str),
    ) -> Result<(Program, Option<RaceWatch>, bool), Error> {
        let replaces_packed = |kernel: &mut Kernel, now: bool| {
            if now && lowered.keeps_packed {
                lowered.packed_fields.expand(kernel);
            }
        };
        let mut kernel = lowered.kernel.clone();
        replaces_packed(&mut kernel, !watches);
        let mut options = self.pass_options(lowered, (arrays_may_alias, concurrent_launches, watches), info);
        run_pipeline_with(PIPELINE, &mut kernel, &mut options, &mut done);
        if !lowered.split_arrays.is_empty() {
            if let Err(diagnostic) = restrict_loops(&mut kernel, &lowered.split_arrays) {
                // Sums to rows of other ranks are recognized while they are atomic.
                kernel = lowered.kernel.clone();
                replaces_packed(&mut kernel, !watches);
                (options.launches_in_order, options.assumes_order, options.watch) = (false, false, None);
                run_pipeline_with(PIPELINE, &mut kernel, &mut options, &mut done);
                let refused = |_| Error::Refused(diagnostic, lowered.sources.clone());
                restrict_loops(&mut kernel, &lowered.split_arrays).map_err(refused)?;
            }
            done("restrict_loops");
        }
        // The instrumented accesses are those of elements.
        replaces_packed(&mut kernel, watches);
        if shows {
            eprintln!("{kernel}");
        }
        let mut program = offload(kernel);
        done("offload");
        if info.has_grid && !watches && lowered.split_arrays.is_empty() {
            guard_iterations(&mut program);
            done("guard_iterations");
        }
        Ok((program, options.watch, options.assumes_order))
    }

    pub(super) fn pass_options(
        &self,
        lowered: &Lowered,
        (arrays_may_alias, concurrent_launches, watches): (bool, bool, bool),
        info: &TargetInfo,
    ) -> PassOptions {
        PassOptions {
            check_bounds: self.config().bounds_checked(),
            debug: self.config().debug,
            fast_math: self.config().fast_math,
            arrays_may_alias,
            launches_in_order: !concurrent_launches
                && (self.device.is_immediate() || lowered.split_arrays.is_empty() && !has_groups(&lowered.kernel)),
            assumes_order: false,
            merges_aliased_buffers: watches,
            check_races: watches,
            overlap_allowed: lowered.overlap_allowed.clone(),
            shared_bytes: info.max_shared_bytes,
            watch: None,
            // On the CPU, threads have private copies of scattered sums. Threads of a block become loops, which calls
            // would hide.
            inlines_cooperation: !info.has_grid || watches,
            gather: info.has_grid.then_some(LEAST_GATHERED),
            sources: Some(lowered.sources.clone()),
        }
    }

    pub(crate) fn schedule_options(
        &self,
        lowered: &Lowered,
        (arrays_may_alias, concurrent_launches): (bool, bool),
    ) -> ScheduleOptions {
        let (opt_level, privatizes_arrays) = (self.config().opt_level, lowered.split_arrays.is_empty());
        let defaults = ScheduleOptions::default();
        ScheduleOptions { opt_level, arrays_may_alias, concurrent_launches, privatizes_arrays, ..defaults }
    }

    pub(crate) fn codegen_options(&self, library: &DeviceLibrary) -> CodegenOptions {
        CodegenOptions {
            fast_math: self.config().fast_math,
            opt_level: self.config().opt_level,
            processor: Some(self.config().cpu_target.clone()).filter(|name| !name.is_empty()),
            device_library: library.clone(),
            threads: match self.config().num_compile_threads {
                0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
                n => n as usize,
            },
            ..CodegenOptions::default()
        }
    }

    /// Stores an artifact.
    fn keep(&self, cache: &ArtifactCache, key: &Key, artifact: &Artifact) {
        if let Err(notice) = cache.put(key, artifact) {
            self.lock_notices().push(notice);
        }
    }
}

/// Whether parts of the kernel run concurrently with one another.
fn has_groups(kernel: &Kernel) -> bool {
    let mut any = false;
    let body = &kernel.body;
    body.visit(body.root, &mut |_, inst| {
        any |= match &inst.op {
            Op::For(l) => l.parallel.as_ref().is_some_and(|config| config.group.is_some()),
            op => matches!(op, Op::Section(_)),
        };
    });
    any
}

/// Whether the code converts addresses to integers.
fn exposes_addresses(program: &Program) -> bool {
    let bodies = program.tasks.iter().map(|t| &t.body).chain(program.functions.iter().map(|f| &f.body));
    bodies.flat_map(|body| &body.insts).any(|inst| matches!(inst.op, Op::AddressBits(_)))
}

/// The slots that hold addresses, and whether the code writes there.
fn pointers(layout: &ArgLayout, buffers: &[octants_ir::Buffer], artifact: &Artifact) -> Vec<Pointer> {
    // Whether it is written to, and the buffers in it.
    let mut roots: Vec<(bool, Vec<u32>)> = vec![(false, Vec::new()); layout.roots.len()];
    let mut out = Vec::new();
    for (i, buffer) in buffers.iter().enumerate() {
        let written = artifact.tasks.iter().any(|t| t.writes.contains(&(i as u32)));
        match (&buffer.layout, layout.buffers[i]) {
            (Layout::Dense { .. }, _) if buffer.space.is_temporary() => {}
            (Layout::Dense { components, .. }, _) => components.iter().for_each(|c| {
                let (is_written, buffers) = &mut roots[c.root as usize];
                *is_written |= written;
                buffers.push(i as u32);
            }),
            (_, Some(slot)) => out.push(Pointer { slot, written, buffer: Some(i as u32) }),
            (_, None) => {}
        }
    }
    out.extend(layout.roots.iter().zip(roots).map(|(&slot, (written, mut buffers))| {
        buffers.dedup();
        Pointer { slot, written, buffer: (buffers.len() == 1).then(|| buffers[0]) }
    }));
    out
}
