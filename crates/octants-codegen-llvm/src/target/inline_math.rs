//! Functions of mathematics on f32 computed in line, of instructions that every GPU has: the argument is reduced with fused
//! multiply-adds and goes through a polynomial. The error is a few units in the last place for arguments of moderate size (below 10^4).
//!
//! The polynomials are least-squares fits at Chebyshev nodes, reweighted until the error is even (Lawson's algorithm).

use crate::emit::{Emitter, V};

/// pi in three parts.
const PI: [f64; 3] = [3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15];
/// (sin(r) - r) / r^3 in r^2, for |r| up to pi/2.
const SINE: [f64; 4] = [-0.16666659712791443, 0.008333087898790836, -0.0001981105306185782, 2.6087896003446076e-06];

/// `a * b + c`, rounded once.
pub(super) fn fused(e: &Emitter, a: V, b: V, c: V) -> V {
    // Unflagged: what the parts of a constant are for must not be reassociated away.
    let f = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
    e.call(f, &[a, b, c])
}

/// The nearest integer, as a float.
fn nearest(e: &Emitter, x: V) -> V {
    let f = e.declare("llvm.rint.f32", e.f32, &mut [e.f32]);
    e.call(f, &[x])
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
    let (count, multiple) = if cosine {
        let count = nearest(e, fused(e, x, per_pi, real(-0.5)));
        (count, fused(e, count, real(1.0), real(0.5)))
    } else {
        let count = nearest(e, e.fmul(x, per_pi));
        (count, count)
    };
    let r = PI.iter().fold(x, |r, part| fused(e, multiple, real(-part), r));
    let square = e.fmul(r, r);
    let tail = e.fmul(e.fmul(square, r), polynomial(e, &SINE, square));
    let value = fused(e, r, real(1.0), tail);
    let whole = e.freeze(e.fptosi(count, e.i32));
    // cos(r + pi/2 + n pi) is -sin(r) for even n.
    let whole = if cosine { e.add(whole, e.i32c(1)) } else { whole };
    let sign = e.shl(whole, e.i32c(31));
    e.bitcast(e.xor(e.bitcast(value, e.i32), sign), e.f32)
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
