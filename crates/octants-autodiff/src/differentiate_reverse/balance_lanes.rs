//! Load balancing of iterations whose loops keep states. If the trip counts of these loops come from memory,
//! iterations are assigned to threads by their trip counts. Threads of a warp then do equal work, and access the store
//! together.
//!
//! Lanes take two turns as a pair. Both turns are assigned before the first begins, so a lane with little work in one
//! gets much in the other.
//!
//! If the target has no warps, or its threads cannot exchange values, only the trip counts are computed, and dead-code
//! elimination removes them.

use std::collections::HashMap;

use octants_ir::{BinaryOp, Builder, ForLoop, Op, Range, Scalar, Type, ValueId};

use super::emit_sweeps::Emitter;
use super::keep_states::{uses_store, uses_store_within};
use super::plan_sweeps::{Need, Plan, Seed, close};
use super::sweep_state::{Indices, Mode};
use octants_analysis::{Place, trace_address};

/// The iterations of a lane, all i64: `share` of the `n` iterations, starting at `first`, with a stride.
pub(super) struct Turns {
    pub first: ValueId,
    pub step: ValueId,
    pub lanes: ValueId,
    pub share: ValueId,
    pub n: ValueId,
}

impl Turns {
    /// The iteration that falls to this lane in a turn.
    pub fn own(&self, b: &mut Builder, turn: ValueId) -> ValueId {
        let offset = b.binary(BinaryOp::Mul, turn, self.step);
        b.binary(BinaryOp::Add, self.first, offset)
    }
}

/// The values that determine an iteration's length: the counted loops, and the code that their trip counts need.
pub(super) struct Lengths {
    loops: Vec<ValueId>,
    need: Need,
}

/// The loops in the body of a parallel loop that determine an iteration's length; `None` if that needs more than short
/// straight-line code, or if the length is the same for equal indices.
pub(super) fn lengths_of(plan: &Plan, l: &ForLoop) -> Option<Lengths> {
    let body = plan.body;
    // Threads that work together stay with their iterations.
    let mut cooperates = false;
    body.visit(l.body, &mut |_, inst| {
        cooperates |= matches!(inst.op, Op::Grid(_) | Op::FragmentIndex(_) | Op::Subgroup(..))
    });
    if cooperates {
        return None;
    }
    let keeps =
        |v: &ValueId| uses_store(plan, *v) || body.inst(*v).op.blocks().into_iter().any(|b| uses_store_within(plan, b));
    let is_told_before = |v: &ValueId| plan.is_counted(*v) && keeps(v);
    let loops: Vec<ValueId> = body.block(l.body).iter().copied().filter(is_told_before).collect();
    let mut seeds = Vec::new();
    loops.iter().for_each(|v| body.inst(*v).op.for_each_operand(|u| seeds.push(Seed::Value(u))));
    let need = close(body, &plan.layout, l.body, seeds);
    let is_plain = |v: &ValueId| {
        let op = &body.inst(*v).op;
        op.is_pure() || matches!(op, Op::Load(_) | Op::LoopIndex(..))
    };
    let reads = |v: &ValueId| match body.inst(*v).op {
        Op::Load(a) => matches!(trace_address(body, a), Place::Buffer(_)),
        _ => false,
    };
    (need.values.iter().all(is_plain) && need.values.iter().any(reads)).then_some(Lengths { loops, need })
}

impl Emitter<'_> {
    /// A serial loop of `n` iterations, an i64.
    pub(super) fn each(&mut self, n: ValueId, run: impl FnOnce(&mut Self, ValueId)) {
        let (begin, body) = (self.b.int(0, Scalar::I64), self.b.body.add_block());
        let serial = ForLoop::serial(vec![Range { begin, end: n }], body);
        let over = self.b.push(Op::For(Box::new(serial)), Type::Unit);
        self.within(body, |e| {
            let index = e.b.push(Op::LoopIndex(over, 0), Scalar::I64.into());
            run(e, index);
        });
    }

    /// The turns of a lane of the parallel loop `v`, in pairs.
    pub(super) fn balanced_turns(
        &mut self,
        of: (ValueId, &ForLoop),
        dims: &[Range],
        turns: &Turns,
        lengths: &Lengths,
        run: impl FnOnce(&mut Self, ValueId),
    ) {
        let [one, two] = [1, 2].map(|n| self.b.int(n, Scalar::I64));
        let sum = self.b.binary(BinaryOp::Add, turns.share, one);
        let pairs = self.b.binary(BinaryOp::Div, sum, two);
        self.each(pairs, |e, pair| {
            let even = e.b.binary(BinaryOp::Mul, pair, two);
            let odd = e.b.binary(BinaryOp::Add, even, one);
            let second = e.b.body.add_local("second", Scalar::I64.into());
            e.set(second, 0);
            let first = e.balance(of, dims, turns, even, lengths, false);
            let has_second = e.b.binary(BinaryOp::Lt, odd, turns.share);
            let hand_out = |e: &mut Self| {
                let number = e.balance(of, dims, turns, odd, lengths, true);
                e.b.store_local(second, number);
            };
            e.branch(has_second, hand_out, |_| ());
            let left = e.b.binary(BinaryOp::Sub, turns.share, even);
            let here = e.b.binary(BinaryOp::Min, left, two);
            e.each(here, |e, turn| {
                let is_first = e.b.binary(BinaryOp::Lt, turn, one);
                let second = e.b.load_local(second);
                let number = e.b.push(Op::Select(is_first, first, second), Scalar::I64.into());
                run(e, number);
            });
        });
    }

    /// The iteration that a lane runs in a turn.
    fn balance(
        &mut self,
        (v, l): (ValueId, &ForLoop),
        dims: &[Range],
        turns: &Turns,
        turn: ValueId,
        lengths: &Lengths,
        heaviest_first: bool,
    ) -> ValueId {
        let number = turns.own(&mut self.b, turn);
        let sum = self.b.body.add_local("length", Scalar::I64.into());
        self.set(sum, 0);
        let inside = self.b.binary(BinaryOp::Lt, number, turns.n);
        let measure = |e: &mut Self| {
            let indices = e.spread(number, dims);
            e.indices.insert(v, Indices::Are(indices));
            e.scopes.push(HashMap::new());
            e.forward(l.body, &lengths.need, Mode::Pass);
            for v in &lengths.loops {
                let Op::For(l) = &e.source().inst(*v).op else {
                    panic!("compiler bug: a loop of known length that is not a `for`")
                };
                let length = e.extent(&l.dims);
                e.b.update_local(sum, |b, sum| b.binary(BinaryOp::Add, sum, length));
            }
            e.scopes.pop();
        };
        self.branch(inside, measure, |_| ());
        let weight = self.b.load_local(sum);
        let before = self.b.binary(BinaryOp::Mul, turn, turns.lanes);
        let end = self.b.binary(BinaryOp::Add, before, turns.lanes);
        self.b.push(Op::Balance { number, weight, end, heaviest_first }, Scalar::I64.into())
    }
}
