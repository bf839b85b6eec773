//! Finds races between iterations of parallel loops, and between sections: two iterations or sections touch one
//! element, and at least one changes it other than by an atomic update.
//!
//! A race is proved by a witness. For the arguments of a launch, selected iterations are evaluated on integers: the
//! first ones, the last ones, and those at the distance of two accesses. Values loaded from memory are unknown, and so
//! is anything under a condition on them. Only certain accesses count, so there are no false positives. Data-dependent
//! races are left to the run-time checks.
//!
//! It is not a race if all iterations store the same value: a constant, or a value computed in the same way from memory
//! that the loop does not write.
//!
//! The same evaluation finds the elements that a launch certainly touches, for races between launches. There, values in
//! memory may be known too.
//!
//! Reading order: `value`, `flow`, `observed`, `shared_locals`, `run_iteration`, `choose_iterations`, `race_sections`.

mod choose_iterations;
mod flow;
mod observed;
mod race_sections;
mod run_iteration;
mod shared_locals;
mod value;

use std::collections::{BTreeSet, HashMap, HashSet};

use octants_analysis::{Place, body_effects, function_effects, runs_once, trace_address, unproved_buffers};
use octants_diag::Span;
use octants_ir::{BlockId, BufferId, Const, Effect, ForLoop, Kernel, LocalId, Op, ValueId, task_blocks};

use crate::demote_atomics::demote_shadow_atomics;
use crate::fold_constants::fold_constants;
use crate::inline_calls::inline_calls;
use crate::make_updates_atomic::make_updates_atomic;
use crate::merge_aliased_buffers::merge_aliased_buffers;
use crate::pass_options::PassOptions;
use crate::simplify_locals::simplify_locals;
use choose_iterations::{ROUNDS, choose_iterations};
use flow::Flow;
use observed::Observed;
use run_iteration::Run;
pub(crate) use shared_locals::locals_shared_by;
use shared_locals::{SharedLocal, name_locals};

/// The arguments of a launch.
pub trait LaunchValues {
    /// A scalar of a parameter; `None` if unknown.
    fn param(&self, param: u32, leaf: u32) -> Option<Const>;

    /// How many indices an axis of an array has.
    fn extent(&self, buffer: BufferId, axis: u32) -> Option<i64>;

    /// The address of an array's first element; equal ones are the same memory.
    fn address(&self, buffer: BufferId) -> Option<u64>;

    /// The bytes from an index of an axis to the next one, for an array with strides.
    fn stride(&self, buffer: BufferId, axis: u32) -> Option<i64>;

    /// The present value of a scalar of an element, by its number among the element's scalars; `None` if unknown.
    fn load(&self, _buffer: BufferId, _index: &[i64], _leaf: usize) -> Option<Const> {
        None
    }

    /// The address of a scalar of an element; `None` if unknown.
    fn locate(&self, _buffer: BufferId, _index: &[i64], _leaf: usize) -> Option<u64> {
        None
    }

    /// Whether two buffers may be the same memory.
    fn overlap(&self, _: BufferId, _: BufferId) -> bool {
        false
    }
}

/// An access of an iteration to an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// It reads it.
    Reads,
    /// It writes it.
    Writes,
    /// It updates it atomically.
    Updates,
}

/// One of two iterations that race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RacingIteration {
    /// The kind of access.
    pub doing: Doing,
    /// Where.
    pub span: Span,
    /// Its indices.
    pub iteration: Vec<i64>,
}

/// What races.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaceBetween {
    /// Iterations of a parallel loop.
    Iterations,
    /// Blocks of `stream_parallel`.
    Blocks,
    /// Sections of a `graph.parallel_context`.
    Sections,
}

/// Two iterations of a parallel loop that race, or two sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IterationRace {
    /// The user's name of the array or field.
    pub buffer: String,
    /// The element.
    pub index: Vec<i64>,
    /// The earlier access in the text.
    pub first: RacingIteration,
    /// The later one.
    pub second: RacingIteration,
    /// The loop.
    pub of_loop: Span,
    /// What races.
    pub between: RaceBetween,
}

/// An element that a launch certainly touches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TouchedElement {
    /// The array or field.
    pub buffer: BufferId,
    /// The element.
    pub index: Vec<i64>,
    /// The part of it, by positions of components.
    pub path: Vec<i64>,
    /// The kind of access.
    pub doing: Doing,
    /// Where.
    pub span: Span,
}

/// A kernel in which races are looked for.
pub struct RaceSearch {
    kernel: Kernel,
    /// Loops that are not proved safe.
    loops: HashSet<ValueId>,
    /// Buffers of the kernel. Those after them are not memory, and have the names of locals.
    own_buffers: usize,
    /// For each of these loops the kernel's locals that its iterations share.
    shared: HashMap<ValueId, HashMap<LocalId, SharedLocal>>,
    /// Groups that are allowed to conflict with others.
    overlap_allowed: BTreeSet<u32>,
    /// Integers in the code, near which iterations may be special.
    numbers: Vec<i64>,
}

/// Instructions that are run for one loop, at most.
const MOST_STEPS: u32 = 400_000;
/// The same if all iterations are run.
const MOST_STEPS_OF_ALL: u32 = 4_000_000;
/// Integers of a kernel near which iterations are run.
const MOST_NUMBERS: usize = 32;

impl RaceSearch {
    /// The search for a kernel of the front end.
    pub fn of(kernel: &Kernel, overlap_allowed: &BTreeSet<u32>) -> RaceSearch {
        let mut kernel = kernel.clone();
        merge_aliased_buffers(&mut kernel, &[]);
        inline_calls(&mut kernel);
        simplify_locals(&mut kernel);
        fold_constants(&mut kernel, false);
        make_updates_atomic(&mut kernel);
        // The code of a gradient has these as loads and stores.
        demote_shadow_atomics(&mut kernel, &PassOptions::default());
        let body = &kernel.body;
        let functions = function_effects(&kernel.functions);
        let arrays_written = {
            let effects = body_effects(body, &functions);
            let is_array =
                |b: &&BufferId| !matches!(kernel.buffers[b.index()].layout, octants_ir::Layout::Dense { .. });
            effects.access.writes.iter().filter(is_array).count() > 0 && kernel.buffers.len() > 1
        };
        let (mut loops, mut shared) = (HashSet::new(), HashMap::new());
        for v in task_blocks(body).into_iter().flat_map(|b| body.block(b).iter().copied()) {
            let Op::For(l) = &body.inst(v).op else { continue };
            if l.is_parallel() && !is_on_one_thread(l) && !runs_once(body, l) && !cooperates(&kernel, l.body) {
                let locals = locals_shared_by(body, v, l);
                if !locals.is_empty() {
                    loops.insert(v);
                    shared.insert(v, locals);
                }
                let unproved = unproved_buffers(body, v, &functions);
                let of = |b: &BufferId| &kernel.buffers[b.index()];
                let is_memory = |b: &BufferId| !of(b).space.is_temporary() && !of(b).is_metadata;
                // Two arrays may be one.
                if arrays_written || unproved.iter().any(is_memory) {
                    loops.insert(v);
                }
            }
        }
        let own_buffers = kernel.buffers.len();
        let shared = name_locals(&mut kernel, shared);
        let numbers = numbers_of(&kernel.body);
        RaceSearch { kernel, loops, own_buffers, shared, overlap_allowed: overlap_allowed.clone(), numbers }
    }

    /// Whether no loop can have a race for any arguments, if distinct arrays do not overlap.
    pub fn is_safe(&self) -> bool {
        self.loops.is_empty() && !self.has_groups()
    }

    /// The name of a buffer.
    pub fn name_of(&self, buffer: BufferId) -> &str {
        &self.kernel.buffers[buffer.index()].name
    }

    /// The buffers of the kernel.
    pub fn buffers(&self) -> &[octants_ir::Buffer] {
        &self.kernel.buffers
    }

    /// Parameters that affect only values stored to arrays and fields.
    pub fn params_only_stored(&self) -> Vec<u32> {
        let body = &self.kernel.body;
        let mut decides: HashSet<ValueId> = HashSet::new();
        let mut open: Vec<ValueId> = Vec::new();
        body.visit(body.root, &mut |_, inst| match &inst.op {
            Op::Store(a, value) | Op::Atomic(_, a, value) => {
                open.push(*a);
                if !matches!(trace_address(body, *a), Place::Buffer(_)) {
                    open.push(*value);
                }
            }
            op if op.effect() != Effect::Pure || !op.blocks().is_empty() => op.for_each_operand(|u| open.push(u)),
            _ => {}
        });
        while let Some(v) = open.pop() {
            if decides.insert(v) {
                body.inst(v).op.for_each_operand(|u| open.push(u));
            }
        }
        let decides = |p: u32| decides.iter().any(|v| body.inst(*v).op == Op::Param(p));
        (0..self.kernel.params.len() as u32).filter(|p| !decides(*p)).collect()
    }

    /// The races of a launch, at most one for each loop and buffer.
    pub fn find(&self, launch: &dyn LaunchValues) -> Vec<IterationRace> {
        let mut run = Run::new(&self.kernel, launch);
        let mut found = Vec::new();
        self.walk(self.kernel.body.root, &mut run, &mut found);
        found
    }

    /// Elements that a launch certainly touches: those of the first and the last iterations of each loop, and those
    /// with indices near given numbers.
    pub fn touches(&self, launch: &dyn LaunchValues, near: &[i64]) -> Vec<TouchedElement> {
        let mut run = Run::new(&self.kernel, launch);
        let mut observed = Observed::of_touches(near);
        self.walk_touches(self.kernel.body.root, &mut run, &mut observed);
        let mut found: HashMap<TouchedElement, ()> = HashMap::new();
        for seen in observed.all().iter().filter(|seen| seen.buffer.index() < self.own_buffers) {
            found.insert(TouchedElement::of(seen), ());
        }
        let mut found: Vec<TouchedElement> = found.into_keys().collect();
        found.sort_by(|a, b| {
            (a.span.start, &a.index, &a.path, a.doing).cmp(&(b.span.start, &b.index, &b.path, b.doing))
        });
        found
    }

    /// All elements that a launch certainly touches, up to a limit. `launch` knows what is in memory.
    pub fn all_touches(&self, launch: &dyn LaunchValues) -> Vec<TouchedElement> {
        let mut run = Run::new(&self.kernel, launch);
        run.run_all();
        let mut observed = Observed::of_all_touches();
        self.walk_touches(self.kernel.body.root, &mut run, &mut observed);
        let own = observed.all().iter().filter(|seen| seen.buffer.index() < self.own_buffers);
        own.map(TouchedElement::of).collect()
    }

    /// Whether values in memory may decide which elements a launch touches.
    pub fn depends_on_memory(&self) -> bool {
        let body = &self.kernel.body;
        let (mut decides, mut open) = (HashSet::new(), Vec::new());
        body.visit(body.root, &mut |_, inst| match &inst.op {
            Op::Load(a) | Op::Store(a, _) | Op::Atomic(_, a, _) => open.push(*a),
            op if op.effect() != Effect::Pure || !op.blocks().is_empty() => op.for_each_operand(|u| open.push(u)),
            _ => {}
        });
        while let Some(v) = open.pop() {
            if !decides.insert(v) {
                continue;
            }
            match &body.inst(v).op {
                // A local may hold what was loaded before.
                Op::Load(_) | Op::Call(..) => return true,
                op => op.for_each_operand(|u| open.push(u)),
            }
        }
        false
    }

    fn walk_touches(&self, block: BlockId, run: &mut Run<'_>, observed: &mut Observed) {
        for &v in self.kernel.body.block(block) {
            if !self.touch(v, run, observed) {
                return;
            }
        }
    }

    /// Runs a loop, or a statement that contains loops. Returns false if later statements do not run.
    fn touch(&self, v: ValueId, run: &mut Run<'_>, observed: &mut Observed) -> bool {
        match &self.kernel.body.inst(v).op {
            Op::For(l) => {
                self.run_loop(v, l, run, observed);
                run.forget_stores(l.body);
            }
            Op::Loop(inner) => {
                run.forget_stores(*inner);
                self.walk_touches(*inner, run, observed);
                run.forget_stores(*inner);
                run.lose_stores(*inner);
            }
            Op::If(c, yes, no) => {
                if let Some(taken) = run.truth(*c) {
                    self.walk_touches(if taken { *yes } else { *no }, run, observed);
                } else {
                    run.lose_stores(*yes);
                    run.lose_stores(*no);
                }
                run.forget_stores(*yes);
                run.forget_stores(*no);
            }
            Op::Break | Op::Continue | Op::Return(_) => return false,
            _ => {
                run.steps_left = MOST_STEPS;
                return run.step_observed(v, observed) == Flow::Next;
            }
        }
        true
    }

    /// Runs the code around loops, and the loops.
    fn walk(&self, block: BlockId, run: &mut Run<'_>, found: &mut Vec<IterationRace>) {
        let body = &self.kernel.body;
        found.extend(self.races_of_groups(block, run));
        for &v in body.block(block) {
            match &body.inst(v).op {
                Op::For(l) if self.loops.contains(&v) => {
                    found.extend(self.races_of(v, l, run));
                    run.forget_stores(l.body);
                }
                Op::For(l) => run.forget_stores(l.body),
                Op::Loop(inner) => {
                    // The first round runs.
                    run.forget_stores(*inner);
                    self.walk(*inner, run, found);
                    run.forget_stores(*inner);
                }
                Op::If(c, yes, no) => {
                    if let Some(taken) = run.truth(*c) {
                        self.walk(if taken { *yes } else { *no }, run, found);
                    }
                    run.forget_stores(*yes);
                    run.forget_stores(*no);
                }
                Op::Break | Op::Continue | Op::Return(_) => return,
                _ => {
                    run.steps_left = MOST_STEPS;
                    if run.step(v) != Flow::Next {
                        return;
                    }
                }
            }
        }
    }

    fn races_of(&self, v: ValueId, l: &ForLoop, run: &mut Run<'_>) -> Vec<IterationRace> {
        let mut observed = Observed::default();
        self.run_loop(v, l, run, &mut observed);
        observed.races(&self.kernel, self.kernel.body.inst(v).span)
    }

    fn run_loop(&self, v: ValueId, l: &ForLoop, run: &mut Run<'_>, observed: &mut Observed) {
        let Some(ranges) = run.ranges(l) else { return run.lose_stores(l.body) };
        if ranges.iter().any(|(begin, end)| begin >= end) {
            return;
        }
        run.begin_loop(v, l, self.shared.get(&v).cloned().unwrap_or_default());
        observed.begin_loop();
        if run.runs_all {
            self.run_all_iterations(v, l, &ranges, run, observed);
            return run.end_loop();
        }
        let numbers: Vec<i64> = self.numbers.iter().copied().chain(run.integer_params()).collect();
        let mut tried: BTreeSet<Vec<i64>> = BTreeSet::new();
        run.steps_left = MOST_STEPS;
        for round in 0..ROUNDS {
            for iteration in choose_iterations(&ranges, observed, &numbers, round) {
                if run.steps_left == 0 {
                    break;
                }
                if tried.insert(iteration.clone()) {
                    run.run_iteration(v, l, iteration, observed);
                }
            }
        }
        run.end_loop();
    }

    fn run_all_iterations(
        &self,
        v: ValueId,
        l: &ForLoop,
        ranges: &[(i64, i64)],
        run: &mut Run<'_>,
        observed: &mut Observed,
    ) {
        run.steps_left = MOST_STEPS_OF_ALL;
        let mut at: Vec<i64> = ranges.iter().map(|range| range.0).collect();
        while run.steps_left > 0 {
            run.run_iteration(v, l, at.clone(), observed);
            let mut axis = ranges.len();
            loop {
                let Some(inner) = axis.checked_sub(1) else { return };
                axis = inner;
                at[axis] += 1;
                if at[axis] < ranges[axis].1 {
                    break;
                }
                at[axis] = ranges[axis].0;
            }
        }
        run.lose_stores(l.body);
    }
}

/// The integers in the code, without the smallest ones.
fn numbers_of(body: &octants_ir::Body) -> Vec<i64> {
    let mut found = BTreeSet::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::Const(Const::Int(n)) = inst.op
            && n.unsigned_abs() > 2
        {
            found.insert(n);
        }
    });
    found.into_iter().take(MOST_NUMBERS).collect()
}

fn is_on_one_thread(l: &ForLoop) -> bool {
    l.parallel.as_ref().is_some_and(|c| c.num_threads == Some(1))
}

/// Whether threads synchronize, or exchange values other than through memory.
fn cooperates(kernel: &Kernel, block: BlockId) -> bool {
    let mut found = false;
    let mut look = |inst: &octants_ir::Inst| {
        found |= matches!(inst.op.effect(), Effect::Synchronize | Effect::Exchange | Effect::ReadVolatile(_));
    };
    kernel.body.visit(block, &mut |_, inst| look(inst));
    for f in &kernel.functions {
        f.body.visit(f.body.root, &mut |_, inst| look(inst));
    }
    found
}
