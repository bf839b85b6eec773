//! Inline f32 math functions, built from instructions that every GPU has: the argument is reduced with fused
//! multiply-adds and goes through a polynomial. No conversions are needed, for which GPUs have few units.
//!
//! The error is a few ulps for arguments up to 100. Up to 10^4 it is below 2^-22 absolute, which near zeros of the
//! function is more than a few units. Arguments beyond 10^7 have no significant digits left: the result is arbitrary.
//!
//! The error of the cosine is below 2^-22 absolute everywhere: near its zeros, half a unit in the argument's last
//! place amounts to as much.
//!
//! The polynomials are least-squares fits at Chebyshev nodes, reweighted until the error is even (Lawson's algorithm).

use crate::emit::{Emitter, V};

/// pi in two parts.
const PI: [f64; 2] = [3.1415927410125732, -8.742277657347586e-08];
/// 1.5 * 2^23: floats near it are integers, so adding it rounds to an integer and leaves that integer in the lowest
/// bits.
const ROUNDING: f64 = 12582912.0;
/// (sin(r) - r) / r^3 in r^2, for |r| up to pi/2.
const SINE: [f64; 4] = [-0.16666659712791443, 0.008333087898790836, -0.0001981105306185782, 2.6087896003446076e-06];
/// (cos(r) - 1) / r^2 in r^2, for the same: the absolute error of the cosine is even.
const COSINE: [f64; 4] = [-0.4999993145465851, 0.04166398569941521, -0.0013855894794687629, 2.3193606466520578e-05];

/// `a * b + c`, rounded once.
pub(super) fn fused(e: &Emitter, a: V, b: V, c: V) -> V {
    // Unflagged: reassociation must not undo the split of a constant into parts.
    let f = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
    e.call(f, &[a, b, c])
}

/// The sum, kept apart from other operations.
fn sum(e: &Emitter, a: V, b: V) -> V {
    fused(e, a, e.real(e.f32, 1.0), b)
}

/// A polynomial in `x`, coefficients from the constant one on.
pub(super) fn polynomial(e: &Emitter, coefficients: &[f64], x: V) -> V {
    let (last, rest) = coefficients.split_last().expect("compiler bug: a polynomial without coefficients");
    rest.iter().rev().fold(e.real(e.f32, *last), |sum, c| fused(e, sum, x, e.real(e.f32, *c)))
}

/// The nearest multiple of pi, as a float whose lowest bits are the factor, and the argument minus the multiple.
fn less_multiples(e: &Emitter, x: V) -> (V, V) {
    let rounded = fused(e, x, e.real(e.f32, std::f64::consts::FRAC_1_PI), e.real(e.f32, ROUNDING));
    let multiple = sum(e, rounded, e.real(e.f32, -ROUNDING));
    (rounded, less(e, x, multiple))
}

/// The argument less a multiple of pi.
fn less(e: &Emitter, x: V, multiple: V) -> V {
    PI.iter().fold(x, |r, part| fused(e, multiple, e.real(e.f32, -part), r))
}

/// The polynomial for the sine of a number of up to pi/2.
fn sine_polynomial(e: &Emitter, r: V) -> V {
    let square = e.fmul(r, r);
    fused(e, e.fmul(square, r), polynomial(e, &SINE, square), r)
}

/// The value, negated if the count is odd.
fn alternating(e: &Emitter, value: V, count: V) -> V {
    // Added, the highest bit changes the sign; shifting and adding is one instruction of many GPUs.
    e.bitcast(e.add(e.bitcast(value, e.i32), e.shl(count, e.i32c(31))), e.f32)
}

fn sine(e: &Emitter, x: V) -> V {
    let (rounded, r) = less_multiples(e, x);
    alternating(e, sine_polynomial(e, r), e.bitcast(rounded, e.i32))
}

/// Shares with the sine of the same argument all but the polynomial.
fn cosine(e: &Emitter, x: V) -> V {
    let (rounded, r) = less_multiples(e, x);
    let square = e.fmul(r, r);
    let value = fused(e, polynomial(e, &COSINE, square), square, e.real(e.f32, 1.0));
    alternating(e, value, e.bitcast(rounded, e.i32))
}

/// The tangent. Small denominators are sines of the argument's distance from an odd multiple of pi/2.
pub(super) fn tangent(e: &Emitter, x: V) -> V {
    let real = |v: f64| e.real(e.f32, v);
    let halves = fused(e, x, real(std::f64::consts::FRAC_1_PI), real(-0.5));
    let rounded = sum(e, halves, real(ROUNDING));
    let multiple = sum(e, sum(e, rounded, real(-ROUNDING)), real(0.5));
    let value = sine_polynomial(e, less(e, x, multiple));
    // cos(r + pi/2 + n pi) is -sin(r) for even n.
    let count = e.add(e.bitcast(rounded, e.i32), e.i32c(1));
    e.fdiv(sine(e, x), alternating(e, value, count))
}

/// Sine, cosine or tangent by C's name; `None` for other functions.
pub(super) fn trigonometric(e: &Emitter, name: &str, x: V) -> Option<V> {
    Some(match name {
        "sin" => sine(e, x),
        "cos" => cosine(e, x),
        "tan" => tangent(e, x),
        _ => return None,
    })
}
