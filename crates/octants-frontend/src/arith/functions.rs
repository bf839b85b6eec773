//! Math functions by name: `math(b, o, "sin", &[x])`. Each takes scalars or tensors and works component by component.

use std::sync::Arc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, Builder, Domain, Op, Scalar, StructType, Type, UnaryOp, ValueId};

use super::convert::{broadcast, cast, expect_integers, promote_pair, to_mask, type_name, unsupported};
use super::operators::{Operator, UnaryOperator, arithmetic, binary, combine, unary};
use crate::world::Options;

/// The meaning of a name.
#[derive(Clone, Copy)]
enum Function {
    /// The operation, whose domain decides about operands.
    Unary(UnaryOp),
    /// The same of two operands.
    Binary(BinaryOp),
    UnaryOperator(UnaryOperator),
    Operator(Operator),
    Abs,
    Reciprocal,
    Frexp,
    /// C's: integers stay integers.
    RawDivision,
    /// Any number of operands.
    Extremum(BinaryOp),
    LogicalAnd,
    LogicalOr,
    Select,
}

/// Functions that are more than one operation, or whose operands follow other rules than those of the operation's
/// domain. The others are in the table of operations.
const COMPOSED: &[(&str, Function)] = &[
    ("neg", Function::UnaryOperator(UnaryOperator::Neg)),
    ("pos", Function::UnaryOperator(UnaryOperator::Pos)),
    ("bit_not", Function::UnaryOperator(UnaryOperator::Invert)),
    ("invert", Function::UnaryOperator(UnaryOperator::Invert)),
    ("logical_not", Function::UnaryOperator(UnaryOperator::Not)),
    ("abs", Function::Abs),
    ("rcp", Function::Reciprocal),
    ("frexp", Function::Frexp),
    ("truediv", Function::Operator(Operator::Div)),
    ("raw_div", Function::RawDivision),
    ("pow", Function::Operator(Operator::Pow)),
    ("matmul", Function::Operator(Operator::MatMul)),
    ("max", Function::Extremum(BinaryOp::Max)),
    ("min", Function::Extremum(BinaryOp::Min)),
    ("logical_and", Function::LogicalAnd),
    ("logical_or", Function::LogicalOr),
    ("select", Function::Select),
    ("ifte", Function::Select),
];

fn function(name: &str) -> Option<Function> {
    let composed = || COMPOSED.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
    let binary = || BinaryOp::from_function(name).map(Function::Binary);
    UnaryOp::from_function(name).map(Function::Unary).or_else(binary).or_else(composed)
}

impl Function {
    /// Number of operands; `None` for one or more.
    fn arity(self) -> Option<usize> {
        match self {
            Function::Unary(_)
            | Function::UnaryOperator(_)
            | Function::Abs
            | Function::Reciprocal
            | Function::Frexp => Some(1),
            Function::Binary(_)
            | Function::Operator(_)
            | Function::RawDivision
            | Function::LogicalAnd
            | Function::LogicalOr => Some(2),
            Function::Extremum(_) => None,
            Function::Select => Some(3),
        }
    }
}

/// Applies the function of that name; `None` when there is none. A `dtype` argument, where the language has one, is the
/// caller's to apply with [`super::cast`].
pub fn math(b: &mut Builder, o: &Options, name: &str, args: &[ValueId]) -> Option<Result<ValueId>> {
    function(name).map(|f| apply(b, o, f, name, args))
}

fn apply(b: &mut Builder, o: &Options, f: Function, name: &str, args: &[ValueId]) -> Result<ValueId> {
    let expected = f.arity();
    if args.is_empty() || expected.is_some_and(|n| n != args.len()) {
        let wanted = match expected {
            None => "at least one argument".into(),
            Some(1) => "1 argument".into(),
            Some(n) => format!("{n} arguments"),
        };
        return Err(Diagnostic::new(Code::Type, b.span, format!("`{name}` takes {wanted}, {} given", args.len())));
    }
    match f {
        Function::Unary(op) => unary_function(b, o, op, name, args[0]),
        Function::Binary(op) => combine(b, o, op, op.symbol(), args[0], args[1]),
        Function::UnaryOperator(op) => unary(b, o, op, args[0]),
        Function::Operator(op) => binary(b, o, op, args[0], args[1]),
        Function::Abs => match number(b, name, args[0])? {
            s if s.is_unsigned() => Ok(args[0]),
            _ => Ok(b.unary(UnaryOp::Abs, args[0])),
        },
        Function::Reciprocal => {
            let x = as_float(b, o, name, args[0])?;
            let ty = b.ty(x).clone();
            let one = b.int(1, ty.scalar().expect("compiler bug: a float without a scalar"));
            let one = b.splat(one, &ty);
            Ok(b.binary(BinaryOp::Div, one, x))
        }
        Function::Frexp => frexp(b, args[0]),
        Function::RawDivision => arithmetic(b, BinaryOp::Div, name, args[0], args[1]),
        Function::Extremum(op) => {
            number(b, name, args[0])?;
            args[1..].iter().try_fold(args[0], |best, &x| arithmetic(b, op, name, best, x))
        }
        Function::LogicalAnd => logical(b, o, BinaryOp::And, "&&", args[0], args[1]),
        Function::LogicalOr => logical(b, o, BinaryOp::Or, "||", args[0], args[1]),
        Function::Select => select(b, o, args[0], args[1], args[2]),
    }
}

/// The operation of a value that is converted by the rule of its domain.
fn unary_function(b: &mut Builder, o: &Options, op: UnaryOp, name: &str, x: ValueId) -> Result<ValueId> {
    let refuse = |b: &Builder, wanted: &str| {
        let have = type_name(b.ty(x));
        Diagnostic::new(Code::Type, b.span, format!("'{name}' takes {wanted} only, however '{have}' is provided"))
    };
    let x = match op.domain() {
        Domain::Number => {
            number(b, name, x)?;
            x
        }
        Domain::Integer | Domain::Shift => {
            expect_integers(b, name, x)?;
            x
        }
        Domain::Float => as_float(b, o, name, x)?,
        Domain::OnlyFloat | Domain::Bit => match b.ty(x).scalar() {
            Some(s) if op.domain().contains(s) => x,
            _ if op.domain() == Domain::Bit => return Err(refuse(b, "u1 inputs")),
            _ => return Err(refuse(b, "real inputs")),
        },
    };
    Ok(b.unary(op, x))
}

fn number(b: &Builder, name: &str, v: ValueId) -> Result<Scalar> {
    b.ty(v).scalar().ok_or_else(|| {
        Diagnostic::new(
            Code::Type,
            b.span,
            format!("'{name}' takes scalars, vectors and matrices only, however '{}' is provided", type_name(b.ty(v))),
        )
    })
}

fn as_float(b: &mut Builder, o: &Options, name: &str, v: ValueId) -> Result<ValueId> {
    let s = number(b, name, v)?;
    Ok(if s.is_float() { v } else { b.cast(v, o.default_fp) })
}

/// Python's `and` and `or` with both sides evaluated: one of the operands, in their promoted type.
fn logical(b: &mut Builder, o: &Options, op: BinaryOp, symbol: &str, l: ValueId, r: ValueId) -> Result<ValueId> {
    let both_u1 = b.ty(l).scalar() == Some(Scalar::U1) && b.ty(r).scalar() == Some(Scalar::U1);
    if both_u1 {
        return combine(b, o, op, symbol, l, r);
    }
    let (ls, rs) = match (b.ty(l).scalar(), b.ty(r).scalar()) {
        (Some(ls), Some(rs)) if ls.is_int() && rs.is_int() => (ls, rs),
        _ => return Err(unsupported(b, symbol, l, r)),
    };
    let (l, r) = promote_pair(b, symbol, l, r, ls.promote(rs))?;
    let truth = to_mask(b, symbol, l)?;
    let ty = b.ty(l).clone();
    if let Some(s) = ty.scalar().filter(|_| ty.is_tensor()) {
        let other = to_mask(b, symbol, r)?;
        let both = combine(b, o, op, symbol, truth, other)?;
        return cast(b, both, s);
    }
    let (yes, no) = if op == BinaryOp::And { (r, l) } else { (l, r) };
    Ok(b.push(Op::Select(truth, yes, no), ty))
}

/// `qd.select(c, x, y)`: both sides are evaluated; component by component when the condition is a tensor.
pub fn select(b: &mut Builder, _o: &Options, c: ValueId, x: ValueId, y: ValueId) -> Result<ValueId> {
    let mask = to_mask(b, "select", c)?;
    let (Some(xs), Some(ys)) = (b.ty(x).scalar(), b.ty(y).scalar()) else {
        if b.ty(x) == b.ty(y) && !b.ty(mask).is_tensor() {
            let ty = b.ty(x).clone();
            return Ok(b.push(Op::Select(mask, x, y), ty));
        }
        return Err(unsupported(b, "select", x, y));
    };
    let shapes_error = |b: &Builder| {
        Diagnostic::new(
            Code::Type,
            b.span,
            format!(
                "Cannot broadcast tensor to tensor: condition '{}', operands '{}' and '{}'",
                type_name(b.ty(c)),
                type_name(b.ty(x)),
                type_name(b.ty(y))
            ),
        )
        .with_hint("all vectors and matrices in a `select` must have the same shape")
    };
    let s = xs.promote(ys);
    let (x2, y2) = (b.cast(x, s), b.cast(y, s));
    let (mut x2, mut y2) = broadcast(b, x2, y2).map_err(|_| shapes_error(b))?;
    let mask_ty = b.ty(mask).clone();
    if mask_ty.is_tensor() {
        if b.ty(x2).is_tensor() && b.ty(x2).shape() != mask_ty.shape() {
            return Err(shapes_error(b));
        }
        if !b.ty(x2).is_tensor() {
            (x2, y2) = (b.splat(x2, &mask_ty), b.splat(y2, &mask_ty));
        }
    }
    let ty = b.ty(x2).clone();
    Ok(b.push(Op::Select(mask, x2, y2), ty))
}

/// `m * 2**e == x` with `0.5 <= |m| < 1`, as a struct of `mantissa` and `exponent`; zeros, infinities and NaN come back
/// as they are, with exponent 0.
fn frexp(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    // Width, mantissa bits, bias of the result's exponent, and the power of two that makes subnormal numbers normal.
    let (s, bits, mantissa, bias, scale) = match b.ty(x) {
        Type::Scalar(Scalar::F32) => (Scalar::F32, Scalar::I32, 23i64, 126i64, 25i64),
        Type::Scalar(Scalar::F64) => (Scalar::F64, Scalar::I64, 52, 1022, 54),
        ty => {
            return Err(Diagnostic::new(
                Code::Type,
                b.span,
                format!("'frexp' takes an f32 or f64 scalar, however '{}' is provided", type_name(ty)),
            ));
        }
    };
    let field = (1i64 << (bits.bits() as i64 - 1 - mantissa)) - 1;
    let exponent_of = |b: &mut Builder, v: ValueId| {
        let raw = b.push(Op::Bitcast(v), bits.into());
        let shift = b.int(mantissa, bits);
        let shifted = b.binary(BinaryOp::Shr, raw, shift);
        let mask = b.int(field, bits);
        (raw, b.binary(BinaryOp::And, shifted, mask))
    };
    let (_, first) = exponent_of(b, x);
    let zero = b.int(0, bits);
    let subnormal = b.binary(BinaryOp::Eq, first, zero);
    let factor = b.float(2f64.powi(scale as i32), s);
    let scaled = b.binary(BinaryOp::Mul, x, factor);
    let normal = b.push(Op::Select(subnormal, scaled, x), s.into());
    let (raw, exponent) = exponent_of(b, normal);

    let keep = b.int(!(field << mantissa), bits);
    let digits = b.binary(BinaryOp::And, raw, keep);
    let half = b.int(bias << mantissa, bits);
    let digits = b.binary(BinaryOp::Or, digits, half);
    let digits = b.push(Op::Bitcast(digits), s.into());

    let (plain, shifted) = (b.int(bias, bits), b.int(bias + scale, bits));
    let offset = b.push(Op::Select(subnormal, shifted, plain), bits.into());
    let power = b.binary(BinaryOp::Sub, exponent, offset);

    let (all_ones, no_bits) = (b.int(field, bits), b.int(0, bits));
    let special = b.binary(BinaryOp::Eq, exponent, all_ones);
    let is_zero = b.binary(BinaryOp::Eq, exponent, no_bits);
    let special = b.binary(BinaryOp::Or, special, is_zero);
    let m = b.push(Op::Select(special, x, digits), s.into());
    let e = b.push(Op::Select(special, zero, power), bits.into());
    let e = b.cast(e, Scalar::I32);
    let members = vec![("mantissa".to_string(), s.into()), ("exponent".to_string(), Type::I32)];
    let ty = Type::Struct(Arc::new(StructType { name: "frexp".into(), members }));
    Ok(b.push(Op::MakeStruct(vec![m, e]), ty))
}
