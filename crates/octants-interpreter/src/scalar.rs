//! Scalars as bits: the form in which values and memory hold them, zero-extended to 64 bits, and what they mean.

use half::f16;
use octants_ir::Scalar;

/// A scalar as tests write it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Leaf {
    /// Any integer type, sign- or zero-extended; a `u64` beyond `i64` is the number with its bits.
    Int(i64),
    /// Any float type.
    Float(f64),
}

impl Leaf {
    /// The integer that it must be.
    pub fn int(self) -> i64 {
        match self {
            Leaf::Int(i) => i,
            Leaf::Float(x) => panic!("{x} is not an integer"),
        }
    }

    /// The float that it must be.
    pub fn float(self) -> f64 {
        match self {
            Leaf::Float(x) => x,
            Leaf::Int(i) => panic!("{i} is not a float"),
        }
    }

    /// The value of the bits of a type.
    pub fn from_bits(bits: u64, s: Scalar) -> Leaf {
        if s.is_float() { Leaf::Float(float(bits, s)) } else { Leaf::Int(integer(bits, s) as i64) }
    }

    /// The bits of the value in a type, rounded or wrapped. An integer converts to a float of the same value, but not
    /// vice versa.
    pub fn to_bits(self, s: Scalar) -> u64 {
        match self {
            Leaf::Int(i) if s.is_float() => float_bits(i as f64, s),
            Leaf::Int(i) => int_bits(i128::from(i), s),
            Leaf::Float(x) => float_bits(x, s),
        }
    }
}

fn mask(s: Scalar) -> u64 {
    u64::MAX >> (64 - s.bits())
}

/// The integer that bits of a type are.
pub(crate) fn integer(bits: u64, s: Scalar) -> i128 {
    let unused = 64 - s.bits();
    if s.is_signed() { i128::from((bits << unused) as i64 >> unused) } else { i128::from(bits & mask(s)) }
}

/// The low bits of an integer.
pub(crate) fn int_bits(value: i128, s: Scalar) -> u64 {
    value as u64 & mask(s)
}

/// The float that bits of a type are.
pub(crate) fn float(bits: u64, s: Scalar) -> f64 {
    match s {
        Scalar::F16 => f16::from_bits(bits as u16).to_f64(),
        Scalar::F32 => f64::from(f32::from_bits(bits as u32)),
        Scalar::F64 => f64::from_bits(bits),
        s => panic!("compiler bug: a float constant of type {s}"),
    }
}

/// The bits of a float, rounded to its type. f16 is rounded through f32, in which it is computed.
pub(crate) fn float_bits(value: f64, s: Scalar) -> u64 {
    match s {
        Scalar::F16 => u64::from(f16::from_f32(value as f32).to_bits()),
        Scalar::F32 => u64::from((value as f32).to_bits()),
        Scalar::F64 => value.to_bits(),
        s => panic!("compiler bug: a float constant of type {s}"),
    }
}

/// The bits of a truth value.
pub(crate) fn truth(value: bool) -> u64 {
    u64::from(value)
}
