//! Parallel loops of tasks that many threads enter at once: each runs every so many of the iterations.
//!
//! Threads next to one another run iterations next to one another, so that their accesses fall into the same lines of
//! memory. Each iteration decodes its indices from its number; where the number of iterations is known and small that is
//! done in 32 bits. All threads come by the end of the loop, also those that ran nothing or failed, so that reductions may
//! combine their values there.

use octants_ir::{AtomicOp, Const, ForLoop, LoopConfig, ValueId, fold_identity};

use crate::emit::{Bb, IntCmp, V};
use crate::lower_body::{Index, LoopTargets, Lowering};
use crate::lower_task::Axis;

/// Numbers of iterations up to this are counted in 32 bits: adding the number of threads to one cannot overflow.
const SMALL: u64 = 1 << 30;

impl<'p> Lowering<'_, 'p> {
    /// A parallel loop whose iterations all threads share.
    ///
    /// Each runs `lanes` neighbours of the last axis at a time: what the launcher saw to holds where that is more than one.
    pub fn strided_for(&mut self, v: ValueId, l: &'p ForLoop, config: &LoopConfig, count: Option<u64>, lanes: u32) {
        let e = self.e;
        let axes: Vec<Axis> = l.dims.iter().map(|d| self.axis(d.begin, d.end)).collect();
        let total = axes.iter().fold(e.i64c(1), |n, axis| e.mul_nsw(n, axis.trips));
        // The loop may be lowered twice.
        self.accumulators.clear();
        self.reductions.clear();
        self.begin_reductions(l);
        let (thread, threads) = if config.serialize { (e.i64c(0), e.i64c(1)) } else { self.u.target.thread(e) };
        let small = count.is_some_and(|n| n <= SMALL);
        let number_type = if small { e.i32 } else { e.i64 };
        let narrow = |v: V| if small { e.trunc(v, e.i32) } else { v };
        let (thread, threads, total) = (narrow(thread), narrow(threads), narrow(total));
        let number_of = |n: u32| e.int(number_type, i64::from(n));
        let groups = if lanes > 1 { e.udiv(total, number_of(lanes)) } else { total };
        if let (Some(last), true) = (axes.last(), lanes > 1) {
            self.assume_multiple(last.begin, lanes);
            if axes.len() > 1 {
                self.assume_multiple(last.trips, lanes);
            }
        }

        let head = self.new_block(c"strided");
        let inside = self.new_block(c"iterations");
        let next = self.new_block(c"iterations.next");
        let rest = self.new_block(c"rest");
        let done = self.new_block(c"done");
        let from = e.block();
        e.br(head);
        e.position(head);
        let group = e.phi(number_type);
        e.add_incoming(group, thread, from);
        e.cond_br(e.icmp(IntCmp::LLVMIntSLT, group, groups), inside, rest);
        e.position(next);
        e.add_incoming(group, e.add_nsw(group, threads), next);
        let back = e.br(head);
        if !config.serialize {
            self.u.metadata.mark_parallel_loop(back);
        }
        e.position(inside);
        let first = self.decode(&axes, group, small, lanes);
        for lane in 0..lanes {
            let number = e.add_nsw(e.mul_nsw(group, number_of(lanes)), number_of(lane));
            let after = if lane + 1 == lanes { next } else { self.new_block(c"iteration.next") };
            let indices = self.moved_by(&axes, &first, lane);
            self.strided_iteration(v, l, indices, number, small, LoopTargets { on_break: done, on_continue: after });
            e.position(after);
        }
        e.position(rest);
        if lanes > 1 && axes.len() == 1 {
            // What is left over goes to the first threads, one each.
            let inside = self.new_block(c"left.over");
            let number = e.add_nsw(e.mul_nsw(groups, number_of(lanes)), thread);
            e.cond_br(e.icmp(IntCmp::LLVMIntSLT, number, total), inside, done);
            e.position(inside);
            let indices = self.decode(&axes, number, small, 1);
            self.strided_iteration(v, l, indices, number, small, LoopTargets { on_break: done, on_continue: done });
        } else {
            e.br(done);
        }
        e.position(done);
        self.combine_reductions(l, config);
    }

    fn strided_iteration(
        &mut self,
        v: ValueId,
        l: &'p ForLoop,
        indices: Vec<Index>,
        number: V,
        small: bool,
        targets: LoopTargets,
    ) {
        let e = self.e;
        let linear = if small { e.zext(number, e.i64) } else { number };
        self.iteration(v, l, indices, linear, targets);
        if !e.is_terminated() {
            e.br(targets.on_continue);
        }
    }

    /// Indices further along the last axis.
    fn moved_by(&self, axes: &[Axis], first: &[Index], lane: u32) -> Vec<Index> {
        let mut indices = first.to_vec();
        if let (Some(index), Some(axis), true) = (indices.last_mut(), axes.last(), lane > 0) {
            let wide = self.e.add_nsw(index.wide, self.e.i64c(i64::from(lane)));
            *index = Index { narrow: self.narrow_index(wide, axis.scalar), wide };
        }
        indices
    }

    /// The indices of the first of a group of `lanes` iterations from the group's number.
    fn decode(&self, axes: &[Axis], number: V, small: bool, lanes: u32) -> Vec<Index> {
        let e = self.e;
        let mut rest = number;
        let mut out = Vec::new();
        for (k, axis) in axes.iter().enumerate().rev() {
            let digit = if k == 0 {
                rest
            } else {
                let is_last = k + 1 == axes.len();
                let trips =
                    if is_last && lanes > 1 { e.udiv(axis.trips, e.i64c(i64::from(lanes))) } else { axis.trips };
                let trips = if small { e.trunc(trips, e.i32) } else { trips };
                let digit = e.urem(rest, trips);
                rest = e.udiv(rest, trips);
                digit
            };
            let digit = if small { e.zext(digit, e.i64) } else { digit };
            let grouped = k + 1 == axes.len() && lanes > 1;
            let digit = if grouped { e.mul_nsw(digit, e.i64c(i64::from(lanes))) } else { digit };
            let wide = e.add_nsw(digit, axis.begin);
            out.push(Index { narrow: self.narrow_index(wide, axis.scalar), wide });
        }
        out.reverse();
        out
    }

    /// Combines the accumulators of all threads into the targets.
    fn combine_reductions(&mut self, l: &ForLoop, config: &LoopConfig) {
        if config.serialize {
            return self.end_reductions(l);
        }
        let e = self.e;
        for (slot, r) in l.reductions.iter().enumerate() {
            let target = self.place(r.target);
            let s = target.shape.leaves[0].scalar;
            let ty = e.scalar(s);
            let own = e.load(ty, self.accumulators[slot], s.bytes());
            // What was subtracted has been summed as negative.
            let op = if r.op == AtomicOp::Sub { AtomicOp::Add } else { r.op };
            let identity = match fold_identity(op, s) {
                Some(Const::Float(f)) => e.real(ty, f),
                Some(Const::Int(i)) => e.int(ty, i),
                None => panic!("compiler bug: {op:?} is not a reduction"),
            };
            let combine = |a: V, b: V| self.updated(op, s, a, b);
            let after: Bb = self.new_block(c"reduced");
            let combined = self.u.target.combine_threads(e, s, own, identity, &combine, after);
            self.atomic(op, &target, &[combined.unwrap_or(own)]);
            e.br(after);
            e.position(after);
        }
    }
}
