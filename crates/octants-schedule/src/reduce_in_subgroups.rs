//! Sums of a converged loop (`converge_loops`): each step collects its sums in registers, and the subgroup adds them
//! together at the end of a round.
//!
//! An inner loop of few iterations that adds to elements along its index, as in `for b: for t in range(8): g[8 * b + t]
//! += f(b, t)`, is fully unrolled, so that each iteration has a register. Its sums are combined by recursive halving:
//! of two threads, one continues with the first half of the elements and the other with the second half, until each
//! thread has one element. This takes far fewer shuffles than reducing one element at a time, and threads then add to
//! different elements.
//!
//! At the end of a round each thread knows the addresses from loop indices only. A thread without sums can therefore
//! add for others. A sum of zero is not added: an element that no thread added to may be outside of its buffer.

use octants_ir::insert_code::{push_if, zero};
use octants_ir::{AtomicOp, BinaryOp, Body, Builder, GridValue, LocalId, Op, Scalar, SubgroupOp, Type, ValueId};

use crate::clone_code::Cloner;
use crate::facts::BodyFacts;
use crate::find_converged_loops::WarpReduction;
use crate::full_unroll::FullUnroll;
use crate::subgroup_steps::Steps;

/// The values of a subgroup's threads combined, for each thread.
pub(crate) fn shuffle_fold(b: &mut Builder, value: ValueId, op: BinaryOp, subgroup_bits: u32) -> ValueId {
    (0..subgroup_bits).rev().fold(value, |v, bit| {
        let other = shuffle_xor(b, v, 1 << bit);
        b.binary(op, v, other)
    })
}

/// As [`shuffle_fold`], for a subgroup in which only the first `threads` threads exist. The first thread has the
/// result.
pub(crate) fn shuffle_fold_of_some(
    b: &mut Builder,
    value: ValueId,
    op: BinaryOp,
    subgroup_bits: u32,
    lane: ValueId,
    threads: ValueId,
) -> ValueId {
    (0..subgroup_bits).rev().fold(value, |v, bit| {
        let other = shuffle_xor(b, v, 1 << bit);
        let both = b.binary(op, v, other);
        let bit = b.int(1 << bit, Scalar::I32);
        let partner = b.binary(BinaryOp::Xor, lane, bit);
        let exists = b.binary(BinaryOp::Lt, partner, threads);
        let ty = b.ty(v).clone();
        b.push(Op::Select(exists, both, v), ty)
    })
}

fn shuffle_xor(b: &mut Builder, value: ValueId, bits: i64) -> ValueId {
    let ty = b.ty(value).clone();
    let bits = b.int(bits, Scalar::I32);
    b.push(Op::Subgroup(SubgroupOp::ShuffleXor, vec![value, bits]), ty)
}

/// A thread's share of several results of its subgroup.
struct Portion {
    /// The result.
    value: ValueId,
    /// Which one it is, i32.
    number: ValueId,
    /// No thread below has the same one: u1.
    is_first: ValueId,
}

/// Sums each of several values, whose number is a power of two, at lower cost than one at a time: each thread gets one
/// sum.
fn sum_by_halves(b: &mut Builder, values: &[ValueId], subgroup_bits: u32) -> Portion {
    let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
    let none = b.int(0, Scalar::I32);
    let halved = values.len().trailing_zeros();
    let mut held = values.to_vec();
    // One of two threads keeps the lower half of the values, the other the upper half.
    for bit in (subgroup_bits - halved..subgroup_bits).rev().map(|bit| 1 << bit) {
        let mask = b.int(bit, Scalar::I32);
        let masked = b.binary(BinaryOp::And, lane, mask);
        let is_upper = b.binary(BinaryOp::Ne, masked, none);
        let (lower, upper) = held.split_at(held.len() / 2);
        let mut meet = |(l, u): (&ValueId, &ValueId)| {
            let ty = b.ty(*l).clone();
            let keeps = b.push(Op::Select(is_upper, *u, *l), ty.clone());
            let gives = b.push(Op::Select(is_upper, *l, *u), ty);
            let taken = shuffle_xor(b, gives, bit);
            b.binary(BinaryOp::Add, keeps, taken)
        };
        held = lower.iter().zip(upper).map(&mut meet).collect();
    }
    let rest = subgroup_bits - halved;
    let value = shuffle_fold(b, held[0], BinaryOp::Add, rest);
    let [shift, mask] = [i64::from(rest), (1 << rest) - 1].map(|n| b.int(n, Scalar::I32));
    let number = b.binary(BinaryOp::UShr, lane, shift);
    let among = b.binary(BinaryOp::And, lane, mask);
    Portion { value, number, is_first: b.binary(BinaryOp::Eq, among, none) }
}

/// The sums of a converged loop, and the locals that collect them.
pub(crate) struct Collected<'a> {
    reductions: &'a [WarpReduction],
    /// For each reduction the local of each element.
    locals: Vec<Vec<LocalId>>,
}

impl<'a> Collected<'a> {
    /// Adds the locals.
    pub fn new(b: &mut Builder, source: &Body, reductions: &'a [WarpReduction]) -> Collected<'a> {
        let mut of_reduction = |reduction: &WarpReduction| {
            let ty = source.ty(reduction.sums[0]);
            (0..reduction.along.elements).map(|_| b.body.add_local("sum", ty.clone())).collect()
        };
        Collected { reductions, locals: reductions.iter().map(&mut of_reduction).collect() }
    }

    /// The reductions, each with its locals.
    fn each(&self) -> impl Iterator<Item = (&'a WarpReduction, &Vec<LocalId>)> {
        self.reductions.iter().zip(&self.locals)
    }

    /// Sets the locals to zero.
    pub fn clear(&self, b: &mut Builder) {
        for local in self.locals.iter().flatten() {
            let ty = b.body.locals[local.index()].ty.clone();
            let none = zero(b, &ty);
            b.store_local(*local, none);
        }
    }

    /// Collects a sum of the code that is being copied; `false` if the instruction is none.
    pub fn collect(&self, b: &mut Builder, cloner: &Cloner<'_>, v: ValueId) -> bool {
        let Op::Atomic(op, _, operand) = cloner.source.inst(v).op else { return false };
        let Some((reduction, locals)) = self.each().find(|(reduction, _)| reduction.sums.contains(&v)) else {
            return false;
        };
        let along = reduction.along;
        let element = if along.elements == 1 { 0 } else { cloner.iterations[&along.loop_id] };
        let operand = cloner.value(operand);
        let add = if op == AtomicOp::Sub { BinaryOp::Sub } else { BinaryOp::Add };
        b.update_local(locals[element], |b, before| b.binary(add, before, operand));
        true
    }

    /// Adds the sums that the subgroup's threads have collected, jointly.
    pub fn add_as_one(
        &self,
        b: &mut Builder,
        facts: &BodyFacts<'_>,
        unrolled: &FullUnroll,
        steps: &Steps,
        subgroup_bits: u32,
    ) {
        let mut combined = Vec::new();
        for (_, locals) in self.each() {
            let mut values: Vec<ValueId> = locals.iter().map(|local| b.load_local(*local)).collect();
            let ty = b.ty(values[0]).clone();
            while !values.len().is_power_of_two() {
                values.push(zero(b, &ty));
            }
            combined.push(sum_by_halves(b, &values, subgroup_bits));
        }
        for ((reduction, _), portion) in self.each().zip(combined) {
            let is_some = is_some(b, portion.value);
            let adds = b.binary(BinaryOp::And, portion.is_first, is_some);
            push_if(b, adds, |b| add_to(b, facts, unrolled, steps, reduction, (portion.number, portion.value)));
        }
    }

    /// Adds this thread's partial sum.
    pub fn add_apart(&self, b: &mut Builder, facts: &BodyFacts<'_>, unrolled: &FullUnroll, steps: &Steps) {
        for (reduction, locals) in self.each() {
            for (element, local) in locals.iter().enumerate() {
                let value = b.load_local(*local);
                let adds = is_some(b, value);
                push_if(b, adds, |b| {
                    let number = b.int(element as i64, Scalar::I32);
                    add_to(b, facts, unrolled, steps, reduction, (number, value));
                });
            }
        }
    }
}

/// A sum is not zero.
fn is_some(b: &mut Builder, value: ValueId) -> ValueId {
    let ty = b.ty(value).clone();
    let parts: Vec<ValueId> = match ty.is_tensor() {
        true => (0..ty.leaf_count() as u32).map(|i| b.extract(value, i)).collect(),
        false => vec![value],
    };
    let mut any = None;
    for part in parts {
        let none = b.int(0, ty.scalar().expect("compiler bug: a sum of a type without scalars"));
        let is_some = b.binary(BinaryOp::Ne, part, none);
        any = Some(any.map_or(is_some, |any| b.binary(BinaryOp::Or, any, is_some)));
    }
    any.expect("compiler bug: a sum of a type without scalars")
}

/// Adds to the element of a reduction with a number.
fn add_to(
    b: &mut Builder,
    facts: &BodyFacts<'_>,
    unrolled: &FullUnroll,
    steps: &Steps,
    reduction: &WarpReduction,
    (number, value): (ValueId, ValueId),
) {
    let mut cloner = Cloner::new(facts.body, &facts.locals);
    let inner = reduction.along.loop_id;
    match unrolled.loops.get(&inner) {
        Some(indices) => {
            let index = b.cast(number, cloner.index_type(inner));
            let first = b.int(indices.start, cloner.index_type(inner));
            let index = if indices.start == 0 { index } else { b.binary(BinaryOp::Add, first, index) };
            cloner.indices.insert((inner, 0), index);
            steps.enter(b, &mut cloner, steps.start);
        }
        None => {
            let step = steps.step(b, number);
            steps.enter(b, &mut cloner, step);
        }
    }
    let mut hook = |_: &mut Cloner<'_>, _: &mut Builder, v: ValueId| steps.has_value(v);
    cloner.insts(b, &reduction.steps, &mut hook);
    let address = cloner.value(reduction.address);
    let ty = b.ty(value).clone();
    b.push(Op::Atomic(AtomicOp::Add, address, value), ty);
}
