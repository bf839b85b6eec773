//! Walks a body and inserts instructions next to existing ones; also code fragments that passes insert.

use crate::body::{Body, Builder};
use crate::kernel::Kernel;
use crate::op::{BlockId, Op, ValueId};
use crate::operation_table::BinaryOp;
use crate::types::{Scalar, Type};

/// Rebuilds each block of a body: `f` receives each instruction in order, and places it with the code that it adds.
pub fn rebuild_blocks(body: &mut Body, mut f: impl FnMut(&mut Builder, ValueId)) {
    let mut b = Builder::new();
    b.body = std::mem::take(body);
    // Blocks that `f` adds are finished when it returns.
    for block in 0..b.body.blocks.len() {
        let insts = std::mem::take(&mut b.body.blocks[block]);
        for v in insts {
            b.set_cursor(BlockId(block as u32));
            b.span = b.body.inst(v).span;
            f(&mut b, v);
        }
    }
    *body = b.body;
}

/// The bodies of a kernel: functions, then its own.
pub fn bodies(kernel: &mut Kernel) -> impl Iterator<Item = &mut Body> {
    kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body])
}

/// `a` and `b`, or the one that exists.
pub fn and(b: &mut Builder, a: Option<ValueId>, c: ValueId) -> ValueId {
    match a {
        Some(a) => b.binary(BinaryOp::And, a, c),
        None => c,
    }
}

/// A constant of a scalar or tensor type.
pub fn constant(b: &mut Builder, value: i64, ty: &Type) -> ValueId {
    let s = ty.scalar().expect("compiler bug: a constant of a type without scalars");
    let c = b.int(value, s);
    b.splat(c, ty)
}

/// A conversion of an index to the type that all checks of it are done in.
pub fn widen(b: &mut Builder, index: ValueId) -> ValueId {
    match b.ty(index).scalar() {
        Some(Scalar::I32 | Scalar::I64) => index,
        Some(Scalar::I8 | Scalar::I16 | Scalar::U8 | Scalar::U16 | Scalar::U1) => b.cast(index, Scalar::I32),
        _ => b.cast(index, Scalar::I64),
    }
}

/// An `if` whose `then` block `f` fills.
pub fn push_if(b: &mut Builder, condition: ValueId, f: impl FnOnce(&mut Builder)) {
    let (then, other) = (b.body.add_block(), b.body.add_block());
    b.push(Op::If(condition, then, other), Type::Unit);
    let back = b.set_cursor(then);
    f(b);
    b.set_cursor(back);
}

/// A component of a scalar or tensor is not zero. Bits are compared, because compilers may assume that no float is NaN.
pub fn any_bits(b: &mut Builder, value: ValueId) -> ValueId {
    let ty = b.ty(value).clone();
    let s = ty.scalar().expect("compiler bug: bits of a type without scalars");
    let word = match s {
        Scalar::F16 => Scalar::U16,
        Scalar::F32 => Scalar::U32,
        Scalar::F64 => Scalar::U64,
        s => s,
    };
    let mut all = None;
    for i in 0..ty.leaf_count() as u32 {
        let part = if ty.is_tensor() { b.extract(value, i) } else { value };
        let bits = if s.is_float() { b.push(Op::Bitcast(part), word.into()) } else { part };
        all = Some(all.map_or(bits, |all| b.binary(BinaryOp::Or, all, bits)));
    }
    let zero = b.int(0, word);
    b.binary(BinaryOp::Ne, all.unwrap_or(zero), zero)
}

/// Zero of any type that holds a value.
pub fn zero(b: &mut Builder, ty: &Type) -> ValueId {
    match ty {
        Type::Struct(s) => {
            let members = s.members.clone();
            let parts = members.iter().map(|(_, t)| zero(b, t)).collect();
            b.push(Op::MakeStruct(parts), ty.clone())
        }
        _ => {
            let c = b.int(0, ty.scalar().expect("compiler bug: zero of a type without scalars"));
            b.splat(c, ty)
        }
    }
}
