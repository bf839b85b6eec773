//! [`schedule_task`]: the schedule of a task, its forms and the loops in it.

use std::collections::HashMap;

use octants_analysis::{OwnBehavior, estimate_cost};
use octants_ir::schedule::{BodySchedule, Forms, LoopHint, LoopSchedule, Scatter, TaskHints, TaskSchedule};
use octants_ir::{BlockId, ForLoop, LoopConfig, Op, Task, TaskKind, ValueId};

use crate::facts::{BodyFacts, ProgramFacts};
use crate::find_alignment::find_alignment;
use crate::find_grouping::find_grouping;
use crate::find_jam::find_jams;
use crate::find_returns::returns_to_written;
use crate::find_scatter::{find_scatter, find_small_scatter};
use crate::find_short_loops::find_guarded;
use crate::hold_loads::loads_to_hold;
use crate::read_ahead::{find_unroll, has_many_threads, reads_in_loops};
use crate::unroll_arrays::walks_short_arrays;

/// Tasks of more instructions than this are large: the time it takes to compile them matters more.
const LARGE: usize = 800;

/// Loops of tasks of more instructions than this do not become vector code: the time that LLVM takes to plan it grows
/// with the square of the loop's size.
const HUGE: usize = 5000;

/// Where a task has more inner loops than this they are unrolled only if the number of their iterations is known:
/// whenever LLVM adds a loop for what is left over, it looks through what it knows of all of them.
const MANY_LOOPS: usize = 100;

/// CPU tasks with more inner loops than this: interleaving and runtime unrolling of these loops are disabled. LLVM
/// would emit up to sixteen copies of each loop body, and remainder loops. That took a quarter of the compile time of a
/// rigid-body simulator's steps, and did not make them faster.
const LEAN_LOOPS: usize = 12;

/// Atomics are rare below one per this many instructions.
const RARE: usize = 64;

/// Longest task that is worth having twice: for arrays that fit into a block's memory, and for others.
const LONGEST_TWICE: usize = 200;

/// A parallel task's loop.
#[derive(Clone, Copy)]
struct ParallelLoop<'p> {
    config: &'p LoopConfig,
    number: ValueId,
    of: &'p ForLoop,
}

impl<'p> ParallelLoop<'p> {
    fn of(task: &'p Task) -> Option<ParallelLoop<'p>> {
        let TaskKind::Parallel(config) = &task.kind else { return None };
        let last = task.body.block(task.body.root).last().copied();
        match last.map(|v| (v, &task.body.inst(v).op)) {
            Some((number, Op::For(of))) => Some(ParallelLoop { config, number, of }),
            _ => panic!("compiler bug: the parallel task {} does not end in a loop", task.name),
        }
    }
}

/// What a task, or a function, is for the loops in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoopFacts<'a> {
    /// It has many inner loops.
    pub many_loops: bool,
    /// See [`LEAN_LOOPS`].
    pub lean_loops: bool,
    /// Many threads run it.
    pub many_threads: bool,
    /// What blocks of threads have copies of, in a form of it.
    pub copied: Option<&'a Scatter>,
}

/// Decides how a task runs.
pub(crate) fn schedule_task(facts: &ProgramFacts<'_>, task: &Task, own: &OwnBehavior) -> TaskSchedule {
    let target = facts.target;
    let parallel = ParallelLoop::of(task);
    // What several of its functions call is a task's as many times.
    let behavior = own.with(own.called().map(|f| facts.behaviors[f.index()]));
    let of_body = BodyFacts::new(facts, &task.body, parallel.map(|p| p.of.body));
    let mut found = TaskSchedule {
        behavior,
        size: own.behavior.size,
        functions: own.reached(&facts.own),
        constants: constants(facts, task),
        ..TaskSchedule::default()
    };
    let mut many_threads = false;
    if let Some(p) = parallel {
        found.extents = known_extents(&of_body, p.of);
        found.cost_per_iteration = estimate_cost(&task.body, p.of.body, &facts.program.functions);
        many_threads = has_many_threads(p.of, found.count());
    }
    let shared = parallel.filter(|p| !p.config.serialize);
    let is_read = |p: ParallelLoop<'_>| reads_in_loops(&task.body, p.of.body);
    found.hints = TaskHints {
        narrow_vectors: target.has_vectors && behavior.size > LARGE,
        no_vectors: target.has_vectors && behavior.size > HUGE,
        independent: target.has_vectors && shared.is_some_and(|p| !returns_to_written(facts, &task.body, p.of.body)),
        loads_ahead: target.has_grid && !behavior.balances && parallel.is_some_and(is_read),
        many_threads: target.has_grid && behavior.balances,
    };
    found.forms = find_forms(&of_body, task, shared, &found);
    let mut body = BodySchedule::default();
    if target.has_vectors {
        body.held = loads_to_hold(facts, &task.body, false);
    }
    let loops = task.body.insts.iter().filter(|i| matches!(i.op, Op::For(_))).count();
    let of_loops = LoopFacts {
        many_loops: loops > MANY_LOOPS,
        lean_loops: target.has_vectors && loops > LEAN_LOOPS,
        many_threads,
        copied: found.forms.in_blocks.as_ref(),
    };
    schedule_loops(&of_body, of_loops, task.body.root, &mut body.loops);
    body.locals = of_body.locals;
    found.body = body;
    found
}

/// Which buffers keep their contents while a task runs.
fn constants(facts: &ProgramFacts<'_>, task: &Task) -> Vec<bool> {
    let keeps = |i| !task.access.writes.iter().any(|w| facts.may_be_same(i, w.index()));
    (0..facts.program.buffers.len()).map(|i| facts.target.has_constant_loads && keeps(i)).collect()
}

/// The extent of each axis, where it is known.
fn known_extents(facts: &BodyFacts<'_>, of: &ForLoop) -> Vec<Option<i64>> {
    let extent = |begin, end| Some(facts.known(end)?.saturating_sub(facts.known(begin)?).max(0));
    of.dims.iter().map(|d| extent(d.begin, d.end)).collect()
}

/// The forms of a task's code; `shared` is the loop whose iterations threads share, if it has one.
fn find_forms(of_body: &BodyFacts<'_>, task: &Task, shared: Option<ParallelLoop<'_>>, found: &TaskSchedule) -> Forms {
    let facts = of_body.of;
    let (target, behavior, options) = (facts.target, found.behavior, facts.options);
    let singles = options.single_thread_variants && !target.has_grid;
    let runs_alone = singles && matches!(task.kind, TaskKind::Serial);
    // Code without atomics is not worth the time that compiling the task a second time takes where a large task has
    // few.
    let few = behavior.size > LARGE && behavior.atomics * RARE < behavior.size;
    let has_single = singles && behavior.atomics > 0 && !few && !runs_alone;
    let mut forms = Forms { runs_alone, has_single, ..Forms::default() };
    let Some(p) = shared else { return forms };
    if behavior.atomics > 0 && target.private_bytes > 0 {
        forms.scatter = find_scatter(facts, task, p.of.body);
    }
    if behavior.atomics > 0 && target.shared_bytes > 0 {
        let arrays = behavior.size <= LONGEST_TWICE;
        forms.in_blocks = find_small_scatter(facts, task, p.of.body, target.shared_bytes, arrays);
    }
    if target.has_grid && options.opt_level >= 2 {
        forms.grouping = find_grouping(facts.program, task, p.number, found.count());
    }
    if !target.has_grid && options.opt_level >= 2 && !found.hints.no_vectors {
        let [jam, alone] = find_jams(of_body, p.number, p.of);
        let is_run_alone = forms.has_single || forms.scatter.is_some();
        (forms.jam, forms.jam_alone) = (jam, alone.filter(|_| is_run_alone));
    }
    forms
}

/// Decides how the loops in order of a block run.
pub(crate) fn schedule_loops(
    facts: &BodyFacts<'_>,
    of: LoopFacts<'_>,
    block: BlockId,
    loops: &mut HashMap<ValueId, LoopSchedule>,
) {
    for &v in facts.body.block(block) {
        let op = &facts.body.inst(v).op;
        let mut inside = of;
        if let Op::For(l) = op
            && l.parallel.is_none()
        {
            let found = schedule_loop(facts, of, v, l);
            // Inside of an aligned loop none is aligned.
            inside.copied = of.copied.filter(|_| found.alignment.is_none());
            if found != LoopSchedule::default() {
                loops.insert(v, found);
            }
        }
        op.blocks().into_iter().for_each(|b| schedule_loops(facts, inside, b, loops));
    }
}

fn schedule_loop(facts: &BodyFacts<'_>, of: LoopFacts<'_>, v: ValueId, l: &ForLoop) -> LoopSchedule {
    let (body, target) = (facts.body, facts.of.target);
    let hint = match () {
        () if target.has_grid && walks_short_arrays(body, l) => LoopHint::UnrollFully,
        () if of.lean_loops => LoopHint::Lean,
        () if of.many_loops => LoopHint::NotUnrolledUncounted,
        () => LoopHint::None,
    };
    let is_cut = target.has_grid && !of.many_loops;
    let times = if is_cut { find_unroll(body, l, of.many_threads) } else { None };
    let alignment = of.copied.and_then(|copied| find_alignment(facts, copied, v, l, times.map_or(1, |t| t.times)));
    LoopSchedule {
        unroll: times.filter(|_| target.waits_for_loads),
        hint,
        guarded: if is_cut { find_guarded(facts, l) } else { None },
        alignment: alignment.map(Box::new),
    }
}
