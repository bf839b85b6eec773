//! Full unrolling of short inner loops. The loop's index is a constant in each iteration.
//!
//! In strip-mined loops of a gradient, the iterations of a strip are guarded, because the last strip may be partial.
//! GPUs get a second version for warps in which all threads have full strips. It has no branches, so adjacent elements
//! are loaded together and the two loops share common subexpressions.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use octants_analysis::{local_uses, may_leave};
use octants_ir::{BinaryOp, BlockId, Body, Builder, Const, ForLoop, Op, Scheduled, SubgroupOp, Type, ValueId};

use crate::clone_code::{Cloner, Hook, plainly, remove_unused};
use crate::facts::{BodyFacts, ProgramFacts};
use crate::schedule_task::has_many_loops;
use crate::scheduling::Scheduling;

/// Maximum trip count of an unrolled loop.
const MAX_ITERATIONS: i64 = 8;
/// Maximum number of instructions of all unrolled loops.
const MAX_INSTRUCTIONS: usize = 2000;

/// A loop that may be fully unrolled.
pub(crate) struct ShortLoop {
    pub loop_id: ValueId,
    pub body: BlockId,
    pub indices: Range<i64>,
}

impl ShortLoop {
    /// Its trip count.
    pub fn trips(&self) -> usize {
        (self.indices.end - self.indices.start) as usize
    }
}

/// Fully unrolled inner loops. The index is a constant in each copy of the body.
pub(crate) struct FullUnroll {
    /// The index range of each loop.
    pub loops: HashMap<ValueId, Range<i64>>,
    /// The condition of all branches in the loops.
    pub guard: Option<Guard>,
}

/// The condition `index < bound` under which the iterations of unrolled loops run.
pub(crate) struct Guard {
    /// The comparisons.
    pub conditions: HashSet<ValueId>,
    pub bound: ValueId,
    /// Largest index that is compared. Not negative.
    pub largest_index: i64,
}

/// Unrolls guarded short loops in serial loops, in the variants of tasks and in functions.
pub(crate) fn full_unroll(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    let mut bodies: Vec<Body> = program.functions.iter().map(|f| f.body.clone()).collect();
    bodies.iter_mut().for_each(|body| unroll_in_body(&facts, body));
    for (task, schedule) in program.tasks.iter().zip(&mut schedule.tasks) {
        if has_many_loops(&task.body) {
            continue;
        }
        for variant in &mut schedule.variants {
            unroll_in_body(&facts, &mut variant.body);
        }
    }
    for (function, body) in program.functions.iter_mut().zip(bodies) {
        function.body = body;
    }
}

fn unroll_in_body(facts: &ProgramFacts<'_>, body: &mut Body) {
    let of_body = BodyFacts::new(facts, body);
    let mut plans = Vec::new();
    plan_in_block(&of_body, body.root, None, &mut plans);
    if plans.is_empty() {
        return;
    }
    for (v, plan) in plans {
        let source = body.clone();
        let locals = local_uses(&source);
        let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        b.set_cursor(l.body);
        b.body.blocks[l.body.index()].clear();
        let mut cloner = Cloner::new(&source, &locals);
        cloner.unroll_loops(&plan.loops);
        let (before, rest) = split_before_unrolled(&source, l.body, &plan);
        before.iter().for_each(|v| b.place(*v));
        insert_versions(&mut b, &mut cloner, rest, &plan, &mut plainly, &mut |_, _| ());
        *body = b.body;
    }
    remove_unused(body);
}

/// Plans for the loops of a block, inner loops first. `unrolled` are those that the loop around the block unrolls.
fn plan_in_block(
    facts: &BodyFacts<'_>,
    block: BlockId,
    unrolled: Option<&FullUnroll>,
    plans: &mut Vec<(ValueId, FullUnroll)>,
) {
    for &v in facts.body.block(block) {
        let op = &facts.body.inst(v).op;
        if matches!(op, Op::For(l) if l.hints.converged) {
            continue;
        }
        let plan = match op {
            Op::For(l) if l.parallel.is_none() && unrolled.is_none_or(|u| !u.loops.contains_key(&v)) => {
                find_guarded_unroll(facts, l)
            }
            _ => None,
        };
        let is_branch = matches!(op, Op::If(..));
        let inside = plan.as_ref().or(unrolled.filter(|_| is_branch));
        op.blocks().into_iter().for_each(|b| plan_in_block(facts, b, inside, plans));
        plans.extend(plan.map(|plan| (v, plan)));
    }
}

/// The part of a loop's body before the first unrolled loop, and the rest. Without a guard the rest is empty.
pub(crate) fn split_before_unrolled<'a>(
    source: &'a Body,
    block: BlockId,
    plan: &FullUnroll,
) -> (&'a [ValueId], &'a [ValueId]) {
    let statements = source.block(block);
    let is_first = |v: &ValueId| plan.guard.is_some() && plan.loops.contains_key(v);
    statements.split_at(statements.iter().position(is_first).unwrap_or(statements.len()))
}

/// Copies the rest of a loop's body, in which loops are unrolled. If there is a guard, the rest has two versions, one
/// for when all iterations run. `at_end` ends each version.
pub(crate) fn insert_versions(
    b: &mut Builder,
    cloner: &mut Cloner<'_>,
    rest: &[ValueId],
    plan: &FullUnroll,
    hook: &mut Hook<'_>,
    at_end: &mut dyn FnMut(&mut Cloner<'_>, &mut Builder),
) {
    let source = cloner.source;
    let Some(guard) = &plan.guard else {
        cloner.insts(b, rest, hook);
        return at_end(cloner, b);
    };
    let bound = cloner.value(guard.bound);
    let scalar = source.ty(guard.bound).scalar().expect("compiler bug: a bound is not a scalar");
    let largest = b.int(guard.largest_index, scalar);
    let own = b.binary(BinaryOp::Lt, largest, bound);
    let all = b.push(Op::Subgroup(SubgroupOp::AllHere, vec![own]), Type::U1);
    let around = cloner.copier.values.clone();
    let mut version = |b: &mut Builder, cloner: &mut Cloner<'_>, known: HashSet<ValueId>| {
        cloner.copier.values.clone_from(&around);
        let others = std::mem::replace(&mut cloner.known, known);
        cloner.insts(b, rest, hook);
        at_end(cloner, b);
        cloner.known = others;
    };
    let blocks = [b.body.add_block(), b.body.add_block()];
    b.push(Op::If(all, blocks[0], blocks[1]), Type::Unit);
    let back = b.set_cursor(blocks[0]);
    version(b, cloner, guard.conditions.clone());
    b.set_cursor(blocks[1]);
    version(b, cloner, HashSet::new());
    b.set_cursor(back);
    cloner.copier.values = around;
}

/// The full unroll of loops in a block.
pub(crate) fn plan_full_unroll(facts: &BodyFacts<'_>, block: BlockId, inner: &[ShortLoop]) -> FullUnroll {
    let body = facts.body;
    let mut inside = HashSet::new();
    body.visit(block, &mut |v, _| _ = inside.insert(v));
    // The guard is tested before the first of them.
    let statements = body.block(block);
    let first = statements.iter().position(|v| inner.iter().any(|inner| inner.loop_id == *v));
    let is_known = |v: ValueId| first.is_some_and(|first| statements[..first].contains(&v) || !inside.contains(&v));
    let guard = find_guard(facts, inner).filter(|guard| is_known(guard.bound));
    FullUnroll { loops: inner.iter().map(|i| (i.loop_id, i.indices.clone())).collect(), guard }
}

/// The full unroll of the short loops in a serial loop, if they have a guard.
pub(crate) fn find_guarded_unroll(facts: &BodyFacts<'_>, l: &ForLoop) -> Option<FullUnroll> {
    let body = facts.body;
    if may_leave(body, l.body) {
        return None;
    }
    let inner = find_short_loops(body, l.body, &|_| false).unwrap_or_default();
    let found = plan_full_unroll(facts, l.body, &inner);
    let ends_early = body.block(l.body).iter().any(|v| body.inst(*v).op.is_terminator());
    (found.guard.is_some() && !ends_early).then_some(found)
}

/// The loops in a block that may be fully unrolled. Empty if they are too long in total, `None` if another loop has
/// sums.
pub(crate) fn find_short_loops(
    body: &Body,
    block: BlockId,
    is_sum: &dyn Fn(ValueId) -> bool,
) -> Option<Vec<ShortLoop>> {
    let mut found = Vec::new();
    collect_short_loops(body, block, is_sum, &mut found)?;
    let size = |inner: &ShortLoop| {
        let mut size = 0;
        body.visit(inner.body, &mut |_, _| size += 1);
        size * inner.trips()
    };
    Some(if found.iter().map(size).sum::<usize>() <= MAX_INSTRUCTIONS { found } else { Vec::new() })
}

fn collect_short_loops(
    body: &Body,
    block: BlockId,
    is_sum: &dyn Fn(ValueId) -> bool,
    found: &mut Vec<ShortLoop>,
) -> Option<()> {
    for &v in body.block(block) {
        let op = &body.inst(v).op;
        if let Op::If(_, a, b) = op {
            collect_short_loops(body, *a, is_sum, found)?;
            collect_short_loops(body, *b, is_sum, found)?;
            continue;
        }
        let mut sums = Vec::new();
        let mut count = 0;
        op.blocks().into_iter().for_each(|b| body.visit(b, &mut |v, _| count += usize::from(is_sum(v))));
        let inner = match op {
            Op::For(l) if !may_leave(body, l.body) => {
                sums_of_branches(body, l.body, is_sum, &mut sums);
                short_range(body, l).map(|indices| ShortLoop { loop_id: v, body: l.body, indices })
            }
            _ => None,
        };
        match inner {
            Some(inner) if sums.len() == count => found.push(inner),
            _ if count > 0 => return None,
            _ => {}
        }
    }
    Some(())
}

fn short_range(body: &Body, l: &ForLoop) -> Option<Range<i64>> {
    let [range] = l.dims.as_slice() else { return None };
    let (Some(Const::Int(begin)), Some(Const::Int(end))) = (body.as_const(range.begin), body.as_const(range.end))
    else {
        return None;
    };
    (1..=MAX_ITERATIONS).contains(&end.checked_sub(begin)?).then_some(begin..end)
}

/// The common guard of all branches in the loops.
fn find_guard(facts: &BodyFacts<'_>, inner: &[ShortLoop]) -> Option<Guard> {
    let body = facts.body;
    let mut found: Option<Guard> = None;
    for inner in inner {
        let mut inside = HashSet::new();
        body.visit(inner.body, &mut |v, _| _ = inside.insert(v));
        for v in body.block(inner.body) {
            let Op::If(condition, ..) = body.inst(*v).op else { continue };
            let condition = facts.source(condition);
            let Op::Binary(BinaryOp::Lt, index, bound) = body.inst(condition).op else { return None };
            let (largest_index, bound) = (largest(facts, inner, index)?, facts.source(bound));
            if inside.contains(&bound) {
                return None;
            }
            let guard = found.get_or_insert_with(|| Guard { conditions: HashSet::new(), bound, largest_index });
            if guard.bound != bound {
                return None;
            }
            guard.conditions.insert(condition);
            guard.largest_index = guard.largest_index.max(largest_index);
        }
    }
    found
}

/// The largest value of an index of an inner loop, ascending or descending. `None` if one may be negative.
fn largest(facts: &BodyFacts<'_>, inner: &ShortLoop, index: ValueId) -> Option<i64> {
    let body = facts.body;
    let index = facts.source(index);
    let is_index = |v: ValueId| body.inst(facts.source(v)).op == Op::LoopIndex(inner.loop_id, 0);
    let (least, most) = match body.inst(index).op {
        Op::Cast(a) => {
            let keeps_all = |v: ValueId| body.ty(v).scalar().is_some_and(|s| !s.is_float() && s.bits() >= 32);
            return (keeps_all(a) && keeps_all(index)).then(|| largest(facts, inner, a)).flatten();
        }
        Op::LoopIndex(..) if is_index(index) => (inner.indices.start, inner.indices.end - 1),
        Op::Binary(BinaryOp::Sub, last, i) if is_index(i) => {
            let Some(Const::Int(last)) = body.as_const(facts.source(last)) else { return None };
            (last - (inner.indices.end - 1), last - inner.indices.start)
        }
        _ => return None,
    };
    (0 <= least && most <= i64::from(i32::MAX)).then_some(most)
}

/// The sums of a block and its branches, without its loops.
pub(crate) fn sums_of_branches(
    body: &Body,
    block: BlockId,
    is_sum: &dyn Fn(ValueId) -> bool,
    found: &mut Vec<ValueId>,
) {
    for &v in body.block(block) {
        if let Op::If(_, a, b) = &body.inst(v).op {
            [*a, *b].into_iter().for_each(|b| sums_of_branches(body, b, is_sum, found));
        }
        found.extend(is_sum(v).then_some(v));
    }
}
