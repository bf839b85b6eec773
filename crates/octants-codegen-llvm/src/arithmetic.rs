//! Arithmetic, comparison, bit operations and casts on scalars.
//!
//! f16 is computed in f32 and rounded after each operation. Math functions are in `math`.

use octants_ir::{BinaryOp, Scalar, UnaryOp};

use crate::emit::{FloatCmp, IntCmp, T, V};
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// A unary operation on a scalar of type `s`.
    pub fn unary(&self, op: UnaryOp, s: Scalar, v: V) -> V {
        let e = self.e;
        if s == Scalar::F16 && !matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::StopGrad) {
            let r = self.unary(op, Scalar::F32, e.fpext(v, e.f32));
            return if e.type_of(r) == e.f32 { e.fptrunc(r, e.f16) } else { r };
        }
        if s.is_float() { self.float_unary(op, s, v) } else { self.int_unary(op, s, v) }
    }

    fn int_unary(&self, op: UnaryOp, s: Scalar, v: V) -> V {
        let e = self.e;
        let ty = e.scalar(s);
        let zero = e.zero(ty);
        match op {
            UnaryOp::Neg => e.neg(v),
            UnaryOp::BitNot | UnaryOp::LogicNot => e.not(v),
            UnaryOp::Abs if s.is_signed() => e.select(e.icmp(IntCmp::LLVMIntSLT, v, zero), e.neg(v), v),
            UnaryOp::Abs => v,
            UnaryOp::Sgn if s.is_signed() => {
                let positive = e.zext(e.icmp(IntCmp::LLVMIntSGT, v, zero), ty);
                let negative = e.sext(e.icmp(IntCmp::LLVMIntSLT, v, zero), ty);
                e.or(positive, negative)
            }
            UnaryOp::Sgn if s == Scalar::U1 => v,
            UnaryOp::Sgn => e.zext(e.icmp(IntCmp::LLVMIntNE, v, zero), ty),
            UnaryOp::Popcnt => self.count_as_i32(e.intrinsic("llvm.ctpop", ty, &[v]), s),
            UnaryOp::Clz => self.count_as_i32(e.intrinsic("llvm.ctlz", ty, &[v, e.zero(e.i1)]), s),
            UnaryOp::Ffs => {
                let low = self.count_as_i32(e.intrinsic("llvm.cttz", ty, &[v, e.zero(e.i1)]), s);
                e.select(e.icmp(IntCmp::LLVMIntEQ, v, zero), e.i32c(0), e.add(low, e.i32c(1)))
            }
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => v,
            UnaryOp::IsNan | UnaryOp::IsInf => e.zero(e.i1),
            UnaryOp::StopGrad => v,
            UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Log | UnaryOp::Log2 => {
                panic!("compiler bug: {op:?} on {s}")
            }
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan | UnaryOp::Asin | UnaryOp::Acos | UnaryOp::Atan => {
                panic!("compiler bug: {op:?} on {s}")
            }
            UnaryOp::Sinh | UnaryOp::Cosh | UnaryOp::Tanh => panic!("compiler bug: {op:?} on {s}"),
        }
    }

    fn count_as_i32(&self, v: V, s: Scalar) -> V {
        match s.bits() {
            32 => v,
            64 => self.e.trunc(v, self.e.i32),
            _ => self.e.zext(v, self.e.i32),
        }
    }

    fn float_unary(&self, op: UnaryOp, s: Scalar, v: V) -> V {
        let e = self.e;
        let ty = e.scalar(s);
        let zero = e.real(ty, 0.0);
        match op {
            UnaryOp::Neg => e.fneg(v),
            UnaryOp::Abs => e.intrinsic("llvm.fabs", ty, &[v]),
            UnaryOp::Sgn => {
                let negative = e.select(e.fcmp(FloatCmp::LLVMRealOLT, v, zero), e.real(ty, -1.0), zero);
                e.select(e.fcmp(FloatCmp::LLVMRealOGT, v, zero), e.real(ty, 1.0), negative)
            }
            UnaryOp::IsNan => e.fcmp(FloatCmp::LLVMRealUNO, v, v),
            UnaryOp::IsInf => {
                let size = e.intrinsic("llvm.fabs", ty, &[v]);
                e.fcmp(FloatCmp::LLVMRealOEQ, size, e.real(ty, f64::INFINITY))
            }
            UnaryOp::BitNot | UnaryOp::LogicNot | UnaryOp::Popcnt | UnaryOp::Clz | UnaryOp::Ffs => {
                panic!("compiler bug: {op:?} on {s}")
            }
            UnaryOp::StopGrad => v,
            UnaryOp::Sqrt => e.intrinsic("llvm.sqrt", ty, &[v]),
            UnaryOp::Rsqrt => e.fdiv(e.real(ty, 1.0), e.intrinsic("llvm.sqrt", ty, &[v])),
            UnaryOp::Floor => e.intrinsic("llvm.floor", ty, &[v]),
            UnaryOp::Ceil => e.intrinsic("llvm.ceil", ty, &[v]),
            UnaryOp::Round => e.intrinsic("llvm.round", ty, &[v]),
            UnaryOp::Trunc => e.intrinsic("llvm.trunc", ty, &[v]),
            UnaryOp::Sin => self.math_call("sin", s, &[v]),
            UnaryOp::Cos => self.math_call("cos", s, &[v]),
            UnaryOp::Tan => self.math_call("tan", s, &[v]),
            UnaryOp::Asin => self.math_call("asin", s, &[v]),
            UnaryOp::Acos => self.math_call("acos", s, &[v]),
            UnaryOp::Atan => self.math_call("atan", s, &[v]),
            UnaryOp::Sinh => self.math_call("sinh", s, &[v]),
            UnaryOp::Cosh => self.math_call("cosh", s, &[v]),
            UnaryOp::Tanh => self.math_call("tanh", s, &[v]),
            UnaryOp::Exp => self.math_call("exp", s, &[v]),
            UnaryOp::Exp2 => self.math_call("exp2", s, &[v]),
            UnaryOp::Log => self.math_call("log", s, &[v]),
            UnaryOp::Log2 => self.math_call("log2", s, &[v]),
        }
    }

    /// A binary operation on scalars of type `s`.
    pub fn binary(&self, op: BinaryOp, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        if s == Scalar::F16 {
            let r = self.binary(op, Scalar::F32, e.fpext(a, e.f32), e.fpext(b, e.f32));
            return if op.is_comparison() { r } else { e.fptrunc(r, e.f16) };
        }
        if s.is_float() { self.float_binary(op, s, a, b) } else { self.int_binary(op, s, a, b) }
    }

    fn float_binary(&self, op: BinaryOp, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        let ty = e.scalar(s);
        match op {
            BinaryOp::Add => e.fadd(a, b),
            BinaryOp::Sub => e.fsub(a, b),
            BinaryOp::Mul => e.fmul(a, b),
            // Programs round quotients of integers: `floor(i / n)` must not be below an exact quotient.
            BinaryOp::Div if e.is_whole(a) && e.is_whole(b) => e.rounded_fdiv(a, b),
            BinaryOp::Div => e.fdiv(a, b),
            BinaryOp::FloorDiv => e.intrinsic("llvm.floor", ty, &[self.quotient_to_floor(a, b)]),
            BinaryOp::Mod => {
                let whole = e.intrinsic("llvm.floor", ty, &[self.quotient_to_floor(a, b)]);
                e.fsub(a, e.fmul(b, whole))
            }
            BinaryOp::Rem => e.frem(a, b),
            BinaryOp::Pow => self.float_pow(s, a, b),
            BinaryOp::Atan2 => self.math_call("atan2", s, &[a, b]),
            BinaryOp::Min | BinaryOp::Max => self.float_extremum(op, ty, a, b),
            BinaryOp::Eq => e.fcmp(FloatCmp::LLVMRealOEQ, a, b),
            BinaryOp::Ne => e.fcmp(FloatCmp::LLVMRealUNE, a, b),
            BinaryOp::Lt => e.fcmp(FloatCmp::LLVMRealOLT, a, b),
            BinaryOp::Le => e.fcmp(FloatCmp::LLVMRealOLE, a, b),
            BinaryOp::Gt => e.fcmp(FloatCmp::LLVMRealOGT, a, b),
            BinaryOp::Ge => e.fcmp(FloatCmp::LLVMRealOGE, a, b),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr | BinaryOp::UShr => {
                panic!("compiler bug: {op:?} on {s}")
            }
        }
    }

    /// The smaller or larger of two floats; a NaN yields the other one, and the sign of a zero result is unspecified.
    ///
    /// This also holds under fast_math: programs clamp values that may be NaN to a range of indices. If one operand is
    /// known not to be NaN, such as a constant or a converted integer, X86 needs one instruction.
    ///
    /// On targets with vectorized loops, `llvm.minnum` must not be used: LLVM 22's vectorizer guards two such
    /// reductions of a loop by one comparison of their operands, which is ill-typed when one is f32 and the other f64,
    /// and crashes the code generator. `llvm.minimumnum` needs no guard.
    pub fn float_extremum(&self, op: BinaryOp, ty: T, a: V, b: V) -> V {
        let e = self.e;
        match (op == BinaryOp::Min, self.u.info.has_vectors) {
            (true, true) => e.without_signs_of_zeros(e.intrinsic("llvm.minimumnum", ty, &[a, b])),
            (false, true) => e.without_signs_of_zeros(e.intrinsic("llvm.maximumnum", ty, &[a, b])),
            (true, false) => e.intrinsic("llvm.minnum", ty, &[a, b]),
            (false, false) => e.intrinsic("llvm.maxnum", ty, &[a, b]),
        }
    }

    /// The quotient of a floor division. LLVM would hoist the reciprocal of an invariant divisor out of a loop.
    fn quotient_to_floor(&self, a: V, b: V) -> V {
        if self.e.as_real(b).is_some() { self.e.fdiv(a, b) } else { self.e.rounded_fdiv(a, b) }
    }

    fn int_binary(&self, op: BinaryOp, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        let signed = s.is_signed();
        let compare = |signed_form, unsigned_form| e.icmp(if signed { signed_form } else { unsigned_form }, a, b);
        match op {
            BinaryOp::Add => e.add(a, b),
            BinaryOp::Sub => e.sub(a, b),
            BinaryOp::Mul => e.mul(a, b),
            BinaryOp::Div => self.quotient(s, a, b),
            BinaryOp::Rem => self.remainder(s, a, b),
            BinaryOp::FloorDiv => self.floor_div(s, a, b),
            BinaryOp::Mod => self.floor_mod(s, a, b),
            BinaryOp::Pow => self.int_pow(s, a, b),
            BinaryOp::Min => e.select(compare(IntCmp::LLVMIntSLT, IntCmp::LLVMIntULT), a, b),
            BinaryOp::Max => e.select(compare(IntCmp::LLVMIntSGT, IntCmp::LLVMIntUGT), a, b),
            BinaryOp::And => e.and(a, b),
            BinaryOp::Or => e.or(a, b),
            BinaryOp::Xor => e.xor(a, b),
            BinaryOp::Shl => e.shl(a, self.shift_count(s, b)),
            BinaryOp::Shr if signed => e.ashr(a, self.shift_count(s, b)),
            BinaryOp::Shr | BinaryOp::UShr => e.lshr(a, self.shift_count(s, b)),
            BinaryOp::Eq => e.icmp(IntCmp::LLVMIntEQ, a, b),
            BinaryOp::Ne => e.icmp(IntCmp::LLVMIntNE, a, b),
            BinaryOp::Lt => compare(IntCmp::LLVMIntSLT, IntCmp::LLVMIntULT),
            BinaryOp::Le => compare(IntCmp::LLVMIntSLE, IntCmp::LLVMIntULE),
            BinaryOp::Gt => compare(IntCmp::LLVMIntSGT, IntCmp::LLVMIntUGT),
            BinaryOp::Ge => compare(IntCmp::LLVMIntSGE, IntCmp::LLVMIntUGE),
            BinaryOp::Atan2 => panic!("compiler bug: {op:?} on {s}"),
        }
    }

    /// A shift by the width or more would be poison.
    fn shift_count(&self, s: Scalar, count: V) -> V {
        self.e.and(count, self.e.int(self.e.scalar(s), i64::from(s.bits()) - 1))
    }

    /// The divisor, with values that would trap replaced by one; and whether it was -1.
    fn safe_divisor(&self, s: Scalar, b: V) -> (V, Option<V>) {
        let e = self.e;
        let ty = e.scalar(s);
        let (zero, one, minus_one) = (e.zero(ty), e.int(ty, 1), e.int(ty, -1));
        match e.as_int(b) {
            Some(0) => return (one, None),
            Some(-1) if s.is_signed() => return (one, Some(e.int(e.i1, 1))),
            Some(_) => return (b, None),
            None => {}
        }
        let is_zero = e.icmp(IntCmp::LLVMIntEQ, b, zero);
        if !s.is_signed() {
            return (e.select(is_zero, one, b), None);
        }
        let is_minus_one = e.icmp(IntCmp::LLVMIntEQ, b, minus_one);
        (e.select(e.or(is_zero, is_minus_one), one, b), Some(is_minus_one))
    }

    fn quotient(&self, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        if s == Scalar::U1 {
            return a;
        }
        let (divisor, is_minus_one) = self.safe_divisor(s, b);
        if !s.is_signed() {
            return e.udiv(a, divisor);
        }
        let q = e.sdiv(a, divisor);
        is_minus_one.map_or(q, |m| e.select(m, e.neg(a), q))
    }

    fn remainder(&self, s: Scalar, a: V, b: V) -> V {
        if s == Scalar::U1 {
            return self.e.zero(self.e.i1);
        }
        // With the divisor replaced by one, the remainders of 0 and -1 come out as zero.
        let (divisor, _) = self.safe_divisor(s, b);
        if s.is_signed() { self.e.srem(a, divisor) } else { self.e.urem(a, divisor) }
    }

    /// The exponent of a constant power of two.
    fn log2_of(&self, b: V) -> Option<i64> {
        let b = self.e.as_int(b)?;
        (b > 0 && b & (b - 1) == 0).then(|| i64::from(b.trailing_zeros()))
    }

    fn floor_div(&self, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        if !s.is_signed() {
            return self.quotient(s, a, b);
        }
        let ty = e.scalar(s);
        if let Some(shift) = self.log2_of(b) {
            return e.ashr(a, e.int(ty, shift));
        }
        let (divisor, is_minus_one) = self.safe_divisor(s, b);
        let q = e.sdiv(a, divisor);
        let r = e.sub(a, e.mul(q, divisor));
        let q = e.add(q, e.sext(self.signs_differ(s, r, divisor), ty));
        is_minus_one.map_or(q, |m| e.select(m, e.neg(a), q))
    }

    fn floor_mod(&self, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        if !s.is_signed() {
            return self.remainder(s, a, b);
        }
        let ty = e.scalar(s);
        if self.log2_of(b).is_some() {
            return e.and(a, e.sub(b, e.int(ty, 1)));
        }
        let (divisor, _) = self.safe_divisor(s, b);
        let r = e.srem(a, divisor);
        e.select(self.signs_differ(s, r, divisor), e.add(r, divisor), r)
    }

    /// The remainder is not zero and has another sign than the divisor.
    fn signs_differ(&self, s: Scalar, r: V, divisor: V) -> V {
        let e = self.e;
        let zero = e.zero(e.scalar(s));
        let opposite = match e.as_int(divisor) {
            Some(d) if d > 0 => return e.icmp(IntCmp::LLVMIntSLT, r, zero),
            _ => e.icmp(IntCmp::LLVMIntSLT, e.xor(r, divisor), zero),
        };
        e.and(e.icmp(IntCmp::LLVMIntNE, r, zero), opposite)
    }

    /// A value conversion.
    pub fn cast(&self, v: V, from: Scalar, to: Scalar) -> V {
        let e = self.e;
        if from == to {
            return v;
        }
        let target = e.scalar(to);
        match (from.is_float(), to.is_float()) {
            (true, true) => match (from, to) {
                (Scalar::F64, Scalar::F16) => e.fptrunc(e.fptrunc(v, e.f32), target),
                _ if from.bits() < to.bits() => e.fpext(v, target),
                _ => e.fptrunc(v, target),
            },
            (true, false) => self.float_to_int(v, from, to),
            (false, true) if to == Scalar::F16 => e.fptrunc(self.cast(v, from, Scalar::F32), target),
            (false, true) if from.is_signed() => e.sitofp(v, target),
            (false, true) => e.uitofp(v, target),
            (false, false) if to == Scalar::U1 => e.icmp(IntCmp::LLVMIntNE, v, e.zero(e.scalar(from))),
            (false, false) if from.bits() > to.bits() => e.trunc(v, target),
            (false, false) if from.bits() == to.bits() => v,
            (false, false) if from.is_signed() => e.sext(v, target),
            (false, false) => e.zext(v, target),
        }
    }

    fn float_to_int(&self, v: V, from: Scalar, to: Scalar) -> V {
        let e = self.e;
        if from == Scalar::F16 {
            return self.float_to_int(e.fpext(v, e.f32), Scalar::F32, to);
        }
        if to == Scalar::U1 {
            return e.fcmp(FloatCmp::LLVMRealUNE, v, e.zero(e.scalar(from)));
        }
        // Out of range the conversion is poison; frozen, it is some number.
        let wide = if to.bits() < 32 { e.i32 } else { e.scalar(to) };
        let whole = if to.is_signed() || to.bits() < 32 { e.fptosi(v, wide) } else { e.fptoui(v, wide) };
        let whole = if e.as_int(whole).is_some() { whole } else { e.freeze(whole) };
        if to.bits() < 32 { e.trunc(whole, e.scalar(to)) } else { whole }
    }

    /// The bits of a value, zero-extended to 64: how values pass to the host.
    pub fn slot_bits(&self, v: V, s: Scalar) -> V {
        let e = self.e;
        let bits = if s.is_float() { e.bitcast(v, e.bits(s)) } else { v };
        if s.bits() == 64 { bits } else { e.zext(bits, e.i64) }
    }
}
