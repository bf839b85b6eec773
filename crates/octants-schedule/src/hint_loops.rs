//! Hints to the optimizer for loops: unroll factors, limits on code size, and which parallel loops have independent
//! iterations.

use std::collections::{HashMap, HashSet};

use octants_analysis::{Place, trace_address};
use octants_ir::{BlockId, Body, CodeSizeHint, Effect, ForLoop, LoopHints, Op, Scheduled, Task, ValueId};

use crate::facts::ProgramFacts;
use crate::intra_iteration_dependence::has_intra_iteration_dependence;
use crate::prefetch::{has_many_threads, is_row, prefetch, unroll_sums};
use crate::schedule_task::{MANY_LOOPS, ParallelLoop, is_huge};
use crate::scheduling::Scheduling;
use crate::unroll_arrays::walks_short_arrays;
use octants_ir::schedule::TaskSchedule;

/// CPU tasks with more inner loops than this: interleaving and runtime unrolling of these loops are disabled. LLVM
/// would emit up to sixteen copies of each loop body, and remainder loops. That took a quarter of the compile time of a
/// rigid-body simulator's steps, and did not make them faster.
const LEAN_LOOPS: usize = 12;

/// Properties of a task or function that the hints for its serial loops depend on.
#[derive(Debug, Clone, Copy, Default)]
struct LoopContext {
    /// It has many inner loops.
    many_loops: bool,
    /// See [`LEAN_LOOPS`].
    lean_loops: bool,
    /// Many threads run it.
    many_threads: bool,
}

type Hints = HashMap<ValueId, LoopHints>;

/// Sets the hints of all loops in the variants of tasks and in functions.
pub(crate) fn hint_loops(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    for (task, found) in program.tasks.iter().zip(&mut schedule.tasks) {
        let hints = hints_of_task(&facts, task, found);
        found.variants.iter_mut().for_each(|variant| set_hints(&mut variant.body, &hints));
    }
    let of_function = |body: &Body| {
        let mut hints = Hints::new();
        hint_block(&facts, LoopContext::default(), body, body.root, &mut hints);
        hints
    };
    let hints: Vec<Hints> = program.functions.iter().map(|f| of_function(&f.body)).collect();
    for (function, hints) in program.functions.iter_mut().zip(hints) {
        set_hints(&mut function.body, &hints);
    }
}

fn set_hints(body: &mut Body, hints: &Hints) {
    for (v, hints) in hints {
        if let Op::For(l) = &mut body.inst_mut(*v).op {
            l.hints = *hints;
        }
    }
}

fn hints_of_task(facts: &ProgramFacts<'_>, task: &Task, found: &TaskSchedule) -> Hints {
    let (target, body) = (facts.target, &task.body);
    let loops = body.insts.iter().filter(|i| matches!(i.op, Op::For(_))).count();
    let parallel = ParallelLoop::of(task);
    let around = LoopContext {
        many_loops: loops > MANY_LOOPS,
        lean_loops: target.has_vectors && loops > LEAN_LOOPS,
        many_threads: parallel.is_some_and(|p| has_many_threads(p.of, found.count())),
    };
    let mut hints = Hints::new();
    hint_block(facts, around, body, body.root, &mut hints);
    if let Some(p) = parallel {
        let is_independent = match target.has_grid {
            true => !found.behavior.cooperates,
            false => target.has_vectors && !has_intra_iteration_dependence(facts, body, p.of.body),
        };
        let independent = is_independent && !p.config.serialize;
        let no_vectors = is_huge(target, found.behavior);
        let is_unrolled = target.has_grid && !target.unrolls_parallel_loops && !found.behavior.cooperates;
        let unroll = if is_unrolled { unroll_sums(facts.costs(), body, p.of) } else { None };
        hints.insert(p.loop_id, LoopHints { unroll, independent, no_vectors, ..LoopHints::default() });
    }
    hints
}

/// Hints for the serial loops of a block.
fn hint_block(facts: &ProgramFacts<'_>, around: LoopContext, body: &Body, block: BlockId, hints: &mut Hints) {
    body.visit(block, &mut |v, inst| {
        if let Op::For(l) = &inst.op
            && l.parallel.is_none()
        {
            hints.insert(v, hints_of_loop(facts, around, body, l));
        }
    });
}

fn hints_of_loop(facts: &ProgramFacts<'_>, around: LoopContext, body: &Body, l: &ForLoop) -> LoopHints {
    let target = facts.target;
    if l.hints.code_size == CodeSizeHint::VectorsFirst {
        // A loop over threads.
        let independent = l.hints.independent && !has_intra_iteration_dependence(facts, body, l.body);
        return LoopHints { independent, ..l.hints };
    }
    let code_size = match () {
        () if target.has_grid && walks_short_arrays(body, l) => CodeSizeHint::UnrollFully,
        () if around.lean_loops => CodeSizeHint::Lean,
        () if around.many_loops => CodeSizeHint::NotUnrolledUncounted,
        () => CodeSizeHint::None,
    };
    let is_cut = target.has_grid && target.waits_for_loads && !around.many_loops;
    let unroll = if is_cut { prefetch(facts.costs(), body, l, around.many_threads) } else { None };
    let masked = target.has_vectors && is_short_row(body, l);
    LoopHints { unroll, code_size, masked, ..LoopHints::default() }
}

/// An innermost loop over a row whose bounds are read from memory, which is likely to be short: it visits neighbors, or
/// the elements of a row of a sparse matrix. It stores nothing but locals: LLVM 22 moves masked loads after stores
/// (`freeze_conditional_loads`). Sums of adjacent elements are left to interleaved vectors, as their rows may be long.
fn is_short_row(body: &Body, l: &ForLoop) -> bool {
    let (mut only_sums, mut branches, mut inside) = (l.dims.len() == 1 && is_row(body, l), false, HashSet::new());
    let mut reads_indices = false;
    body.visit(l.body, &mut |v, inst| {
        let of_inside = |u: ValueId| inside.contains(&u);
        match inst.op.effect() {
            Effect::Write(at) => only_sums &= matches!(trace_address(body, at), Place::Local(_)),
            Effect::Branch(..) => branches = true,
            Effect::Read(at) => {
                if !matches!(trace_address(body, at), Place::Local(_)) {
                    reads_indices |= of_inside(at);
                    inside.insert(v);
                }
            }
            Effect::Pure | Effect::Index => {
                let mut follows = false;
                inst.op.for_each_operand(|u| follows |= of_inside(u));
                inside.extend(follows.then_some(v));
            }
            _ => only_sums = false,
        }
    });
    only_sums && (branches || reads_indices)
}
