//! Replaces divisions by the same value with multiplications by its reciprocal, which is computed once.
//!
//! Derivatives contain many such divisions: those of `1 / x` and of `sqrt(x)` divide again by the divisor or by the
//! result. LLVM shares reciprocals too, but only after it has merged `(a / x) / y` to `a / (x * y)`. The pass requires
//! `fast_math`, because a product with a reciprocal is rounded twice.
//!
//! Only divisions in one block are considered, so no reciprocal is computed for a division that does not execute.
//! Quotients of integers are excluded: programs round them, and an exact quotient must stay exact.

use std::collections::HashMap;

use octants_ir::{BinaryOp, BlockId, Body, Builder, Const, Inst, Kernel, Op, Scalar, ValueId};

use octants_ir::insert_code::bodies;

/// Shares reciprocals in the kernel and its functions.
pub fn share_reciprocals(kernel: &mut Kernel) {
    for body in bodies(kernel) {
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        for block in 0..b.body.blocks.len() {
            share_within(&mut b, BlockId(block as u32));
        }
        *body = b.body;
    }
}

fn share_within(b: &mut Builder, block: BlockId) {
    let mut divisions: HashMap<ValueId, u32> = HashMap::new();
    for v in b.body.block(block) {
        if let Some((_, divisor)) = division(&b.body, *v) {
            *divisions.entry(divisor).or_default() += 1;
        }
    }
    divisions.retain(|_, count| *count > 1);
    if divisions.is_empty() {
        return;
    }
    let mut reciprocals: HashMap<ValueId, ValueId> = HashMap::new();
    b.set_cursor(block);
    for v in std::mem::take(&mut b.body.blocks[block.index()]) {
        let Some((dividend, divisor)) = division(&b.body, v).filter(|(_, d)| divisions.contains_key(d)) else {
            b.place(v);
            continue;
        };
        let Inst { ty, span, .. } = b.body.inst(v).clone();
        b.span = span;
        let of_divisor = b.ty(divisor).clone();
        let is_reciprocal = ty == of_divisor && is_one(&b.body, dividend);
        if is_reciprocal && !reciprocals.contains_key(&divisor) {
            reciprocals.insert(divisor, v);
            b.place(v);
            continue;
        }
        let reciprocal = *reciprocals.entry(divisor).or_insert_with(|| {
            let one = b.float(1.0, of_divisor.scalar().expect("compiler bug: a quotient of a type without scalars"));
            let one = b.splat(one, &of_divisor);
            b.binary(BinaryOp::Div, one, divisor)
        });
        let factor = if ty == of_divisor { reciprocal } else { b.splat(reciprocal, &ty) };
        b.body.inst_mut(v).op = Op::Binary(BinaryOp::Mul, dividend, factor);
        b.place(v);
    }
}

/// The dividend and divisor of a float division; a splat divisor is represented by its component.
fn division(body: &Body, v: ValueId) -> Option<(ValueId, ValueId)> {
    let Inst { op: Op::Binary(BinaryOp::Div, dividend, divisor), ty, .. } = body.inst(v) else { return None };
    let divisor = if let Op::Splat(component) = body.inst(*divisor).op { component } else { *divisor };
    let is_constant = body.as_const(divisor).is_some();
    // A quotient of 16-bit floats may be finite although the reciprocal is not: that of 2^-17 is infinite.
    let has_range = matches!(ty.scalar()?, Scalar::F32 | Scalar::F64);
    let of_integers = is_converted(body, *dividend) && is_converted(body, divisor);
    (has_range && !is_constant && !of_integers).then_some((*dividend, divisor))
}

/// Whether a float is converted from an integer.
fn is_converted(body: &Body, v: ValueId) -> bool {
    match body.inst(v).op {
        Op::Cast(from) => body.ty(from).scalar().is_some_and(Scalar::is_int),
        Op::Splat(component) => is_converted(body, component),
        _ => false,
    }
}

fn is_one(body: &Body, v: ValueId) -> bool {
    let component = if let Op::Splat(component) = body.inst(v).op { component } else { v };
    body.as_const(component) == Some(Const::Float(1.0))
}
