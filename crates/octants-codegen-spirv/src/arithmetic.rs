//! Arithmetic, comparison, bit operations and casts on scalars.
//!
//! f16 is computed in f32 and rounded after each operation; integers of 8 and 16 bits are computed in 32 bits and
//! truncated. Math functions are in `math`. Integer division by zero yields the dividend, and the remainder is zero;
//! shift counts are taken modulo the width.

use octants_ir::{BinaryOp, Scalar, UnaryOp};

use crate::emit::{Id, Op};
use crate::lowering::Lowering;
use rspirv::spirv::GlslStd450Op as GlslOp;

/// The integer of 32 bits that has a short one's values.
fn wide(s: Scalar) -> Scalar {
    if s.is_signed() { Scalar::I32 } else { Scalar::U32 }
}

impl Lowering<'_, '_> {
    /// A short integer in 32 bits.
    fn lengthen(&self, s: Scalar, v: Id) -> Id {
        if s.is_signed() { self.e.sext(v, s.bits(), 32) } else { self.e.zext(v, 32) }
    }

    /// A unary operation on a scalar of type `s`.
    pub fn unary(&self, op: UnaryOp, s: Scalar, v: Id) -> Id {
        let e = self.e;
        match s {
            Scalar::F16 if !matches!(op, UnaryOp::Neg | UnaryOp::StopGrad) => {
                let r = self.unary(op, Scalar::F32, e.float_convert(v, 32));
                if e.type_of(r) == e.float_type(32) { e.float_convert(r, 16) } else { r }
            }
            s if s.is_float() => self.float_unary(op, s, v),
            Scalar::U1 => self.truth_unary(op, v),
            s if s.bits() < 32 => match op {
                UnaryOp::Clz => {
                    let zeros = self.int_unary(op, Scalar::U32, e.zext(v, 32));
                    e.sub(zeros, e.u32c(32 - s.bits()))
                }
                UnaryOp::Popcnt | UnaryOp::Ffs => self.int_unary(op, Scalar::U32, e.zext(v, 32)),
                UnaryOp::IsNan | UnaryOp::IsInf => e.truth(false),
                _ => e.trunc(self.int_unary(op, wide(s), self.lengthen(s, v)), s.bits()),
            },
            s => self.int_unary(op, s, v),
        }
    }

    fn truth_unary(&self, op: UnaryOp, v: Id) -> Id {
        let e = self.e;
        let number = |set: u32, clear: u32| e.select(v, e.u32c(set), e.u32c(clear));
        match op {
            UnaryOp::BitNot | UnaryOp::LogicNot => e.not(v),
            UnaryOp::Popcnt | UnaryOp::Ffs => number(1, 0),
            UnaryOp::Clz => number(0, 1),
            UnaryOp::IsNan | UnaryOp::IsInf => e.truth(false),
            // Modulo 2 a number is its own negative.
            _ => v,
        }
    }

    fn int_unary(&self, op: UnaryOp, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let bits = s.bits();
        let (zero, one) = (e.int(bits, 0), e.int(bits, 1));
        match op {
            UnaryOp::Neg => e.neg(v),
            UnaryOp::BitNot | UnaryOp::LogicNot => e.not_bits(v),
            UnaryOp::Abs if s.is_signed() => e.select(e.slt(v, zero), e.neg(v), v),
            UnaryOp::Sgn if s.is_signed() => {
                let negative = e.select(e.slt(v, zero), e.int(bits, -1), zero);
                e.select(e.sgt(v, zero), one, negative)
            }
            UnaryOp::Sgn => e.select(e.ine(v, zero), one, zero),
            UnaryOp::Popcnt => self.sum_of_halves(s, v, &|word| e.of(Op::BitCount, e.u32(), &[word])),
            UnaryOp::Clz => self.leading_zeros(s, v),
            UnaryOp::Ffs => self.lowest_set(s, v),
            UnaryOp::IsNan | UnaryOp::IsInf => e.truth(false),
            UnaryOp::Abs | UnaryOp::StopGrad => v,
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => v,
            UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Asin
            | UnaryOp::Acos
            | UnaryOp::Atan
            | UnaryOp::Sinh
            | UnaryOp::Cosh
            | UnaryOp::Tanh
            | UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Log
            | UnaryOp::Log2 => panic!("compiler bug: {op:?} on {s}"),
        }
    }

    /// The two halves of an integer of 64 bits, the low one first.
    pub fn halves(&self, v: Id) -> (Id, Id) {
        (self.e.trunc(v, 32), self.e.trunc(self.e.lshr(v, self.e.u64c(32)), 32))
    }

    fn sum_of_halves(&self, s: Scalar, v: Id, of: &dyn Fn(Id) -> Id) -> Id {
        if s.bits() == 32 {
            return of(v);
        }
        let (low, high) = self.halves(v);
        self.e.add(of(low), of(high))
    }

    fn leading_zeros(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        // The position of the highest set bit is -1 if no bit is set.
        let of = |word: Id| e.sub(e.u32c(31), e.gl(GlslOp::FindUMsb, &[word]));
        if s.bits() == 32 {
            return of(v);
        }
        let (low, high) = self.halves(v);
        e.select(e.ieq(high, e.u32c(0)), e.add(of(low), e.u32c(32)), of(high))
    }

    fn lowest_set(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let of = |word: Id| e.add(e.gl(GlslOp::FindILsb, &[word]), e.u32c(1));
        if s.bits() == 32 {
            return of(v);
        }
        let (low, high) = self.halves(v);
        let above = e.select(e.ieq(high, e.u32c(0)), e.u32c(0), e.add(of(high), e.u32c(32)));
        e.select(e.ieq(low, e.u32c(0)), above, of(low))
    }

    fn float_unary(&self, op: UnaryOp, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let real = |x: f64| e.real(s.bits(), x);
        match op {
            UnaryOp::Neg => e.fneg(v),
            UnaryOp::Abs => e.fabs(v),
            UnaryOp::Sgn => {
                let negative = e.select(e.flt(v, real(0.0)), real(-1.0), real(0.0));
                e.select(e.fgt(v, real(0.0)), real(1.0), negative)
            }
            UnaryOp::IsNan => e.ugt(self.magnitude_bits(s, v), self.infinity_bits(s)),
            UnaryOp::IsInf => e.ieq(self.magnitude_bits(s, v), self.infinity_bits(s)),
            UnaryOp::StopGrad => v,
            UnaryOp::Sqrt => e.gl(GlslOp::Sqrt, &[v]),
            UnaryOp::Rsqrt => e.fdiv(real(1.0), e.gl(GlslOp::Sqrt, &[v])),
            UnaryOp::Floor => e.gl(GlslOp::Floor, &[v]),
            UnaryOp::Ceil => e.gl(GlslOp::Ceil, &[v]),
            UnaryOp::Trunc => self.truncated(s, v),
            UnaryOp::Round => {
                // GLSL's rounding chooses the direction of ties itself.
                let whole = self.truncated(s, v);
                let rest = e.fabs(e.fsub(v, whole));
                let step = e.select(e.flt(v, real(0.0)), real(-1.0), real(1.0));
                e.select(e.fge(rest, real(0.5)), e.fadd(whole, step), whole)
            }
            _ => self.function(op, s, v),
        }
    }

    /// The integer part of a float.
    fn truncated(&self, s: Scalar, v: Id) -> Id {
        let e = self.e;
        let whole = e.gl(GlslOp::Trunc, &[v]);
        if s != Scalar::F64 {
            return whole;
        }
        // Mesa's lavapipe returns doubles of 2^24 and more unchanged on some processors. Its `Floor` is right.
        let magnitude = e.fabs(v);
        let floor = e.gl(GlslOp::Floor, &[magnitude]);
        let large = e.select(e.flt(v, e.real(64, 0.0)), e.fneg(floor), floor);
        e.select(e.fge(magnitude, e.real(64, f64::from(1 << 23))), large, whole)
    }

    /// The bits of a float without its sign.
    fn magnitude_bits(&self, s: Scalar, v: Id) -> Id {
        let (e, bits) = (self.e, s.bits());
        e.and(e.bits_of(v, s), e.int(bits, (u64::MAX >> (65 - bits)) as i64))
    }

    fn infinity_bits(&self, s: Scalar) -> Id {
        match s {
            Scalar::F64 => self.e.u64c(f64::INFINITY.to_bits()),
            _ => self.e.u32c(f32::INFINITY.to_bits()),
        }
    }

    /// A binary operation on scalars of type `s`.
    pub fn binary(&self, op: BinaryOp, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        match s {
            Scalar::F16 => {
                let r = self.binary(op, Scalar::F32, e.float_convert(a, 32), e.float_convert(b, 32));
                if op.is_comparison() { r } else { e.float_convert(r, 16) }
            }
            s if s.is_float() => self.float_binary(op, s, a, b),
            Scalar::U1 => self.truth_binary(op, a, b),
            s if s.bits() < 32 => {
                // The shift count is taken modulo the short width, not modulo the width of the shift.
                let b = match op {
                    BinaryOp::Shl | BinaryOp::Shr | BinaryOp::UShr => self.shift_count(s.bits(), e.zext(b, 32)),
                    _ => self.lengthen(s, b),
                };
                let a = if op == BinaryOp::UShr { e.zext(a, 32) } else { self.lengthen(s, a) };
                let r = self.int_binary(op, wide(s), a, b);
                if op.is_comparison() { r } else { e.trunc(r, s.bits()) }
            }
            s => self.int_binary(op, s, a, b),
        }
    }

    fn truth_binary(&self, op: BinaryOp, a: Id, b: Id) -> Id {
        let e = self.e;
        match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Xor | BinaryOp::Ne => e.differ(a, b),
            BinaryOp::Mul | BinaryOp::And | BinaryOp::Min => e.both(a, b),
            BinaryOp::Or | BinaryOp::Max => e.either(a, b),
            BinaryOp::Eq => e.agree(a, b),
            BinaryOp::Lt => e.both(e.not(a), b),
            BinaryOp::Le => e.either(e.not(a), b),
            BinaryOp::Gt => e.both(a, e.not(b)),
            BinaryOp::Ge | BinaryOp::Pow => e.either(a, e.not(b)),
            BinaryOp::Rem | BinaryOp::Mod => e.truth(false),
            BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Shl | BinaryOp::Shr | BinaryOp::UShr => a,
            BinaryOp::Atan2 => panic!("compiler bug: {op:?} on u1"),
        }
    }

    fn float_binary(&self, op: BinaryOp, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        match op {
            BinaryOp::Add => e.fadd(a, b),
            BinaryOp::Sub => e.fsub(a, b),
            BinaryOp::Mul => e.fmul(a, b),
            BinaryOp::Div => e.fdiv(a, b),
            BinaryOp::FloorDiv => e.gl(GlslOp::Floor, &[e.fdiv(a, b)]),
            BinaryOp::Mod => {
                let whole = e.gl(GlslOp::Floor, &[e.fdiv(a, b)]);
                e.fsub(a, e.fmul(b, whole))
            }
            BinaryOp::Rem => self.float_rem(s, a, b),
            BinaryOp::Pow => self.float_pow(s, a, b),
            BinaryOp::Atan2 => self.atan2(s, a, b),
            // The operand that is a number if the other is NaN.
            BinaryOp::Min => e.gl(GlslOp::NMin, &[a, b]),
            BinaryOp::Max => e.gl(GlslOp::NMax, &[a, b]),
            BinaryOp::Eq => e.feq(a, b),
            BinaryOp::Ne => e.fne(a, b),
            BinaryOp::Lt => e.flt(a, b),
            BinaryOp::Le => e.fle(a, b),
            BinaryOp::Gt => e.fgt(a, b),
            BinaryOp::Ge => e.fge(a, b),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr | BinaryOp::UShr => {
                panic!("compiler bug: {op:?} on {s}")
            }
        }
    }

    fn int_binary(&self, op: BinaryOp, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let signed = s.is_signed();
        match op {
            BinaryOp::Add => e.add(a, b),
            BinaryOp::Sub => e.sub(a, b),
            BinaryOp::Mul => e.mul(a, b),
            BinaryOp::Div => self.quotient(s, a, b).0,
            BinaryOp::Rem => self.remainder(s, a, b),
            BinaryOp::FloorDiv => self.floor_div(s, a, b),
            BinaryOp::Mod => self.floor_mod(s, a, b),
            BinaryOp::Pow => self.int_pow(s, a, b),
            BinaryOp::Min => e.select(if signed { e.slt(a, b) } else { e.ult(a, b) }, a, b),
            BinaryOp::Max => e.select(if signed { e.sgt(a, b) } else { e.ugt(a, b) }, a, b),
            BinaryOp::And => e.and(a, b),
            BinaryOp::Or => e.or(a, b),
            BinaryOp::Xor => e.xor(a, b),
            BinaryOp::Shl => e.shl(a, self.shift_count(s.bits(), b)),
            BinaryOp::Shr if signed => e.ashr(a, self.shift_count(s.bits(), b)),
            BinaryOp::Shr | BinaryOp::UShr => e.lshr(a, self.shift_count(s.bits(), b)),
            BinaryOp::Eq => e.ieq(a, b),
            BinaryOp::Ne => e.ine(a, b),
            BinaryOp::Lt if signed => e.slt(a, b),
            BinaryOp::Lt => e.ult(a, b),
            BinaryOp::Le if signed => e.sle(a, b),
            BinaryOp::Le => e.ule(a, b),
            BinaryOp::Gt if signed => e.sgt(a, b),
            BinaryOp::Gt => e.ugt(a, b),
            BinaryOp::Ge if signed => e.sge(a, b),
            BinaryOp::Ge => e.uge(a, b),
            BinaryOp::Atan2 => panic!("compiler bug: {op:?} on {s}"),
        }
    }

    /// The count of a shift, in the count's own type.
    fn shift_count(&self, bits: u32, count: Id) -> Id {
        let e = self.e;
        let width = if e.type_of(count) == e.u64() { 64 } else { 32 };
        e.and(count, e.int(width, i64::from(bits) - 1))
    }

    /// The quotient rounded toward zero, and the divisor that it was computed with: never zero or -1.
    fn quotient(&self, s: Scalar, a: Id, b: Id) -> (Id, Id) {
        let e = self.e;
        let (zero, one, minus_one) = (e.int(s.bits(), 0), e.int(s.bits(), 1), e.int(s.bits(), -1));
        let is_known = e.as_bits(b).is_some() && b != zero && b != minus_one;
        let is_minus_one = e.ieq(b, minus_one);
        let divisor = match (is_known, s.is_signed()) {
            (true, _) => b,
            (false, true) => e.select(e.either(e.ieq(b, zero), is_minus_one), one, b),
            (false, false) => e.select(e.ieq(b, zero), one, b),
        };
        if !s.is_signed() {
            return (e.udiv(a, divisor), divisor);
        }
        let q = e.sdiv(a, divisor);
        (if is_known { q } else { e.select(is_minus_one, e.neg(a), q) }, divisor)
    }

    /// The remainder has the sign of the dividend. The instruction is not used, because its result is unspecified for
    /// negative operands.
    fn remainder(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let (q, divisor) = self.quotient(s, a, b);
        if !s.is_signed() {
            return e.umod(a, divisor);
        }
        let one = e.int(s.bits(), 1);
        // The remainder of a division by one, or by a divisor replaced by one, is zero.
        e.select(e.ieq(divisor, one), e.int(s.bits(), 0), e.sub(a, e.mul(q, divisor)))
    }

    fn floor_div(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        if !s.is_signed() {
            return self.quotient(s, a, b).0;
        }
        if let Some(shift) = self.log2_of(s, b) {
            return e.ashr(a, e.int(s.bits(), shift));
        }
        let (q, divisor) = self.quotient(s, a, b);
        let one = e.int(s.bits(), 1);
        let r = e.sub(a, e.mul(q, divisor));
        let is_below = e.both(e.ine(divisor, one), self.signs_differ(s, r, divisor));
        e.select(is_below, e.sub(q, one), q)
    }

    fn floor_mod(&self, s: Scalar, a: Id, b: Id) -> Id {
        let e = self.e;
        let r = self.remainder(s, a, b);
        if !s.is_signed() {
            return r;
        }
        if self.log2_of(s, b).is_some() {
            return e.and(a, e.sub(b, e.int(s.bits(), 1)));
        }
        e.select(self.signs_differ(s, r, b), e.add(r, b), r)
    }

    /// The exponent of a constant power of two.
    fn log2_of(&self, s: Scalar, b: Id) -> Option<i64> {
        let b = self.e.as_int(b, s.bits())?;
        (b > 0 && b & (b - 1) == 0).then(|| i64::from(b.trailing_zeros()))
    }

    /// The remainder is not zero and has another sign than the divisor.
    fn signs_differ(&self, s: Scalar, r: Id, divisor: Id) -> Id {
        let e = self.e;
        let zero = e.int(s.bits(), 0);
        e.both(e.ine(r, zero), e.slt(e.xor(r, divisor), zero))
    }

    /// A value conversion.
    pub fn cast(&self, v: Id, from: Scalar, to: Scalar) -> Id {
        let e = self.e;
        if from == to {
            return v;
        }
        match (from.is_float(), to.is_float()) {
            (true, true) => match (from, to) {
                (Scalar::F64, Scalar::F16) => e.float_convert(e.float_convert(v, 32), 16),
                _ => e.float_convert(v, to.bits()),
            },
            (true, false) => self.float_to_int(v, from, to),
            (false, true) if to == Scalar::F16 => e.float_convert(self.cast(v, from, Scalar::F32), 16),
            (false, true) if from == Scalar::U1 => e.select(v, e.real(to.bits(), 1.0), e.real(to.bits(), 0.0)),
            (false, true) => {
                let v = if from.bits() < 32 { self.lengthen(from, v) } else { v };
                let op = if from.is_signed() { Op::ConvertSToF } else { Op::ConvertUToF };
                e.of(op, e.scalar(to), &[v])
            }
            (false, false) if to == Scalar::U1 => e.ine(v, e.zero(from)),
            (false, false) if from == Scalar::U1 => e.truth_to_int(v, to.bits()),
            (false, false) if from.bits() >= to.bits() => e.trunc(v, to.bits()),
            (false, false) if from.is_signed() => e.sext(v, from.bits(), to.bits()),
            (false, false) => e.zext(v, to.bits()),
        }
    }

    /// Out of range, the result is unspecified.
    fn float_to_int(&self, v: Id, from: Scalar, to: Scalar) -> Id {
        let e = self.e;
        if from == Scalar::F16 {
            return self.float_to_int(e.float_convert(v, 32), Scalar::F32, to);
        }
        if to == Scalar::U1 {
            return e.fne(v, e.zero(from));
        }
        let is_signed = to.is_signed() || to.bits() < 32;
        let op = if is_signed { Op::ConvertFToS } else { Op::ConvertFToU };
        let whole = e.of(op, e.int_type(to.bits().max(32)), &[v]);
        e.trunc(whole, to.bits())
    }

    /// The bits of a value, zero-extended to 64: how values pass to the host.
    pub fn slot_bits(&self, v: Id, s: Scalar) -> Id {
        self.e.bits_in(v, s, 64)
    }
}
