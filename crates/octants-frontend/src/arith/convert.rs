//! Conversions between types of values: promotion and broadcasting of operands, casts, conditions, and stores.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, Builder, Op, Scalar, Type, ValueId};

/// A type as it is written in messages: `f32`, `[Tensor (3) f32]`, `struct Particle`.
pub fn type_name(ty: &Type) -> String {
    match ty {
        Type::Vector(s, n) => format!("[Tensor ({n}) {s}]"),
        Type::Matrix(s, n, m) => format!("[Tensor ({n}, {m}) {s}]"),
        Type::Struct(s) if s.name == "struct" => String::from("struct"),
        Type::Struct(s) => format!("struct {}", s.name),
        Type::Ref(t) => type_name(t),
        Type::Unit => "nothing".into(),
        Type::Scalar(s) => s.to_string(),
    }
}

/// The error that the operands of `symbol` are incompatible.
pub fn unsupported(b: &Builder, symbol: &str, l: ValueId, r: ValueId) -> Box<Diagnostic> {
    let (lt, rt) = (b.ty(l), b.ty(r));
    let error = Diagnostic::new(
        Code::Type,
        b.span,
        format!("unsupported operand type(s) for '{symbol}': '{}' and '{}'", type_name(lt), type_name(rt)),
    );
    match (lt.scalar(), rt.scalar()) {
        (Some(_), Some(_)) if lt.is_tensor() && rt.is_tensor() && lt.shape() != rt.shape() => error.with_hint(format!(
            "the shapes {} and {} differ: combine a tensor with a tensor of the same shape or with a scalar",
            shape_text(lt),
            shape_text(rt)
        )),
        (Some(a), Some(c)) if a.is_float() || c.is_float() => {
            error.with_hint("convert the operands to integers with `qd.cast(x, qd.i32)` first")
        }
        _ => error,
    }
}

/// `(3,)` or `(2, 3)`, as Python shows a shape.
pub fn shape_text(ty: &Type) -> String {
    match ty.shape().as_slice() {
        [n] => format!("({n},)"),
        [n, m] => format!("({n}, {m})"),
        _ => "()".into(),
    }
}

/// Refuses floats, structs and anything else that is not an integer scalar or tensor.
pub(crate) fn expect_integers(b: &Builder, name: &str, v: ValueId) -> Result<Scalar> {
    match b.ty(v).scalar() {
        Some(s) if s.is_int() => Ok(s),
        _ => Err(Diagnostic::new(
            Code::Type,
            b.span,
            format!("'{name}' takes integral inputs only, however '{}' is provided", type_name(b.ty(v))),
        )),
    }
}

/// Gives both operands one shape: a scalar is copied to every component of the other's tensor. Scalar types stay.
pub fn broadcast(b: &mut Builder, l: ValueId, r: ValueId) -> Result<(ValueId, ValueId)> {
    broadcast_for(b, "broadcast", l, r)
}

fn broadcast_for(b: &mut Builder, symbol: &str, l: ValueId, r: ValueId) -> Result<(ValueId, ValueId)> {
    let (lt, rt) = (b.ty(l).clone(), b.ty(r).clone());
    match (&lt, &rt) {
        _ if lt.scalar().is_none() || rt.scalar().is_none() => Err(unsupported(b, symbol, l, r)),
        (Type::Scalar(_), _) => Ok((b.splat(l, &rt), r)),
        (_, Type::Scalar(_)) => Ok((l, b.splat(r, &lt))),
        _ if lt.shape() == rt.shape() => Ok((l, r)),
        _ => Err(unsupported(b, symbol, l, r)),
    }
}

/// Converts both operands to scalar type `to` and gives them one shape.
pub(crate) fn promote_pair(
    b: &mut Builder,
    symbol: &str,
    l: ValueId,
    r: ValueId,
    to: Scalar,
) -> Result<(ValueId, ValueId)> {
    if b.ty(l).scalar().is_none() || b.ty(r).scalar().is_none() {
        return Err(unsupported(b, symbol, l, r));
    }
    // Converting before copying converts a scalar once and not once per component.
    let (l2, r2) = (b.cast(l, to), b.cast(r, to));
    broadcast_for(b, symbol, l2, r2).map_err(|_| unsupported(b, symbol, l, r))
}

/// `qd.cast(v, to)`: every component of a scalar or tensor becomes a `to`.
pub fn cast(b: &mut Builder, v: ValueId, to: Scalar) -> Result<ValueId> {
    match b.ty(v).scalar() {
        None => Err(Diagnostic::new(
            Code::Type,
            b.span,
            format!(
                "cannot convert '{}' to {to}: only scalars, vectors and matrices can be converted",
                type_name(b.ty(v))
            ),
        )),
        // "Is it non-zero" says the same as the cast and folds with comparisons around it.
        Some(s) if to == Scalar::U1 && s != Scalar::U1 => Ok(non_zero(b, v, s)),
        Some(_) => Ok(b.cast(v, to)),
    }
}

/// `qd.bit_cast(v, to)`: the same bits read as another type of the same width.
pub fn bit_cast(b: &mut Builder, v: ValueId, to: Scalar) -> Result<ValueId> {
    let ty = b.ty(v).clone();
    match ty.scalar() {
        Some(s) if s == to => Ok(v),
        Some(s) if s.bits() == to.bits() => Ok(b.push(Op::Bitcast(v), ty.with_scalar(to))),
        Some(s) => Err(Diagnostic::new(
            Code::Type,
            b.span,
            format!(
                "cannot bit_cast {} ({} bits) to {to} ({} bits): the widths differ",
                type_name(&ty),
                s.bits(),
                to.bits()
            ),
        )
        .with_hint("use `qd.cast` to convert the value")),
        None => Err(Diagnostic::new(Code::Type, b.span, format!("cannot bit_cast '{}'", type_name(&ty)))),
    }
}

/// `v != 0`, of type `s`; `u1` stays as it is.
fn non_zero(b: &mut Builder, v: ValueId, s: Scalar) -> ValueId {
    if s == Scalar::U1 {
        return v;
    }
    let ty = b.ty(v).clone();
    let zero = b.int(0, s);
    let zero = b.splat(zero, &ty);
    b.binary(BinaryOp::Ne, v, zero)
}

/// What `if`, `while` or `assert` (`what`) tests: a scalar integer becomes `u1`.
pub fn to_condition(b: &mut Builder, what: &str, v: ValueId) -> Result<ValueId> {
    match b.ty(v) {
        Type::Scalar(s) if s.is_int() => {
            let s = *s;
            Ok(non_zero(b, v, s))
        }
        ty => {
            let message = format!("`{what}` conditions must be an integer; found {}", type_name(ty));
            Err(Diagnostic::new(Code::Type, b.span, message).with_hint(match ty {
                t if t.is_tensor() => String::from("reduce it to one truth value: `x.any()` or `x.all()`"),
                _ => format!("Consider using `{what} x != 0` instead of `{what} x` for float values."),
            }))
        }
    }
}

/// Each component as `u1`: the condition of a `select`.
pub(crate) fn to_mask(b: &mut Builder, name: &str, v: ValueId) -> Result<ValueId> {
    let s = expect_integers(b, name, v)?;
    Ok(non_zero(b, v, s))
}

/// Converts `v` for a store to memory of type `to`: scalars convert silently, a scalar fills a tensor, shapes must
/// agree, structs convert member by member.
pub fn assign_cast(b: &mut Builder, v: ValueId, to: &Type) -> Result<ValueId> {
    let from = b.ty(v).clone();
    if from == *to {
        return Ok(v);
    }
    match (&from, to) {
        (Type::Scalar(_), Type::Scalar(s)) => cast(b, v, *s),
        (Type::Scalar(_), Type::Vector(s, _) | Type::Matrix(s, ..)) => {
            let scalar = cast(b, v, *s)?;
            Ok(b.splat(scalar, to))
        }
        (Type::Vector(..) | Type::Matrix(..), Type::Vector(s, _) | Type::Matrix(s, ..))
            if from.shape() == to.shape() =>
        {
            cast(b, v, *s)
        }
        (Type::Struct(f), Type::Struct(t))
            if f.members.len() == t.members.len()
                && f.members.iter().zip(&t.members).all(|((a, _), (c, _))| a == c) =>
        {
            let mut members = Vec::with_capacity(t.members.len());
            for (i, (_, ty)) in t.members.iter().enumerate() {
                let member = b.extract(v, i as u32);
                members.push(assign_cast(b, member, ty)?);
            }
            Ok(b.push(Op::MakeStruct(members), to.clone()))
        }
        _ => Err(Diagnostic::new(
            Code::Type,
            b.span,
            format!("cannot assign '{}' to '{}'", type_name(&from), type_name(to)),
        )),
    }
}
