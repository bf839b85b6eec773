//! Math functions on NVIDIA GPUs.
//!
//! Under `fast_math`, common f32 functions are expanded inline: the argument is reduced with fused multiply-adds, and
//! goes through a polynomial or the hardware's approximation. The error is a few ulps for arguments of moderate size.
//! Sine and cosine are the hardware's, except near zero: their error is below 2^-21 plus 2^-22 of the argument. All
//! others are calls of the vendor's library.
//!
//! The polynomials are least-squares fits at Chebyshev nodes, reweighted until the error is even (Lawson's algorithm).

use octants_ir::Scalar;

use super::inline_math::{fused, polynomial, tangent};
use super::nvptx::Nvptx;
use crate::emit::{Emitter, FloatCmp, V};

/// The natural logarithm of two.
const LN_2: f64 = 0.6931471824645996;
/// The logarithm of e to base two in two parts.
const LOG2_E: [f64; 2] = [1.4426950216293335, 1.925963033500956e-08];
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

/// Below this a number is as near to its sine as the hardware's approximation is: 2^-22.4, which leaves no correct
/// digit of small numbers.
const SMALL_ANGLE: f64 = 0.0104;

impl Nvptx {
    /// The value of the function with C's name `name`.
    pub(super) fn compute(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V {
        if s == Scalar::F32 && self.fast_math {
            match name {
                "sin" => return self.sine(e, args[0]),
                "cos" => return self.hardware(e, "llvm.nvvm.cos.approx.ftz.f", args[0]),
                "tan" => return tangent(e, args[0]),
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

    /// One of the hardware's approximations on f32.
    fn hardware(&self, e: &Emitter, name: &str, x: V) -> V {
        e.call(e.declare(name, e.f32, &mut [e.f32]), &[x])
    }

    /// The hardware's approximation, if that is closer than the argument itself.
    fn sine(&self, e: &Emitter, x: V) -> V {
        let far = self.hardware(e, "llvm.nvvm.sin.approx.ftz.f", x);
        let size = e.intrinsic("llvm.fabs", e.f32, &[x]);
        e.select(e.fcmp(FloatCmp::LLVMRealOLT, size, e.real(e.f32, SMALL_ANGLE)), x, far)
    }

    /// The hardware's approximation of `2 ** x`.
    fn power_of_two(&self, e: &Emitter, x: V) -> V {
        e.intrinsic("llvm.nvvm.ex2.approx.ftz", e.f32, &[x])
    }

    /// `e ** x` as `2 ** t`, where `t` is the rounded product of `x` and `log2(e)`, with a correction for the rounding
    /// error.
    fn exponential(&self, e: &Emitter, x: V) -> V {
        let real = |v: f64| e.real(e.f32, v);
        let scale = real(LOG2_E[0]);
        let fma = e.declare("llvm.fma.f32", e.f32, &mut [e.f32, e.f32, e.f32]);
        // A product that must not be contracted with the next sum.
        let t = e.call(fma, &[x, scale, real(-0.0)]);
        let lost = fused(e, x, real(LOG2_E[1]), fused(e, x, scale, e.fneg(t)));
        let power = self.power_of_two(e, t);
        let corrected = fused(e, power, e.fmul(lost, real(std::f64::consts::LN_2)), power);
        // Beyond these the result is infinite or zero, and a correction would make it NaN.
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
        let tail = fused(e, e.fmul(square, t), polynomial(e, &LOGARITHM, t), e.fmul(square, real(-0.5)));
        let near = fused(e, t, real(1.0), tail);
        let value = fused(e, n, real(LN_2), near);
        // For zero (including denormals), infinity, NaN and negative numbers, the hardware's result is used.
        let ordinary = e.and(
            e.fcmp(FloatCmp::LLVMRealOGE, x, real(f64::from(f32::MIN_POSITIVE))),
            e.fcmp(FloatCmp::LLVMRealOLT, x, real(f64::INFINITY)),
        );
        e.select(ordinary, value, self.hardware(e, "llvm.nvvm.lg2.approx.ftz.f", x))
    }
}
