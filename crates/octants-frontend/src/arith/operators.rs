//! Python's operators on run-time values: arithmetic, bitwise, comparison and unary operators, and overflow checks.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, Builder, Const, Domain, Op, ReduceOp, Scalar, TextPart, Type, UnaryOp, ValueId};

use super::convert::{expect_integers, promote_pair, shape_text, type_name, unsupported};
use crate::world::Options;

/// A binary operator of Python's grammar, except comparisons and `and`/`or`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `%`
    Mod,
    /// `**`
    Pow,
    /// `<<`
    Shl,
    /// `>>`
    Shr,
    /// `&`
    BitAnd,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `@`
    MatMul,
}

impl Operator {
    /// The operation on two numbers; a product of matrices is none.
    pub fn operation(self) -> Option<BinaryOp> {
        Some(match self {
            Operator::Add => BinaryOp::Add,
            Operator::Sub => BinaryOp::Sub,
            Operator::Mul => BinaryOp::Mul,
            Operator::Div => BinaryOp::Div,
            Operator::FloorDiv => BinaryOp::FloorDiv,
            Operator::Mod => BinaryOp::Mod,
            Operator::Pow => BinaryOp::Pow,
            Operator::Shl => BinaryOp::Shl,
            Operator::Shr => BinaryOp::Shr,
            Operator::BitAnd => BinaryOp::And,
            Operator::BitOr => BinaryOp::Or,
            Operator::BitXor => BinaryOp::Xor,
            Operator::MatMul => return None,
        })
    }

    /// As it is written in a program.
    pub fn symbol(self) -> &'static str {
        self.operation().map_or("@", BinaryOp::symbol)
    }
}

/// A comparison; `is` and `in` are decided at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `==`
    Eq,
    /// `!=`
    Ne,
}

impl Comparison {
    /// The operation on two numbers.
    pub fn operation(self) -> BinaryOp {
        match self {
            Comparison::Lt => BinaryOp::Lt,
            Comparison::Le => BinaryOp::Le,
            Comparison::Gt => BinaryOp::Gt,
            Comparison::Ge => BinaryOp::Ge,
            Comparison::Eq => BinaryOp::Eq,
            Comparison::Ne => BinaryOp::Ne,
        }
    }

    /// As it is written in a program.
    pub fn symbol(self) -> &'static str {
        self.operation().symbol()
    }
}

/// A unary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    /// `-x`
    Neg,
    /// `+x`
    Pos,
    /// `~x`
    Invert,
    /// `not x`
    Not,
}

impl UnaryOperator {
    /// As it is written in a program.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOperator::Neg => UnaryOp::Neg.symbol(),
            UnaryOperator::Pos => "+",
            UnaryOperator::Invert => UnaryOp::BitNot.symbol(),
            UnaryOperator::Not => UnaryOp::LogicNot.symbol(),
        }
    }
}

/// `l op r`.
pub fn binary(b: &mut Builder, o: &Options, op: Operator, l: ValueId, r: ValueId) -> Result<ValueId> {
    match op.operation() {
        None => matmul(b, l, r),
        Some(BinaryOp::Pow) => power(b, o, l, r),
        // The quotient of integers is a float too.
        Some(BinaryOp::Div) => {
            let s = float_promotion(b, o, op.symbol(), l, r)?;
            let (l, r) = promote_pair(b, op.symbol(), l, r, s)?;
            Ok(b.binary(BinaryOp::Div, l, r))
        }
        Some(operation) => combine(b, o, operation, operation.symbol(), l, r),
    }
}

/// An operation on numbers that are converted by the rule of its domain; `symbol` is for errors.
pub fn combine(b: &mut Builder, o: &Options, op: BinaryOp, symbol: &str, l: ValueId, r: ValueId) -> Result<ValueId> {
    match op.domain() {
        Domain::Number => arithmetic(b, op, symbol, l, r),
        Domain::Shift => shift(b, op, symbol, l, r),
        Domain::Float => {
            // No machine has such a function in half precision.
            let s = float_promotion(b, o, symbol, l, r)?.promote(Scalar::F32);
            let (l, r) = promote_pair(b, symbol, l, r, s)?;
            Ok(b.binary(op, l, r))
        }
        Domain::Integer | Domain::Bit | Domain::OnlyFloat => {
            let (ls, rs) = scalars(b, symbol, l, r)?;
            if !op.domain().contains(ls) || !op.domain().contains(rs) {
                return Err(unsupported(b, symbol, l, r));
            }
            arithmetic(b, op, symbol, l, r)
        }
    }
}

fn scalars(b: &Builder, symbol: &str, l: ValueId, r: ValueId) -> Result<(Scalar, Scalar)> {
    b.ty(l).scalar().zip(b.ty(r).scalar()).ok_or_else(|| unsupported(b, symbol, l, r))
}

/// An operation whose result has the promoted type of its operands.
pub(super) fn arithmetic(b: &mut Builder, op: BinaryOp, symbol: &str, l: ValueId, r: ValueId) -> Result<ValueId> {
    let (ls, rs) = scalars(b, symbol, l, r)?;
    let (l, r) = promote_pair(b, symbol, l, r, ls.promote(rs))?;
    Ok(b.binary(op, l, r))
}

/// The type of an operation on floats: integers count as `default_fp`.
fn float_promotion(b: &Builder, o: &Options, symbol: &str, l: ValueId, r: ValueId) -> Result<Scalar> {
    let (ls, rs) = scalars(b, symbol, l, r)?;
    let float = |s: Scalar| if s.is_float() { s } else { o.default_fp };
    Ok(float(ls).promote(float(rs)))
}

/// A shift has the type of its left operand.
fn shift(b: &mut Builder, op: BinaryOp, symbol: &str, l: ValueId, r: ValueId) -> Result<ValueId> {
    let (ls, rs) = scalars(b, symbol, l, r)?;
    if ls.is_float() || rs.is_float() {
        return Err(unsupported(b, symbol, l, r));
    }
    if ls == Scalar::U1 {
        // A shift of a single bit is computed in i32; the result is whether any bit remains.
        let wide = b.cast(l, Scalar::I32);
        let shifted = shift(b, op, symbol, wide, r)?;
        return super::cast(b, shifted, Scalar::U1);
    }
    let (l, r) = promote_pair(b, symbol, l, r, ls)?;
    Ok(b.binary(op, l, r))
}

/// Constant exponents up to this become multiplications.
const LARGEST_UNROLLED_EXPONENT: u64 = 8;

fn power(b: &mut Builder, o: &Options, l: ValueId, r: ValueId) -> Result<ValueId> {
    let (ls, rs) = scalars(b, "**", l, r)?;
    let s = match (ls.is_float(), rs.is_float()) {
        (true, false) | (false, false) => ls,
        (false, true) => rs,
        (true, true) => ls.promote(rs),
    };
    let whole = match b.body.as_const(r) {
        Some(Const::Int(n)) if rs.is_int() => Some(n),
        Some(Const::Float(x)) if x.fract() == 0.0 && x.abs() <= LARGEST_UNROLLED_EXPONENT as f64 => Some(x as i64),
        _ => None,
    };
    if let Some(n) = whole.filter(|n| n.unsigned_abs() <= LARGEST_UNROLLED_EXPONENT && (s.is_float() || *n >= 0)) {
        let base = b.cast(l, s);
        return Ok(unrolled_power(b, base, s, n));
    }
    if s.is_float() {
        let (l, r) = promote_pair(b, "**", l, r, s)?;
        return Ok(b.binary(BinaryOp::Pow, l, r));
    }
    if o.debug && rs.is_signed() {
        assert_non_negative(b, r, rs);
    }
    // The exponent must not be cut off; the low bits of a power do not depend on the width it is computed in.
    let wide = match rs {
        _ if ls == rs => ls,
        Scalar::U64 => Scalar::U64,
        _ => Scalar::I64,
    };
    let (l, r) = promote_pair(b, "**", l, r, wide)?;
    let result = b.binary(BinaryOp::Pow, l, r);
    super::cast(b, result, ls)
}

fn unrolled_power(b: &mut Builder, base: ValueId, s: Scalar, exponent: i64) -> ValueId {
    let ty = b.ty(base).clone();
    let mut result = None;
    let mut square = base;
    let mut rest = exponent.unsigned_abs();
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(match result {
                None => square,
                Some(r) => b.binary(BinaryOp::Mul, r, square),
            });
        }
        rest >>= 1;
        if rest > 0 {
            square = b.binary(BinaryOp::Mul, square, square);
        }
    }
    if exponent > 0 {
        return result.expect("compiler bug: a positive exponent has a bit set");
    }
    let one = b.int(1, s);
    let one = b.splat(one, &ty);
    match result {
        None => one,
        Some(r) => b.binary(BinaryOp::Div, one, r),
    }
}

fn assert_non_negative(b: &mut Builder, exponent: ValueId, s: Scalar) {
    let ty = b.ty(exponent).clone();
    let zero = b.int(0, s);
    let zero = b.splat(zero, &ty);
    let mut condition = b.binary(BinaryOp::Ge, exponent, zero);
    if ty.is_tensor() {
        condition = b.push(Op::Fold(ReduceOp::And, condition), Type::U1);
    }
    let text = vec![
        TextPart::Text("an integer is raised to a negative exponent (".into()),
        TextPart::Value(exponent, None),
        TextPart::Text(")".into()),
    ];
    b.push(Op::Assert(condition, text), Type::Unit);
}

fn matmul(b: &mut Builder, l: ValueId, r: ValueId) -> Result<ValueId> {
    let (ls, rs) = scalars(b, "@", l, r)?;
    let s = ls.promote(rs);
    let (lt, rt) = (b.ty(l).clone(), b.ty(r).clone());
    let result = match (&lt, &rt) {
        (Type::Matrix(_, n, k), Type::Matrix(_, k2, m)) if k == k2 => Type::Matrix(s, *n, *m),
        (Type::Matrix(_, n, k), Type::Vector(_, k2)) if k == k2 => Type::Vector(s, *n),
        (Type::Vector(_, k), Type::Matrix(_, k2, m)) if k == k2 => Type::Vector(s, *m),
        (Type::Vector(_, n), Type::Vector(_, m)) if n == m => {
            let product = arithmetic(b, BinaryOp::Mul, "@", l, r)?;
            return Ok(b.push(Op::Fold(ReduceOp::Add, product), Type::Scalar(s)));
        }
        _ => {
            return Err(Diagnostic::new(
                Code::Type,
                b.span,
                if lt.is_tensor() && rt.is_tensor() {
                    let (lt, rt) = (shape_text(&lt), shape_text(&rt));
                    format!("dimension mismatch between {lt} and {rt} for matrix multiplication")
                } else {
                    format!("unsupported operand type(s) for '@': '{}' and '{}'", type_name(&lt), type_name(&rt))
                },
            )
            .with_hint("the left operand must have as many columns as the right operand has rows"));
        }
    };
    let (l, r) = (b.cast(l, s), b.cast(r, s));
    Ok(b.push(Op::MatMul(l, r), result))
}

/// `l op r`: `u1`, or a tensor of `u1`.
pub fn compare(b: &mut Builder, _o: &Options, op: Comparison, l: ValueId, r: ValueId) -> Result<ValueId> {
    arithmetic(b, op.operation(), op.symbol(), l, r)
}

/// `op v`.
pub fn unary(b: &mut Builder, _o: &Options, op: UnaryOperator, v: ValueId) -> Result<ValueId> {
    let Some(s) = b.ty(v).scalar() else {
        return Err(Diagnostic::new(
            Code::Type,
            b.span,
            format!("unsupported operand type for '{}': '{}'", op.symbol(), type_name(b.ty(v))),
        ));
    };
    Ok(match op {
        UnaryOperator::Pos => v,
        UnaryOperator::Neg => b.unary(UnaryOp::Neg, v),
        UnaryOperator::Invert => {
            expect_integers(b, "bit_not", v)?;
            b.unary(if s == Scalar::U1 { UnaryOp::LogicNot } else { UnaryOp::BitNot }, v)
        }
        UnaryOperator::Not => {
            expect_integers(b, "logic_not", v)?;
            if s == Scalar::U1 {
                b.unary(UnaryOp::LogicNot, v)
            } else {
                let ty = b.ty(v).clone();
                let zero = b.int(0, s);
                let zero = b.splat(zero, &ty);
                b.binary(BinaryOp::Eq, v, zero)
            }
        }
    })
}

/// Whether `l op r` leaves the range of its integer type: a `u1` that is true when it does, and the operation's name
/// for a message. `None` where it cannot (floats, other operators) and for tensors.
pub fn overflow(b: &mut Builder, op: Operator, l: ValueId, r: ValueId) -> Option<(ValueId, &'static str)> {
    let (Type::Scalar(ls), Type::Scalar(rs)) = (b.ty(l).clone(), b.ty(r).clone()) else { return None };
    let s = if op == Operator::Shl { ls } else { ls.promote(rs) };
    if s.is_float() || s == Scalar::U1 || rs.is_float() {
        return None;
    }
    let (l, r) = (b.cast(l, s), b.cast(r, s));
    Some(match op {
        Operator::Add => {
            let sum = b.binary(BinaryOp::Add, l, r);
            let flag =
                if s.is_signed() { signs_differ(b, s, [l, sum], [r, sum]) } else { b.binary(BinaryOp::Lt, sum, l) };
            (flag, "Addition")
        }
        Operator::Sub => {
            let difference = b.binary(BinaryOp::Sub, l, r);
            let flag =
                if s.is_signed() { signs_differ(b, s, [l, r], [l, difference]) } else { b.binary(BinaryOp::Lt, l, r) };
            (flag, "Subtraction")
        }
        Operator::Mul => (product_overflows(b, s, l, r), "Multiplication"),
        Operator::Shl => {
            let shifted = b.binary(BinaryOp::Shl, l, r);
            let back = b.binary(BinaryOp::Shr, shifted, r);
            (b.binary(BinaryOp::Ne, back, l), "Shift left")
        }
        _ => return None,
    })
}

/// The signs within both pairs differ.
fn signs_differ(b: &mut Builder, s: Scalar, first: [ValueId; 2], second: [ValueId; 2]) -> ValueId {
    let x = b.binary(BinaryOp::Xor, first[0], first[1]);
    let y = b.binary(BinaryOp::Xor, second[0], second[1]);
    let both = b.binary(BinaryOp::And, x, y);
    let zero = b.int(0, s);
    b.binary(BinaryOp::Lt, both, zero)
}

fn product_overflows(b: &mut Builder, s: Scalar, l: ValueId, r: ValueId) -> ValueId {
    let product = b.binary(BinaryOp::Mul, l, r);
    if s.bits() < 64 {
        let wide = if s.is_signed() { Scalar::I64 } else { Scalar::U64 };
        let (lw, rw, pw) = (b.cast(l, wide), b.cast(r, wide), b.cast(product, wide));
        let exact = b.binary(BinaryOp::Mul, lw, rw);
        return b.binary(BinaryOp::Ne, exact, pw);
    }
    // Checked by dividing back. This does not work for 0, or for -1 times the smallest number.
    let (zero, one) = (b.int(0, s), b.int(1, s));
    let is_zero = b.binary(BinaryOp::Eq, l, zero);
    let divisor = b.push(Op::Select(is_zero, one, l), Type::Scalar(s));
    let back = b.binary(BinaryOp::Div, product, divisor);
    let changed = b.binary(BinaryOp::Ne, back, r);
    let not_zero = b.unary(UnaryOp::LogicNot, is_zero);
    let wrapped = b.binary(BinaryOp::And, changed, not_zero);
    if s == Scalar::U64 {
        return wrapped;
    }
    let (minus_one, smallest) = (b.int(-1, s), b.int(i64::MIN, s));
    let l_minus = b.binary(BinaryOp::Eq, l, minus_one);
    let r_smallest = b.binary(BinaryOp::Eq, r, smallest);
    let corner = b.binary(BinaryOp::And, l_minus, r_smallest);
    b.binary(BinaryOp::Or, wrapped, corner)
}
