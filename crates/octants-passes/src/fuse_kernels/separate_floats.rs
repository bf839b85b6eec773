//! Keeps the optimizer from combining floats of different loops under `fast_math`: a product of one and a sum of the
//! next must not become a fused multiply-add, nor may two loops share a reciprocal.
//!
//! Every float that a loop after the first one loads, and every integer that it converts to a float, passes through an
//! exclusive or with a parameter of that loop, which is zero in each launch. So do floats that are stored where a later
//! loop adds to them.

use std::collections::{BTreeMap, BTreeSet};

use octants_analysis::trace_element;
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{BinaryOp, Body, BufferId, Builder, Kernel, Op, Param, Scalar, Type, ValueId};

use super::{Stage, visit_stage};

/// Adds the parameters. Yields their number.
pub(super) fn separate_floats(kernel: &mut Kernel, stages: &[Stage]) -> u32 {
    let first = kernel.params.len() as u32;
    let mut loads: BTreeMap<ValueId, u32> = BTreeMap::new();
    let mut stores: BTreeMap<ValueId, u32> = BTreeMap::new();
    let mut updated: BTreeSet<BufferId> = BTreeSet::new();
    for (n, stage) in stages.iter().enumerate().rev() {
        let body = &kernel.body;
        let zero = first + n as u32;
        visit_stage(body, stage, &mut |v, op| match op {
            Op::Load(a) if trace_element(body, *a).is_some() && holds_floats(body.ty(v)) && n > 0 => {
                loads.insert(v, zero);
            }
            Op::Cast(a) if n > 0 && converts(body, *a, v) => {
                loads.insert(v, zero);
            }
            Op::Store(a, value)
                if holds_floats(body.ty(*value))
                    && trace_element(body, *a).is_some_and(|(b, _)| updated.contains(&b)) =>
            {
                stores.insert(v, zero);
            }
            _ => {}
        });
        visit_stage(body, stage, &mut |_, op| {
            if let Op::Atomic(_, a, _) = op {
                updated.extend(trace_element(body, *a).map(|(b, _)| b));
            }
        });
    }
    let number = stages.len() as u32;
    let name = |n| Param { name: format!("zero of loop {n}"), ty: Type::Scalar(Scalar::I64) };
    kernel.params.extend((0..number).map(name));
    let zeros = push_zeros(&mut kernel.body, first..first + number);
    rebuild_blocks(&mut kernel.body, |b, v| rebuild(b, v, (&loads, &stores), &zeros));
    number
}

/// The parameters, as values at the start of the root.
fn push_zeros(body: &mut Body, params: std::ops::Range<u32>) -> BTreeMap<u32, ValueId> {
    let root = body.root.index();
    let made: Vec<(u32, ValueId)> =
        params.map(|p| (p, body.add_inst(Op::Param(p), Type::Scalar(Scalar::I64), Default::default()))).collect();
    body.blocks[root].splice(0..0, made.iter().map(|(_, v)| *v));
    made.into_iter().collect()
}

fn rebuild(
    b: &mut Builder,
    v: ValueId,
    (loads, stores): (&BTreeMap<ValueId, u32>, &BTreeMap<ValueId, u32>),
    zeros: &BTreeMap<u32, ValueId>,
) {
    let ty = b.body.inst(v).ty.clone();
    match (loads.get(&v), stores.get(&v), b.body.inst(v).op.clone()) {
        // The load's users use the opaque value: it takes the load's place.
        (Some(zero), _, op @ Op::Load(_)) => {
            let loaded = b.push(op, ty.clone());
            let opaque = hide(b, loaded, zeros[zero]);
            b.body.inst_mut(v).op = opaque;
            b.place(v);
        }
        (Some(zero), _, Op::Cast(a)) => {
            let from = b.ty(a).clone();
            let hidden = hide(b, a, zeros[zero]);
            let hidden = b.push(hidden, from);
            b.body.inst_mut(v).op = Op::Cast(hidden);
            b.place(v);
        }
        (_, Some(zero), Op::Store(a, value)) => {
            let hidden = hide(b, value, zeros[zero]);
            let ty = b.ty(value).clone();
            let hidden = b.push(hidden, ty);
            b.body.inst_mut(v).op = Op::Store(a, hidden);
            b.place(v);
        }
        _ => b.place(v),
    }
}

/// The operation that yields a value whose origin the optimizer cannot see.
fn hide(b: &mut Builder, v: ValueId, zero: ValueId) -> Op {
    let ty = b.ty(v).clone();
    let Some(scalar) = ty.scalar() else { return Op::Freeze(v) };
    let bits = match scalar.bytes() {
        1 => Scalar::I8,
        2 => Scalar::I16,
        4 => Scalar::I32,
        _ => Scalar::I64,
    };
    let word = ty.with_scalar(bits);
    let short = b.cast(zero, bits);
    let zero = b.splat(short, &word);
    let bitcast = scalar != bits;
    let as_bits = if bitcast { b.push(Op::Bitcast(v), word.clone()) } else { v };
    if !bitcast {
        return Op::Binary(BinaryOp::Xor, as_bits, zero);
    }
    let hidden = b.binary(BinaryOp::Xor, as_bits, zero);
    Op::Bitcast(hidden)
}

fn holds_floats(ty: &Type) -> bool {
    ty.leaves().iter().any(|s| s.is_float())
}

/// A cast of integers that are not constant to floats.
fn converts(body: &Body, from: ValueId, to: ValueId) -> bool {
    let is_int = body.ty(from).scalar().is_some_and(|s| s.is_int() && s != Scalar::U1);
    is_int && body.as_const(from).is_none() && body.ty(to).scalar().is_some_and(Scalar::is_float)
}
