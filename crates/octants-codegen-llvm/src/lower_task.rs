//! Tasks: the entry points that a launch calls, their variants, and their launch metadata.
//!
//! The loop over a parallel task's iterations is in `range_loops` or `strided_loops`, depending on how the target
//! distributes them.

use std::collections::HashMap;

use octants_artifact::{Bound, CopiedRegion, ParallelMeta, ScalarKind, ScatterCopies, TaskMeta, WideForm};
use octants_codegen::{describe_loop, is_grid, parallel_loop, wide_form};
use octants_ir::schedule::{BodySchedule, Forms, RegionMemory, Role, ScatterPrivatization, TaskSchedule};
use octants_ir::{BlockId, Body, ForLoop, Layout, LoopConfig, MemorySpace, Op, Scalar, TaskKind, Type, ValueId};

use crate::emit::{IntCmp, V};
use crate::facts::Facts;
use crate::lowering::{BodyKind, Index, LoopTargets, Lowering};
use crate::target::Share;
use crate::unit::Unit;

/// Alignment of private memory.
const CACHE_LINE: u32 = 64;

/// Lowers the general form of a task, and its metadata.
pub(crate) fn lower_main(u: &Unit<'_>, number: usize) -> TaskMeta {
    let (task, target, schedule) = (&u.program.tasks[number], u.target, &u.facts.schedule.tasks[number]);
    let symbol = target.task_symbol(&task.name);
    let Forms { runs_alone, has_single, thread_privatization, .. } = &schedule.forms;
    let plain = thread_privatization.as_ref().map(|s| {
        let code = lower_variant(u, number, &format!("{symbol}.plain"), Variant::Plain(s));
        u.e.set_internal(code);
        // With several callers, each would get a copy as long as the task.
        u.e.function_attribute(code, "noinline", 0);
        (s, code)
    });
    let form = if *runs_alone { Variant::Alone } else { Variant::Shared(plain) };
    lower_variant(u, number, &symbol, form);
    if *has_single && let Some((scatter, plain)) = plain {
        call_plain(u, number, &single_symbol(u, number), scatter, plain);
    }
    let parallel = match &task.kind {
        TaskKind::Serial => None,
        TaskKind::Parallel(config) | TaskKind::Grid(config) => {
            let mut meta = lower_count(u, number, config, format!("{symbol}.count"));
            meta.scatter = thread_privatization.as_ref().map(|s| {
                let copies = describe_copies(u.facts, s, schedule.forms.copy_merge.lanes, &symbol);
                for (region, copied) in copies.regions.iter().enumerate() {
                    lower_variant(u, number, &copied.merge_symbol, Variant::Merge(region as u32));
                }
                copies
            });
            meta.wide = lower_wide(u, number);
            Some(meta)
        }
    };
    TaskMeta {
        name: task.name.clone(),
        symbol,
        module: 0,
        single_thread_symbol: has_single.then(|| single_symbol(u, number)),
        parallel,
        waits_itself: target.waits_for_work_before(),
        draws_random: schedule.behavior.draws,
        flushes_denormals: target.flushes_denormals() && computes_with_floats(&task.body),
        polls: target.poll_offset().is_some() && schedule.behavior.runs_long,
        depends_on: None,
        is_short: false,
        reads: task.access.reads.iter().map(|b| b.0).collect(),
        writes: task.access.writes.iter().map(|b| b.0).collect(),
        access: Vec::new(),
        block_bytes: if target.has_launch_memory() { u.facts.launch_memory.bytes(number) } else { 0 },
        split: None,
    }
}

/// Lowers the form for one thread.
pub(crate) fn lower_single(u: &Unit<'_>, number: usize) {
    lower_variant(u, number, &single_symbol(u, number), Variant::Alone);
}

fn single_symbol(u: &Unit<'_>, number: usize) -> String {
    format!("{}.single", u.target.task_symbol(&u.program.tasks[number].name))
}

/// Lowers the coarsened variant, in which a thread runs several iterations at a time, if there is one.
pub(crate) fn lower_wide(u: &Unit<'_>, number: usize) -> Option<WideForm> {
    let forms = &u.facts.schedule.tasks[number].forms;
    let coarsening = forms.coarsening?;
    let symbol = u.target.task_symbol(&u.program.tasks[number].name);
    let form = wide_form(u.facts, format!("{symbol}_wide"), coarsening);
    if u.has_wide_forms {
        lower_variant(u, number, &form.symbol, Variant::Coarse(&form));
    }
    Some(form)
}

/// The forms of a task's code.
#[derive(Debug, Clone, Copy)]
enum Variant<'s> {
    /// Other threads touch the same memory. Scattered sums accumulate in private copies if that pays off.
    Shared(Option<(&'s ScatterPrivatization, V)>),
    /// No other thread touches the memory.
    Alone,
    /// Scattered sums go to memory that only this call accesses, and that is passed to it.
    Plain(&'s ScatterPrivatization),
    /// Launches that fit a form: threads run groups of iterations.
    Coarse(&'s WideForm),
    /// Sums the copies of a region.
    Merge(u32),
    /// A function that the code of a persistent loop calls.
    Part,
}

impl Variant<'_> {
    /// The role of the body that it is made of.
    fn role(self, of: &TaskSchedule) -> Role {
        match self {
            Variant::Alone if !of.forms.runs_alone => Role::SingleThread,
            Variant::Shared(_) | Variant::Alone | Variant::Part => Role::Main,
            Variant::Plain(_) => Role::Private,
            Variant::Coarse(_) => Role::Coarse,
            Variant::Merge(region) => Role::Merge(region),
        }
    }

    /// It runs iterations of the task.
    fn runs_iterations(self) -> bool {
        !matches!(self, Variant::Merge(_))
    }

    /// It decides whether it runs.
    fn decides(self) -> bool {
        self.runs_iterations() && !matches!(self, Variant::Part)
    }
}

/// Anything in the body computes with floats, functions that it calls included. Copies do not: denormals pass through
/// them in either mode of the processor.
fn computes_with_floats(body: &Body) -> bool {
    let mut any = false;
    body.visit(body.root, &mut |_, inst| {
        let is_float = |ty: &Type| ty.scalar().is_some_and(|s| s.is_float());
        any |= match &inst.op {
            Op::Call(..) => true,
            op if only_moves(op) => false,
            op => {
                let mut found = is_float(&inst.ty);
                op.for_each_operand(|v| found |= is_float(body.ty(v)));
                found
            }
        };
    });
    any
}

/// The operation passes values on as they are.
fn only_moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_)
            | Op::Param(_)
            | Op::Select(..)
            | Op::Bitcast(_)
            | Op::MakeTensor(_)
            | Op::Splat(_)
            | Op::MakeStruct(_)
            | Op::Extract(..)
            | Op::ExtractDyn(..)
            | Op::Transpose(_)
            | Op::Freeze(_)
            | Op::Load(_)
            | Op::VectorLoad(_)
            | Op::VolatileLoad(_)
            | Op::Store(..)
            | Op::VectorStore(..)
    )
}

/// Records the size of a task's private copies for the launcher.
fn describe_copies(facts: &Facts<'_>, scatter: &ScatterPrivatization, lanes: u32, symbol: &str) -> ScatterCopies {
    let regions = scatter.regions.iter().enumerate().map(|(number, region)| {
        let unit = u64::from(region.scalar.bytes());
        let (bytes, axes) = match region.memory {
            RegionMemory::Root { bytes, .. } => (bytes, Vec::new()),
            RegionMemory::Array { buffer } => {
                let (b, slot) = (&facts.program.buffers[buffer], facts.args.buffers[buffer]);
                let slot = slot.expect("compiler bug: an array without argument slots");
                let axis = |a| (Bound::Known(0), Bound::Slot(slot + 1 + a, ScalarKind::I64, 0));
                (b.elem.leaf_count() as u64 * unit, (0..b.ndim).map(axis).collect())
            }
        };
        let merge_symbol = format!("{symbol}.merge{number}");
        CopiedRegion { bytes, axes, group: u64::from(lanes) * unit, merge_symbol }
    });
    ScatterCopies { regions: regions.collect(), updates: scatter.updates }
}

/// The body that a task's variants are made of, and how it runs.
fn body_of<'p>(u: &Unit<'p>, number: usize) -> (&'p Body, &'p BodySchedule) {
    (&u.program.tasks[number].body, &u.facts.schedule.tasks[number].body)
}

/// The form for one thread of a task that scatters: the plain code on the shared memory itself.
fn call_plain(u: &Unit<'_>, number: usize, symbol: &str, scatter: &ScatterPrivatization, plain: V) -> V {
    let entry = u.target.declare_task(&u.e, symbol, 0, None);
    let Share::Range { begin, end } = entry.share else {
        panic!("compiler bug: private copies in a task that does not run ranges")
    };
    let l = Lowering::start(u, body_of(u, number), BodyKind::Task, entry.function, entry.context);
    let start = u.e.block();
    let mut args = vec![entry.context, begin, end];
    args.extend(scatter.regions.iter().map(|r| l.region_pointer(r)));
    u.e.ret(u.e.call(plain, &args));
    l.finish(start);
    entry.function
}

/// Lowers the main form as a function that the code of a persistent loop calls with its own context.
pub(crate) fn lower_part(u: &Unit<'_>, number: usize, symbol: &str) -> V {
    lower_variant(u, number, symbol, Variant::Part)
}

fn lower_variant(u: &Unit<'_>, number: usize, symbol: &str, variant: Variant<'_>) -> V {
    let (task, schedule) = (&u.program.tasks[number], &u.facts.schedule.tasks[number]);
    let (behavior, hints) = (schedule.behavior, schedule.hints);
    let code = schedule.variant(variant.role(schedule)).expect("compiler bug: a task without the requested variant");
    let regions = if let Variant::Plain(s) = variant { s.regions.as_slice() } else { &[] };
    let kind = code.kind(&task.kind);
    let threads = if let TaskKind::Grid(config) = &kind { config.block_dim } else { None };
    let is_part = matches!(variant, Variant::Part);
    let entry = match is_part {
        true => u.target.declare_part(&u.e, symbol),
        false => u.target.declare_task(&u.e, symbol, regions.len(), threads),
    };
    let body = (&code.body, &code.schedule);
    let mut l = Lowering::start(u, body, BodyKind::Task, entry.function, entry.context);
    if !is_part {
        u.target.begin_task(&u.e);
    }
    if hints.narrow_vectors {
        u.target.prefer_narrow_vectors(&u.e, entry.function);
    }
    if hints.many_threads {
        u.target.prefer_threads(&u.e, entry.function);
    }
    if forms_products(&code.body) {
        // Accumulator fragments need all registers: with fewer, they would spill.
    } else if behavior.cooperates || hints.shares_tiles {
        u.target.prefer_warps(&u.e, entry.function, threads);
    } else if hints.prefetches {
        u.target.prefer_loads_ahead(&u.e, entry.function, threads);
    }
    let start = u.e.block();
    if behavior.runs_long && variant.runs_iterations() {
        l.mark_polled();
    }
    l.form.ret = &u.program.ret;
    if let Variant::Coarse(form) = variant {
        l.form.alignment = Some(form.alignment);
        l.assume_wide(form);
    }
    for (i, region) in regions.iter().enumerate() {
        l.parallel.private.extend(region.copies.iter().map(|b| (*b, u.e.param(entry.function, 3 + i))));
    }
    l.place_private_memory();
    if let (Variant::Shared(Some((scatter, plain))), Share::Range { begin, end }) = (variant, entry.share) {
        l.scatter_privately(scatter, schedule.forms.copy_merge.lanes, plain, (begin, end));
    }
    if behavior.draws && variant.runs_iterations() {
        l.make_random_state();
    }
    // Copies are zero again after a launch that failed, too.
    if u.facts.schedule.may_fail()
        && variant.decides()
        && let Some(out) = u.target.stays_out(&u.e, entry.context)
    {
        let (leave, enter) = (l.new_block(c"stay.out"), l.new_block(c"enter"));
        u.e.cond_br(out, leave, enter);
        u.e.position(leave);
        u.target.return_from_task(&u.e, u.e.i32c(0));
        u.e.position(enter);
    }
    if u.facts.guarded[number] && variant.decides() {
        leave_unless_guard_holds(&l, entry.context);
    }
    match (&kind, entry.share) {
        (TaskKind::Serial, _) => {
            l.prepare_locals(|_, _| true);
            l.start_random_sequence(u.e.i64c(0));
            l.block(code.body.root);
        }
        (TaskKind::Parallel(_), Share::Range { begin, end }) => {
            l.prepare_locals(|l, local| l.schedule.locals.of(local).is_used_before_loop);
            let (v, loop_) = parallel_loop(task, &code.body);
            l.prologue();
            l.parallel_for(v, loop_, begin, end);
        }
        (TaskKind::Grid(_), Share::Strided) => {
            l.prepare_locals(|l, local| l.schedule.locals.of(local).is_used_before_loop);
            l.block(code.body.root);
        }
        (kind, share) => panic!("compiler bug: a task of kind {kind:?}, but its calls get {share:?}"),
    }
    l.end_of_body();
    l.finish(start);
    entry.function
}

/// Ends a task in guarded iterations if it has a guard, and the guard is zero.
fn leave_unless_guard_holds(l: &Lowering<'_, '_>, context: V) {
    let (u, e) = (l.u, l.e);
    let guard = u.target.of_loop_at(e, &|load| u.metadata.mark_invariant(load), context);
    let guard = guard.expect("compiler bug: iterations are not guarded on this target");
    let is_null = e.icmp(IntCmp::LLVMIntEQ, e.ptrtoint(guard, e.i64), e.i64c(0));
    let [check, leave, enter] = [c"guarded", c"leave", c"enter"].map(|name| l.new_block(name));
    e.cond_br(is_null, enter, check);
    e.position(check);
    e.cond_br(e.icmp(IntCmp::LLVMIntEQ, e.load(e.i32, guard, 4), e.i32c(0)), leave, enter);
    e.position(leave);
    u.target.return_from_task(e, e.i32c(0));
    e.position(enter);
}

/// Describes a task to the launcher; emits the function that counts its iterations if the launcher cannot.
fn lower_count(u: &Unit<'_>, number: usize, config: &LoopConfig, symbol: String) -> ParallelMeta {
    let mut meta = describe_loop(u.facts, number, config);
    let computed = meta.axes.iter().any(|(begin, end)| [begin, end].contains(&&Bound::Computed));
    // On a device the code finds out.
    if computed && !is_grid(&u.facts.schedule.tasks[number]) {
        emit_count(u, number, &symbol);
        meta.count_symbol = Some(symbol);
    }
    meta
}

fn emit_count(u: &Unit<'_>, number: usize, symbol: &str) {
    let (function, context) = u.target.declare_count(&u.e, symbol);
    let mut l = Lowering::start(u, body_of(u, number), BodyKind::Count, function, context);
    let start = u.e.block();
    l.prepare_locals(|l, local| l.schedule.locals.of(local).is_used_before_loop);
    l.prologue();
    let task = &u.program.tasks[number];
    let dims = &parallel_loop(task, &task.body).1.dims;
    u.e.ret(dims.iter().fold(u.e.i64c(1), |n, d| u.e.mul(n, l.axis(d.begin, d.end).trips)));
    l.finish(start);
}

/// An axis of a parallel loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// First index, i64.
    pub begin: V,
    /// Number of indices, i64, not negative.
    pub trips: V,
    pub scalar: Scalar,
}

impl<'p> Lowering<'_, 'p> {
    /// Stack memory for the private buffers that no caller passes.
    fn place_private_memory(&mut self) {
        let body = self.body;
        let mut roots: HashMap<u32, V> = HashMap::new();
        body.visit(body.root, &mut |_, inst| {
            let Op::BufferAddr(b, _) = inst.op else { return };
            let buffer = &self.u.program.buffers[b.index()];
            let Layout::Dense { components, .. } = &buffer.layout else { return };
            if buffer.space != MemorySpace::Private || self.parallel.private.contains_key(&b.index()) {
                return;
            }
            let root = components[0].root;
            let bytes = self.u.facts.private_bytes[root as usize];
            let memory =
                *roots.entry(root).or_insert_with(|| self.stack(self.e.array_type(self.e.i8, bytes), CACHE_LINE));
            self.parallel.private.insert(b.index(), memory);
        });
    }

    /// The code before the parallel loop.
    fn prologue(&mut self) {
        let root = self.body.block(self.body.root);
        for &v in &root[..root.len() - 1] {
            self.inst(v);
        }
    }

    pub fn axis(&self, begin: ValueId, end: ValueId) -> Axis {
        let e = self.e;
        let (first, last) = (self.bound(begin), self.bound(end));
        let trips = e.sub_nsw(last, first);
        let empty = e.icmp(IntCmp::LLVMIntSLT, trips, e.i64c(0));
        Axis { begin: first, trips: e.select(empty, e.i64c(0), trips), scalar: self.scalar_of(begin) }
    }

    /// One iteration: fresh locals, its own sequence of random numbers, the body.
    pub fn iteration(&mut self, v: ValueId, l: &'p ForLoop, indices: Vec<Index>, linear: V, targets: LoopTargets) {
        self.iterations((v, l), l.body, indices, linear, targets);
    }

    /// The same for the iterations that a block runs, which have the locals that it mentions.
    pub fn iterations(
        &mut self,
        (v, l): (ValueId, &'p ForLoop),
        block: BlockId,
        indices: Vec<Index>,
        linear: V,
        targets: LoopTargets,
    ) {
        let own = (!l.groups.is_empty()).then(|| self.body.locals_in(block));
        let is_own = |local| own.as_ref().is_none_or(|own| own.contains(&local));
        self.prepare_locals(|l, local| is_own(local) && !l.schedule.locals.of(local).is_used_before_loop);
        self.start_random_sequence(linear);
        self.open.indices.insert(v, indices);
        self.open.targets.push(targets);
        self.parallel.iteration_end = Some(targets.on_continue);
        self.block(block);
        self.parallel.iteration_end = None;
        self.open.targets.pop();
        self.open.indices.remove(&v);
    }
}

/// Subgroups form products of matrices.
fn forms_products(body: &Body) -> bool {
    body.insts.iter().any(|inst| matches!(&inst.op, Op::Subgroup(op, _) if op.product().is_some()))
}
