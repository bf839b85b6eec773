//! Short loops inside another one that are worth writing out: each of their iterations has code of its own, in which
//! the loop's index is a number.
//!
//! Loops that a gradient cuts into blocks run a block's iterations under a condition, for the last block is not whole.
//! On devices whose threads run in warps such a block has code for warps in all of whose threads it is whole: there it
//! has no branches, neighbors are loaded at once, and what two of the loops compute alike is computed once.

use std::collections::HashSet;
use std::ops::Range;

use octants_analysis::may_leave;
use octants_ir::schedule::{Guard, WrittenOut};
use octants_ir::{BinaryOp, BlockId, Body, Const, ForLoop, Op, ValueId};

use crate::facts::BodyFacts;

/// Most iterations of a loop that is written out.
const MOST_ITERATIONS: i64 = 8;
/// Most instructions of all loops that are written out.
const MOST_INSTRUCTIONS: usize = 2000;

/// A loop that may be written out.
pub(crate) struct ShortLoop {
    pub number: ValueId,
    pub body: BlockId,
    pub indices: Range<i64>,
}

impl ShortLoop {
    /// Iterations of it.
    pub fn trips(&self) -> usize {
        (self.indices.end - self.indices.start) as usize
    }
}

/// How loops in a block are written out.
pub(crate) fn write_out(facts: &BodyFacts<'_>, block: BlockId, inner: &[ShortLoop]) -> WrittenOut {
    let body = facts.body;
    let mut inside = HashSet::new();
    body.visit(block, &mut |v, _| _ = inside.insert(v));
    // The guard is looked at before the first of them.
    let statements = body.block(block);
    let first = statements.iter().position(|v| inner.iter().any(|inner| inner.number == *v));
    let is_known = |v: ValueId| first.is_some_and(|first| statements[..first].contains(&v) || !inside.contains(&v));
    let guard = find_guard(facts, inner).filter(|guard| is_known(guard.number));
    WrittenOut { loops: inner.iter().map(|i| (i.number, i.indices.clone())).collect(), guard }
}

/// How the short loops of a loop in order are written out, where those have a guard.
pub(crate) fn find_guarded(facts: &BodyFacts<'_>, l: &ForLoop) -> Option<WrittenOut> {
    let body = facts.body;
    if may_leave(body, l.body) {
        return None;
    }
    let inner = find_short_loops(body, l.body, &|_| false).unwrap_or_default();
    let found = write_out(facts, l.body, &inner);
    let ends_early = body.block(l.body).iter().any(|v| body.inst(*v).op.is_terminator());
    (found.guard.is_some() && !ends_early).then_some(found)
}

/// The loops in a block that may be written out, unless they are too long together; `None` where another loop has sums.
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
    Some(if found.iter().map(size).sum::<usize>() <= MOST_INSTRUCTIONS { found } else { Vec::new() })
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
                few_indices(body, l).map(|indices| ShortLoop { number: v, body: l.body, indices })
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

fn few_indices(body: &Body, l: &ForLoop) -> Option<Range<i64>> {
    let [range] = l.dims.as_slice() else { return None };
    let (Some(Const::Int(begin)), Some(Const::Int(end))) = (body.as_const(range.begin), body.as_const(range.end))
    else {
        return None;
    };
    (1..=MOST_ITERATIONS).contains(&end.checked_sub(begin)?).then_some(begin..end)
}

/// The guard of loops that are written out: that of all branches in them.
fn find_guard(facts: &BodyFacts<'_>, inner: &[ShortLoop]) -> Option<Guard> {
    let body = facts.body;
    let mut found: Option<Guard> = None;
    for inner in inner {
        let mut inside = HashSet::new();
        body.visit(inner.body, &mut |v, _| _ = inside.insert(v));
        for v in body.block(inner.body) {
            let Op::If(condition, ..) = body.inst(*v).op else { continue };
            let condition = facts.source(condition);
            let Op::Binary(BinaryOp::Lt, index, number) = body.inst(condition).op else { return None };
            let (most, number) = (largest(facts, inner, index)?, facts.source(number));
            if inside.contains(&number) {
                return None;
            }
            let guard = found.get_or_insert_with(|| Guard { conditions: HashSet::new(), number, most });
            if guard.number != number {
                return None;
            }
            guard.conditions.insert(condition);
            guard.most = guard.most.max(most);
        }
    }
    found
}

/// The largest number that an index of an inner loop becomes, counted forwards or backwards, if none is negative.
fn largest(facts: &BodyFacts<'_>, inner: &ShortLoop, index: ValueId) -> Option<i64> {
    let body = facts.body;
    let index = facts.source(index);
    let is_index = |v: ValueId| body.inst(facts.source(v)).op == Op::LoopIndex(inner.number, 0);
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

/// The sums of a block and its branches, but not of its loops.
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
