//! Loops over ranges in order, inside of what a thread runs.
//!
//! Loops that wait for memory stand in the code several times (octants-schedule's `prefetch`), so that several
//! iterations wait at once. Where that is often there are two loops: one for whole groups of iterations, one for what
//! is left over, which would else be run one by one.

use octants_ir::{CodeSizeHint, ForLoop, Scalar, ValueId};

use crate::emit::{Bb, IntCmp, V};
use crate::lowering::{Index, LoopTargets, Lowering};

/// A loop that is being lowered.
struct Nest<'p> {
    number: ValueId,
    of: &'p ForLoop,
    /// First index of each axis and the index that follows the last one, i64, and what the program has them as.
    bounds: Vec<(V, V, Scalar)>,
    /// What follows when the loop is left.
    exit: Bb,
}

/// How an axis is counted.
struct Counted {
    /// Added to what is counted, where indices are not that themselves.
    offset: Option<V>,
    begin: V,
    end: V,
    /// How often the body is to stand in the code, where that is not left to LLVM.
    times: Option<u32>,
}

impl<'p> Lowering<'_, 'p> {
    /// A loop whose iterations run one after the other.
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

    /// An axis of a loop; `done` follows.
    fn serial_axis(&mut self, nest: &Nest<'p>, axis: usize, done: Bb) {
        let (e, target) = (self.e, self.u.target);
        let (begin, end, s) = nest.bounds[axis];
        let is_short = s.bits() <= 32 && target.info().counts_in_32_bits;
        let [begin, end] = [begin, end].map(|v| if is_short { e.trunc(v, e.i32) } else { v });
        let is_last = axis + 1 == nest.bounds.len();
        let unroll = nest.of.hints.unroll.filter(|_| is_last);
        let times = unroll.map(|u| u.factor);
        let cut = unroll.and_then(|u| Some((u.factor, u.remainder_factor?)));
        let Some((many, rest_times)) = cut else {
            return self.count_axis(nest, axis, Counted { offset: None, begin, end, times }, done);
        };
        let ty = e.type_of(begin);
        let zero = e.zero(ty);
        let trips = e.sub(end, begin);
        let is_less = |a: V, b: V| e.icmp(IntCmp::LLVMIntSLT, a, b);
        // What is more than the type holds is left to the second loop.
        let trips = e.select(e.and(is_less(begin, end), is_less(zero, trips)), trips, zero);
        let whole = e.and(trips, e.int(ty, -i64::from(many)));
        let rest = self.new_block(c"for.rest");
        self.count_axis(nest, axis, Counted { offset: Some(begin), begin: zero, end: whole, times }, rest);
        e.position(rest);
        let begin = e.add(begin, whole);
        self.count_axis(nest, axis, Counted { offset: None, begin, end, times: Some(rest_times) }, done);
    }

    /// Counts through an axis, or a part of it, and runs the axes inside for each number; `done` follows.
    fn count_axis(&mut self, nest: &Nest<'p>, axis: usize, counted: Counted, done: Bb) {
        let e = self.e;
        let Counted { offset, begin, end, times } = counted;
        let (head, inside, next) = (self.new_block(c"for"), self.new_block(c"for.body"), self.new_block(c"for.next"));
        let ty = e.type_of(begin);
        let from = e.block();
        e.br(head);
        e.position(head);
        let counter = e.phi(ty);
        e.add_incoming(counter, begin, from);
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, counter, end), inside, done);
        e.position(next);
        e.add_incoming(counter, e.add_nsw(counter, e.int(ty, 1)), next);
        let back = e.br(head);
        if nest.of.hints.code_size == CodeSizeHint::VectorsFirst {
            self.u.metadata.mark_thread_loop(e, back, nest.of.hints);
        } else if nest.of.hints.no_vectors {
            self.u.metadata.mark_ordered_loop(e, back);
        } else if let Some(times) = times {
            self.u.metadata.mark_unrolled_loop(e, back, times);
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
        let number = offset.map_or(counter, |first| e.add_nsw(first, counter));
        let index = if ty == e.i32 {
            Index { narrow: number, wide: e.sext(number, e.i64) }
        } else {
            Index { narrow: self.narrow_index(number, nest.bounds[axis].2), wide: number }
        };
        self.open.indices.get_mut(&nest.number).expect("compiler bug: the loop is open").push(index);
        if axis + 1 == nest.bounds.len() {
            self.iterate(nest, next);
        } else {
            self.serial_axis(nest, axis + 1, next);
        }
        self.open.indices.get_mut(&nest.number).expect("compiler bug: the loop is open").pop();
    }
}
