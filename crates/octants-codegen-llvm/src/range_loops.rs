//! Parallel loops of tasks whose calls run a range of the flattened index space.
//!
//! The first multi-index is decoded once; from there rows of the last axis run in unit stride, and the outer indices
//! advance like an odometer, so that no element costs a division.

use octants_ir::{ForLoop, GroupPlacement, IterationGroup, ValueId};

use crate::emit::{Bb, Emitter, IntCmp, V};
use crate::lower_task::Axis;
use crate::lowering::{Index, LoopTargets, Lowering};

impl<'p> Lowering<'_, 'p> {
    /// A parallel loop over the iterations from `begin` to before `end`.
    pub fn parallel_for(&mut self, v: ValueId, l: &'p ForLoop, begin: V, end: V) {
        let axes: Vec<Axis> = l.dims.iter().map(|d| self.axis(d.begin, d.end)).collect();
        self.begin_reductions(l);
        let done = self.new_block(c"done");
        match axes.as_slice() {
            [] => {
                // A loop over a field without axes: one iteration.
                let once = self.new_block(c"once");
                self.e.cond_br(self.e.icmp(IntCmp::LLVMIntSLT, begin, end), once, done);
                self.e.position(once);
                self.iteration(v, l, Vec::new(), begin, LoopTargets { on_break: done, on_continue: done });
                if !self.e.is_terminated() {
                    self.e.br(done);
                }
            }
            [only] => {
                let (first, last) = (self.e.add_nsw(begin, only.begin), self.e.add_nsw(end, only.begin));
                let base = only.begin;
                let linear = |e: &Emitter, i: V| e.sub_nsw(i, base);
                self.row(v, l, &[], *only, first, last, &linear, done);
            }
            many => self.rows(v, l, many, begin, end, done),
        }
        self.e.position(done);
        self.end_reductions(l);
    }

    /// Rows of an N-dimensional loop.
    #[allow(clippy::too_many_arguments)] // The loop's parts; coarsening them would name nothing.
    fn rows(&mut self, v: ValueId, l: &'p ForLoop, axes: &[Axis], begin: V, end: V, done: Bb) {
        let e = self.e;
        let n = axes.len();
        let decode = self.new_block(c"decode");
        let head = self.new_block(c"row");
        let next = self.new_block(c"row.next");
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, begin, end), decode, done);

        e.position(decode);
        let mut rest = begin;
        let mut first = vec![begin; n];
        for k in (1..n).rev() {
            first[k] = e.urem(rest, axes[k].trips);
            rest = e.udiv(rest, axes[k].trips);
        }
        first[0] = rest;
        e.br(head);

        e.position(head);
        let position = e.phi(e.i64);
        e.add_incoming(position, begin, decode);
        let counters: Vec<V> = (0..n).map(|_| e.phi(e.i64)).collect();
        for (phi, value) in counters.iter().zip(&first) {
            e.add_incoming(*phi, *value, decode);
        }
        let last = axes[n - 1];
        let from = counters[n - 1];
        let left_in_row = e.sub_nsw(last.trips, from);
        let left = e.sub_nsw(end, position);
        let length = e.intrinsic("llvm.smin", e.i64, &[left_in_row, left]);
        let outer: Vec<Index> = axes[..n - 1]
            .iter()
            .zip(&counters)
            .map(|(axis, counter)| {
                let wide = e.add_nsw(*counter, axis.begin);
                Index { narrow: self.narrow_index(wide, axis.scalar), wide }
            })
            .collect();
        let start = e.add_nsw(from, last.begin);
        let stop = e.add_nsw(start, length);
        let linear = |e: &Emitter, i: V| e.add_nsw(position, e.sub_nsw(i, start));
        self.row(v, l, &outer, last, start, stop, &linear, next);

        e.position(next);
        let advanced = e.add_nsw(position, length);
        e.add_incoming(position, advanced, next);
        e.add_incoming(counters[n - 1], e.i64c(0), next);
        let mut carry = e.i64c(1);
        for k in (0..n - 1).rev() {
            let raised = e.add_nsw(counters[k], carry);
            if k == 0 {
                e.add_incoming(counters[0], raised, next);
                break;
            }
            let wraps = e.icmp(IntCmp::LLVMIntEQ, raised, axes[k].trips);
            e.add_incoming(counters[k], e.select(wraps, e.i64c(0), raised), next);
            carry = e.zext(wraps, e.i64);
        }
        let back = e.cond_br(e.icmp(IntCmp::LLVMIntSLT, advanced, end), head, done);
        self.u.metadata.mark_parallel_loop(e, back, l.hints);
    }

    /// Iterations in unit stride over the last axis: groups of them first, then the remainder.
    #[allow(clippy::too_many_arguments)] // The loop's parts; coarsening them would name nothing.
    fn row(
        &mut self,
        v: ValueId,
        l: &'p ForLoop,
        outer: &[Index],
        axis: Axis,
        first: V,
        last: V,
        linear: &dyn Fn(&Emitter, V) -> V,
        done: Bb,
    ) {
        let row = Row { number: v, of: l, outer, axis, last, linear };
        let mut first = first;
        for group in &l.groups {
            let rest = self.new_block(c"group.done");
            first = self.steps(&row, *group, first, rest);
            self.e.position(rest);
        }
        let placement = GroupPlacement::Consecutive;
        self.steps(&row, IterationGroup { factor: 1, body: l.body, placement }, first, done);
    }

    /// Runs iterations of a row in steps of a group's factor while as many are left; yields the index of the first one
    /// that remains.
    fn steps(&mut self, row: &Row<'_, 'p>, group: IterationGroup, first: V, done: Bb) -> V {
        let e = self.e;
        let head = self.new_block(c"parallel");
        let inside = self.new_block(c"iteration");
        let next = self.new_block(c"iteration.next");
        let from = e.block();
        e.br(head);
        e.position(head);
        let wide = e.phi(e.i64);
        e.add_incoming(wide, first, from);
        let step = || e.add_nsw(wide, e.i64c(i64::from(group.factor)));
        let after = if group.factor == 1 {
            e.cond_br(e.icmp(IntCmp::LLVMIntSLT, wide, row.last), inside, done);
            e.position(next);
            step()
        } else {
            let after = step();
            e.cond_br(e.icmp(IntCmp::LLVMIntSLE, after, row.last), inside, done);
            e.position(next);
            after
        };
        e.add_incoming(wide, after, next);
        let back = e.br(head);
        self.u.metadata.mark_parallel_loop(e, back, row.of.hints);
        e.position(inside);
        let mut indices = row.outer.to_vec();
        indices.push(Index { narrow: self.narrow_index(wide, row.axis.scalar), wide });
        let linear = (row.linear)(e, wide);
        let targets = LoopTargets { on_break: done, on_continue: next };
        self.iterations((row.number, row.of), group.body, indices, linear, targets);
        if !e.is_terminated() {
            e.br(next);
        }
        wide
    }
}

/// A row of a parallel loop.
struct Row<'a, 'p> {
    number: ValueId,
    of: &'p ForLoop,
    /// The indices of the other axes.
    outer: &'a [Index],
    axis: Axis,
    /// The index after the last one.
    last: V,
    /// The linear index of the iteration with an index.
    linear: &'a dyn Fn(&Emitter, V) -> V,
}
