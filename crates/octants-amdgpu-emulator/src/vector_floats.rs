//! The table of lane operations on floats. Operations that the hardware approximates (reciprocals, roots, powers,
//! logarithms, sines) deviate here by up to the documented error, so code that relies on more precision fails. See
//! [`nearly`].

use crate::lanewise::{Lanewise, op};
use crate::number::{Half, bf16_bits, exp2, half_bits, half_bits_toward_zero};

/// One of the two 32-bit floats next to a value, so the error is below one unit in the last place. The value's bits
/// determine which one.
fn nearly(exact: f64) -> f32 {
    let rounded = exact as f32;
    if !rounded.is_normal() || f64::from(rounded) == exact {
        return rounded;
    }
    if (exact.to_bits() ^ exact.to_bits() >> 17).is_multiple_of(2) {
        return rounded;
    }
    let is_short = f64::from(rounded).abs() < exact.abs();
    f32::from_bits(if is_short { rounded.to_bits() + 1 } else { rounded.to_bits() - 1 })
}

/// A 64-bit float with the precision of the hardware's initial approximations: at least 24 bits.
fn guess(exact: f64) -> f64 {
    if !exact.is_normal() { exact } else { f64::from_bits(exact.to_bits() & !0x07ff_ffff | 0x0155_5555) }
}

fn min<T: Copy + PartialOrd>(a: T, b: T, is_nan: impl Fn(T) -> bool, is_negative: impl Fn(T) -> bool) -> T {
    let first = is_nan(b) || a < b || (a == b && is_negative(a));
    if first && !is_nan(a) { a } else { b }
}

fn min32(a: f32, b: f32) -> f32 {
    min(a, b, f32::is_nan, f32::is_sign_negative)
}

fn max32(a: f32, b: f32) -> f32 {
    -min32(-a, -b)
}

fn min64(a: f64, b: f64) -> f64 {
    min(a, b, f64::is_nan, f64::is_sign_negative)
}

fn max64(a: f64, b: f64) -> f64 {
    -min64(-a, -b)
}

fn minimum32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { min32(a, b) }
}

fn minimum64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { min64(a, b) }
}

fn med3(a: f64, b: f64, c: f64) -> f64 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        min64(min64(a, b), c)
    } else {
        max64(min64(a, b), min64(max64(a, b), c))
    }
}

fn fract64(a: f64) -> f64 {
    (a - a.floor()).min(f64::from_bits(0x3fef_ffff_ffff_ffff))
}

fn exponent(a: f64) -> i32 {
    if a == 0.0 || !a.is_finite() {
        return 0;
    }
    let bits = |x: f64| (x.to_bits() >> 52 & 0x7ff) as i32;
    if bits(a) == 0 { bits(a * exp2(64)) - 64 - 1022 } else { bits(a) - 1022 }
}

fn mantissa(a: f64) -> f64 {
    if a == 0.0 || !a.is_finite() { a } else { scaled(a, -exponent(a)) }
}

/// A float times a power of two, rounded once.
pub fn scaled(a: f64, power: i32) -> f64 {
    if a == 0.0 || !a.is_finite() {
        return a;
    }
    let (own, mut left) = (exponent(a), power.clamp(-4400, 4400));
    if own + left < -1021 {
        // Only the last multiplication rounds.
        return scaled(a, -own) * exp2(-1000) * exp2((own + left + 1000).max(-1022));
    }
    let mut value = a;
    while left.abs() > 1000 {
        value *= exp2(1000 * left.signum());
        left -= 1000 * left.signum();
    }
    value * exp2(left)
}

fn to_i32(a: f64) -> i32 {
    a as i32
}

/// 53 bits of 2/pi, like V_TRIG_PREOP_F64.
fn two_over_pi(a: f64, part: u32) -> f64 {
    // The first 1,201 fractional bits of 2/pi.
    const WORDS: [u64; 19] = [
        0xa2f9836e4e441529,
        0xfc2757d1f534ddc0,
        0xdb6295993c439041,
        0xfe5163abdebbc561,
        0xb7246e3a424dd2e0,
        0x06492eea09d1921c,
        0xfe1deb1cb129a73e,
        0xe88235f52ebb4484,
        0xe99c7026b45f7e41,
        0x3991d639835339f4,
        0x9c845f8bbdf9283b,
        0x1ff897ffde05980f,
        0xef2f118b5a0a6d1f,
        0x6d367ecf27cb09b7,
        0x4f463f669e5fea2d,
        0x7527bac7ebe5f17b,
        0x3d0739f78a5292ea,
        0x6bfb5fb11f8d5d08,
        0x56033046fc7b0000,
    ];
    let exponent = (a.to_bits() >> 52 & 0x7ff) as i32;
    let mut shift = (part & 0x1f) as i32 * 53;
    if exponent > 1077 {
        shift += exponent - 1077;
    }
    let bit = |n: i32| {
        let n = n as usize;
        WORDS.get(n / 64).map_or(0, |w| w >> (63 - n % 64) & 1)
    };
    let bits = (shift..shift + 53).fold(0u64, |sum, n| sum << 1 | bit(n));
    let mut scale = -53 - shift;
    if exponent >= 1968 {
        scale += 128;
    }
    scaled(bits as f64, scale)
}

/// Operations by name, without the encoding suffix.
pub const FLOATS: &[(&str, Lanewise)] = &[
    op!("v_add_f32", |a: f32, b: f32| -> f32 { a + b }),
    op!("v_sub_f32", |a: f32, b: f32| -> f32 { a - b }),
    op!("v_subrev_f32", |a: f32, b: f32| -> f32 { b - a }),
    op!("v_mul_f32", |a: f32, b: f32| -> f32 { a * b }),
    op!("v_mul_legacy_f32", |a: f32, b: f32| -> f32 { if a == 0.0 || b == 0.0 { 0.0 } else { a * b } }),
    op!("v_fma_f32", |a: f32, b: f32, c: f32| -> f32 { a.mul_add(b, c) }),
    op!("v_mad_f32", |a: f32, b: f32, c: f32| -> f32 { a * b + c }),
    op!("v_min_f32", |a: f32, b: f32| -> f32 { min32(a, b) }),
    op!("v_max_f32", |a: f32, b: f32| -> f32 { max32(a, b) }),
    op!("v_min3_f32", |a: f32, b: f32, c: f32| -> f32 { min32(min32(a, b), c) }),
    op!("v_max3_f32", |a: f32, b: f32, c: f32| -> f32 { max32(max32(a, b), c) }),
    op!("v_minmax_f32", |a: f32, b: f32, c: f32| -> f32 { max32(min32(a, b), c) }),
    op!("v_maxmin_f32", |a: f32, b: f32, c: f32| -> f32 { min32(max32(a, b), c) }),
    op!("v_med3_f32", |a: f32, b: f32, c: f32| -> f32 { med3(a.into(), b.into(), c.into()) as f32 }),
    op!("v_minimum_f32", |a: f32, b: f32| -> f32 { minimum32(a, b) }),
    op!("v_maximum_f32", |a: f32, b: f32| -> f32 { -minimum32(-a, -b) }),
    op!("v_minimum_f64", |a: f64, b: f64| -> f64 { minimum64(a, b) }),
    op!("v_maximum_f64", |a: f64, b: f64| -> f64 { -minimum64(-a, -b) }),
    op!("v_minimum3_f32", |a: f32, b: f32, c: f32| -> f32 { minimum32(minimum32(a, b), c) }),
    op!("v_maximum3_f32", |a: f32, b: f32, c: f32| -> f32 { -minimum32(minimum32(-a, -b), -c) }),
    op!("v_add_f64", |a: f64, b: f64| -> f64 { a + b }),
    op!("v_mul_f64", |a: f64, b: f64| -> f64 { a * b }),
    op!("v_fma_f64", |a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }),
    op!("v_min_f64", |a: f64, b: f64| -> f64 { min64(a, b) }),
    op!("v_max_f64", |a: f64, b: f64| -> f64 { max64(a, b) }),
    op!("v_add_f16", |a: Half, b: Half| -> Half { Half(a.0 + b.0) }),
    op!("v_sub_f16", |a: Half, b: Half| -> Half { Half(a.0 - b.0) }),
    op!("v_subrev_f16", |a: Half, b: Half| -> Half { Half(b.0 - a.0) }),
    op!("v_mul_f16", |a: Half, b: Half| -> Half { Half(a.0 * b.0) }),
    op!("v_fma_f16", |a: Half, b: Half, c: Half| -> Half { Half(a.0.mul_add(b.0, c.0)) }),
    op!("v_min_f16", |a: Half, b: Half| -> Half { Half(min64(a.0, b.0)) }),
    op!("v_max_f16", |a: Half, b: Half| -> Half { Half(max64(a.0, b.0)) }),
    op!("v_minimum_f16", |a: Half, b: Half| -> Half { Half(minimum64(a.0, b.0)) }),
    op!("v_maximum_f16", |a: Half, b: Half| -> Half { Half(-minimum64(-a.0, -b.0)) }),
    op!("v_min3_f16", |a: Half, b: Half, c: Half| -> Half { Half(min64(min64(a.0, b.0), c.0)) }),
    op!("v_max3_f16", |a: Half, b: Half, c: Half| -> Half { Half(max64(max64(a.0, b.0), c.0)) }),
    op!("v_minmax_f16", |a: Half, b: Half, c: Half| -> Half { Half(max64(min64(a.0, b.0), c.0)) }),
    op!("v_maxmin_f16", |a: Half, b: Half, c: Half| -> Half { Half(min64(max64(a.0, b.0), c.0)) }),
    op!("v_med3_f16", |a: Half, b: Half, c: Half| -> Half { Half(med3(a.0, b.0, c.0)) }),
    op!("v_rcp_f32", |a: f32| -> f32 { nearly(1.0 / f64::from(a)) }),
    op!("v_rcp_iflag_f32", |a: f32| -> f32 { nearly(1.0 / f64::from(a)) }),
    op!("v_rsq_f32", |a: f32| -> f32 { nearly(1.0 / f64::from(a).sqrt()) }),
    op!("v_sqrt_f32", |a: f32| -> f32 { nearly(f64::from(a).sqrt()) }),
    op!("v_exp_f32", |a: f32| -> f32 { nearly(f64::from(a).exp2()) }),
    op!("v_log_f32", |a: f32| -> f32 { nearly(f64::from(a).log2()) }),
    op!("v_sin_f32", |a: f32| -> f32 { sine(a.into()) as f32 }),
    op!("v_cos_f32", |a: f32| -> f32 { sine(f64::from(a) + 0.25) as f32 }),
    op!("v_rcp_f64", |a: f64| -> f64 { guess(1.0 / a) }),
    op!("v_rsq_f64", |a: f64| -> f64 { guess(1.0 / a.sqrt()) }),
    op!("v_sqrt_f64", |a: f64| -> f64 { guess(a.sqrt()) }),
    op!("v_rcp_f16", |a: Half| -> Half { Half(1.0 / a.0) }),
    op!("v_rsq_f16", |a: Half| -> Half { Half(1.0 / a.0.sqrt()) }),
    op!("v_sqrt_f16", |a: Half| -> Half { Half(a.0.sqrt()) }),
    op!("v_exp_f16", |a: Half| -> Half { Half(a.0.exp2()) }),
    op!("v_log_f16", |a: Half| -> Half { Half(a.0.log2()) }),
    op!("v_sin_f16", |a: Half| -> Half { Half(sine(a.0)) }),
    op!("v_cos_f16", |a: Half| -> Half { Half(sine(a.0 + 0.25)) }),
    op!("v_fract_f32", |a: f32| -> f32 { (a - a.floor()).min(f32::from_bits(0x3f7f_ffff)) }),
    op!("v_trunc_f32", |a: f32| -> f32 { a.trunc() }),
    op!("v_ceil_f32", |a: f32| -> f32 { a.ceil() }),
    op!("v_floor_f32", |a: f32| -> f32 { a.floor() }),
    op!("v_rndne_f32", |a: f32| -> f32 { a.round_ties_even() }),
    op!("v_fract_f64", |a: f64| -> f64 { fract64(a) }),
    op!("v_trunc_f64", |a: f64| -> f64 { a.trunc() }),
    op!("v_ceil_f64", |a: f64| -> f64 { a.ceil() }),
    op!("v_floor_f64", |a: f64| -> f64 { a.floor() }),
    op!("v_rndne_f64", |a: f64| -> f64 { a.round_ties_even() }),
    op!("v_fract_f16", |a: Half| -> Half { Half((a.0 - a.0.floor()).min(1.0 - exp2(-11))) }),
    op!("v_trunc_f16", |a: Half| -> Half { Half(a.0.trunc()) }),
    op!("v_ceil_f16", |a: Half| -> Half { Half(a.0.ceil()) }),
    op!("v_floor_f16", |a: Half| -> Half { Half(a.0.floor()) }),
    op!("v_rndne_f16", |a: Half| -> Half { Half(a.0.round_ties_even()) }),
    op!("v_frexp_exp_i32_f32", |a: f32| -> i32 { exponent(a.into()) }),
    op!("v_frexp_exp_i32_f64", |a: f64| -> i32 { exponent(a) }),
    op!("v_frexp_exp_i16_f16", |a: Half| -> i16 { exponent(a.0) as i16 }),
    op!("v_frexp_mant_f32", |a: f32| -> f32 { mantissa(a.into()) as f32 }),
    op!("v_frexp_mant_f64", |a: f64| -> f64 { mantissa(a) }),
    op!("v_frexp_mant_f16", |a: Half| -> Half { Half(mantissa(a.0)) }),
    op!("v_ldexp_f32", |a: f32, b: i32| -> f32 { scaled(a.into(), b.clamp(-600, 600)) as f32 }),
    op!("v_ldexp_f64", |a: f64, b: i32| -> f64 { scaled(a, b) }),
    op!("v_ldexp_f16", |a: Half, b: i16| -> Half { Half(scaled(a.0, b.clamp(-200, 200).into())) }),
    op!("v_cvt_f32_f16", |a: Half| -> f32 { a.0 as f32 }),
    op!("v_cvt_f16_f32", |a: f32| -> Half { Half(a.into()) }),
    op!("v_cvt_f32_f64", |a: f64| -> f32 { a as f32 }),
    op!("v_cvt_f64_f32", |a: f32| -> f64 { a.into() }),
    op!("v_cvt_f32_i32", |a: i32| -> f32 { a as f32 }),
    op!("v_cvt_f32_u32", |a: u32| -> f32 { a as f32 }),
    op!("v_cvt_f64_i32", |a: i32| -> f64 { a.into() }),
    op!("v_cvt_f64_u32", |a: u32| -> f64 { a.into() }),
    op!("v_cvt_f16_u16", |a: u16| -> Half { Half(a.into()) }),
    op!("v_cvt_f16_i16", |a: i16| -> Half { Half(a.into()) }),
    op!("v_cvt_u16_f16", |a: Half| -> u16 { a.0 as u16 }),
    op!("v_cvt_i16_f16", |a: Half| -> i16 { a.0 as i16 }),
    op!("v_cvt_i32_f32", |a: f32| -> i32 { a as i32 }),
    op!("v_cvt_u32_f32", |a: f32| -> u32 { a as u32 }),
    op!("v_cvt_i32_f64", |a: f64| -> i32 { a as i32 }),
    op!("v_cvt_u32_f64", |a: f64| -> u32 { a as u32 }),
    op!("v_cvt_floor_i32_f32", |a: f32| -> i32 { to_i32(f64::from(a).floor()) }),
    op!("v_cvt_nearest_i32_f32", |a: f32| -> i32 { to_i32((f64::from(a) + 0.5).floor()) }),
    op!("v_cvt_f32_ubyte0", |a: u32| -> f32 { (a & 0xff) as f32 }),
    op!("v_cvt_f32_ubyte1", |a: u32| -> f32 { (a >> 8 & 0xff) as f32 }),
    op!("v_cvt_f32_ubyte2", |a: u32| -> f32 { (a >> 16 & 0xff) as f32 }),
    op!("v_cvt_f32_ubyte3", |a: u32| -> f32 { (a >> 24) as f32 }),
    op!("v_cvt_pk_rtz_f16_f32", |a: f32, b: f32| -> u32 {
        u32::from(half_bits_toward_zero(b.into())) << 16 | u32::from(half_bits_toward_zero(a.into()))
    }),
    op!("v_cvt_pk_f16_f32", |a: f32, b: f32| -> u32 {
        u32::from(half_bits(b.into())) << 16 | u32::from(half_bits(a.into()))
    }),
    op!("v_cvt_pk_bf16_f32", |a: f32, b: f32| -> u32 {
        u32::from(bf16_bits(b.into())) << 16 | u32::from(bf16_bits(a.into()))
    }),
    op!("v_trig_preop_f64", |a: f64, b: u32| -> f64 { two_over_pi(a, b) }),
    op!("v_div_fixup_f32", |a: f32, b: f32, c: f32| -> f32 { fixup(a.into(), b.into(), c.into()) as f32 }),
    op!("v_div_fixup_f64", |a: f64, b: f64, c: f64| -> f64 { fixup(a, b, c) }),
    op!("v_div_fixup_f16", |a: Half, b: Half, c: Half| -> Half { Half(fixup(a.0, b.0, c.0)) }),
];

/// The sine of an angle in turns.
fn sine(turns: f64) -> f64 {
    if !turns.is_finite() {
        return f64::NAN;
    }
    let within = turns - turns.floor();
    // Exact at the points where the hardware is.
    match within {
        0.0 | 0.5 => 0.0,
        _ => (within * std::f64::consts::TAU).sin(),
    }
}

/// Fixes up the special cases of a division, from the quotient, the denominator and the numerator.
fn fixup(quotient: f64, denominator: f64, numerator: f64) -> f64 {
    let sign = if denominator.is_sign_negative() == numerator.is_sign_negative() { 1.0 } else { -1.0 };
    let both = |test: fn(f64) -> bool| test(numerator) && test(denominator);
    if numerator.is_nan() || denominator.is_nan() || both(|x| x == 0.0) || both(f64::is_infinite) {
        f64::NAN
    } else if denominator == 0.0 || numerator.is_infinite() {
        sign * f64::INFINITY
    } else if denominator.is_infinite() || numerator == 0.0 {
        sign * 0.0
    } else {
        quotient.abs() * sign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximations_are_within_one_ulp() {
        let mut inexact = 0;
        for n in 1..2000 {
            let exact = 1.0 / f64::from(n);
            let found = nearly(exact);
            let unit = f64::from(f32::from_bits(found.to_bits() + 1)) - f64::from(found);
            let off = (f64::from(found) - exact).abs() / unit;
            assert!(off < 1.0, "1 / {n} is {off} units off");
            inexact += usize::from(off > 0.5);
        }
        assert!(inexact > 500);
    }
}
