//! Constant evaluation: the result of an operation on constants, according to the IR's semantics.
//!
//! `None` if the result is undefined (division by zero, a float outside the integer's range), or if only the target's
//! math library determines it (`sin` and others). The operation is then kept.

use octants_ir::{BinaryOp, Const, Scalar, UnaryOp};

/// Keeps the low bits of an integer, extended as the type extends.
pub(crate) fn wrap(value: i128, s: Scalar) -> i64 {
    match s {
        Scalar::U1 => (value & 1) as i64,
        Scalar::I8 => value as i8 as i64,
        Scalar::I16 => value as i16 as i64,
        Scalar::I32 => value as i32 as i64,
        Scalar::U8 => value as u8 as i64,
        Scalar::U16 => value as u16 as i64,
        Scalar::U32 => value as u32 as i64,
        _ => value as i64,
    }
}

/// The value of an integer constant of a type.
pub(crate) fn integer(c: Const, s: Scalar) -> Option<i128> {
    match c {
        Const::Int(i) if s == Scalar::U64 => Some(i128::from(i as u64)),
        Const::Int(i) => Some(i128::from(wrap(i128::from(i), s))),
        Const::Float(_) => None,
    }
}

fn int(value: i128, s: Scalar) -> Option<Const> {
    Some(Const::Int(wrap(value, s)))
}

fn truth(value: bool) -> Option<Const> {
    Some(Const::Int(i64::from(value)))
}

/// Rounds to the type's precision; f16 is left to the back ends.
fn float(value: f64, s: Scalar) -> Option<Const> {
    match s {
        Scalar::F32 => Some(Const::Float(f64::from(value as f32))),
        Scalar::F64 => Some(Const::Float(value)),
        _ => None,
    }
}

/// The value of a float constant of a type: one of f32 may be kept with more digits.
fn real(c: Const, s: Scalar) -> Option<f64> {
    match c {
        Const::Float(x) if s == Scalar::F32 => Some(f64::from(x as f32)),
        Const::Float(x) if s == Scalar::F64 => Some(x),
        _ => None,
    }
}

/// A unary operation on a constant of type `s`.
pub(crate) fn unary(op: UnaryOp, c: Const, s: Scalar) -> Option<Const> {
    if let Some(x) = integer(c, s) {
        let bits = u128::from(s.bits());
        let low = (x as u128) & ((1u128 << bits) - 1);
        return match op {
            UnaryOp::Neg => int(-x, s),
            UnaryOp::BitNot => int(!x, s),
            UnaryOp::LogicNot => truth(x == 0),
            UnaryOp::Abs => int(x.abs(), s),
            UnaryOp::Sgn => int(x.signum(), s),
            UnaryOp::Popcnt => int(i128::from(low.count_ones()), Scalar::I32),
            UnaryOp::Clz => int(i128::from(low.leading_zeros()) - (128 - bits as i128), Scalar::I32),
            UnaryOp::Ffs => int(if low == 0 { 0 } else { i128::from(low.trailing_zeros()) + 1 }, Scalar::I32),
            _ => None,
        };
    }
    let x = real(c, s)?;
    match op {
        UnaryOp::Neg => float(-x, s),
        UnaryOp::Abs => float(x.abs(), s),
        UnaryOp::Floor => float(x.floor(), s),
        UnaryOp::Ceil => float(x.ceil(), s),
        UnaryOp::Trunc => float(x.trunc(), s),
        UnaryOp::Round => float(x.round(), s),
        UnaryOp::Sqrt if s == Scalar::F32 => float(f64::from((x as f32).sqrt()), s),
        UnaryOp::Sqrt => float(x.sqrt(), s),
        UnaryOp::IsNan => truth(x.is_nan()),
        UnaryOp::IsInf => truth(x.is_infinite()),
        _ => None,
    }
}

/// A binary operation on constants of type `s`.
pub(crate) fn binary(op: BinaryOp, a: Const, b: Const, s: Scalar) -> Option<Const> {
    match integer(a, s).zip(integer(b, s)) {
        Some((a, b)) => binary_int(op, a, b, s),
        None => binary_float(op, real(a, s)?, real(b, s)?, s),
    }
}

fn binary_int(op: BinaryOp, a: i128, b: i128, s: Scalar) -> Option<Const> {
    use BinaryOp::*;
    let shift = (0..i128::from(s.bits())).contains(&b).then_some(b as u32);
    let divisor = (b != 0).then_some(b);
    let floor_div = |b: i128| a / b - i128::from(a % b != 0 && (a < 0) != (b < 0));
    match op {
        Add => int(a + b, s),
        Sub => int(a - b, s),
        Mul => int(a.wrapping_mul(b), s),
        Div => int(a / divisor?, s),
        FloorDiv => int(floor_div(divisor?), s),
        Mod => int(a - floor_div(divisor?).wrapping_mul(b), s),
        Rem => int(a % divisor?, s),
        Pow => int(power(a, b), s),
        Min => int(a.min(b), s),
        Max => int(a.max(b), s),
        And => int(a & b, s),
        Or => int(a | b, s),
        Xor => int(a ^ b, s),
        Shl => int(a.wrapping_shl(shift?), s),
        Shr => int(a >> shift?, s),
        UShr => {
            let low = (a as u128) & ((1u128 << s.bits()) - 1);
            int((low >> shift?) as i128, s)
        }
        Atan2 => None,
        Eq => truth(a == b),
        Ne => truth(a != b),
        Lt => truth(a < b),
        Le => truth(a <= b),
        Gt => truth(a > b),
        Ge => truth(a >= b),
    }
}

/// Only the low 64 bits are meaningful.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut n) = (1i128, base, exponent);
    while n > 0 {
        if n & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        n >>= 1;
    }
    result
}

fn binary_float(op: BinaryOp, a: f64, b: f64, s: Scalar) -> Option<Const> {
    use BinaryOp::*;
    // One operation in f64 on f32 operands, rounded to f32, equals f32 arithmetic.
    match op {
        Add => float(a + b, s),
        Sub => float(a - b, s),
        Mul => float(a * b, s),
        Div => float(a / b, s),
        Min if !a.is_nan() && !b.is_nan() => float(a.min(b), s),
        Max if !a.is_nan() && !b.is_nan() => float(a.max(b), s),
        Eq => truth(a == b),
        Ne => truth(a != b),
        Lt => truth(a < b),
        Le => truth(a <= b),
        Gt => truth(a > b),
        Ge => truth(a >= b),
        _ => None,
    }
}

/// The integer part of a number, before truncation to its low bits. Out of range, where machines differ, it is the
/// result of x86: LLVM would make it an arbitrary value.
fn whole_number(x: f64, to: Scalar) -> i64 {
    let whole = x.trunc();
    let fits = |bits: i32| whole.abs() < 2f64.powi(bits);
    if to == Scalar::U64 && whole > 0.0 && !fits(63) && fits(64) {
        (whole as u64).cast_signed()
    } else if to.bits() == 64 || to == Scalar::U32 {
        if fits(63) { whole as i64 } else { i64::MIN }
    } else if whole >= f64::from(i32::MIN) && whole <= f64::from(i32::MAX) {
        whole as i64
    } else {
        i32::MIN.into()
    }
}

/// A conversion of a constant.
pub(crate) fn cast(c: Const, from: Scalar, to: Scalar) -> Option<Const> {
    if let Some(x) = integer(c, from) {
        return match to {
            Scalar::U1 => truth(x != 0),
            Scalar::F32 => Some(Const::Float(f64::from(x as f32))),
            Scalar::F64 => Some(Const::Float(x as f64)),
            Scalar::F16 => None,
            _ => int(x, to),
        };
    }
    let x = real(c, from)?;
    if to.is_float() {
        return float(x, to);
    }
    if to == Scalar::U1 {
        return truth(x != 0.0);
    }
    Some(Const::Int(wrap(whole_number(x, to).into(), to)))
}
