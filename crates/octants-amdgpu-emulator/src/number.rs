//! Lane values: the contents of a register as Rust types, and rounding modes that Rust lacks.

/// The type of an operand: its width, and whether modes of floats apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
    /// A float of 16 bits.
    F16,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
    /// One bit of a mask in scalar registers.
    Mask,
}

impl Ty {
    /// Its width.
    pub fn bits(self) -> u32 {
        match self {
            Ty::Mask => 1,
            Ty::B16 | Ty::F16 => 16,
            Ty::B32 | Ty::F32 => 32,
            Ty::B64 | Ty::F64 => 64,
        }
    }
}

/// A float of 16 bits, computed with in 64.
#[derive(Debug, Clone, Copy)]
pub struct Half(pub f64);

/// A type that lanes hold.
pub trait Lane: Copy {
    /// As operands name it.
    const TY: Ty;
    /// From the bits of a register.
    fn get(bits: u64) -> Self;
    /// To the bits of a register.
    fn put(self) -> u64;
}

macro_rules! integer_lane {
    ($($t:ty, $unsigned:ty, $ty:ident;)*) => {$(
        impl Lane for $t {
            const TY: Ty = Ty::$ty;
            fn get(bits: u64) -> Self {
                bits as $t
            }
            fn put(self) -> u64 {
                self as $unsigned as u64
            }
        }
    )*};
}

integer_lane! {
    u16, u16, B16;
    i16, u16, B16;
    u32, u32, B32;
    i32, u32, B32;
    u64, u64, B64;
    i64, u64, B64;
}

impl Lane for bool {
    const TY: Ty = Ty::Mask;
    fn get(bits: u64) -> Self {
        bits & 1 != 0
    }
    fn put(self) -> u64 {
        u64::from(self)
    }
}

impl Lane for f32 {
    const TY: Ty = Ty::F32;
    fn get(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
    fn put(self) -> u64 {
        self.to_bits().into()
    }
}

impl Lane for f64 {
    const TY: Ty = Ty::F64;
    fn get(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    fn put(self) -> u64 {
        self.to_bits()
    }
}

impl Lane for Half {
    const TY: Ty = Ty::F16;
    fn get(bits: u64) -> Self {
        Half(half::f16::from_bits(bits as u16).to_f64())
    }
    fn put(self) -> u64 {
        half_bits(self.0).into()
    }
}

/// Rounds to a float with `mantissa` bits after the point and exponents of `exponent` bits, to nearest, ties to even.
fn narrow(value: f64, mantissa: u32, exponent: u32) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (mantissa + exponent);
    let infinity = ((1u64 << exponent) - 1) << mantissa;
    if value.is_nan() {
        return sign | infinity | 1 << (mantissa - 1);
    }
    if value.is_infinite() {
        return sign | infinity;
    }
    let magnitude = value.abs();
    let bias = (1i32 << (exponent - 1)) - 1;
    // The exponent of the last bit that the result keeps.
    let own = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let last = own - mantissa as i32;
    let scaled = magnitude * exp2(-last);
    let units = scaled.round_ties_even() as u64;
    let bits =
        if units >> mantissa == 0 { units } else { (((own + bias) as u64) << mantissa) + (units - (1 << mantissa)) };
    sign | bits.min(infinity)
}

/// A power of two; exact as long as it is a float of 64 bits.
pub fn exp2(exponent: i32) -> f64 {
    let clamped = exponent.clamp(-1022, 1023);
    let rest = exponent - clamped;
    let power = |n: i32| f64::from_bits(((n + 1023) as u64) << 52);
    if rest == 0 { power(clamped) } else { power(clamped) * power(rest.clamp(-1022, 1023)) }
}

/// The nearest float of 16 bits.
pub fn half_bits(value: f64) -> u16 {
    narrow(value, 10, 5) as u16
}

/// The float of 16 bits next to zero from a value.
pub fn half_bits_toward_zero(value: f64) -> u16 {
    let nearest = half_bits(value);
    let back = half::f16::from_bits(nearest).to_f64();
    let overshoots = back.abs() > value.abs() && (value.is_finite() || back.is_finite());
    if overshoots { nearest - 1 } else { nearest }
}

/// The nearest bfloat16.
pub fn bf16_bits(value: f64) -> u16 {
    narrow(value, 7, 8) as u16
}

/// A bfloat16's value.
pub fn bf16(bits: u64) -> f32 {
    f32::from_bits((bits as u32 & 0xffff) << 16)
}

/// A denormal becomes a zero of its sign.
pub fn flush(bits: u64, ty: Ty) -> u64 {
    let (mantissa, all) = match ty {
        Ty::F16 => (10, 15),
        Ty::F32 => (23, 31),
        Ty::F64 => (52, 63),
        _ => return bits,
    };
    let magnitude = bits & ((1 << all) - 1);
    if magnitude >> mantissa == 0 { bits & 1 << all } else { bits }
}

/// A float's value as one of 64 bits.
pub fn widened(bits: u64, ty: Ty) -> f64 {
    match ty {
        Ty::F16 => Half::get(bits).0,
        Ty::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// A float of a type from one of 64 bits.
pub fn narrowed(value: f64, ty: Ty) -> u64 {
    match ty {
        Ty::F16 => half_bits(value).into(),
        Ty::F64 => value.to_bits(),
        _ => (value as f32).to_bits().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_nearest_even() {
        for bits in 0..=0xffffu16 {
            let value = half::f16::from_bits(bits).to_f64();
            if !value.is_nan() {
                assert_eq!(half_bits(value), bits);
            }
        }
        assert_eq!(half_bits(1.0 + exp2(-11)), 0x3c00);
        assert_eq!(half_bits(1.0 + exp2(-11) + exp2(-40)), 0x3c01);
        assert_eq!(half_bits(1.0 + 3.0 * exp2(-11)), 0x3c02);
        assert_eq!(half_bits(65519.9), 0x7bff);
        assert_eq!(half_bits(65520.0), 0x7c00);
        assert_eq!(half_bits(exp2(-25)), 0);
        assert_eq!(half_bits(exp2(-25) * 1.001), 1);
        assert_eq!(half_bits_toward_zero(65535.0), 0x7bff);
        assert_eq!(half_bits_toward_zero(-1.9999), 0xbfff);
    }
}
