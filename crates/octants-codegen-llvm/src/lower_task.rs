//! Tasks: the entry points that a launch calls, the forms of their code, and what the launcher is told of them.
//!
//! The loop over a parallel task's iterations is in `range_loops` or `strided_loops`, as the target shares them out.

use octants_artifact::{Bound, ParallelMeta, ScalarKind, ScatterCopies, TaskMeta, WideForm};
use octants_ir::{BinaryOp, Body, Const, ForLoop, Layout, LoopConfig, Op, Scalar, Task, TaskKind, Type, ValueId};

use crate::analyse_locals::LocalFacts;
use crate::emit::{IntCmp, V};
use crate::estimate_cost::estimate_cost;
use crate::facts::Facts;
use crate::find_returns::returns_to_written;
use crate::find_scatter::{RegionMemory, Scatter, find_scatter, find_small_scatter};
use crate::hold_loads::loads_to_hold;
use crate::lower_body::{BodyKind, Index, LoopTargets, Lowering};
use crate::pieces::{Entry, Form};
use crate::read_ahead::{has_many_threads, reads_in_loops};
use crate::share_in_blocks::{MOST_BYTES, MOST_INSTRUCTIONS};
use crate::target::{Share, Target};
use crate::unit::{Unit, kind_of};
use crate::widen_tasks::{Grouping, find_grouping, wide_form};

/// Tasks of more instructions than this are large: the time it takes to compile them matters more.
const LARGE: usize = 800;

/// Loops of tasks of more instructions than this do not become vector code: the time that LLVM takes to plan it grows with the square
/// of the loop's size.
const HUGE: usize = 5000;

/// Where a task has more inner loops than this they are unrolled only if the number of their iterations is known: whenever LLVM adds a loop
/// for what is left over, it looks through what it knows of all of them.
const MANY_LOOPS: usize = 100;

/// CPU tasks with more inner loops than this: interleaving and runtime unrolling of these loops are disabled. LLVM
/// would emit up to sixteen copies of each loop body, and remainder loops. That took a quarter of the compile time of
/// a rigid-body simulator's steps, and did not make them faster.
const LEAN_LOOPS: usize = 12;

/// Atomics are rare where they are fewer than one in so many instructions.
const RARE: usize = 64;

/// Lowers forms of tasks and the functions they call; describes the tasks among them whose main form it is.
pub(crate) fn lower_entries(u: &Unit<'_>, entries: &[Entry]) -> Vec<TaskMeta> {
    let mut described = Vec::new();
    let constants: Vec<_> = entries.iter().map(|e| constants_of(u, &u.program.tasks[e.task])).collect();
    for (entry, constants) in entries.iter().zip(&constants) {
        u.task.set(entry.task as u32);
        u.metadata.set_constants(constants);
        match entry.form {
            Form::Main => described.push(lower_main(u, entry.task)),
            Form::Single => {
                lower_variant(u, entry.task, &single_symbol(u, entry.task), Variant::Alone);
            }
            Form::Wide => _ = lower_wide(u, entry.task),
        }
    }
    // Functions serve all of them.
    u.metadata.set_constants(&constants.into_iter().reduce(both).unwrap_or_default());
    u.lower_pending();
    described
}

/// Lowers the form of a task for any launch, and what belongs to it.
fn lower_main(u: &Unit<'_>, number: usize) -> TaskMeta {
    let (task, target) = (&u.program.tasks[number], u.target);
    let symbol = target.task_symbol(number, &task.name);
    let strided = target.shares_by_stride();
    u.at_once.set(1);
    let scatter = scatter_of(u.facts, target, number);
    let plain = scatter.as_ref().map(|s| {
        let code = lower_variant(u, number, &format!("{symbol}.plain"), Variant::Plain(s));
        u.e.set_internal(code);
        // Several callers would each get what is as long as the task.
        u.e.function_attribute(code, "noinline", 0);
        (s, code)
    });
    let in_blocks = block_scatter_of(u.facts, target, number);
    let form = match () {
        () if strided => Variant::Strided(Grouping::NONE, None, in_blocks.as_ref()),
        () if runs_alone(u.facts, target, number) => Variant::Alone,
        () => Variant::Shared(plain),
    };
    lower_variant(u, number, &symbol, form);
    let has_single = has_single_form(u.facts, target, number);
    if has_single && let Some((scatter, plain)) = plain {
        call_plain(u, task, &single_symbol(u, number), scatter, plain);
    }
    let parallel = match &task.kind {
        TaskKind::Serial => None,
        TaskKind::Parallel(config) => {
            let mut meta = lower_count(u, task, config, format!("{symbol}.count"));
            let sums_up = !parallel_loop(task).1.reductions.is_empty();
            meta.block_sums = strided && (sums_up || in_blocks.is_some());
            meta.scatter = scatter.as_ref().map(|s| {
                let sum_symbol = format!("{symbol}.sum");
                add_copies(u, task, &sum_symbol, s);
                describe_copies(u.facts, s, sum_symbol)
            });
            meta.wide = lower_wide(u, number);
            meta.at_once = u.at_once.get();
            Some(meta)
        }
    };
    TaskMeta {
        name: task.name.clone(),
        symbol,
        module: 0,
        single_thread_symbol: has_single.then(|| single_symbol(u, number)),
        parallel,
        flushes_denormals: target.flushes_denormals() && uses_floats(&task.body),
        group: task.group,
        reads: task.access.reads.iter().map(|b| b.0).collect(),
        writes: task.access.writes.iter().map(|b| b.0).collect(),
    }
}

fn single_symbol(u: &Unit<'_>, number: usize) -> String {
    format!("{}.single", u.target.task_symbol(number, &u.program.tasks[number].name))
}

/// Which buffers keep their contents while a task runs.
fn constants_of(u: &Unit<'_>, task: &Task) -> Vec<bool> {
    let mut constant = vec![u.target.has_constant_loads(); u.program.buffers.len()];
    for (i, constant) in constant.iter_mut().enumerate() {
        *constant &= !task.access.writes.iter().any(|w| u.facts.may_be_same(i, w.index()));
    }
    constant
}

fn both(a: Vec<bool>, b: Vec<bool>) -> Vec<bool> {
    a.into_iter().zip(b).map(|(a, b)| a && b).collect()
}

/// What runs once needs no form for several threads.
fn runs_alone(facts: &Facts<'_>, target: &dyn Target, number: usize) -> bool {
    let serial = matches!(facts.program.tasks[number].kind, TaskKind::Serial);
    serial && facts.options.single_thread_variants && !target.shares_by_stride()
}

/// Whether code without atomics is worth the time that compiling the task a second time takes: not where a large task has few.
fn has_single_form(facts: &Facts<'_>, target: &dyn Target, number: usize) -> bool {
    let effects = facts.task_effects[number];
    let few = effects.size > LARGE && effects.atomics * RARE < effects.size;
    let wanted = facts.options.single_thread_variants && !target.shares_by_stride() && effects.atomics > 0 && !few;
    wanted && !runs_alone(facts, target, number)
}

/// The form for one thread shares nothing with the main form, and may be in another module.
pub(crate) fn is_single_form_apart(facts: &Facts<'_>, target: &dyn Target, number: usize) -> bool {
    has_single_form(facts, target, number) && scatter_of(facts, target, number).is_none()
}

/// Which iterations a thread runs at a time in the wide form of a task, where it has one.
pub(crate) fn grouping_of(facts: &Facts<'_>, target: &dyn Target, number: usize) -> Option<Grouping> {
    let task = &facts.program.tasks[number];
    let TaskKind::Parallel(config) = &task.kind else { return None };
    if !target.shares_by_stride() || config.serialize || facts.options.opt_level < 2 {
        return None;
    }
    let (v, loop_) = parallel_loop(task);
    let locals = LocalFacts::of(&task.body, Some(loop_.body));
    find_grouping(facts.program, task, v, known_count(&known_extents(&task.body, &locals, loop_)))
}

/// Lowers the form in which a thread runs several iterations at a time, where there is one.
fn lower_wide(u: &Unit<'_>, number: usize) -> Option<WideForm> {
    let grouping = grouping_of(u.facts, u.target, number)?;
    let symbol = u.target.task_symbol(number, &u.program.tasks[number].name);
    let form = wide_form(u.facts, format!("{symbol}_wide"), grouping);
    if u.has_wide_forms {
        let in_blocks = block_scatter_of(u.facts, u.target, number);
        lower_variant(u, number, &form.symbol, Variant::Strided(grouping, Some(&form), in_blocks.as_ref()));
    }
    Some(form)
}

/// The forms of a task's code.
#[derive(Debug, Clone, Copy)]
enum Variant<'s> {
    /// Other threads touch the same memory. What the task scatters is added up in private copies where that pays.
    Shared(Option<(&'s Scatter, V)>),
    /// No other thread touches the memory.
    Alone,
    /// What the task scatters goes to memory that only this call touches, passed to it.
    Plain(&'s Scatter),
    /// Many threads enter it, and run iterations in such groups, for launches that fit the form. What they scatter goes to
    /// copies of their blocks.
    Strided(Grouping, Option<&'s WideForm>, Option<&'s Scatter>),
}

/// Anything in the body computes with floats, functions that it calls included if they take or give any.
fn uses_floats(body: &Body) -> bool {
    let mut any = false;
    body.visit(body.root, &mut |_, inst| {
        any |= inst.ty.scalar().is_some_and(|s| s.is_float()) || matches!(inst.op, Op::Call(..))
    });
    any
}

/// What a task scatters, where private copies are of use.
fn scatter_of(facts: &Facts<'_>, target: &dyn Target, number: usize) -> Option<Scatter> {
    let task = &facts.program.tasks[number];
    let pays = target.privatises_scatter() && may_scatter(facts, number);
    if pays { find_scatter(facts, task, parallel_loop(task).1.body) } else { None }
}

/// What a task scatters, where blocks of threads keep copies of it.
fn block_scatter_of(facts: &Facts<'_>, target: &dyn Target, number: usize) -> Option<Scatter> {
    let task = &facts.program.tasks[number];
    if !target.shares_by_stride() || !may_scatter(facts, number) {
        return None;
    }
    let arrays = facts.task_effects[number].size <= MOST_INSTRUCTIONS;
    find_small_scatter(facts, task, parallel_loop(task).1.body, MOST_BYTES, arrays)
}

fn may_scatter(facts: &Facts<'_>, number: usize) -> bool {
    let is_parallel = matches!(&facts.program.tasks[number].kind, TaskKind::Parallel(config) if !config.serialize);
    is_parallel && facts.task_effects[number].atomics > 0
}

/// Tells the launcher how large copies of what a task scatters to are.
fn describe_copies(facts: &Facts<'_>, scatter: &Scatter, sum_symbol: String) -> ScatterCopies {
    let regions = scatter.regions.len() as u32;
    let mut out = ScatterCopies { updates: scatter.updates, regions, sum_symbol, ..ScatterCopies::default() };
    for region in &scatter.regions {
        match region.memory {
            RegionMemory::Root { bytes, .. } => out.bytes += bytes,
            RegionMemory::Array { buffer } => {
                let (b, slot) = (&facts.program.buffers[buffer], facts.args.buffers[buffer]);
                let slot = slot.expect("compiler bug: an array has slots");
                let axis = |a| (Bound::Known(0), Bound::Slot(slot + 1 + a, ScalarKind::I64, 0));
                let element = b.elem.leaf_count() as u64 * u64::from(region.scalar.bytes());
                out.arrays.push((element, (0..b.ndim).map(axis).collect()));
            }
        }
    }
    out
}

/// The form for one thread of a task that scatters: the plain code on the shared memory itself.
fn call_plain(u: &Unit<'_>, task: &Task, symbol: &str, scatter: &Scatter, plain: V) -> V {
    let entry = u.target.declare_task(&u.e, symbol, 0, None);
    let Share::Range { begin, end } = entry.share else { panic!("compiler bug: private copies are for ranges") };
    let l = Lowering::start(u, &task.body, BodyKind::Task, entry.function, entry.context, LocalFacts::default());
    let start = u.e.block();
    let mut args = vec![entry.context, begin, end];
    args.extend(scatter.regions.iter().map(|r| l.region_pointer(r)));
    u.e.ret(u.e.call(plain, &args));
    l.finish(start);
    entry.function
}

/// The code that adds the copies of what a task scatters to.
fn add_copies(u: &Unit<'_>, task: &Task, symbol: &str, scatter: &Scatter) {
    let entry = u.target.declare_task(&u.e, symbol, 0, None);
    let Share::Range { begin, end } = entry.share else { panic!("compiler bug: private copies are for ranges") };
    let l = Lowering::start(u, &task.body, BodyKind::Task, entry.function, entry.context, LocalFacts::default());
    let start = u.e.block();
    l.add_copies(scatter, begin, end);
    u.e.ret(u.e.i32c(0));
    l.finish(start);
}

/// The loop of a parallel task, and its value.
fn parallel_loop(task: &Task) -> (ValueId, &ForLoop) {
    let last = task.body.block(task.body.root).last().copied();
    match last.map(|v| (v, &task.body.inst(v).op)) {
        Some((v, Op::For(l))) => (v, l),
        _ => panic!("compiler bug: the parallel task {} does not end in a loop", task.name),
    }
}

fn lower_variant(u: &Unit<'_>, number: usize, symbol: &str, variant: Variant<'_>) -> V {
    let (task, effects) = (&u.program.tasks[number], u.facts.task_effects[number]);
    let regions = if let Variant::Plain(s) = variant { s.regions.as_slice() } else { &[] };
    let parallel = match &task.kind {
        TaskKind::Serial => None,
        TaskKind::Parallel(config) => Some((config, parallel_loop(task))),
    };
    let threads = parallel.and_then(|(config, _)| if config.serialize { Some(1) } else { config.block_dim });
    let entry = u.target.declare_task(&u.e, symbol, regions.len(), threads);
    let facts = LocalFacts::of(&task.body, parallel.map(|(_, (_, l))| l.body));
    let mut l = Lowering::start(u, &task.body, BodyKind::Task, entry.function, entry.context, facts);
    if effects.size > LARGE {
        u.target.prefer_narrow_vectors(&u.e, entry.function);
    }
    if effects.balances {
        u.target.prefer_threads(&u.e, entry.function);
    } else if parallel.is_some_and(|(_, (_, l))| reads_in_loops(&task.body, l.body)) {
        u.target.prefer_loads_ahead(&u.e, entry.function);
    }
    let start = u.e.block();
    l.ret = &u.program.ret;
    l.large = effects.size > HUGE;
    if u.target.has_vectors() {
        l.held = loads_to_hold(u.facts, &task.body, false);
    }
    l.independent = u.target.has_vectors()
        && parallel.is_some_and(|(config, (_, l))| !config.serialize && !returns_to_written(u, &task.body, l.body));
    let loops = task.body.insts.iter().filter(|i| matches!(i.op, Op::For(_))).count();
    l.many_loops = loops > MANY_LOOPS;
    l.lean_loops = u.target.has_vectors() && loops > LEAN_LOOPS;
    l.many_threads = parallel.is_some_and(|(_, (_, loop_))| {
        has_many_threads(loop_, known_count(&known_extents(&task.body, &l.facts, loop_)))
    });
    l.balances = !effects.fails;
    l.exclusive = matches!(variant, Variant::Alone | Variant::Plain(_));
    if let Variant::Strided(_, Some(form), _) = variant {
        l.alignment = Some(form.alignment);
        l.assume_wide(form);
    }
    for (i, region) in regions.iter().enumerate() {
        let start = if let RegionMemory::Root { start, .. } = region.memory { start } else { 0 };
        l.moved.extend(region.buffers.iter().map(|b| (*b, (u.e.param(entry.function, 3 + i), start))));
    }
    if let (Variant::Shared(Some((scatter, plain))), Share::Range { begin, end }) = (variant, entry.share) {
        l.scatter_privately(scatter, plain, begin, end);
    }
    if effects.draws {
        l.make_random_state();
    }
    if u.facts.may_fail
        && let Some(out) = u.target.stays_out(&u.e, entry.context)
    {
        let (leave, enter) = (l.new_block(c"stay.out"), l.new_block(c"enter"));
        u.e.cond_br(out, leave, enter);
        u.e.position(leave);
        u.target.return_from_task(&u.e, u.e.i32c(0));
        u.e.position(enter);
    }
    match parallel {
        None => {
            l.prepare_locals(|_, _| true);
            l.start_random_sequence(u.e.i64c(0));
            l.block(task.body.root);
        }
        Some((config, (v, loop_))) => {
            l.prepare_locals(|l, local| l.facts.is_used_before_loop(local));
            l.prologue();
            match (entry.share, variant) {
                (Share::Range { begin, end }, _) => l.parallel_for(v, loop_, config, begin, end),
                (Share::Strided, Variant::Strided(grouping, _, Some(scatter))) => {
                    l.blockwise_for(v, loop_, config, grouping, scatter);
                }
                (Share::Strided, Variant::Strided(grouping, ..)) => l.strided_for(v, loop_, config, grouping),
                _ => panic!("compiler bug: a form of a task that this target does not have"),
            }
        }
    }
    l.end_of_body();
    l.finish(start);
    entry.function
}

/// The extent of each axis, where it is known.
fn known_extents(body: &Body, locals: &LocalFacts, loop_: &ForLoop) -> Vec<Option<i64>> {
    let known = |v: ValueId| match body.as_const(locals.source(v)) {
        Some(Const::Int(n)) => Some(n),
        _ => None,
    };
    loop_.dims.iter().map(|d| Some(known(d.end)?.saturating_sub(known(d.begin)?).max(0))).collect()
}

/// The number of iterations, where it is known.
fn known_count(extents: &[Option<i64>]) -> Option<u64> {
    extents.iter().try_fold(1u64, |n, x| n.checked_mul((*x)? as u64))
}

/// Describes a task to the launcher; emits the function that counts its iterations where the launcher cannot.
fn lower_count(u: &Unit<'_>, task: &Task, config: &LoopConfig, symbol: String) -> ParallelMeta {
    let (_, loop_) = parallel_loop(task);
    let locals = LocalFacts::of(&task.body, Some(loop_.body));
    let extents = known_extents(&task.body, &locals, loop_);
    let bound = |v| bound_for_launcher(u.facts, &task.body, &locals, v);
    let axes: Vec<_> = loop_.dims.iter().map(|d| (bound(d.begin), bound(d.end))).collect();
    let computed = axes.iter().any(|(begin, end)| [begin, end].contains(&&Bound::Computed));
    ParallelMeta {
        count: known_count(&extents),
        axes,
        wide: None,
        serialize: config.serialize,
        block_dim: config.block_dim,
        num_threads: config.num_threads,
        inner_extent: if extents.len() > 1 { extents.last().copied().flatten().map(|n| n as u64) } else { None },
        scatter: None,
        block_sums: false,
        at_once: 1,
        cost_per_iteration: estimate_cost(&task.body, loop_.body, &u.program.functions),
        // On a device the code finds out.
        count_symbol: (computed && !u.target.shares_by_stride()).then(|| {
            emit_count(u, task, &symbol, locals);
            symbol
        }),
    }
}

fn emit_count(u: &Unit<'_>, task: &Task, symbol: &str, locals: LocalFacts) {
    let (function, context) = u.target.declare_count(&u.e, symbol);
    let mut l = Lowering::start(u, &task.body, BodyKind::Count, function, context, locals);
    let start = u.e.block();
    l.prepare_locals(|l, local| l.facts.is_used_before_loop(local));
    l.prologue();
    let dims = &parallel_loop(task).1.dims;
    u.e.ret(dims.iter().fold(u.e.i64c(1), |n, d| u.e.mul(n, l.axis(d.begin, d.end).trips)));
    l.finish(start);
}

/// A bound as the launcher can know it.
fn bound_for_launcher(facts: &Facts<'_>, body: &Body, locals: &LocalFacts, v: ValueId) -> Bound {
    let v = locals.source(v);
    let bound = |v| bound_for_launcher(facts, body, locals, v);
    let Some(scalar) = body.ty(v).scalar().filter(|s| s.is_int()) else { return Bound::Computed };
    let own = kind_of(scalar);
    let is_index = matches!(scalar, Scalar::I32 | Scalar::I64);
    match &body.inst(v).op {
        Op::Const(Const::Int(value)) => Bound::Known(*value),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if is_index => match (bound(*a), bound(*b), op) {
            (Bound::Slot(slot, kind, n), Bound::Known(m), BinaryOp::Add)
            | (Bound::Known(m), Bound::Slot(slot, kind, n), BinaryOp::Add)
                if kind == own =>
            {
                Bound::Slot(slot, kind, n.wrapping_add(m))
            }
            (Bound::Slot(slot, kind, n), Bound::Known(m), BinaryOp::Sub) if kind == own => {
                Bound::Slot(slot, kind, n.wrapping_sub(m))
            }
            _ => Bound::Computed,
        },
        Op::Cast(of) if is_index => match bound(*of) {
            // What does not get longer keeps its low bytes.
            Bound::Slot(slot, kind, n) if kind.bytes() >= own.bytes() => Bound::Slot(slot, own, n),
            Bound::Known(value) if scalar == Scalar::I32 => Bound::Known(i64::from(value as i32)),
            other => other,
        },
        Op::Shape(b, axis) => match (&facts.program.buffers[b.index()].layout, facts.args.buffers[b.index()]) {
            (Layout::Dense { shape, .. }, _) => Bound::Known(shape[*axis as usize] as i64),
            // An i32 is only asked for where the extent fits.
            (_, Some(slot)) => Bound::Slot(slot + 1 + *axis, own, 0),
            _ => Bound::Computed,
        },
        Op::Param(p) if matches!(body.ty(v), Type::Scalar(_)) => Bound::Slot(facts.args.params[*p as usize], own, 0),
        _ => Bound::Computed,
    }
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
    /// What stands before the parallel loop.
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
        self.prepare_locals(|l, local| !l.facts.is_used_before_loop(local));
        self.start_random_sequence(linear);
        self.indices.insert(v, indices);
        self.loops.push(targets);
        self.iteration_end = Some(targets.on_continue);
        self.block(l.body);
        self.iteration_end = None;
        self.loops.pop();
        self.indices.remove(&v);
    }
}
