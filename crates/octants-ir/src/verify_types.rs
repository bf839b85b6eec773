//! The rules about the types of one instruction, 20 to 31 of [`Rule`].
//!
//! Assumes that every number in the instruction exists and that its operands have values.

use crate::body::Body;
use crate::kernel::Layout;
use crate::op::*;
use crate::operation_table::{AtomicOp, binary_type, unary_type};
use crate::types::{Scalar, Type};
use crate::verify::{Rule, Scope};

/// Reports what rule about types the instruction breaks, if any.
pub(crate) fn check_types(scope: &Scope, body: &Body, v: ValueId, report: impl FnOnce(Rule)) {
    if let Err(rule) = check(scope, body, v) {
        report(rule);
    }
}

fn need(holds: bool, rule: Rule) -> Result<(), Rule> {
    if holds { Ok(()) } else { Err(rule) }
}

fn check(scope: &Scope, body: &Body, v: ValueId) -> Result<(), Rule> {
    let inst = body.inst(v);
    let ty = &inst.ty;
    let of = |u: &ValueId| body.ty(*u);
    let pointee = |u: &ValueId, rule: Rule| match body.ty(*u) {
        Type::Ref(t) => Ok(&**t),
        _ => Err(rule),
    };
    let is_int = |u: &ValueId| matches!(body.ty(*u), Type::Scalar(s) if s.is_int());
    match &inst.op {
        Op::Const(c) => {
            let fits = |s: Scalar| matches!(c, Const::Float(_)) == s.is_float();
            need(matches!(ty, Type::Scalar(s) if fits(*s)), Rule::ConstType)
        }
        Op::Param(i) => need(scope.params[*i as usize] == ty, Rule::ResultType),
        Op::Unary(op, a) => {
            let s = of(a).scalar().ok_or(Rule::UnaryType)?;
            need(op.domain().contains(s) && *ty == unary_type(*op, of(a)), Rule::UnaryType)
        }
        Op::Binary(op, a, b) => {
            let s = of(a).scalar().ok_or(Rule::BinaryType)?;
            need(of(a) == of(b) && op.domain().contains(s) && *ty == binary_type(*op, of(a)), Rule::BinaryType)
        }
        Op::Select(c, a, b) => {
            let cond = *of(c) == Type::U1 || (ty.is_tensor() && *of(c) == ty.with_scalar(Scalar::U1));
            need(cond && of(a) == ty && of(b) == ty && !matches!(ty, Type::Ref(_)), Rule::SelectType)
        }
        Op::Cast(a) => {
            let to = ty.scalar().ok_or(Rule::CastType)?;
            need(of(a).scalar().is_some() && of(a).with_scalar(to) == *ty, Rule::CastType)
        }
        Op::Bitcast(a) => {
            let (from, to) = of(a).scalar().zip(ty.scalar()).ok_or(Rule::CastType)?;
            need(of(a).with_scalar(to) == *ty && from.bits() == to.bits(), Rule::CastType)
        }
        Op::MakeTensor(vs) => {
            let s = ty.scalar().filter(|_| ty.is_tensor()).ok_or(Rule::AggregateType)?;
            let parts = vs.len() == ty.leaf_count() && vs.iter().all(|u| *of(u) == Type::Scalar(s));
            need(parts, Rule::AggregateType)
        }
        Op::Splat(a) => {
            let s = ty.scalar().filter(|_| ty.is_tensor()).ok_or(Rule::AggregateType)?;
            need(*of(a) == Type::Scalar(s), Rule::AggregateType)
        }
        Op::MakeStruct(vs) => match ty {
            Type::Struct(s) => {
                let parts = vs.len() == s.members.len() && vs.iter().zip(&s.members).all(|(u, (_, t))| of(u) == t);
                need(parts, Rule::AggregateType)
            }
            _ => Err(Rule::AggregateType),
        },
        Op::Extract(a, i) => need(part(of(a), *i).as_ref() == Some(ty), Rule::AggregateType),
        Op::ExtractDyn(a, vs) => {
            let t = of(a);
            let fits = t.is_tensor() && vs.len() == t.shape().len() && vs.iter().all(is_int);
            need(fits && t.scalar().map(Type::Scalar).as_ref() == Some(ty), Rule::AggregateType)
        }
        Op::MatMul(a, b) => need(matmul_type(of(a), of(b)).as_ref() == Some(ty), Rule::MatrixType),
        Op::Transpose(a) => match of(a) {
            Type::Matrix(s, n, m) => need(*ty == Type::Matrix(*s, *m, *n), Rule::MatrixType),
            _ => Err(Rule::MatrixType),
        },
        Op::Fold(op, a) => {
            let s = of(a).scalar().filter(|_| of(a).is_tensor()).ok_or(Rule::MatrixType)?;
            need(*ty == Type::Scalar(s) && op.binary().domain().contains(s), Rule::MatrixType)
        }
        Op::Shape(..) => need(matches!(ty, Type::Scalar(Scalar::I32 | Scalar::I64)), Rule::ResultType),
        Op::Random => need(matches!(ty, Type::Scalar(_)), Rule::ResultType),
        Op::Balance { number, weight, end, .. } => {
            let i64 = Type::Scalar(Scalar::I64);
            need(*ty == i64 && [number, weight, end].into_iter().all(|v| *of(v) == i64), Rule::ResultType)
        }
        Op::LocalAddr(l) => need(points_to(ty, &body.locals[l.index()].ty), Rule::AddressType),
        Op::FrameAddr(s) => {
            let slot = scope.frame.map(|f| &f[s.index()]);
            need(slot.is_some_and(|t| points_to(ty, t)), Rule::AddressType)
        }
        Op::BufferAddr(b, vs) => {
            let buffer = &scope.buffers[b.index()];
            let indices = vs.len() == buffer.ndim as usize && vs.iter().all(is_int);
            need(indices && dense_fits(&buffer.layout, buffer.ndim) && points_to(ty, &buffer.elem), Rule::AddressType)
        }
        Op::ElementAddr(a, vs) => {
            let t = pointee(a, Rule::AddressType)?;
            let s = t.scalar().filter(|_| t.is_tensor()).ok_or(Rule::AddressType)?;
            let indices = vs.len() == t.shape().len() && vs.iter().all(is_int);
            need(indices && points_to(ty, &Type::Scalar(s)), Rule::AddressType)
        }
        Op::MemberAddr(a, i) => match pointee(a, Rule::AddressType)? {
            t @ Type::Struct(_) => need(part(t, *i).is_some_and(|t| points_to(ty, &t)), Rule::AddressType),
            _ => Err(Rule::AddressType),
        },
        Op::AddressBits(a) => {
            pointee(a, Rule::AddressType)?;
            need(*ty == Type::Scalar(Scalar::U64), Rule::AddressType)
        }
        Op::Load(a) | Op::VolatileLoad(a) => need(pointee(a, Rule::MemoryType)? == ty, Rule::MemoryType),
        Op::Store(a, x) => {
            need(pointee(a, Rule::MemoryType)? == of(x), Rule::MemoryType)?;
            need(*ty == Type::Unit, Rule::ResultType)
        }
        Op::Atomic(op, a, x) => {
            let t = pointee(a, Rule::MemoryType)?;
            let s = t.scalar().ok_or(Rule::MemoryType)?;
            need(t == of(x) && t == ty && op.domain().contains(s), Rule::MemoryType)
        }
        Op::AtomicCas(a, e, d) => {
            let t = pointee(a, Rule::MemoryType)?;
            need(matches!(t, Type::Scalar(_)) && t == of(e) && t == of(d) && t == ty, Rule::MemoryType)
        }
        Op::Reduce(_, x) => {
            // Its loop and the target's type were looked at with rule 10.
            need(matches!(of(x), Type::Scalar(_)), Rule::MemoryType)?;
            need(*ty == Type::Unit, Rule::ResultType)
        }
        Op::If(c, ..) => {
            need(*of(c) == Type::U1, Rule::ConditionType)?;
            need(*ty == Type::Unit, Rule::ResultType)
        }
        Op::For(l) => {
            let bound = |t: &Type| matches!(t, Type::Scalar(Scalar::I32 | Scalar::I64));
            need(l.dims.iter().all(|d| bound(of(&d.begin)) && of(&d.begin) == of(&d.end)), Rule::ConditionType)?;
            for r in &l.reductions {
                let target = pointee(&r.target, Rule::MemoryType)?;
                need(matches!(target, Type::Scalar(_)) && r.op != AtomicOp::Exchange, Rule::MemoryType)?;
            }
            need(*ty == Type::Unit, Rule::ResultType)
        }
        Op::LoopIndex(l, axis) => match &body.inst(*l).op {
            Op::For(l) => need(of(&l.dims[*axis as usize].begin) == ty, Rule::ConditionType),
            _ => Ok(()),
        },
        Op::Call(f, args) => {
            let f = &scope.functions[f.index()];
            let fits = args.len() == f.params.len() && args.iter().zip(&f.params).all(|(u, t)| of(u) == t);
            need(fits && f.ret == *ty, Rule::CallType)
        }
        Op::Assert(c, _) => {
            need(*of(c) == Type::U1, Rule::ConditionType)?;
            need(*ty == Type::Unit, Rule::ResultType)
        }
        Op::Loop(_) | Op::Break | Op::Continue | Op::Return(_) | Op::Print(_) => {
            need(*ty == Type::Unit, Rule::ResultType)
        }
    }
}

fn points_to(ty: &Type, target: &Type) -> bool {
    matches!(ty, Type::Ref(t) if **t == *target)
}

/// The type of a component or member.
fn part(ty: &Type, i: u32) -> Option<Type> {
    match ty {
        Type::Struct(s) => s.members.get(i as usize).map(|(_, t)| t.clone()),
        t if t.is_tensor() => t.scalar().filter(|_| (i as usize) < t.leaf_count()).map(Type::Scalar),
        _ => None,
    }
}

fn matmul_type(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (Type::Matrix(s, n, k), Type::Matrix(t, k2, m)) if s == t && k == k2 => Some(Type::Matrix(*s, *n, *m)),
        (Type::Matrix(s, n, k), Type::Vector(t, k2)) if s == t && k == k2 => Some(Type::Vector(*s, *n)),
        (Type::Vector(s, k), Type::Matrix(t, k2, m)) if s == t && k == k2 => Some(Type::Vector(*s, *m)),
        _ => None,
    }
}

fn dense_fits(layout: &Layout, ndim: u32) -> bool {
    match layout {
        Layout::Dense { shape, offset, components } => {
            let n = ndim as usize;
            shape.len() == n && offset.len() == n && components.iter().all(|c| c.axes.len() == n)
        }
        _ => true,
    }
}
