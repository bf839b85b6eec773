//! Math functions.
//!
//! f32 uses GLSL's functions if they are accurate enough, and polynomials otherwise. f64 always uses polynomials,
//! because GLSL has no such functions. The methods are the classic ones: an argument is reduced by a multiple of a
//! constant in two parts, and the remainder goes through an odd or even polynomial or a series in `s = x / (2 + x)`.

use octants_ir::{Scalar, UnaryOp};

use crate::emit::{Id, Op};
use crate::lowering::{Helper, Lowering};
use rspirv::spirv::GlslStd450Op as GlslOp;

/// ln 2 in two parts. The first has few bits.
const LN2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
const LN2_F32: [f64; 2] = [0.693_359_375, -2.121_944_4e-4];
/// pi/2 in three parts.
const HALF_PI: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];
const HALF_PI_F32: [f64; 3] = [1.5703125, 4.837_512_969_970_703e-4, 7.549_790_126_404_332e-8];

/// `sum(1 / (2 k + 1))` in `s * s`, for `atanh`-like series of logarithms.
const LOG_SERIES: usize = 11;

impl Lowering<'_, '_> {
    fn polynomial(&self, s: Scalar, x: Id, coefficients: &[f64]) -> Id {
        let e = self.e;
        let (last, rest) = coefficients.split_last().expect("compiler bug: a polynomial without coefficients");
        let start = e.real(s.bits(), *last);
        rest.iter().rev().fold(start, |sum, c| e.fused(sum, x, e.real(s.bits(), *c)))
    }

    /// A function of mathematics on f32 or f64.
    pub fn function(&self, op: UnaryOp, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        match op {
            UnaryOp::Exp => self.exp(s, v),
            UnaryOp::Exp2 => self.exp2(s, v),
            UnaryOp::Log => self.log(s, v),
            UnaryOp::Log2 => e.fmul(self.log(s, v), real(std::f64::consts::LOG2_E)),
            UnaryOp::Sin => self.sine(s, v, 0),
            UnaryOp::Cos => self.sine(s, v, 1),
            UnaryOp::Tan => e.fdiv(self.sine(s, v, 0), self.sine(s, v, 1)),
            UnaryOp::Atan => self.atan(s, v),
            UnaryOp::Asin => self.asin(s, v),
            UnaryOp::Acos => self.acos(s, v),
            UnaryOp::Sinh | UnaryOp::Cosh | UnaryOp::Tanh => self.hyperbolic(op, s, v),
            UnaryOp::Neg
            | UnaryOp::BitNot
            | UnaryOp::LogicNot
            | UnaryOp::Abs
            | UnaryOp::Sgn
            | UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::Popcnt
            | UnaryOp::Clz
            | UnaryOp::Ffs
            | UnaryOp::IsNan
            | UnaryOp::IsInf
            | UnaryOp::StopGrad => panic!("compiler bug: {op:?} is not a function on {s}"),
        }
    }

    /// The nearest integer, as a float and as an i32.
    fn nearest(&self, v: Id) -> (Id, Id) {
        let e = self.e;
        let whole = e.gl(GlslOp::RoundEven, &[v]);
        (whole, e.of(Op::ConvertFToS, e.u32(), &[whole]))
    }

    /// 2 to an integer between -1022 and 1023 (-126 and 127).
    fn power_of_two(&self, s: Scalar, n: Id) -> Id {
        let e = self.e;
        match s {
            Scalar::F64 => {
                let biased = e.sext(e.add(n, e.u32c(1023)), 32, 64);
                e.bitcast(e.shl(biased, e.u64c(52)), e.scalar(s))
            }
            _ => e.bitcast(e.shl(e.add(n, e.u32c(127)), e.u32c(23)), e.scalar(s)),
        }
    }

    /// A float times 2 to an integer, in two steps: each power is representable.
    fn scale(&self, s: Scalar, v: Id, n: Id) -> Id {
        let e = self.e;
        let half = e.ashr(n, e.u32c(1));
        let once = e.fmul(v, self.power_of_two(s, half));
        e.fmul(once, self.power_of_two(s, e.sub(n, half)))
    }

    /// Arguments between which a result is neither zero nor infinity.
    fn exp_range(s: Scalar) -> (f64, f64) {
        if s == Scalar::F64 { (-745.2, 709.79) } else { (-103.98, 88.73) }
    }

    /// `e ** (r + r_low)` for an `r` of at most ln 2 / 2.
    fn exp_near_zero(&self, s: Scalar, r: Id) -> Id {
        // Taylor's series: the next term is below half a unit in the last place.
        let terms = if s == Scalar::F64 { 14 } else { 8 };
        let mut coefficients = vec![1.0];
        for k in 1..terms {
            coefficients.push(coefficients[k - 1] / k as f64);
        }
        self.polynomial(s, r, &coefficients)
    }

    fn exp(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let (least, most) = Self::exp_range(s);
        let real = |x: f64| e.real(s.bits(), x);
        let clamped = e.gl(GlslOp::NMin, &[e.gl(GlslOp::NMax, &[v, real(least)]), real(most + 1.0)]);
        let (whole, n) = self.nearest(e.fmul(clamped, real(std::f64::consts::LOG2_E)));
        let parts = if s == Scalar::F64 { LN2 } else { LN2_F32 };
        let minus = e.fneg(whole);
        let r = e.fused(minus, real(parts[1]), e.fused(minus, real(parts[0]), clamped));
        let result = self.scale(s, self.exp_near_zero(s, r), n);
        let result = e.select(e.flt(v, real(least)), real(0.0), result);
        let result = e.select(e.fgt(v, real(most)), real(f64::INFINITY), result);
        self.unless_nan(s, v, result)
    }

    fn exp2(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let (least, most) = if s == Scalar::F64 { (-1075.0, 1024.0) } else { (-150.0, 128.0) };
        let clamped = e.gl(GlslOp::NMin, &[e.gl(GlslOp::NMax, &[v, real(least)]), real(most)]);
        let (whole, n) = self.nearest(clamped);
        let r = e.fmul(e.fsub(clamped, whole), real(std::f64::consts::LN_2));
        let result = self.scale(s, self.exp_near_zero(s, r), n);
        let result = e.select(e.fge(v, real(most)), real(f64::INFINITY), result);
        self.unless_nan(s, v, result)
    }

    /// The result; the argument itself if it is NaN.
    fn unless_nan(&self, s: Scalar, v: Id, result: Id) -> Id {
        self.e.select(self.unary(UnaryOp::IsNan, s, v), v, result)
    }

    fn log(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let (bits, digits, bias) = if s == Scalar::F64 { (64, 52, 1023) } else { (32, 23, 127) };
        // Denormals are scaled up.
        let smallest = if s == Scalar::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        let is_small = e.flt(v, real(smallest));
        let scaled = e.select(is_small, e.fmul(v, real((digits as f64 + 2.0).exp2())), v);
        let word = e.bitcast(scaled, e.int_type(bits));
        let exponent = e.and(e.lshr(word, e.int(bits, digits)), e.int(bits, 2 * bias + 1));
        let exponent = e.sub(e.trunc(exponent, 32), e.u32c(bias as u32));
        let exponent = e.sub(exponent, e.select(is_small, e.u32c(digits as u32 + 2), e.u32c(0)));
        let mantissa = e.and(word, e.int(bits, (1 << digits) - 1));
        let m = e.bitcast(e.or(mantissa, e.int(bits, bias << digits)), e.scalar(s));
        // Between sqrt(1/2) and sqrt(2).
        let is_large = e.fgt(m, real(std::f64::consts::SQRT_2));
        let m = e.select(is_large, e.fmul(m, real(0.5)), m);
        let exponent = e.add(exponent, e.select(is_large, e.u32c(1), e.u32c(0)));
        let n = e.of(Op::ConvertSToF, e.scalar(s), &[exponent]);
        // ln(1 + f) = f - (f^2 / 2 - t (f^2 / 2 + 2 t^2 sum)), t = f / (2 + f).
        let f = e.fsub(m, real(1.0));
        let t = e.fdiv(f, e.fadd(f, real(2.0)));
        let square = e.fmul(t, t);
        let terms = if s == Scalar::F64 { LOG_SERIES } else { 5 };
        let series: Vec<f64> = (1..terms).map(|k| 2.0 / (2 * k + 1) as f64).collect();
        let sum = e.fmul(square, self.polynomial(s, square, &series));
        let half_square = e.fmul(real(0.5), e.fmul(f, f));
        let parts = if s == Scalar::F64 { LN2 } else { LN2_F32 };
        let inner = e.fused(t, e.fadd(half_square, sum), e.fmul(n, real(parts[1])));
        let result = e.fused(n, real(parts[0]), e.fsub(f, e.fsub(half_square, inner)));
        let infinity = real(f64::INFINITY);
        let result = e.select(e.feq(v, infinity), infinity, result);
        let result = e.select(e.feq(v, real(0.0)), real(f64::NEG_INFINITY), result);
        let result = e.select(e.flt(v, real(0.0)), real(f64::NAN), result);
        self.unless_nan(s, v, result)
    }

    /// The sine of the argument plus a number of quarter turns.
    fn sine(&self, s: Scalar, v: Id, quarters: u32) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let (whole, quarter) = self.nearest(e.fmul(v, real(std::f64::consts::FRAC_2_PI)));
        let parts = if s == Scalar::F64 { HALF_PI } else { HALF_PI_F32 };
        let minus = e.fneg(whole);
        let r = parts.iter().fold(v, |r, part| e.fused(minus, real(*part), r));
        let square = e.fmul(r, r);
        let terms: usize = if s == Scalar::F64 { 9 } else { 5 };
        let series = |first: usize| -> Vec<f64> {
            let (mut term, mut all) = (if first == 1 { 1.0 } else { 0.5 }, Vec::new());
            let start = if first == 1 { 2 } else { 3 };
            for k in 0..terms {
                all.push(if k.is_multiple_of(2) { term } else { -term });
                let n = (start + 2 * k) as f64;
                term /= n * (n + 1.0);
            }
            all
        };
        // sin r = r - r^3 (1/6 - ..); cos r = 1 - r^2 (1/2 - ..).
        let sine_series: Vec<f64> = series(1)[1..].to_vec();
        let sine = e.fused(e.fmul(r, square), self.polynomial(s, square, &sine_series), r);
        let cosine = e.fused(e.fneg(square), self.polynomial(s, square, &series(0)), real(1.0));
        let quarter = e.add(quarter, e.u32c(quarters));
        let is_odd = e.ine(e.and(quarter, e.u32c(1)), e.u32c(0));
        let is_negative = e.ine(e.and(quarter, e.u32c(2)), e.u32c(0));
        let size = e.select(is_odd, cosine, sine);
        e.select(is_negative, e.fneg(size), size)
    }

    /// Odd series of the arctangent for arguments up to tan(pi / 16).
    fn atan_near_zero(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let square = e.fmul(v, v);
        let terms: usize = if s == Scalar::F64 { 13 } else { 6 };
        let sign = |k: usize| if k.is_multiple_of(2) { 1.0 } else { -1.0 };
        let series: Vec<f64> = (1..terms).map(|k| sign(k) / (2 * k + 1) as f64).collect();
        e.fused(e.fmul(v, square), self.polynomial(s, square, &series), v)
    }

    fn atan(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let size = e.fabs(v);
        let is_large = e.fgt(size, real(1.0));
        let x = e.select(is_large, e.fdiv(real(1.0), size), size);
        // The nearest multiple of pi / 16, at most pi / 4, is subtracted: atan x = a + atan((x - c) / (1 + c x)).
        let mut center = (real(0.0), real(0.0));
        for k in 1..=4 {
            let angle = f64::from(k) * std::f64::consts::PI / 16.0;
            let reached = e.fgt(x, real((angle - std::f64::consts::PI / 32.0).tan()));
            center = (e.select(reached, real(angle.tan()), center.0), e.select(reached, real(angle), center.1));
        }
        let rest = e.fdiv(e.fsub(x, center.0), e.fused(center.0, x, real(1.0)));
        let angle = e.fadd(center.1, self.atan_near_zero(s, rest));
        let angle = e.select(is_large, e.fsub(real(std::f64::consts::FRAC_PI_2), angle), angle);
        self.unless_nan(s, v, e.select(e.flt(v, real(0.0)), e.fneg(angle), angle))
    }

    fn asin(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let one = e.real(s.bits(), 1.0);
        // (1 - x)(1 + x) keeps the digits near 1.
        let other = e.gl(GlslOp::Sqrt, &[e.fmul(e.fsub(one, v), e.fadd(one, v))]);
        self.atan2(s, v, other)
    }

    fn acos(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let one = e.real(s.bits(), 1.0);
        let other = e.gl(GlslOp::Sqrt, &[e.fmul(e.fsub(one, v), e.fadd(one, v))]);
        self.atan2(s, other, v)
    }

    /// The sign bit of a float is set.
    fn is_negative(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        e.slt(e.bits_of(v, s), e.int(s.bits(), 0))
    }

    pub fn atan2(&self, s: Scalar, y: Id, x: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let (height, width) = (e.fabs(y), e.fabs(x));
        let is_steep = e.fgt(height, width);
        let (small, large) = (e.select(is_steep, width, height), e.select(is_steep, height, width));
        let both_infinite = e.both(e.feq(small, real(f64::INFINITY)), e.feq(large, real(f64::INFINITY)));
        let ratio = e.select(e.feq(large, real(0.0)), real(0.0), e.fdiv(small, large));
        let ratio = e.select(both_infinite, real(1.0), ratio);
        let angle = self.atan(s, ratio);
        let angle = e.select(is_steep, e.fsub(real(std::f64::consts::FRAC_PI_2), angle), angle);
        let angle = e.select(self.is_negative(s, x), e.fsub(real(std::f64::consts::PI), angle), angle);
        let angle = e.select(self.is_negative(s, y), e.fneg(angle), angle);
        self.unless_nan(s, x, self.unless_nan(s, y, angle))
    }

    fn hyperbolic(&self, op: UnaryOp, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let size = e.fabs(v);
        let result = match op {
            UnaryOp::Cosh => {
                // The exponential of half the argument, so that it overflows only if the result does.
                let half = self.exp(s, e.fmul(size, real(0.5)));
                let up = e.fmul(e.fmul(real(0.5), half), half);
                return e.fadd(up, e.fdiv(real(0.25), up));
            }
            UnaryOp::Sinh => {
                let half = self.exp(s, e.fmul(size, real(0.5)));
                let up = e.fmul(e.fmul(real(0.5), half), half);
                let far = e.fsub(up, e.fdiv(real(0.25), up));
                e.select(e.flt(size, real(0.5)), self.sinh_near_zero(s, size), far)
            }
            _ => {
                let twice = self.exp(s, e.fmul(size, real(2.0)));
                let far = e.fsub(real(1.0), e.fdiv(real(2.0), e.fadd(twice, real(1.0))));
                // Near zero, computed from the hyperbolic sine, which does not lose digits.
                let sine = self.sinh_near_zero(s, size);
                let near = e.fdiv(sine, e.gl(GlslOp::Sqrt, &[e.fused(sine, sine, real(1.0))]));
                e.select(e.flt(size, real(0.5)), near, far)
            }
        };
        e.select(self.is_negative(s, v), e.fneg(result), result)
    }

    /// Taylor's series of the hyperbolic sine for arguments up to 1/2.
    fn sinh_near_zero(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let terms = if s == Scalar::F64 { 8 } else { 4 };
        let mut term = 1.0;
        let mut series = Vec::new();
        for k in 1..terms {
            term /= (2 * k * (2 * k + 1)) as f64;
            series.push(term);
        }
        let square = e.fmul(v, v);
        e.fused(e.fmul(v, square), self.polynomial(s, square, &series), v)
    }

    /// C's remainder: the sign of the dividend.
    pub fn float_rem(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let zero = e.zero(s);
        let (x, y) = (e.fabs(a), e.fabs(b));
        let quotient = e.gl(GlslOp::Floor, &[e.fdiv(x, y)]);
        let rest = e.fused(e.fneg(quotient), y, x);
        // The quotient may be one too large or too small.
        let rest = e.select(e.flt(rest, zero), e.fadd(rest, y), rest);
        let rest = e.select(e.fge(rest, y), e.fsub(rest, y), rest);
        let rest = e.select(e.feq(y, e.real(s.bits(), f64::INFINITY)), x, rest);
        e.select(self.is_negative(s, a), e.fneg(rest), rest)
    }

    /// `a ** b` on floats; small constant exponents are products.
    pub fn float_pow(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let known = e.as_bits(b).map(|bits| match s {
            Scalar::F64 => f64::from_bits(bits),
            _ => f64::from(f32::from_bits(bits as u32)),
        });
        match known {
            Some(0.0) => real(1.0),
            Some(0.5) if e.fast_math => e.gl(GlslOp::Sqrt, &[a]),
            Some(x) if x.fract() == 0.0 && (x.abs() <= 4.0 || (e.fast_math && x.abs() <= 32.0)) => {
                let power = self.product_power(a, x.abs() as u32, &|x, y| e.fmul(x, y));
                if x < 0.0 { e.fdiv(real(1.0), power) } else { power }
            }
            _ => self.general_pow(s, a, b),
        }
    }

    /// `exp(b ln |a|)`, with the logarithm in two parts so that large results keep their digits.
    fn general_pow(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        let size = if s == Scalar::F32 && e.features.float64 {
            let wide = |v: Id| e.float_convert(v, 64);
            let product = e.fmul(wide(b), self.log(Scalar::F64, wide(e.fabs(a))));
            e.float_convert(self.exp(Scalar::F64, product), 32)
        } else {
            let log = self.log(s, e.fabs(a));
            let product = e.fmul(b, log);
            let lost = e.fused(b, log, e.fneg(product));
            let power = self.exp(s, product);
            let is_plain = e.flt(e.fabs(product), real(700.0));
            e.select(is_plain, e.fused(power, lost, power), power)
        };
        let whole = e.gl(GlslOp::Floor, &[b]);
        let is_whole = e.feq(whole, b);
        let half = e.fmul(b, real(0.5));
        let is_odd = e.both(is_whole, e.fne(e.gl(GlslOp::Floor, &[half]), half));
        let signed = e.select(e.both(is_odd, self.is_negative(s, a)), e.fneg(size), size);
        let no_power = e.both(e.flt(a, real(0.0)), e.not(is_whole));
        let result = e.select(no_power, real(f64::NAN), signed);
        let is_one = e.either(e.feq(b, real(0.0)), e.feq(a, real(1.0)));
        e.select(is_one, real(1.0), result)
    }

    /// `a` to a positive constant, by squaring.
    fn product_power(&self, a: Id, exponent: u32, mul: &dyn Fn(Id, Id) -> Id) -> Id {
        let mut result = None;
        let (mut square, mut rest) = (a, exponent);
        loop {
            if rest & 1 == 1 {
                result = Some(result.map_or(square, |r| mul(r, square)));
            }
            rest >>= 1;
            match result {
                Some(r) if rest == 0 => return r,
                _ => square = mul(square, square),
            }
        }
    }

    /// `a ** b` on integers.
    pub fn int_pow(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        match e.as_int(b, s.bits()) {
            Some(0) => return e.int(s.bits(), 1),
            Some(n @ 1..=64) => return self.product_power(a, n as u32, &|x, y| e.mul(x, y)),
            _ => {}
        }
        let helper = self.u.helper(Helper::Power(s));
        e.of(Op::FunctionCall, e.scalar(s), &[helper, a, b])
    }
}
