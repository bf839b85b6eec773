//! Short loops inside another one that are written out while its body is lowered: each of their iterations has code of its own, in which the
//! loop's index is a number.
//!
//! Loops that a gradient cuts into blocks run a block's iterations under a condition, for the last block is not whole. On devices whose threads
//! run in warps such a block has code for warps in all of whose threads it is whole: there it has no branches, neighbours are loaded at once,
//! and what two of the loops compute alike is computed once.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use octants_ir::{BinaryOp, BlockId, Body, Const, ForLoop, Op, ValueId};

use crate::emit::V;
use crate::lower_body::{Index, Lowering};

/// Most iterations of a loop that is written out.
const MOST_ITERATIONS: i64 = 8;
/// Most instructions of all loops that are written out.
const MOST_INSTRUCTIONS: usize = 2000;
/// The condition under which the iterations of inner loops run: as long as their indices are less than a number.
#[derive(Debug, Clone)]
struct Guard {
    /// The conditions.
    conditions: HashSet<ValueId>,
    /// The number.
    number: ValueId,
    /// The largest index, which is not negative.
    most: i64,
}

/// The loops that are written out in the body that is being lowered.
#[derive(Debug, Default)]
pub(crate) struct WrittenOut {
    /// Their indices.
    loops: HashMap<ValueId, Range<i64>>,
    /// What decides whether iterations of them run.
    guard: Option<Guard>,
    /// All of them run, in the code that is being lowered.
    all_run: bool,
    /// The iteration that is being lowered, of each of them and of an aligned loop.
    iteration: HashMap<ValueId, usize>,
}

impl WrittenOut {
    /// Those of a body.
    pub fn of(lowering: &Lowering<'_, '_>, block: BlockId, inner: Vec<Inner>) -> WrittenOut {
        let body = lowering.body;
        let mut inside = HashSet::new();
        body.visit(block, &mut |v, _| _ = inside.insert(v));
        // The guard is looked at before the first of them.
        let statements = body.block(block);
        let first = statements.iter().position(|v| inner.iter().any(|inner| inner.number == *v));
        let is_known = |v: ValueId| first.is_some_and(|first| statements[..first].contains(&v) || !inside.contains(&v));
        let guard = find_guard(lowering, &inner).filter(|guard| is_known(guard.number));
        let loops = inner.into_iter().map(|i| (i.number, i.indices)).collect();
        WrittenOut { loops, guard, ..WrittenOut::default() }
    }

    /// The indices of a loop that is written out.
    pub fn indices_of(&self, v: ValueId) -> Option<Range<i64>> {
        self.loops.get(&v).cloned()
    }

    /// The iteration of a loop that is being lowered.
    pub fn iteration(&self, v: ValueId) -> usize {
        self.iteration[&v]
    }

    /// Says which iteration of a loop is being lowered.
    pub fn set_iteration(&mut self, v: ValueId, iteration: usize) {
        self.iteration.insert(v, iteration);
    }
}

/// An inner loop that may be written out.
pub(crate) struct Inner {
    pub number: ValueId,
    pub body: BlockId,
    pub indices: Range<i64>,
}

/// The loops in a block that may be written out, unless they are too long together; `None` where another loop has sums.
pub(crate) fn find_inner(body: &Body, block: BlockId, is_sum: &dyn Fn(ValueId) -> bool) -> Option<Vec<Inner>> {
    let mut found = Vec::new();
    collect_inner(body, block, is_sum, &mut found)?;
    let size = |inner: &Inner| {
        let mut size = 0;
        body.visit(inner.body, &mut |_, _| size += 1);
        size * inner.len()
    };
    Some(if found.iter().map(size).sum::<usize>() <= MOST_INSTRUCTIONS { found } else { Vec::new() })
}

fn collect_inner(body: &Body, block: BlockId, is_sum: &dyn Fn(ValueId) -> bool, found: &mut Vec<Inner>) -> Option<()> {
    for &v in body.block(block) {
        let op = &body.inst(v).op;
        if let Op::If(_, a, b) = op {
            collect_inner(body, *a, is_sum, found)?;
            collect_inner(body, *b, is_sum, found)?;
            continue;
        }
        let mut sums = Vec::new();
        let mut count = 0;
        op.blocks().into_iter().for_each(|b| body.visit(b, &mut |v, _| count += usize::from(is_sum(v))));
        let inner = match op {
            Op::For(l) if !may_leave(body, l.body) => {
                sums_of_branches(body, l.body, is_sum, &mut sums);
                few_indices(body, l).map(|indices| Inner { number: v, body: l.body, indices })
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
fn find_guard(lowering: &Lowering<'_, '_>, inner: &[Inner]) -> Option<Guard> {
    let body = lowering.body;
    let mut found: Option<Guard> = None;
    for inner in inner {
        let mut inside = HashSet::new();
        body.visit(inner.body, &mut |v, _| _ = inside.insert(v));
        for v in body.block(inner.body) {
            let Op::If(condition, ..) = body.inst(*v).op else { continue };
            let condition = lowering.source(condition);
            let Op::Binary(BinaryOp::Lt, index, number) = body.inst(condition).op else { return None };
            let (most, number) = (largest(lowering, inner, index)?, lowering.source(number));
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
fn largest(lowering: &Lowering<'_, '_>, inner: &Inner, index: ValueId) -> Option<i64> {
    let body = lowering.body;
    let index = lowering.source(index);
    let is_index = |v: ValueId| body.inst(lowering.source(v)).op == Op::LoopIndex(inner.number, 0);
    let (least, most) = match body.inst(index).op {
        Op::Cast(a) => {
            let keeps_all = |v: ValueId| body.ty(v).scalar().is_some_and(|s| !s.is_float() && s.bits() >= 32);
            return (keeps_all(a) && keeps_all(index)).then(|| largest(lowering, inner, a)).flatten();
        }
        Op::LoopIndex(..) if is_index(index) => (inner.indices.start, inner.indices.end - 1),
        Op::Binary(BinaryOp::Sub, last, i) if is_index(i) => {
            let Some(Const::Int(last)) = body.as_const(lowering.source(last)) else { return None };
            (last - (inner.indices.end - 1), last - inner.indices.start)
        }
        _ => return None,
    };
    (0 <= least && most <= i64::from(i32::MAX)).then_some(most)
}

/// A block of a loop leaves it, or its iteration, before the end.
pub(crate) fn may_leave(body: &Body, block: BlockId) -> bool {
    body.block(block).iter().any(|v| match &body.inst(*v).op {
        Op::Break | Op::Continue => true,
        Op::If(_, a, b) => may_leave(body, *a) || may_leave(body, *b),
        _ => false,
    })
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

impl Inner {
    /// Iterations of it.
    pub fn len(&self) -> usize {
        (self.indices.end - self.indices.start) as usize
    }
}

impl<'p> Lowering<'_, 'p> {
    /// Lowers a loop that is written out; `false` where it is none.
    pub fn write_out(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let Some(indices) = self.written_out.indices_of(v) else { return false };
        for (iteration, index) in indices.enumerate() {
            self.written_out.set_iteration(v, iteration);
            self.indices.insert(v, vec![self.index_in(v, self.e.i64c(index))]);
            self.block(l.body);
        }
        self.indices.remove(&v);
        true
    }

    /// An index of a loop along one axis.
    pub fn index_in(&self, v: ValueId, wide: V) -> Index {
        let Op::For(l) = &self.body.inst(v).op else { panic!("compiler bug: only loops have indices") };
        let s = self.scalar_of(l.dims[0].begin);
        Index { narrow: if s.bits() == 64 { wide } else { self.e.trunc(wide, self.e.scalar(s)) }, wide }
    }

    /// A branch is always taken, in the code that is being lowered.
    pub fn is_known_to_run(&self, condition: ValueId) -> bool {
        let guard = self.written_out.guard.as_ref().filter(|_| self.written_out.all_run);
        guard.is_some_and(|guard| guard.conditions.contains(&self.source(condition)))
    }

    /// Lowers the body of a loop in order with the short loops in it written out, where those have a guard; else nothing is done.
    pub fn guarded_body(&mut self, l: &ForLoop) -> bool {
        let body = self.body;
        if self.gathered.is_some() || self.many_loops || !self.u.target.shares_by_stride() || may_leave(body, l.body) {
            return false;
        }
        let inner = find_inner(body, l.body, &|_| false).unwrap_or_default();
        let found = WrittenOut::of(self, l.body, inner);
        let ends_early = body.block(l.body).iter().any(|v| body.inst(*v).op.is_terminator());
        if found.guard.is_none() || ends_early {
            return false;
        }
        let around = std::mem::replace(&mut self.written_out, found);
        let after = self.new_block(c"block.end");
        self.in_versions(l.body, &mut |this, part, is_last| {
            part.iter().for_each(|v| this.inst(*v));
            if is_last {
                this.e.br(after);
            }
        });
        self.e.position(after);
        self.written_out = around;
        true
    }

    /// Lowers a block by `lower`, which gets the part before the first loop that is written out, and then the rest, once for blocks that are
    /// whole, where there is a guard, and once for others. It leaves each of the latter.
    pub fn in_versions(&mut self, block: BlockId, lower: &mut dyn FnMut(&mut Self, &'p [ValueId], bool)) {
        let statements = self.body.block(block);
        let is_first = |v: &ValueId| self.written_out.guard.is_some() && self.written_out.loops.contains_key(v);
        let from = statements.iter().position(is_first).unwrap_or(statements.len());
        let (before, rest) = statements.split_at(from);
        lower(self, before, false);
        let e = self.e;
        if let Some(guard) = &self.written_out.guard {
            let (s, number) = (self.scalar_of(guard.number), self.value(guard.number));
            let own = self.binary(BinaryOp::Lt, s, e.int(e.scalar(s), guard.most), number);
            let all_run = self.u.target.holds_for_all(e, own);
            let (whole, cut) = (self.new_block(c"block.whole"), self.new_block(c"block.cut"));
            e.cond_br(all_run, whole, cut);
            e.position(whole);
            self.written_out.all_run = true;
            lower(self, rest, true);
            self.written_out.all_run = false;
            e.position(cut);
        }
        lower(self, rest, true);
    }
}
