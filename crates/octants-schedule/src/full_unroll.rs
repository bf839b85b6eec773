//! Full unrolling of short inner loops: each iteration has code of its own, in which the loop's index is a constant.
//!
//! Loops that a gradient cuts into blocks run the iterations of a block under a guard, because the last block may be
//! partial. GPUs get a second version for warps in which all threads have whole blocks. It has no branches, so that
//! neighbors are loaded together and the two loops share common subexpressions.

use std::collections::HashSet;
use std::ops::Range;

use octants_analysis::may_leave;
use octants_ir::schedule::{FullUnroll, Guard};
use octants_ir::{BinaryOp, BlockId, Body, Const, ForLoop, Op, ValueId};

use crate::facts::BodyFacts;

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

/// The loops in a block that may be fully unrolled. Empty if they are too long in total, `None` if another loop has sums.
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
