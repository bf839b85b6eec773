//! Functions of mathematics on f32 computed in line, of instructions that every GPU has: the argument is reduced with fused
//! multiply-adds and goes through a polynomial. Conversions, which GPUs have few units for, are not needed.
//!
//! The error is a few units in the last place for arguments up to 100. Up to 10^4 it is below 2^-22, but near zeros of the function, where that
//! is more than a few units. Arguments beyond 10^7 have no digits left: what comes out is any number.
//!
//! The polynomials are least-squares fits at Chebyshev nodes, reweighted until the error is even (Lawson's algorithm).

use crate::emit::{Emitter, V};

/// pi in two parts.
const PI: [f64; 2] = [3.1415927410125732, -8.742277657347586e-08];
/// Numbers near it, 1.5 * 2^23, are integers: adding it rounds, and leaves what was rounded to in the lowest bits.
const ROUNDING: f64 = 12582912.0;
/// (sin(r) - r) / r^3 in r^2, for |r| up to pi/2.
const SINE: [f64; 4] = [-0.16666659712791443, 0.008333087898790836, -0.0001981105306185782, 2.6087896003446076e-06];

/// `a * b + c`, rounded once.
pub(super) fn fused(e: &Emitter, a: V, b: V, c: V) -> V {
    // Unflagged: what the parts of a constant are for must not be reassociated away.
    let f = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
    e.call(f, &[a, b, c])
}

/// The sum, kept apart from other operations.
fn sum(e: &Emitter, a: V, b: V) -> V {
    fused(e, a, e.real(e.f32, 1.0), b)
}

/// A polynomial in `x`, coefficients from the constant one on.
pub(super) fn polynomial(e: &Emitter, coefficients: &[f64], x: V) -> V {
    let (last, rest) = coefficients.split_last().expect("compiler bug: a polynomial has coefficients");
    rest.iter().rev().fold(e.real(e.f32, *last), |sum, c| fused(e, sum, x, e.real(e.f32, *c)))
}

/// The sine, or the cosine: the argument less the nearest multiple of pi (an odd multiple of pi/2) is what the polynomial
/// takes; each multiple changes the sign.
fn sine(e: &Emitter, x: V, cosine: bool) -> V {
    let real = |v: f64| e.real(e.f32, v);
    let per_pi = real(std::f64::consts::FRAC_1_PI);
    let (rounded, multiple) = if cosine {
        let rounded = sum(e, fused(e, x, per_pi, real(-0.5)), real(ROUNDING));
        (rounded, sum(e, sum(e, rounded, real(-ROUNDING)), real(0.5)))
    } else {
        let rounded = fused(e, x, per_pi, real(ROUNDING));
        (rounded, sum(e, rounded, real(-ROUNDING)))
    };
    let r = PI.iter().fold(x, |r, part| fused(e, multiple, real(-part), r));
    let square = e.fmul(r, r);
    let value = fused(e, e.fmul(square, r), polynomial(e, &SINE, square), r);
    let count = e.bitcast(rounded, e.i32);
    // cos(r + pi/2 + n pi) is -sin(r) for even n.
    let count = if cosine { e.add(count, e.i32c(1)) } else { count };
    // Added, the highest bit changes the sign; shifting and adding is one instruction of many GPUs.
    e.bitcast(e.add(e.bitcast(value, e.i32), e.shl(count, e.i32c(31))), e.f32)
}

/// Sine, cosine or tangent by C's name; `None` for other functions.
pub(super) fn trigonometric(e: &Emitter, name: &str, x: V) -> Option<V> {
    Some(match name {
        "sin" => sine(e, x, false),
        "cos" => sine(e, x, true),
        "tan" => e.fdiv(sine(e, x, false), sine(e, x, true)),
        _ => return None,
    })
}
