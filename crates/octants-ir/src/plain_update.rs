//! Non-atomic updates: a load, an operation and a store, for memory that no other thread accesses at the same time.

use crate::body::{Body, Inst};
use crate::op::{Op, ValueId};
use crate::operation_table::{BinaryOp, binary_type};
use crate::types::Type;

/// Appends the non-atomic equivalent of the atomic update `like`, of the memory at `address` with operand `x`, to
/// `out`: stores the result of the operation, or else the operand. `old` is the current value, if it was loaded
/// already.
pub fn push_plain_update(
    body: &mut Body,
    out: &mut Vec<ValueId>,
    like: &Inst,
    (address, x, op): (ValueId, ValueId, Option<BinaryOp>),
    old: Option<ValueId>,
) {
    let mut push = |body: &mut Body, op, ty: &Type| {
        let v = body.add_inst(op, ty.clone(), like.span);
        out.push(v);
        v
    };
    let value = match op {
        Some(op) => {
            let old = old.unwrap_or_else(|| push(body, Op::Load(address), &like.ty));
            push(body, Op::Binary(op, old, x), &like.ty)
        }
        None => x,
    };
    push(body, Op::Store(address, value), &Type::Unit);
}

/// Appends the non-atomic equivalent of a compare-and-swap of the type `like`, of the memory at `address` with the
/// value `old`, to `out`. Floats are compared by their bits.
pub fn push_plain_swap(
    body: &mut Body,
    out: &mut Vec<ValueId>,
    like: &Inst,
    (address, expected, desired): (ValueId, ValueId, ValueId),
    old: ValueId,
) {
    let mut push = |body: &mut Body, op, ty: Type| {
        let v = body.add_inst(op, ty, like.span);
        out.push(v);
        v
    };
    let mut bits_of = |body: &mut Body, v: ValueId| match like.ty.scalar().and_then(|s| s.bits_type()) {
        Some(bits) => push(body, Op::Bitcast(v), like.ty.with_scalar(bits)),
        None => v,
    };
    let [found, wanted] = [old, expected].map(|v| bits_of(body, v));
    let is_same = binary_type(BinaryOp::Eq, body.ty(found));
    let hit = push(body, Op::Binary(BinaryOp::Eq, found, wanted), is_same);
    let new = push(body, Op::Select(hit, desired, old), like.ty.clone());
    push(body, Op::Store(address, new), Type::Unit);
}
