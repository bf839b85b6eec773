//! Loops in order in which the threads of a warp add to the same element at a time, although they run differently often: gradients
//! of what all iterations of a parallel loop read one after the other.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)` the threads of a warp, which run neighbouring `i` in step, are at the same `k`. Run
//! backwards they would each begin at their own end; here all begin at the farthest end of a warp's threads, and those that have
//! not come to theirs wait, which costs nothing, for a warp takes as long as its longest thread anyhow. Then the sums of a warp are
//! combined in registers, and one thread adds the result, instead of many that get in each other's way.
//!
//! It applies to sums of floats into copies in a block's memory (`share_in_blocks`); for those of integers there is an instruction that
//! minds less. Whether all threads are there and mean the same element is found out before the loop; else each adds by itself.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, Const, ForLoop, Op, Range, Scalar, ValueId};

use crate::emit::{Bb, IntCmp, V};
use crate::load_early::EarlyLoads;
use crate::lower_body::{Index, LoopTargets, Lowering};
use crate::place::LeafAt;

/// A loop whose threads can be aligned.
struct Alignment {
    /// The sums whose elements are then the same.
    sums: HashSet<ValueId>,
    /// The elements follow the index backwards.
    descending: bool,
    /// Values from outside of the loop that they depend on.
    given: Vec<ValueId>,
}

/// Where the sums of an aligned loop come together.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    sums: HashSet<ValueId>,
    /// Address and operand of each scalar, where a thread adds any.
    parts: Vec<(V, LeafAt, V)>,
}

/// How an index of a sum's address follows the loop's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Follows {
    Index,
    /// The last index minus the loop's, plus the first.
    Backwards,
    /// It is the same in all iterations.
    Nothing,
}

fn find_alignment(lowering: &Lowering<'_, '_>, v: ValueId, l: &ForLoop) -> Option<Alignment> {
    let (body, facts) = (lowering.body, &lowering.u.facts);
    let [range] = l.dims.as_slice() else { return None };
    let mut inside = HashSet::new();
    let mut leaves = false;
    body.visit(l.body, &mut |v, inst| {
        inside.insert(v);
        leaves |= match &inst.op {
            Op::Return(_) | Op::Assert(..) => true,
            Op::Call(f, _) => facts.effects[f.index()].fails,
            _ => false,
        };
    });
    if leaves || may_leave(body, l.body) {
        return None;
    }
    let mut found = Alignment { sums: HashSet::new(), descending: false, given: Vec::new() };
    let mut direction = Follows::Nothing;
    for &sum in body.block(l.body) {
        let Op::Atomic(AtomicOp::Add | AtomicOp::Sub, address, operand) = body.inst(sum).op else { continue };
        let mut indices = Vec::new();
        let is_copied = matches!(root_of(body, address, &mut indices), Some(b) if lowering.moved.contains_key(&b));
        if !is_copied || !body.ty(operand).scalar().is_some_and(Scalar::is_float) {
            continue;
        }
        let indices: Vec<ValueId> = indices.into_iter().map(|i| lowering.source(i)).collect();
        let follows = |i: &ValueId| follows(lowering, v, range, &inside, *i);
        let Some(all) = indices.iter().map(follows).collect::<Option<Vec<Follows>>>() else { continue };
        let moving = all.iter().copied().filter(|f| *f != Follows::Nothing);
        let fits = moving.clone().all(|f| direction == Follows::Nothing || direction == f);
        let first = moving.clone().next().unwrap_or(Follows::Nothing);
        if !fits || moving.clone().any(|f| f != first) {
            continue;
        }
        direction = if direction == Follows::Nothing { first } else { direction };
        found.sums.insert(sum);
        let is_given = |(i, f): &(ValueId, Follows)| *f == Follows::Nothing && body.as_const(*i).is_none();
        found.given.extend(indices.into_iter().zip(all).filter(is_given).map(|(i, _)| i));
    }
    found.descending = direction == Follows::Backwards;
    found.given.push(range.begin);
    (!found.sums.is_empty()).then_some(found)
}

/// The buffer that an address is in, and the indices on the way.
pub(crate) fn root_of(body: &Body, address: ValueId, indices: &mut Vec<ValueId>) -> Option<usize> {
    match &body.inst(address).op {
        Op::BufferAddr(b, index) => {
            indices.extend(index);
            Some(b.index())
        }
        Op::ElementAddr(base, index) => {
            indices.extend(index);
            root_of(body, *base, indices)
        }
        Op::MemberAddr(base, _) => root_of(body, *base, indices),
        _ => None,
    }
}

/// A block of a loop leaves it, or its iteration, before the end.
fn may_leave(body: &Body, block: BlockId) -> bool {
    body.block(block).iter().any(|v| match &body.inst(*v).op {
        Op::Break | Op::Continue => true,
        Op::If(_, a, b) => may_leave(body, *a) || may_leave(body, *b),
        _ => false,
    })
}

fn follows(
    lowering: &Lowering<'_, '_>,
    v: ValueId,
    range: &Range,
    inside: &HashSet<ValueId>,
    index: ValueId,
) -> Option<Follows> {
    let body = lowering.body;
    if !inside.contains(&index) || body.as_const(index).is_some() {
        return Some(Follows::Nothing);
    }
    match body.inst(index).op {
        Op::LoopIndex(of, _) if of == v => Some(Follows::Index),
        Op::Binary(BinaryOp::Sub, last, i) if body.inst(lowering.source(i)).op == Op::LoopIndex(v, 0) => {
            let ((base, n), (of_end, m)) = (terms(lowering, last), terms(lowering, range.end));
            let (None, first) = terms(lowering, range.begin) else { return None };
            (base == of_end && n == m + first - 1).then_some(Follows::Backwards)
        }
        _ => None,
    }
}

/// A number as a value plus a constant.
fn terms(lowering: &Lowering<'_, '_>, v: ValueId) -> (Option<ValueId>, i64) {
    let v = lowering.source(v);
    match lowering.body.inst(v).op {
        Op::Const(Const::Int(n)) => (None, n),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => match (terms(lowering, a), terms(lowering, b)) {
            ((base, n), (None, m)) if op == BinaryOp::Add => (base, n.wrapping_add(m)),
            ((base, n), (None, m)) => (base, n.wrapping_sub(m)),
            ((None, n), (base, m)) if op == BinaryOp::Add => (base, n.wrapping_add(m)),
            _ => (Some(v), 0),
        },
        _ => (Some(v), 0),
    }
}

impl<'p> Lowering<'_, 'p> {
    /// Lowers a loop in order with its threads aligned, where that is of use; else nothing is done.
    pub fn align_loop(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let is_candidate = !self.moved.is_empty() && self.gathered.is_none() && self.u.target.shares_by_stride();
        let Some(alignment) = is_candidate.then(|| find_alignment(self, v, l)).flatten() else { return false };
        let e = self.e;
        let (begin, end, s) = (self.bound(l.dims[0].begin), self.bound(l.dims[0].end), self.scalar_of(l.dims[0].begin));
        // From a number that is not negative there are fewer than 2^31 iterations.
        let is_short = s.bits() <= 32 && e.as_int(begin).is_some_and(|first| first >= 0);
        let count = if is_short { Scalar::I32 } else { Scalar::I64 };
        let ty = e.scalar(count);
        let (begin, end) = if is_short { (e.trunc(begin, ty), e.trunc(end, ty)) } else { (begin, end) };
        let zero = e.zero(ty);
        let own = e.select(e.icmp(IntCmp::LLVMIntSLT, begin, end), e.sub(end, begin), zero);
        let (together, leads, steps) = self.agree(&alignment, count, own);
        let early = EarlyLoads::find(self, l.body);
        let loaded = self.load_early(&early, e.icmp(IntCmp::LLVMIntSGT, own, zero), None);

        let (head, inside, run) = (self.new_block(c"step"), self.new_block(c"step.body"), self.new_block(c"step.run"));
        let (join, exit) = (self.new_block(c"step.join"), self.new_block(c"steps.end"));
        let one = e.int(ty, 1);
        let first = if alignment.descending { e.sub_nsw(steps, one) } else { zero };
        let from = e.block();
        e.br(head);
        e.position(head);
        let step = e.phi(ty);
        e.add_incoming(step, first, from);
        let carry = |v: &V| {
            let phi = e.phi(e.type_of(*v));
            e.add_incoming(phi, *v, from);
            phi
        };
        let loaded: Vec<Vec<V>> = loaded.iter().map(|leaves| leaves.iter().map(carry).collect()).collect();
        let goes_on = match alignment.descending {
            true => e.icmp(IntCmp::LLVMIntSGE, step, zero),
            false => e.icmp(IntCmp::LLVMIntSLT, step, steps),
        };
        e.cond_br(goes_on, inside, exit);
        e.position(inside);
        let following = if alignment.descending { e.sub_nsw(step, one) } else { e.add_nsw(step, one) };
        let is_active = e.icmp(IntCmp::LLVMIntSLT, step, own);
        e.cond_br(is_active, run, join);

        e.position(run);
        let last = e.sub_nsw(end, one);
        let index = match alignment.descending {
            true => e.sub_nsw(last, step),
            false => e.add_nsw(begin, step),
        };
        let index = match (is_short, alignment.descending) {
            // Widened by parts: the last index less this one is then seen to be the step.
            (true, true) => Index { narrow: index, wide: e.sub_nsw(e.sext(last, e.i64), e.sext(step, e.i64)) },
            (true, false) => Index { narrow: index, wide: e.sext(index, e.i64) },
            (false, _) => Index { narrow: self.narrow_index(index, s), wide: index },
        };
        self.indices.insert(v, vec![index]);
        self.gathered = Some(Gathered { sums: alignment.sums, parts: Vec::new() });
        self.loops.push(LoopTargets { on_break: exit, on_continue: join });
        self.block_with_early(l.body, &early, &loaded);
        self.loops.pop();
        self.indices.remove(&v);
        let comes = match alignment.descending {
            true => e.icmp(IntCmp::LLVMIntSGE, following, zero),
            false => e.icmp(IntCmp::LLVMIntSLT, following, own),
        };
        let to_come = self.load_early(&early, comes, Some(&loaded));
        let gathered = self.gathered.take().expect("compiler bug: an aligned loop is open");
        let ran = e.block();
        e.br(join);

        e.position(join);
        let any = |ran_with: V, waited_with: V| {
            let phi = e.phi(e.type_of(ran_with));
            e.add_incoming(phi, ran_with, ran);
            e.add_incoming(phi, waited_with, inside);
            phi
        };
        let to_come = to_come.iter().flatten().zip(loaded.iter().flatten());
        let to_come: Vec<(V, V)> = to_come.map(|(next, held)| (*held, any(*next, *held))).collect();
        let none = |ptr: &V| e.undef(e.type_of(*ptr));
        let parts = gathered.parts.iter();
        let parts: Vec<(V, LeafAt, V)> = parts
            .map(|(ptr, leaf, value)| (any(*ptr, none(ptr)), *leaf, any(*value, e.zero(e.type_of(*value)))))
            .collect();
        let (as_one, apart, next) = (self.new_block(c"as.one"), self.new_block(c"apart"), self.new_block(c"step.next"));
        e.cond_br(together, as_one, apart);
        e.position(as_one);
        let sum = |(ptr, leaf, value): &(V, LeafAt, V)| {
            let all = self.u.target.combine_warp(e, leaf.scalar, *value, &|a, b| e.fadd(a, b));
            (*ptr, *leaf, all)
        };
        let sums: Vec<(V, LeafAt, V)> = parts.iter().map(sum).collect();
        self.add_where(leads, &sums, next);
        e.position(apart);
        self.add_where(is_active, &parts, next);
        e.position(next);
        e.add_incoming(step, following, next);
        to_come.iter().for_each(|(held, next_one)| e.add_incoming(*held, *next_one, next));
        e.br(head);
        e.position(exit);
        true
    }

    /// Adds where a condition holds, and goes on at `next`.
    fn add_where(&self, condition: V, parts: &[(V, LeafAt, V)], next: Bb) {
        let e = self.e;
        let add = self.new_block(c"step.add");
        e.cond_br(condition, add, next);
        e.position(add);
        parts.iter().for_each(|(ptr, leaf, value)| self.atomic_sum(*ptr, leaf, *value));
        e.br(next);
    }

    /// Lets a warp's threads, which want `own` iterations each, agree: whether all are there and mean the same elements, whether this one
    /// adds for them, and how often they run.
    fn agree(&self, alignment: &Alignment, count: Scalar, own: V) -> (V, V, V) {
        let (e, target) = (self.e, self.u.target);
        let (ask, agreed) = (self.new_block(c"agree"), self.new_block(c"agreed"));
        let whole = target.is_whole_warp(e);
        let from = e.block();
        e.cond_br(whole, ask, agreed);
        e.position(ask);
        let extreme =
            |s: Scalar, v: V, p: IntCmp| target.combine_warp(e, s, v, &|a, b| e.select(e.icmp(p, a, b), a, b));
        let known = e.as_int(own).is_some();
        let most = if known { own } else { extreme(count, own, IntCmp::LLVMIntSGT) };
        let mut same = e.int(e.i1, 1);
        for v in &alignment.given {
            let (s, v) = (self.scalar_of(*v), self.value(*v));
            if e.as_int(v).is_none() {
                let (low, high) = (extreme(s, v, IntCmp::LLVMIntULT), extreme(s, v, IntCmp::LLVMIntUGT));
                same = e.and(same, e.icmp(IntCmp::LLVMIntEQ, low, high));
            }
        }
        // One that runs to the end has an address in each step.
        let lane = target.lane(e);
        let number = e.select(e.icmp(IntCmp::LLVMIntEQ, own, most), lane, e.i32c(i64::from(i32::MAX)));
        let leader = if known { e.i32c(0) } else { extreme(Scalar::I32, number, IntCmp::LLVMIntSLT) };
        let is_leader = e.icmp(IntCmp::LLVMIntEQ, lane, leader);
        let asked = e.block();
        e.br(agreed);
        e.position(agreed);
        let merge = |ty, yes, no| {
            let phi = e.phi(ty);
            e.add_incoming(phi, yes, asked);
            e.add_incoming(phi, no, from);
            phi
        };
        let no = e.int(e.i1, 0);
        (merge(e.i1, same, no), merge(e.i1, is_leader, no), merge(e.scalar(count), most, own))
    }

    /// Puts off a sum of the aligned loop that is being lowered; `false` where it is none.
    pub fn gather_sum(&mut self, v: ValueId, op: AtomicOp, address: ValueId, operand: ValueId) -> bool {
        if !self.gathered.as_ref().is_some_and(|g| g.sums.contains(&v)) {
            return false;
        }
        let place = self.place(address);
        let signed = |v: V| if op == AtomicOp::Sub { self.e.fneg(v) } else { v };
        let leaves = place.shape.leaves.iter().zip(self.leaves(operand));
        let parts: Vec<_> =
            leaves.map(|(leaf, value)| (self.leaf_pointer(&place, leaf), *leaf, signed(value))).collect();
        self.gathered.as_mut().is_some_and(|g| {
            g.parts.extend(parts);
            true
        })
    }
}
