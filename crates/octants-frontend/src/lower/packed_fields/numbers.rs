//! Encoding and decoding of quantized values in a word.
//!
//! - An integer keeps its low bits.
//! - A fixed-point number is rounded to the nearest multiple of its scale, ties away from zero, and clamped to its
//!   range.
//! - A float with `f` digits (not counting the sign) is rounded to nearest, ties away from zero. Its `e`-bit exponent
//!   is the exponent of an f32 minus `127 - (2^(e - 1) - 1)`. The exponent zero encodes the number zero. Numbers too
//!   small for the exponent become zero, and numbers too large become the largest one. An unsigned float encodes the
//!   magnitude.
//! - With a shared exponent, the exponent is that of the largest number, and digits include the leading one.

use octants_ir::{AtomicOp, BinaryOp, Builder, Op, Scalar, Type, UnaryOp, ValueId};

use crate::packed_component::{BitRange, PackedComponent, PackedDigits, PackedNumber};

/// Digits of an f32 after its leading one.
const F32_DIGITS: u32 = 23;
/// Largest biased exponent of a finite f32.
const F32_LARGEST: i64 = 254;

/// A word, as code handles it.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordBits {
    /// Its type in memory.
    pub memory: Scalar,
    /// The type of values that hold it: u32, or u64.
    word: Scalar,
    /// The shift of its fields relative to the positions in their component.
    shift: Option<ValueId>,
}

impl WordBits {
    pub fn of(b: &mut Builder, memory: Scalar, shift: Option<ValueId>) -> WordBits {
        let word = if memory == Scalar::U64 { Scalar::U64 } else { Scalar::U32 };
        WordBits { memory, word, shift: shift.map(|shift| b.cast(shift, word)) }
    }

    /// A word that was loaded.
    pub fn widened(self, b: &mut Builder, word: ValueId) -> ValueId {
        b.cast(word, self.word)
    }

    /// A word that is to be stored.
    pub fn narrowed(self, b: &mut Builder, word: ValueId) -> ValueId {
        b.cast(word, self.memory)
    }

    fn constant(self, b: &mut Builder, value: u64) -> ValueId {
        b.int(value as i64, self.word)
    }

    /// Ones in the lowest bits.
    fn ones(self, bits: u32) -> u64 {
        if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
    }

    /// The bits of a range as a signed or unsigned integer as wide as the word.
    fn read(self, b: &mut Builder, word: ValueId, range: BitRange, is_signed: bool) -> ValueId {
        let width = self.word.bits();
        let mut value = word;
        if let Some(shift) = self.shift {
            value = b.binary(BinaryOp::UShr, value, shift);
        }
        if range.first > 0 {
            let first = self.constant(b, range.first.into());
            value = b.binary(BinaryOp::UShr, value, first);
        }
        if range.bits < width {
            let ones = self.constant(b, self.ones(range.bits));
            value = b.binary(BinaryOp::And, value, ones);
        }
        if is_signed {
            let signed = if self.word == Scalar::U64 { Scalar::I64 } else { Scalar::I32 };
            value = b.cast(value, signed);
            if range.bits < width {
                // Debug mode would take a sign that is shifted out for an overflow.
                let sign = b.int(1 << (range.bits - 1), signed);
                value = b.binary(BinaryOp::Xor, value, sign);
                value = b.binary(BinaryOp::Sub, value, sign);
            }
        }
        value
    }

    /// The word with other bits in a range: the low ones of an integer as wide as the word.
    fn write(self, b: &mut Builder, word: ValueId, range: BitRange, value: ValueId) -> ValueId {
        let ones = self.ones(range.bits);
        let value = b.cast(value, self.word);
        if range.bits >= self.word.bits() {
            return value;
        }
        let mask = self.constant(b, ones);
        let mut value = b.binary(BinaryOp::And, value, mask);
        let kept = match self.shift {
            None => {
                if range.first > 0 {
                    let first = self.constant(b, range.first.into());
                    value = b.binary(BinaryOp::Shl, value, first);
                }
                self.constant(b, !(ones << range.first) & self.ones(self.word.bits()))
            }
            Some(shift) => {
                value = b.binary(BinaryOp::Shl, value, shift);
                let hole = b.binary(BinaryOp::Shl, mask, shift);
                let all = self.constant(b, self.ones(self.word.bits()));
                b.binary(BinaryOp::Xor, hole, all)
            }
        };
        let rest = b.binary(BinaryOp::And, word, kept);
        b.binary(BinaryOp::Or, rest, value)
    }
}

/// The numbers are all that is in the word.
pub(super) fn cover(bits: WordBits, values: &[(PackedComponent, ValueId)]) -> bool {
    let of = |(component, _): &(PackedComponent, ValueId)| match &component.number {
        PackedNumber::Integer | PackedNumber::Fixed(_) => component.digits.range.bits,
        PackedNumber::Float(exponent) => component.digits.range.bits + exponent.bits,
        PackedNumber::SharedExponent(..) => 0,
    };
    values.iter().map(of).sum::<u32>() == bits.memory.bits()
}

/// The value of a component, in the type that it is computed with.
pub(super) fn decode(
    b: &mut Builder,
    component: &PackedComponent,
    bits: WordBits,
    word: ValueId,
    compute: Scalar,
) -> ValueId {
    let digits = component.digits;
    let value = match &component.number {
        PackedNumber::Integer => bits.read(b, word, digits.range, digits.is_signed),
        PackedNumber::Fixed(scale) => {
            let count = bits.read(b, word, digits.range, digits.is_signed);
            let float = wide_enough(compute);
            let count = b.cast(count, float);
            let scale = b.float(f64::from_bits(*scale), float);
            b.binary(BinaryOp::Mul, count, scale)
        }
        PackedNumber::Float(exponent) => {
            let (sign, significand) = sign_and_significand(b, bits, word, digits);
            let fraction = shifted(b, significand, i64::from(F32_DIGITS) - i64::from(significand_bits(digits)));
            let (exponent, is_zero) = read_exponent(b, bits, word, *exponent);
            let exponent = shifted(b, exponent, F32_DIGITS.into());
            let magnitude = b.binary(BinaryOp::Or, exponent, fraction);
            or_zero(b, is_zero, magnitude, sign)
        }
        PackedNumber::SharedExponent(exponent, _) => read_significand(b, bits, word, digits, *exponent),
    };
    b.cast(value, compute)
}

/// The word with other numbers in it. Numbers with a shared exponent are inserted together.
pub(super) fn encode(b: &mut Builder, bits: WordBits, word: ValueId, values: &[(PackedComponent, ValueId)]) -> ValueId {
    let mut new = word;
    let mut shared: Vec<(BitRange, &[PackedDigits])> = Vec::new();
    for (component, value) in values {
        let digits = component.digits;
        match &component.number {
            PackedNumber::Integer => new = bits.write(b, new, digits.range, *value),
            PackedNumber::Fixed(scale) => {
                let count = fixed_digits(b, *value, *scale, digits);
                new = bits.write(b, new, digits.range, count);
            }
            PackedNumber::Float(exponent) => new = write_float(b, bits, new, digits, *exponent, *value),
            PackedNumber::SharedExponent(exponent, all) if !shared.iter().any(|(known, _)| known == exponent) => {
                shared.push((*exponent, all));
            }
            PackedNumber::SharedExponent(..) => {}
        }
    }
    for (exponent, all) in shared {
        let mut numbers = Vec::new();
        for digits in all {
            let given = values.iter().find(|(component, _)| component.digits == *digits).map(|(_, value)| *value);
            numbers.push(match given {
                Some(value) => b.cast(value, Scalar::F32),
                None => read_significand(b, bits, word, *digits, exponent),
            });
        }
        new = write_shared(b, bits, new, all, exponent, &numbers);
    }
    new
}

/// For a sum with a fixed-point number, the updated word. The addend is rounded, so that the order of several sums does
/// not matter. `None` for other updates.
pub(super) fn add_digits(
    b: &mut Builder,
    component: &PackedComponent,
    bits: WordBits,
    word: ValueId,
    op: AtomicOp,
    operand: ValueId,
) -> Option<ValueId> {
    let PackedNumber::Fixed(scale) = component.number else { return None };
    let op = match op {
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Sub => BinaryOp::Sub,
        _ => return None,
    };
    let digits = component.digits;
    let signed = PackedDigits { range: BitRange { first: 0, bits: 32 }, is_signed: true };
    let added = fixed_digits(b, operand, scale, signed);
    let old = bits.read(b, word, digits.range, digits.is_signed);
    let [old, added] = [old, added].map(|v| b.cast(v, Scalar::I64));
    let sum = b.binary(op, old, added);
    let (low, high) = limits(digits);
    let [low, high] = [low, high].map(|limit| b.int(limit, Scalar::I64));
    let sum = b.binary(BinaryOp::Max, sum, low);
    let sum = b.binary(BinaryOp::Min, sum, high);
    Some(bits.write(b, word, digits.range, sum))
}

/// f32, or f64 if that is the compute type.
fn wide_enough(compute: Scalar) -> Scalar {
    if compute == Scalar::F64 { Scalar::F64 } else { Scalar::F32 }
}

/// The least and the largest integer in a range of at most 32 bits.
fn limits(digits: PackedDigits) -> (i64, i64) {
    let bits = digits.range.bits;
    if digits.is_signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// How many times the scale a value is, as an i32 or u32.
fn fixed_digits(b: &mut Builder, value: ValueId, scale: u64, digits: PackedDigits) -> ValueId {
    let compute = b.ty(value).scalar().unwrap_or(Scalar::F32);
    let float = wide_enough(compute);
    let value = b.cast(value, float);
    let inverse = b.float(1.0 / f64::from_bits(scale), float);
    let count = b.binary(BinaryOp::Mul, value, inverse);
    let count = b.unary(UnaryOp::Round, count);
    let (low, high) = limits(digits);
    // The largest float that is at most this value.
    let high = if float == Scalar::F32 && high > 1 << 24 { high & !0xff } else { high };
    let [low, high] = [low, high].map(|limit| b.float(limit as f64, float));
    let count = b.binary(BinaryOp::Max, count, low);
    let count = b.binary(BinaryOp::Min, count, high);
    let is_unsigned = !digits.is_signed && digits.range.bits == 32;
    b.cast(count, if is_unsigned { Scalar::U32 } else { Scalar::I32 })
}

/// Digits of a significand, without the sign.
fn significand_bits(digits: PackedDigits) -> u32 {
    digits.range.bits - u32::from(digits.is_signed)
}

/// The offset from an exponent to the exponent of an f32.
fn exponent_offset(exponent: BitRange) -> i64 {
    127 - ((1 << (exponent.bits - 1)) - 1)
}

/// A u32 shifted to the left, or if the number is negative to the right.
fn shifted(b: &mut Builder, value: ValueId, left: i64) -> ValueId {
    if left == 0 {
        return value;
    }
    let amount = b.int(left.abs(), Scalar::U32);
    b.binary(if left > 0 { BinaryOp::Shl } else { BinaryOp::UShr }, value, amount)
}

/// The sign as the highest bit of a u32, if there is one, and the digits.
fn sign_and_significand(
    b: &mut Builder,
    bits: WordBits,
    word: ValueId,
    digits: PackedDigits,
) -> (Option<ValueId>, ValueId) {
    let all = bits.read(b, word, digits.range, false);
    let all = b.cast(all, Scalar::U32);
    if !digits.is_signed {
        return (None, all);
    }
    let count = significand_bits(digits);
    let sign = shifted(b, all, -i64::from(count));
    let sign = shifted(b, sign, 31);
    let ones = b.int((1 << count) - 1, Scalar::U32);
    (Some(sign), b.binary(BinaryOp::And, all, ones))
}

/// An exponent as that of an f32, a u32, and whether the number is zero.
fn read_exponent(b: &mut Builder, bits: WordBits, word: ValueId, range: BitRange) -> (ValueId, ValueId) {
    let exponent = bits.read(b, word, range, false);
    let exponent = b.cast(exponent, Scalar::U32);
    let zero = b.int(0, Scalar::U32);
    let is_zero = b.binary(BinaryOp::Eq, exponent, zero);
    let offset = b.int(exponent_offset(range), Scalar::U32);
    (b.binary(BinaryOp::Add, exponent, offset), is_zero)
}

/// The f32 of a magnitude, or zero, and a sign.
fn or_zero(b: &mut Builder, is_zero: ValueId, magnitude: ValueId, sign: Option<ValueId>) -> ValueId {
    let signed = sign.map_or(magnitude, |sign| b.binary(BinaryOp::Or, magnitude, sign));
    let zero = b.int(0, Scalar::U32);
    let all = b.push(Op::Select(is_zero, zero, signed), Scalar::U32.into());
    from_bits(b, all)
}

fn from_bits(b: &mut Builder, bits: ValueId) -> ValueId {
    b.push(Op::Bitcast(bits), Type::Scalar(Scalar::F32))
}

/// A number with a shared exponent, as an f32.
fn read_significand(
    b: &mut Builder,
    bits: WordBits,
    word: ValueId,
    digits: PackedDigits,
    exponent: BitRange,
) -> ValueId {
    let (sign, significand) = sign_and_significand(b, bits, word, digits);
    let (exponent, is_zero) = read_exponent(b, bits, word, exponent);
    let power = shifted(b, exponent, F32_DIGITS.into());
    let power = from_bits(b, power);
    let count = b.cast(significand, Scalar::F32);
    let one = b.float((1.0f64 / 2.0).powi(significand_bits(digits) as i32 - 1), Scalar::F32);
    // The digits as a fraction, then scaled by the exponent: both products are exact.
    let fraction = b.binary(BinaryOp::Mul, count, one);
    let magnitude = b.binary(BinaryOp::Mul, fraction, power);
    let magnitude = b.push(Op::Bitcast(magnitude), Type::Scalar(Scalar::U32));
    or_zero(b, is_zero, magnitude, sign)
}

/// The sign of an f32, a u32 of 0 or 1, and its other bits.
fn split(b: &mut Builder, value: ValueId) -> (ValueId, ValueId) {
    let value = b.cast(value, Scalar::F32);
    let all = b.push(Op::Bitcast(value), Type::Scalar(Scalar::U32));
    let sign = shifted(b, all, -31);
    let ones = b.int((1 << 31) - 1, Scalar::U32);
    (sign, b.binary(BinaryOp::And, all, ones))
}

/// The bits of a magnitude, rounded to this many fraction bits. A carry increments the exponent.
fn rounded(b: &mut Builder, magnitude: ValueId, digits: u32) -> ValueId {
    if digits >= F32_DIGITS {
        return magnitude;
    }
    let half = b.int(1 << (F32_DIGITS - 1 - digits), Scalar::U32);
    b.binary(BinaryOp::Add, magnitude, half)
}

/// The exponent of a magnitude as it is stored, an i32 that may be out of range, no larger than that of a finite f32.
fn stored_exponent(b: &mut Builder, magnitude: ValueId, range: BitRange) -> ValueId {
    let exponent = shifted(b, magnitude, -i64::from(F32_DIGITS));
    let exponent = b.cast(exponent, Scalar::I32);
    let offset = b.int(exponent_offset(range), Scalar::I32);
    b.binary(BinaryOp::Sub, exponent, offset)
}

/// The largest exponent that is stored.
fn largest_exponent(range: BitRange) -> i64 {
    ((1 << range.bits) - 1).min(F32_LARGEST - exponent_offset(range))
}

fn write_float(
    b: &mut Builder,
    bits: WordBits,
    word: ValueId,
    digits: PackedDigits,
    range: BitRange,
    value: ValueId,
) -> ValueId {
    let count = significand_bits(digits);
    let (sign, magnitude) = split(b, value);
    let magnitude = rounded(b, magnitude, count);
    let exponent = stored_exponent(b, magnitude, range);
    let fraction = b.int((1 << F32_DIGITS) - 1, Scalar::U32);
    let fraction = b.binary(BinaryOp::And, magnitude, fraction);
    let fraction = shifted(b, fraction, i64::from(count) - i64::from(F32_DIGITS));
    let (zero, largest) = (b.int(0, Scalar::I32), b.int(largest_exponent(range), Scalar::I32));
    let is_zero = b.binary(BinaryOp::Le, exponent, zero);
    let is_large = b.binary(BinaryOp::Gt, exponent, largest);
    let ones = b.int((1 << count) - 1, Scalar::U32);
    let fraction = b.push(Op::Select(is_large, ones, fraction), Scalar::U32.into());
    let exponent = b.binary(BinaryOp::Min, exponent, largest);
    let exponent = b.binary(BinaryOp::Max, exponent, zero);
    let mut all = fraction;
    if digits.is_signed {
        let sign = shifted(b, sign, count.into());
        all = b.binary(BinaryOp::Or, all, sign);
    }
    let nothing = b.int(0, Scalar::U32);
    let all = b.push(Op::Select(is_zero, nothing, all), Scalar::U32.into());
    let word = bits.write(b, word, digits.range, all);
    bits.write(b, word, range, exponent)
}

fn write_shared(
    b: &mut Builder,
    bits: WordBits,
    word: ValueId,
    all: &[PackedDigits],
    range: BitRange,
    numbers: &[ValueId],
) -> ValueId {
    let zero = b.int(0, Scalar::I32);
    let mut largest = zero;
    for (digits, number) in all.iter().zip(numbers) {
        let (_, magnitude) = split(b, *number);
        // With the leading one among the digits, there is one less after it.
        let magnitude = rounded(b, magnitude, significand_bits(*digits) - 1);
        let exponent = stored_exponent(b, magnitude, range);
        largest = b.binary(BinaryOp::Max, largest, exponent);
    }
    let limit = b.int(largest_exponent(range), Scalar::I32);
    let exponent = b.binary(BinaryOp::Min, largest, limit);
    let is_zero = b.binary(BinaryOp::Eq, exponent, zero);
    // 2^(1 - e), where e is the exponent: both factors below are f32 for every e.
    let top = b.int(255 - exponent_offset(range), Scalar::I32);
    let inverse = b.binary(BinaryOp::Sub, top, exponent);
    let inverse = b.cast(inverse, Scalar::U32);
    let inverse = shifted(b, inverse, F32_DIGITS.into());
    let inverse = from_bits(b, inverse);
    let mut word = word;
    for (digits, number) in all.iter().zip(numbers) {
        let count = significand_bits(*digits);
        let (sign, magnitude) = split(b, *number);
        let magnitude = from_bits(b, magnitude);
        let part = b.binary(BinaryOp::Mul, magnitude, inverse);
        let one = b.float(2.0f64.powi(count as i32 - 2), Scalar::F32);
        let part = b.binary(BinaryOp::Mul, part, one);
        let part = b.unary(UnaryOp::Round, part);
        let most = b.float(((1u64 << count) - 1) as f64, Scalar::F32);
        let part = b.binary(BinaryOp::Min, part, most);
        let mut part = b.cast(part, Scalar::U32);
        if digits.is_signed {
            let nothing = b.int(0, Scalar::U32);
            let has_digits = b.binary(BinaryOp::Ne, part, nothing);
            let sign = shifted(b, sign, count.into());
            let sign = b.push(Op::Select(has_digits, sign, nothing), Scalar::U32.into());
            part = b.binary(BinaryOp::Or, part, sign);
        }
        let nothing = b.int(0, Scalar::U32);
        let part = b.push(Op::Select(is_zero, nothing, part), Scalar::U32.into());
        word = bits.write(b, word, digits.range, part);
    }
    bits.write(b, word, range, exponent)
}
