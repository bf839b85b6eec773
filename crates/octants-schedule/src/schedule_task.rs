//! [`schedule_task`]: the schedule of a task, its variants and its loops.

use octants_analysis::{OwnBehavior, launch_bound};
use octants_ir::schedule::{
    Behavior, BodySchedule, CopyMerge, Forms, LaunchShape, Role, TaskHints, TaskSchedule, Variant,
};
use octants_ir::{Body, Buffer, ForLoop, LoopConfig, Op, TargetInfo, Task, TaskKind, ValueId};

use crate::facts::{BodyFacts, ProgramFacts};
use crate::find_coarsening::find_coarsening;
use crate::prefetch::reads_in_loops;
use crate::scatter_privatization::{privatize_scatter, privatize_small_scatter};

/// Tasks with more instructions than this are large: their compile time matters more.
const LARGE: usize = 800;

/// Tasks with more instructions than this are not vectorized: LLVM's planning time is quadratic in the size of a loop.
const HUGE: usize = 5000;

/// In tasks with more inner loops than this, a loop is unrolled only if its trip count is known: LLVM's insertion of
/// remainder loops is quadratic in the number of loops.
pub(crate) const MANY_LOOPS: usize = 100;

/// Atomics are rare below one per this many instructions.
const RARE: usize = 64;

/// Scalars per group when copies are merged: a cache line of 32-bit scalars.
const MERGED_LANES: u32 = 16;

/// Maximum size of a task with two variants: for arrays that fit into shared memory, and for others.
const MAX_DUPLICATED: usize = 200;

/// A parallel task's loop.
#[derive(Clone, Copy)]
pub(crate) struct ParallelLoop<'p> {
    pub config: &'p LoopConfig,
    pub loop_id: ValueId,
    pub of: &'p ForLoop,
}

impl<'p> ParallelLoop<'p> {
    /// The loop of a task, if it has one.
    pub fn of(task: &'p Task) -> Option<ParallelLoop<'p>> {
        let TaskKind::Parallel(config) = &task.kind else { return None };
        let last = task.body.block(task.body.root).last().copied();
        match last.map(|v| (v, &task.body.inst(v).op)) {
            Some((loop_id, Op::For(of))) => Some(ParallelLoop { config, loop_id, of }),
            _ => panic!("compiler bug: the parallel task {} does not end in a loop", task.name),
        }
    }
}

/// See [`HUGE`].
pub(crate) fn is_huge(target: &TargetInfo, behavior: Behavior) -> bool {
    target.has_vectors && behavior.size > HUGE
}

/// Decides how a task runs.
pub(crate) fn schedule_task(facts: &ProgramFacts<'_>, task: &Task, own: &OwnBehavior) -> TaskSchedule {
    let target = facts.target;
    let parallel = ParallelLoop::of(task);
    // A function counts once for each direct call.
    let behavior = own.with(own.called().map(|f| facts.behaviors[f.index()]));
    let of_body = BodyFacts::new(facts, &task.body);
    let mut found = TaskSchedule {
        behavior,
        size: own.behavior.size,
        functions: own.reached(&facts.own),
        constants: constants(facts, task),
        ..TaskSchedule::default()
    };
    if let Some(p) = parallel {
        let bound = |v| launch_bound(&facts.program.buffers, &task.body, &of_body.locals, v);
        found.bounds = p.of.dims.iter().map(|d| (bound(d.begin), bound(d.end))).collect();
        found.extents = known_extents(&of_body, p.of);
        found.cost_per_iteration = facts.costs().time(&task.body, p.of.body, &facts.program.functions);
    }
    let shared = parallel.filter(|p| !p.config.serialize);
    let is_read = |p: ParallelLoop<'_>| reads_in_loops(&task.body, p.of.body);
    found.hints = TaskHints {
        narrow_vectors: target.has_vectors && behavior.size > LARGE,
        prefetches: target.has_grid && !behavior.balances && parallel.is_some_and(is_read),
        many_threads: target.has_grid && behavior.balances,
        shares_tiles: false,
    };
    found.forms = find_forms(&of_body, task, shared, &found);
    found.body = BodySchedule { locals: of_body.locals };
    found.variants = make_variants(task, &found);
    found
}

/// The body has more loops than [`MANY_LOOPS`].
pub(crate) fn has_many_loops(body: &Body) -> bool {
    body.insts.iter().filter(|i| matches!(i.op, Op::For(_))).count() > MANY_LOOPS
}

/// The variants of a task's code, each with its own body.
fn make_variants(task: &Task, found: &TaskSchedule) -> Vec<Variant> {
    let forms = &found.forms;
    let roles = [
        (Role::Main, true),
        (Role::SingleThread, forms.is_single_apart()),
        (Role::Private, forms.thread_privatization.is_some()),
        (Role::Coarse, forms.coarsening.is_some()),
    ];
    let make = |(role, _)| Variant {
        role,
        shape: LaunchShape::Range,
        body: task.body.clone(),
        schedule: BodySchedule::default(),
    };
    roles.into_iter().filter(|(_, exists)| *exists).map(make).collect()
}

/// The buffers that are constant while a task runs.
fn constants(facts: &ProgramFacts<'_>, task: &Task) -> Vec<bool> {
    let keeps = |i| !task.access.writes.iter().any(|w| facts.memory.may_alias(i, w.index()));
    // Access sets exclude memory that only the task's own threads use.
    let lasts = |(i, b): (usize, &Buffer)| !b.space.is_temporary() && keeps(i);
    facts.program.buffers.iter().enumerate().map(|b| facts.target.has_constant_loads && lasts(b)).collect()
}

/// The extent of each axis, if known.
fn known_extents(facts: &BodyFacts<'_>, of: &ForLoop) -> Vec<Option<i64>> {
    let extent = |begin, end| Some(facts.known(end)?.saturating_sub(facts.known(begin)?).max(0));
    of.dims.iter().map(|d| extent(d.begin, d.end)).collect()
}

/// The variants of a task's code. `shared` is the loop whose iterations are shared among threads, if any.
fn find_forms(of_body: &BodyFacts<'_>, task: &Task, shared: Option<ParallelLoop<'_>>, found: &TaskSchedule) -> Forms {
    let facts = of_body.of;
    let (target, behavior, options) = (facts.target, found.behavior, facts.options);
    let singles = options.single_thread_variants && !target.has_grid;
    let runs_alone = singles && matches!(task.kind, TaskKind::Serial);
    // A large task with few atomics does not gain enough to be compiled twice.
    let few = behavior.size > LARGE && behavior.atomics * RARE < behavior.size;
    let has_single = singles && behavior.atomics > 0 && !few && !runs_alone;
    let mut forms = Forms { runs_alone, has_single, ..Forms::default() };
    // Threads that cooperate run the iterations that the program expects them to.
    let Some(p) = shared.filter(|_| !behavior.cooperates) else { return forms };
    if behavior.atomics > 0 && target.private_bytes > 0 {
        forms.thread_privatization = privatize_scatter(facts, task, (p.loop_id, p.of.body));
        forms.copy_merge = CopyMerge { lanes: MERGED_LANES, is_atomic: options.concurrent_launches };
    }
    if behavior.atomics > 0 && target.shared_bytes > 0 {
        let arrays = behavior.size <= MAX_DUPLICATED;
        forms.block_privatization =
            privatize_small_scatter(facts, task, (p.loop_id, p.of.body), target.shared_bytes, arrays);
    }
    if target.has_grid && options.opt_level >= 2 {
        forms.coarsening = find_coarsening(facts.program, task, p.loop_id, found.count());
    }
    forms
}
