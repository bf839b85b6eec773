//! Functions of mathematics on NVIDIA GPUs.
//!
//! Under `fast_math` the common ones on f32 are computed here, in line: the argument is reduced with fused multiply-adds and
//! goes through a polynomial or through the hardware's own approximation; the error is a few units in the last place for
//! arguments of moderate size (sine and cosine: below 10^4). All others are calls of the vendor's library.
//!
//! The polynomials are least-squares fits at Chebyshev nodes, reweighted until the error is even (Lawson's algorithm).

use octants_ir::Scalar;

use super::nvptx::Nvptx;
use crate::emit::{Emitter, FloatCmp, V};

/// pi in three parts.
const PI: [f64; 3] = [3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15];
/// The natural logarithm of two.
const LN_2: f64 = 0.6931471824645996;
/// The logarithm of e to base two in two parts.
const LOG2_E: [f64; 2] = [1.4426950216293335, 1.925963033500956e-08];
/// (sin(r) - r) / r^3 in r^2, for |r| up to pi/2.
const SINE: [f64; 4] = [-0.16666659712791443, 0.008333087898790836, -0.0001981105306185782, 2.6087896003446076e-06];
/// (log(1 + t) - t + t^2 / 2) / t^3 in t, for 1 + t from sqrt(1/2) to sqrt(2).
const LOGARITHM: [f64; 9] = [
    0.3333331048488617,
    -0.24999986588954926,
    0.20002226531505585,
    -0.16669251024723053,
    0.14218659698963165,
    -0.12384344637393951,
    0.1187295913696289,
    -0.11789824813604355,
    0.06915426254272461,
];

impl Nvptx {
    /// The value of the function with C's name `name`.
    pub(super) fn compute(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V {
        if s == Scalar::F32 && self.fast_math {
            match name {
                "sin" => return self.sine(e, args[0], false),
                "cos" => return self.sine(e, args[0], true),
                "tan" => {
                    let (sin, cos) = (self.sine(e, args[0], false), self.sine(e, args[0], true));
                    return e.fdiv(sin, cos);
                }
                "exp" => return self.exponential(e, args[0]),
                "exp2" => return self.power_of_two(e, args[0]),
                "log" => return self.logarithm(e, args[0]),
                "log2" => return e.fmul(self.logarithm(e, args[0]), e.real(e.f32, std::f64::consts::LOG2_E)),
                _ => {}
            }
        }
        let symbol = format!("__nv_{name}{}", if s == Scalar::F32 { "f" } else { "" });
        let ty = e.scalar(s);
        let f = e.declare(&symbol, ty, &mut vec![ty; args.len()]);
        self.library.borrow_mut().insert(symbol);
        e.flagged(e.call(f, args))
    }

    /// The hardware's approximation of `2 ** x`.
    fn power_of_two(&self, e: &Emitter, x: V) -> V {
        e.intrinsic("llvm.nvvm.ex2.approx.ftz", e.f32, &[x])
    }

    fn fused(&self, e: &Emitter, a: V, b: V, c: V) -> V {
        // Unflagged: what the parts of a constant are for must not be reassociated away.
        let f = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
        e.call(f, &[a, b, c])
    }

    fn nearest(&self, e: &Emitter, x: V) -> V {
        let f = e.declare("llvm.rint.f32", e.f32, &mut [e.f32]);
        e.call(f, &[x])
    }

    fn polynomial(&self, e: &Emitter, coefficients: &[f64], x: V) -> V {
        let (last, rest) = coefficients.split_last().expect("compiler bug: a polynomial has coefficients");
        rest.iter().rev().fold(e.real(e.f32, *last), |sum, c| self.fused(e, sum, x, e.real(e.f32, *c)))
    }

    /// The sine, or the cosine: the argument less the nearest multiple of pi (an odd multiple of pi/2) is what the polynomial
    /// takes; each multiple changes the sign.
    fn sine(&self, e: &Emitter, x: V, cosine: bool) -> V {
        let real = |v: f64| e.real(e.f32, v);
        let per_pi = real(std::f64::consts::FRAC_1_PI);
        let (count, multiple) = if cosine {
            let count = self.nearest(e, self.fused(e, x, per_pi, real(-0.5)));
            (count, self.fused(e, count, real(1.0), real(0.5)))
        } else {
            let count = self.nearest(e, e.fmul(x, per_pi));
            (count, count)
        };
        let r = PI.iter().fold(x, |r, part| self.fused(e, multiple, real(-part), r));
        let square = e.fmul(r, r);
        let tail = e.fmul(e.fmul(square, r), self.polynomial(e, &SINE, square));
        let value = self.fused(e, r, real(1.0), tail);
        let whole = e.freeze(e.fptosi(count, e.i32));
        // cos(r + pi/2 + n pi) is -sin(r) for even n.
        let whole = if cosine { e.add(whole, e.i32c(1)) } else { whole };
        let sign = e.shl(whole, e.i32c(31));
        e.bitcast(e.xor(e.bitcast(value, e.i32), sign), e.f32)
    }

    /// `e ** x` as `2 ** t` with `t` the rounded product of `x` and `log2(e)`, corrected for what rounding lost.
    fn exponential(&self, e: &Emitter, x: V) -> V {
        let real = |v: f64| e.real(e.f32, v);
        let scale = real(LOG2_E[0]);
        let fma = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
        // A product that must not be contracted with what follows.
        let t = e.call(fma, &[x, scale, real(-0.0)]);
        let lost = self.fused(e, x, real(LOG2_E[1]), self.fused(e, x, scale, e.fneg(t)));
        let power = self.power_of_two(e, t);
        let corrected = self.fused(e, power, e.fmul(lost, real(std::f64::consts::LN_2)), power);
        // Beyond these the result is infinite or zero, where a correction would make it NaN.
        let size = e.intrinsic("llvm.fabs", e.f32, &[t]);
        e.select(e.fcmp(FloatCmp::LLVMRealOLT, size, real(127.0)), corrected, power)
    }

    /// The logarithm of `m * 2 ** n` with `m` from sqrt(1/2) to sqrt(2).
    fn logarithm(&self, e: &Emitter, x: V) -> V {
        let real = |v: f64| e.real(e.f32, v);
        let bits = e.bitcast(x, e.i32);
        // The exponent of x / sqrt(1/2): 0x3f3504f3 is sqrt(1/2).
        let offset = e.and(e.sub(bits, e.i32c(0x3f35_04f3)), e.i32c(i64::from(0xff80_0000_u32 as i32)));
        let m = e.bitcast(e.sub(bits, offset), e.f32);
        let n = e.fmul(e.sitofp(offset, e.f32), real(2f64.powi(-23)));
        let t = e.fsub(m, real(1.0));
        let square = e.fmul(t, t);
        let tail = self.fused(e, e.fmul(square, t), self.polynomial(e, &LOGARITHM, t), e.fmul(square, real(-0.5)));
        let near = self.fused(e, t, real(1.0), tail);
        let value = self.fused(e, n, real(LN_2), near);
        // Zero (denormals count as such), infinity, NaN and what is negative take the hardware's answer.
        let ordinary = e.and(
            e.fcmp(FloatCmp::LLVMRealOGE, x, real(f64::from(f32::MIN_POSITIVE))),
            e.fcmp(FloatCmp::LLVMRealOLT, x, real(f64::INFINITY)),
        );
        let f = e.declare("llvm.nvvm.lg2.approx.ftz.f", e.f32, &mut [e.f32]);
        e.select(ordinary, value, e.call(f, &[x]))
    }
}
