//! Full unrolling of short inner loops, as the schedule says: each iteration has code of its own, in which the loop's
//! index is a constant.
//!
//! With a guard there are two versions: one without branches, for warps in which all iterations of all threads run, and
//! one for the others.

use octants_ir::{BinaryOp, BlockId, ForLoop, Op, ValueId};

use crate::emit::V;
use crate::lowering::{Index, Lowering, Unrolled};

impl<'p> Lowering<'_, 'p> {
    /// Unrolls a loop fully; `false` if the schedule does not say so.
    pub fn unroll_fully(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let Some(indices) = self.copies.unrolled.indices_of(v) else { return false };
        for (iteration, index) in indices.enumerate() {
            self.copies.unrolled.set_iteration(v, iteration);
            self.open.indices.insert(v, vec![self.index_in(v, self.e.i64c(index))]);
            self.block(l.body);
        }
        self.open.indices.remove(&v);
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
        let guard =
            self.copies.unrolled.plan.and_then(|plan| plan.guard.as_ref()).filter(|_| self.copies.unrolled.all_run);
        guard.is_some_and(|guard| guard.conditions.contains(&self.source(condition)))
    }

    /// Lowers the body of a serial loop with its short loops fully unrolled, if they have a guard; else does nothing.
    pub fn guarded_body(&mut self, v: ValueId, l: &ForLoop) -> bool {
        let plan = self.schedule.loops.get(&v).and_then(|s| s.guarded_unroll.as_ref());
        let Some(plan) = plan.filter(|_| self.copies.gathered.is_none()) else { return false };
        let around = std::mem::replace(&mut self.copies.unrolled, Unrolled::of(plan));
        let after = self.new_block(c"block.end");
        self.in_versions(l.body, &mut |this, part, is_last| {
            part.iter().for_each(|v| this.inst(*v));
            if is_last {
                this.e.br(after);
            }
        });
        self.e.position(after);
        self.copies.unrolled = around;
        true
    }

    /// Lowers a block by `lower`: the part before the first unrolled loop, and then the rest, once for whole blocks if
    /// there is a guard, and once for others. It leaves each of the latter.
    pub fn in_versions(&mut self, block: BlockId, lower: &mut dyn FnMut(&mut Self, &'p [ValueId], bool)) {
        let statements = self.body.block(block);
        let guarded = self.copies.unrolled.plan.and_then(|plan| Some((plan, plan.guard.as_ref()?)));
        let is_first = |v: &ValueId| guarded.is_some_and(|(plan, _)| plan.loops.contains_key(v));
        let from = statements.iter().position(is_first).unwrap_or(statements.len());
        let (before, rest) = statements.split_at(from);
        lower(self, before, false);
        let e = self.e;
        if let Some((_, guard)) = guarded {
            let (s, bound) = (self.scalar_of(guard.bound), self.value(guard.bound));
            let own = self.binary(BinaryOp::Lt, s, e.int(e.scalar(s), guard.largest_index), bound);
            let all_run = self.u.target.holds_for_all(e, own);
            let (whole, cut) = (self.new_block(c"block.whole"), self.new_block(c"block.cut"));
            e.cond_br(all_run, whole, cut);
            e.position(whole);
            self.copies.unrolled.all_run = true;
            lower(self, rest, true);
            self.copies.unrolled.all_run = false;
            e.position(cut);
        }
        lower(self, rest, true);
    }
}
