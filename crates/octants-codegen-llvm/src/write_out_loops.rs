//! Short loops inside another one that are written out while its body is lowered, as the schedule says: each of their
//! iterations has code of its own, in which the loop's index is a number.
//!
//! Where they have a guard there is code for warps in all of whose threads all iterations run, which has no branches,
//! and code for others.

use octants_ir::{BinaryOp, BlockId, ForLoop, Op, ValueId};

use crate::emit::V;
use crate::lowering::{Index, Lowering, Writing};

impl<'p> Lowering<'_, 'p> {
    /// Lowers a loop that is written out; `false` where it is none.
    pub fn write_out(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let Some(indices) = self.copies.writing.indices_of(v) else { return false };
        for (iteration, index) in indices.enumerate() {
            self.copies.writing.set_iteration(v, iteration);
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
            self.copies.writing.plan.and_then(|plan| plan.guard.as_ref()).filter(|_| self.copies.writing.all_run);
        guard.is_some_and(|guard| guard.conditions.contains(&self.source(condition)))
    }

    /// Lowers the body of a loop in order with the short loops in it written out, where those have a guard; else nothing is done.
    pub fn guarded_body(&mut self, v: ValueId, l: &ForLoop) -> bool {
        let plan = self.schedule.loops.get(&v).and_then(|s| s.guarded.as_ref());
        let Some(plan) = plan.filter(|_| self.copies.gathered.is_none()) else { return false };
        let around = std::mem::replace(&mut self.copies.writing, Writing::of(plan));
        let after = self.new_block(c"block.end");
        self.in_versions(l.body, &mut |this, part, is_last| {
            part.iter().for_each(|v| this.inst(*v));
            if is_last {
                this.e.br(after);
            }
        });
        self.e.position(after);
        self.copies.writing = around;
        true
    }

    /// Lowers a block by `lower`, which gets the part before the first loop that is written out, and then the rest, once for blocks that are
    /// whole, where there is a guard, and once for others. It leaves each of the latter.
    pub fn in_versions(&mut self, block: BlockId, lower: &mut dyn FnMut(&mut Self, &'p [ValueId], bool)) {
        let statements = self.body.block(block);
        let guarded = self.copies.writing.plan.and_then(|plan| Some((plan, plan.guard.as_ref()?)));
        let is_first = |v: &ValueId| guarded.is_some_and(|(plan, _)| plan.loops.contains_key(v));
        let from = statements.iter().position(is_first).unwrap_or(statements.len());
        let (before, rest) = statements.split_at(from);
        lower(self, before, false);
        let e = self.e;
        if let Some((_, guard)) = guarded {
            let (s, number) = (self.scalar_of(guard.number), self.value(guard.number));
            let own = self.binary(BinaryOp::Lt, s, e.int(e.scalar(s), guard.most), number);
            let all_run = self.u.target.holds_for_all(e, own);
            let (whole, cut) = (self.new_block(c"block.whole"), self.new_block(c"block.cut"));
            e.cond_br(all_run, whole, cut);
            e.position(whole);
            self.copies.writing.all_run = true;
            lower(self, rest, true);
            self.copies.writing.all_run = false;
            e.position(cut);
        }
        lower(self, rest, true);
    }
}
