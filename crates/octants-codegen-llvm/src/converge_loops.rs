//! Warp-synchronous (converged) loops: serial loops in which the threads of a warp add to the same element at a time,
//! although their trip counts differ.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)` the threads of a warp run neighboring `i` and are at the same `k`. A
//! descending loop would start each thread at its own end. Here all start at the farthest end in the warp, and a thread
//! waits until its own end is reached. The wait is free, because a warp takes as long as its longest thread. The warp
//! then combines its sums in registers (`gather_sums`), up to eight steps at a time, and one thread adds each result.
//!
//! Applies to sums of floats into copies in shared memory (`privatize_in_shared_memory`). Integer sums need it less:
//! GPUs have an instruction for them. A vote before the loop decides whether the warp is complete and agrees on the
//! elements. Otherwise each thread adds by itself.

use std::collections::HashSet;

use octants_ir::schedule::{ConvergedLoop, PipelinedLoads};
use octants_ir::{ForLoop, Scalar, ValueId};

use crate::emit::{Bb, Emitter, IntCmp, T, V};
use crate::lowering::{Gathered, Index, LoopTargets, Lowering, Unrolled};

/// How often the threads of a warp run a loop, in steps that they take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// The loop's bounds, i64.
    begin: V,
    end: V,
    /// The type of its indices.
    index: T,
    /// The type in which steps are counted.
    ty: T,
    descending: bool,
}

impl Steps {
    /// The loop's index at a step, `offset` steps after `step`; `offset` is an i64. A thread that waits has one too: it may add for others.
    pub fn index_at(&self, e: &Emitter, step: V, offset: V) -> Index {
        let narrow = |v: V, ty: T| if e.type_of(v) == ty { v } else { e.trunc(v, ty) };
        let widen = |v: V| if e.type_of(v) == e.i64 { v } else { e.sext(v, e.i64) };
        let (near, far) = (e.add(step, narrow(offset, self.ty)), e.add_nsw(widen(step), offset));
        if self.descending {
            // Widened by parts: the last index less this one is then seen to be the step. The end may be any number.
            let last = e.sub(narrow(self.end, self.ty), e.int(self.ty, 1));
            let wide = e.sub(e.sub(self.end, e.i64c(1)), far);
            Index { narrow: narrow(e.sub(last, near), self.index), wide }
        } else {
            let near = e.add(narrow(self.begin, self.ty), near);
            Index { narrow: narrow(near, self.index), wide: e.add_nsw(self.begin, far) }
        }
    }
}

/// A loop whose steps are being lowered.
struct Run<'a> {
    loop_id: ValueId,
    pipelined: &'a PipelinedLoads,
    steps: Steps,
    /// The first step of a round.
    start: V,
    /// How many steps this thread runs.
    own: V,
}

impl<'p> Lowering<'_, 'p> {
    /// Lowers a serial loop warp-synchronously, if the schedule says so and its sums go to copies; else does nothing.
    pub fn converge_loop(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let converged = self.schedule.loops.get(&v).and_then(|s| s.converged.as_deref());
        let is_copied = !self.parallel.moved.is_empty() && self.copies.gathered.is_none();
        let Some(converged) = converged.filter(|_| is_copied) else { return false };
        let ConvergedLoop { reductions, descending, interleave_factor, invariants, full_unroll, pipelined } = converged;
        let (descending, interleave_factor) = (*descending, *interleave_factor);
        let gathered = self.gather(v, reductions);
        let e = self.e;
        let (begin, end, s) = (self.bound(l.dims[0].begin), self.bound(l.dims[0].end), self.scalar_of(l.dims[0].begin));
        // From a number that is not negative there are fewer than 2^31 iterations.
        let is_short = s.bits() <= 32 && e.as_int(begin).is_some_and(|first| first >= 0);
        let count = if is_short { Scalar::I32 } else { Scalar::I64 };
        let ty = e.scalar(count);
        let zero = e.zero(ty);
        let trips = e.sub(end, begin);
        let trips = if is_short { e.trunc(trips, ty) } else { trips };
        let own = e.select(e.icmp(IntCmp::LLVMIntSLT, begin, end), trips, zero);
        let (together, most) = self.agree(invariants, count, own);
        let mut loaded = self.load_ahead(pipelined, e.icmp(IntCmp::LLVMIntSGT, own, zero), None);

        // A round is `interleave_factor` steps; all threads of the warp come to its end.
        let (round, next, exit) =
            (self.new_block(c"round"), self.new_block(c"round.next"), self.new_block(c"rounds.end"));
        let in_round = e.int(ty, interleave_factor);
        let first = if descending { e.and(e.sub_nsw(most, e.int(ty, 1)), e.int(ty, -interleave_factor)) } else { zero };
        let from = e.block();
        e.cond_br(e.icmp(IntCmp::LLVMIntSGT, most, zero), round, exit);
        e.position(round);
        let start = e.phi(ty);
        e.add_incoming(start, first, from);
        let carry = |v: &mut V| {
            let phi = e.phi(e.type_of(*v));
            e.add_incoming(phi, std::mem::replace(v, phi), from);
            phi
        };
        let carried: Vec<V> = loaded.iter_mut().flatten().map(carry).collect();
        self.clear_collected(&gathered);
        let steps = Steps { begin, end, index: e.scalar(s), ty, descending };
        let run = Run { loop_id: v, pipelined, steps, start, own };
        self.copies.gathered = Some(gathered);
        let around = std::mem::replace(&mut self.copies.unrolled, Unrolled::of(full_unroll));
        for turn in 0..interleave_factor {
            let offset = if descending { interleave_factor - 1 - turn } else { turn };
            loaded = self.run_step(l, &run, offset, loaded);
        }
        let gathered = self.copies.gathered.take().expect("compiler bug: a converged loop is open");

        let (as_one, apart) = (self.new_block(c"as.one"), self.new_block(c"apart"));
        e.cond_br(together, as_one, apart);
        e.position(as_one);
        self.add_as_one(&gathered, &|e, element| steps.index_at(e, start, element));
        e.br(next);
        e.position(apart);
        self.add_apart(&gathered, &|e, element| steps.index_at(e, start, element));
        e.br(next);
        self.close_indices(v, &gathered);
        self.copies.unrolled = around;
        e.position(next);
        let (following, goes_on) = match descending {
            true => (e.sub_nsw(start, in_round), e.icmp(IntCmp::LLVMIntSGT, start, zero)),
            false => (e.add_nsw(start, in_round), e.icmp(IntCmp::LLVMIntSGT, e.sub_nsw(most, start), in_round)),
        };
        e.add_incoming(start, following, next);
        carried.iter().zip(loaded.iter().flatten()).for_each(|(phi, v)| e.add_incoming(*phi, *v, next));
        e.cond_br(goes_on, round, exit);
        e.position(exit);
        true
    }

    /// Runs a step of a round, unless this thread waits in it: yields what is loaded for the next one.
    fn run_step(&mut self, l: &'p ForLoop, run: &Run<'_>, offset: i64, loaded: Vec<Vec<V>>) -> Vec<Vec<V>> {
        let e = self.e;
        let Run { loop_id, pipelined, steps, start, own } = *run;
        let (runs, join) = (self.new_block(c"step"), self.new_block(c"step.join"));
        let at = |offset: i64| e.add(start, e.int(steps.ty, offset));
        // As unsigned numbers those of steps do not overflow, however many there are.
        let is_active = e.icmp(IntCmp::LLVMIntULT, at(offset), own);
        let waits = e.block();
        e.cond_br(is_active, runs, join);
        e.position(runs);
        self.open.indices.insert(loop_id, vec![steps.index_at(e, start, e.i64c(offset))]);
        self.copies.unrolled.set_iteration(loop_id, offset as usize);
        let comes = match (steps.descending, offset) {
            (true, 0) => e.icmp(IntCmp::LLVMIntSGT, start, e.zero(steps.ty)),
            (true, _) => e.int(e.i1, 1),
            (false, _) => e.icmp(IntCmp::LLVMIntULT, at(offset + 1), own),
        };
        self.open.targets.push(LoopTargets { on_break: join, on_continue: join });
        let mut ends: Vec<(Bb, Vec<Vec<V>>)> = vec![(waits, loaded.clone())];
        self.in_versions(l.body, &mut |this, part, is_last| {
            this.with_loaded(part, pipelined, &loaded);
            if is_last {
                let to_come = this.load_ahead(pipelined, comes, Some(&loaded));
                ends.push((e.block(), to_come));
                e.br(join);
            }
        });
        self.open.targets.pop();
        e.position(join);
        let merge = |i: usize, j: usize| {
            let phi = e.phi(e.type_of(loaded[i][j]));
            ends.iter().for_each(|(from, values)| e.add_incoming(phi, values[i][j], *from));
            phi
        };
        loaded.iter().enumerate().map(|(i, leaves)| (0..leaves.len()).map(|j| merge(i, j)).collect()).collect()
    }

    /// Forgets the indices of the loop and of those in it that sums follow.
    fn close_indices(&mut self, v: ValueId, gathered: &Gathered<'_>) {
        self.open.indices.remove(&v);
        gathered.followed().for_each(|number| _ = self.open.indices.remove(&number));
    }

    /// Lets the threads of a warp agree. Each has `own` iterations. Yields whether the warp is complete with equal
    /// `invariants`, and the largest trip count.
    fn agree(&self, invariants: &[ValueId], count: Scalar, own: V) -> (V, V) {
        let (e, target) = (self.e, self.u.target);
        let (ask, agreed) = (self.new_block(c"agree"), self.new_block(c"agreed"));
        let whole = target.is_whole_warp(e);
        let from = e.block();
        e.cond_br(whole, ask, agreed);
        e.position(ask);
        let extreme =
            |s: Scalar, v: V, p: IntCmp| target.combine_warp(e, s, v, &|a, b| e.select(e.icmp(p, a, b), a, b));
        let most = if e.as_int(own).is_some() { own } else { extreme(count, own, IntCmp::LLVMIntSGT) };
        let mut same = e.int(e.i1, 1);
        let mut asked_for = HashSet::new();
        for v in invariants {
            let (s, v) = (self.scalar_of(*v), self.value(*v));
            if e.as_int(v).is_none() && asked_for.insert(v) {
                let (low, high) = (extreme(s, v, IntCmp::LLVMIntULT), extreme(s, v, IntCmp::LLVMIntUGT));
                same = e.and(same, e.icmp(IntCmp::LLVMIntEQ, low, high));
            }
        }
        let asked = e.block();
        e.br(agreed);
        e.position(agreed);
        let merge = |ty, yes, no| {
            let phi = e.phi(ty);
            e.add_incoming(phi, yes, asked);
            e.add_incoming(phi, no, from);
            phi
        };
        (merge(e.i1, same, e.int(e.i1, 0)), merge(e.scalar(count), most, own))
    }
}
