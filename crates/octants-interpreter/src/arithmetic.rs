//! Scalar arithmetic according to the IR's semantics, written independently of the constant-folding passes, so that
//! each checks the other.
//!
//! Floats are computed in f64 and rounded after each step; for the four operations and the root of f16 and f32 that
//! equals native arithmetic. Math functions are the host's.

use octants_ir::{BinaryOp, Scalar, UnaryOp};

use crate::scalar::{float, float_bits, int_bits, integer, truth};

/// A unary operation.
pub(crate) fn unary(op: UnaryOp, bits: u64, s: Scalar) -> Result<u64, String> {
    if s.is_float() { float_unary(op, bits, s) } else { int_unary(op, bits, s) }
}

fn int_unary(op: UnaryOp, bits: u64, s: Scalar) -> Result<u64, String> {
    let x = integer(bits, s);
    Ok(match op {
        UnaryOp::Neg => int_bits(-x, s),
        UnaryOp::BitNot | UnaryOp::LogicNot => int_bits(!x, s),
        UnaryOp::Abs => int_bits(x.abs(), s),
        UnaryOp::Sgn => int_bits(x.signum(), s),
        UnaryOp::Popcnt => u64::from(bits.count_ones()),
        UnaryOp::Clz => u64::from(bits.leading_zeros() - (64 - s.bits())),
        UnaryOp::Ffs => u64::from(if bits == 0 { 0 } else { bits.trailing_zeros() + 1 }),
        UnaryOp::StopGrad => bits,
        op => return Err(format!("`{}` of {s}", op.name())),
    })
}

/// A number after one step of the arithmetic in which a type is computed.
fn step(x: f64, s: Scalar) -> f64 {
    if s == Scalar::F64 { x } else { f64::from(x as f32) }
}

fn float_unary(op: UnaryOp, bits: u64, s: Scalar) -> Result<u64, String> {
    let x = float(bits, s);
    let y = match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sgn if x > 0.0 => 1.0,
        UnaryOp::Sgn if x < 0.0 => -1.0,
        UnaryOp::Sgn => 0.0,
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / step(x.sqrt(), s),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::StopGrad => return Ok(bits),
        UnaryOp::IsNan => return Ok(truth(x.is_nan())),
        UnaryOp::IsInf => return Ok(truth(x.is_infinite())),
        UnaryOp::BitNot | UnaryOp::LogicNot | UnaryOp::Popcnt | UnaryOp::Clz | UnaryOp::Ffs => {
            return Err(format!("`{}` of {s}", op.name()));
        }
    };
    Ok(float_bits(y, s))
}

/// A binary operation on two scalars of one type.
pub(crate) fn binary(op: BinaryOp, a: u64, b: u64, s: Scalar) -> Result<u64, String> {
    if s.is_float() { float_binary(op, float(a, s), float(b, s), s) } else { int_binary(op, a, b, s) }
}

/// A comparison. Every operator but `ne` is false for NaN.
fn compare<T: PartialOrd>(op: BinaryOp, a: &T, b: &T) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        BinaryOp::Ge => a >= b,
        other => panic!("compiler bug: {other:?} is not a comparison"),
    }
}

fn float_binary(op: BinaryOp, a: f64, b: f64, s: Scalar) -> Result<u64, String> {
    let whole = || step(a / b, s).floor();
    let y = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::FloorDiv => whole(),
        BinaryOp::Mod => a - step(b * whole(), s),
        BinaryOp::Rem => a % b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Atan2 => a.atan2(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            return Ok(truth(compare(op, &a, &b)));
        }
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr | BinaryOp::UShr => {
            return Err(format!("`{}` of {s}", op.name()));
        }
    };
    Ok(float_bits(y, s))
}

fn int_binary(op: BinaryOp, a_bits: u64, b_bits: u64, s: Scalar) -> Result<u64, String> {
    let (a, b) = (integer(a_bits, s), integer(b_bits, s));
    let divisor = || if b == 0 { Err(format!("{a} is divided by zero")) } else { Ok(b) };
    let floor_div = |b: i128| a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0);
    // The value for a count of the width or more is unspecified; this is one of them.
    let count = b as u32 & (s.bits() - 1);
    let y = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a / divisor()?,
        BinaryOp::Rem => a % divisor()?,
        BinaryOp::FloorDiv => floor_div(divisor()?),
        BinaryOp::Mod => a - floor_div(divisor()?).wrapping_mul(b),
        BinaryOp::Pow => power(a, b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << count,
        BinaryOp::Shr => a >> count,
        BinaryOp::UShr => i128::from(a_bits >> count),
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            return Ok(truth(compare(op, &a, &b)));
        }
        BinaryOp::Atan2 => return Err(format!("`atan2` of {s}")),
    };
    Ok(int_bits(y, s))
}

/// The low bits of a power; a negative exponent yields 0, or 1 or -1 for a base of 1 or -1.
fn power(base: i128, exponent: i128) -> i128 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, e) => 1 - 2 * (e & 1),
        (_, e) if e < 0 => 0,
        (_, mut e) => {
            let (mut result, mut square) = (1i128, base);
            while e > 0 {
                if e & 1 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                e >>= 1;
            }
            result
        }
    }
}

/// A value conversion.
pub(crate) fn cast(bits: u64, from: Scalar, to: Scalar) -> u64 {
    match (from.is_float(), to.is_float()) {
        (true, true) => float_bits(float(bits, from), to),
        (true, false) if to == Scalar::U1 => truth(float(bits, from) != 0.0),
        (true, false) => int_bits(float(bits, from) as i128, to),
        (false, true) if to == Scalar::F64 => float_bits(integer(bits, from) as f64, to),
        // Rounded once.
        (false, true) => float_bits(f64::from(integer(bits, from) as f32), to),
        (false, false) if to == Scalar::U1 => truth(bits != 0),
        (false, false) => int_bits(integer(bits, from), to),
    }
}
