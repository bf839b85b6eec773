//! Sequential loops over ranges, inside the code of a thread.

use octants_ir::{CodeSizeHint, ForLoop, Scalar, ValueId};

use crate::emit::{Bb, Emitter, IntCmp, V};
use crate::lowering::{Index, LoopTargets, Lowering};

/// A loop that is being lowered.
struct Nest<'p> {
    number: ValueId,
    of: &'p ForLoop,
    /// First index of each axis and the index after the last one, as i64 and in the program's type.
    bounds: Vec<(V, V, Scalar)>,
    /// The block after the loop.
    exit: Bb,
}

impl<'p> Lowering<'_, 'p> {
    /// A sequential loop.
    pub fn serial_for(&mut self, v: ValueId, l: &'p ForLoop) {
        let bounds = l.dims.iter().map(|d| (self.bound(d.begin), self.bound(d.end), self.scalar_of(d.begin))).collect();
        let exit = self.new_block(c"for.end");
        let nest = Nest { number: v, of: l, bounds, exit };
        self.open.indices.insert(v, Vec::new());
        if l.dims.is_empty() {
            // One iteration.
            self.iterate(&nest, exit);
        } else {
            self.serial_axis(&nest, 0, exit);
        }
        self.e.position(exit);
        self.open.indices.remove(&v);
    }

    /// The body of a loop; `next` follows.
    fn iterate(&mut self, nest: &Nest<'p>, next: Bb) {
        self.open.targets.push(LoopTargets { on_break: nest.exit, on_continue: next });
        self.block(nest.of.body);
        self.open.targets.pop();
        if !self.e.is_terminated() {
            self.e.br(next);
        }
    }

    /// Counts through an axis, and runs the axes inside for each index; `done` follows. The condition is tested before
    /// the loop and at its end. LLVM's loop rotation would do the same, in time quadratic in the number of loops.
    fn serial_axis(&mut self, nest: &Nest<'p>, axis: usize, done: Bb) {
        let e = self.e;
        let (begin, end, s) = nest.bounds[axis];
        let is_short = s.bits() <= 32 && self.u.info.counts_in_32_bits;
        let [begin, end] = [begin, end].map(|v| if is_short { e.trunc(v, e.i32) } else { v });
        let is_last = axis + 1 == nest.bounds.len();
        let unroll = nest.of.hints.unroll.filter(|_| is_last);
        let (head, inside, next) = (self.new_block(c"for"), self.new_block(c"for.body"), self.new_block(c"for.next"));
        let ty = e.type_of(begin);
        if !has_iterations(e, begin, end) {
            let enter = self.new_block(c"for.enter");
            e.cond_br(e.icmp(IntCmp::LLVMIntSLT, begin, end), enter, done);
            e.position(enter);
        }
        let from = e.block();
        e.br(head);
        e.position(head);
        let counter = e.phi(ty);
        e.add_incoming(counter, begin, from);
        e.br(inside);
        e.position(next);
        let following = e.add_nsw(counter, e.int(ty, 1));
        e.add_incoming(counter, following, next);
        let back = e.cond_br(e.icmp(IntCmp::LLVMIntSLT, following, end), head, done);
        if nest.of.hints.code_size == CodeSizeHint::VectorsFirst {
            self.u.metadata.mark_thread_loop(e, back, nest.of.hints);
        } else if nest.of.hints.no_vectors {
            self.u.metadata.mark_ordered_loop(e, back);
        } else if nest.of.hints.masked && self.u.target.masks_vectors() {
            self.u.metadata.mark_masked_loop(e, back);
        } else if let Some(unroll) = unroll {
            self.u.metadata.mark_unrolled_loop(e, back, unroll.factor);
        } else {
            match nest.of.hints.code_size {
                CodeSizeHint::None | CodeSizeHint::VectorsFirst => {}
                CodeSizeHint::UnrollFully => self.u.metadata.mark_fully_unrolled_loop(back),
                CodeSizeHint::NotInterleaved => self.u.metadata.mark_filled_loop(e, back),
                CodeSizeHint::Lean => self.u.metadata.mark_lean_loop(e, back),
                CodeSizeHint::NotUnrolledUncounted => self.u.metadata.mark_uncounted_loop(back),
            }
        }
        e.position(inside);
        let index = if ty == e.i32 {
            Index { narrow: counter, wide: e.sext(counter, e.i64) }
        } else {
            Index { narrow: self.narrow_index(counter, s), wide: counter }
        };
        self.open.indices.get_mut(&nest.number).expect("compiler bug: no open loop").push(index);
        if is_last {
            self.iterate(nest, next);
        } else {
            self.serial_axis(nest, axis + 1, next);
        }
        self.open.indices.get_mut(&nest.number).expect("compiler bug: no open loop").pop();
    }
}

/// Whether a range between constants is not empty.
fn has_iterations(e: &Emitter, begin: V, end: V) -> bool {
    matches!((e.as_int(begin), e.as_int(end)), (Some(begin), Some(end)) if begin < end)
}
