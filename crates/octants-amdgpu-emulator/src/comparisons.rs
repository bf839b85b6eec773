//! Comparison instructions such as `cmp_lt_f32`, for lanes and scalars.

// Negated comparisons are separate instructions, because they are true for NaN.
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::nonminimal_bool, clippy::double_comparisons)]

use crate::lanewise::{Row, RowFn};
use crate::number::{Half, Lane, Ty};

/// A comparison.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// The type of the left side.
    pub left: Ty,
    /// The type of the right side.
    pub right: Ty,
    /// Returns 1 if the comparison is true.
    pub run: RowFn,
}

/// The comparison with a name like `lt_f32`.
pub fn comparison(name: &str) -> Option<Comparison> {
    let (relation, kind) = name.rsplit_once('_')?;
    let (ty, run) = match kind {
        "f16" => (Ty::F16, float::<Half>(relation)?),
        "f32" => (Ty::F32, float::<f32>(relation)?),
        "f64" => (Ty::F64, float::<f64>(relation)?),
        "u16" | "b16" => (Ty::B16, integer::<u16>(relation)?),
        "i16" => (Ty::B16, integer::<i16>(relation)?),
        "u32" | "b32" => (Ty::B32, integer::<u32>(relation)?),
        "i32" => (Ty::B32, integer::<i32>(relation)?),
        "u64" | "b64" => (Ty::B64, integer::<u64>(relation)?),
        "i64" => (Ty::B64, integer::<i64>(relation)?),
        _ => return None,
    };
    let right = if relation == "class" { Ty::B32 } else { ty };
    Some(Comparison { left: ty, right, run })
}

fn each<A: Lane, B: Lane>(n: usize, d: &mut Row, a: &Row, b: &Row, holds: impl Fn(A, B) -> bool) {
    for i in 0..n.min(64) {
        d[i] = holds(A::get(a[i]), B::get(b[i])).into();
    }
}

fn integer<T: Lane + Ord>(relation: &str) -> Option<RowFn> {
    Some(match relation {
        "f" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |_, _| false),
        "lt" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a < b),
        "eq" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a == b),
        "le" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a <= b),
        "gt" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a > b),
        "ne" | "lg" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a != b),
        "ge" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |a, b| a >= b),
        "t" | "tru" => |n, d, a, b, _| each::<T, T>(n, d, a, b, |_, _| true),
        _ => return None,
    })
}

/// A float in a lane.
trait Float: Lane {
    /// Its value; exact.
    fn wide(self) -> f64;
    /// Its classes: signaling NaN, quiet NaN, infinities, normal, denormal, zero of either sign, as a bit each.
    fn class(self) -> u32;
}

fn class(bits: u64, mantissa: u32, all: u32) -> u32 {
    let negative = bits >> all & 1 != 0;
    let fraction = bits & ((1 << mantissa) - 1);
    let exponent = bits >> mantissa & ((1 << (all - mantissa)) - 1);
    let most = (1 << (all - mantissa)) - 1;
    let (positive, other) = match (exponent, fraction) {
        (e, 0) if e == most => (9, 2),
        (e, f) if e == most => return if f >> (mantissa - 1) == 0 { 1 } else { 2 },
        (0, 0) => (6, 5),
        (0, _) => (7, 4),
        _ => (8, 3),
    };
    1 << if negative { other } else { positive }
}

impl Float for Half {
    fn wide(self) -> f64 {
        self.0
    }
    fn class(self) -> u32 {
        class(self.put(), 10, 15)
    }
}

impl Float for f32 {
    fn wide(self) -> f64 {
        self.into()
    }
    fn class(self) -> u32 {
        class(self.put(), 23, 31)
    }
}

impl Float for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn class(self) -> u32 {
        class(self.put(), 52, 63)
    }
}

fn each_float<T: Float>(n: usize, d: &mut Row, a: &Row, b: &Row, holds: impl Fn(f64, f64) -> bool) {
    each::<T, T>(n, d, a, b, |a, b| holds(a.wide(), b.wide()));
}

fn float<T: Float>(relation: &str) -> Option<RowFn> {
    Some(match relation {
        "f" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |_, _| false),
        "lt" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a < b),
        "eq" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a == b),
        "le" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a <= b),
        "gt" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a > b),
        "lg" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a < b || a > b),
        "ge" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a >= b),
        "o" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !a.is_nan() && !b.is_nan()),
        "u" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a.is_nan() || b.is_nan()),
        "nge" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !(a >= b)),
        "nlg" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !(a < b || a > b)),
        "ngt" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !(a > b)),
        "nle" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !(a <= b)),
        "neq" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| a != b),
        "nlt" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |a, b| !(a < b)),
        "t" | "tru" => |n, d, a, b, _| each_float::<T>(n, d, a, b, |_, _| true),
        "class" => |n, d, a, b, _| each::<T, u32>(n, d, a, b, |a, b| a.class() & b != 0),
        _ => return None,
    })
}
