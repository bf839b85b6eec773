//! Instructions by name: integers, floats, comparisons, conversions. Sums and products of known integers are computed
//! here, so that addresses stay short.

use octants_ir::Scalar;
use rspirv::dr::Operand;
use rspirv::spirv::{Capability, Decoration, GlslStd450Op as GlslOp};

use crate::emit::{Emitter, Id, Op};

macro_rules! integers {
    ($($name:ident => $op:ident),* $(,)?) => {
        $(pub fn $name(&self, a: Id, b: Id) -> Id {
            self.of(Op::$op, self.type_of(a), &[a, b])
        })*
    };
}

macro_rules! comparisons {
    ($($name:ident => $op:ident),* $(,)?) => {
        $(pub fn $name(&self, a: Id, b: Id) -> Id {
            self.of(Op::$op, self.bool(), &[a, b])
        })*
    };
}

macro_rules! floats {
    ($($name:ident => $op:ident),* $(,)?) => {
        $(pub fn $name(&self, a: Id, b: Id) -> Id {
            self.exact(self.of(Op::$op, self.type_of(a), &[a, b]))
        })*
    };
}

impl Emitter {
    integers! {
        sdiv => SDiv, udiv_of => UDiv, umod_of => UMod, and_of => BitwiseAnd, or => BitwiseOr, xor => BitwiseXor,
        shl => ShiftLeftLogical, ashr => ShiftRightArithmetic, lshr => ShiftRightLogical, add_of => IAdd,
        sub_of => ISub, mul_of => IMul,
    }

    comparisons! {
        ieq => IEqual, ine => INotEqual, slt => SLessThan, sle => SLessThanEqual, sgt => SGreaterThan,
        sge => SGreaterThanEqual, ult => ULessThan, ule => ULessThanEqual, ugt => UGreaterThan,
        uge => UGreaterThanEqual, feq => FOrdEqual, fne => FUnordNotEqual, flt => FOrdLessThan,
        fle => FOrdLessThanEqual, fgt => FOrdGreaterThan, fge => FOrdGreaterThanEqual, both => LogicalAnd,
        either => LogicalOr, differ => LogicalNotEqual, agree => LogicalEqual,
    }

    floats! { fadd => FAdd, fsub => FSub, fmul => FMul, fdiv => FDiv }

    /// Without `fast_math` nothing is contracted.
    pub fn exact(&self, v: Id) -> Id {
        if !self.fast_math {
            self.decorate(v, Decoration::NoContraction, vec![]);
        }
        v
    }

    /// Bits of an integer of a type that constants of its kind have.
    fn known(&self, a: Id, b: Id) -> (Option<u64>, Option<u64>) {
        (self.as_bits(a), self.as_bits(b))
    }

    /// A constant of the type of `like`.
    fn like(&self, like: Id, bits: u64) -> Id {
        let wide = self.type_of(like) == self.u64();
        if wide { self.u64c(bits) } else { self.u32c(bits as u32) }
    }

    fn folds(&self, a: Id) -> bool {
        let ty = self.type_of(a);
        ty == self.u64() || ty == self.u32()
    }

    pub fn add(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) => self.like(a, x.wrapping_add(y)),
            (Some(0), None) => b,
            (None, Some(0)) => a,
            _ => self.add_of(a, b),
        }
    }

    pub fn sub(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) => self.like(a, x.wrapping_sub(y)),
            (None, Some(0)) => a,
            _ => self.sub_of(a, b),
        }
    }

    pub fn mul(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) => self.like(a, x.wrapping_mul(y)),
            (Some(1), None) => b,
            (None, Some(1)) => a,
            _ => self.mul_of(a, b),
        }
    }

    pub fn and(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) => self.like(a, x & y),
            _ => self.and_of(a, b),
        }
    }

    pub fn udiv(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) && y > 0 => self.like(a, x / y),
            (None, Some(1)) => a,
            (None, Some(y)) if y.is_power_of_two() && self.folds(a) => {
                self.lshr(a, self.like(a, u64::from(y.trailing_zeros())))
            }
            _ => self.udiv_of(a, b),
        }
    }

    pub fn umod(&self, a: Id, b: Id) -> Id {
        match self.known(a, b) {
            (Some(x), Some(y)) if self.folds(a) && y > 0 => self.like(a, x % y),
            (None, Some(y)) if y.is_power_of_two() && self.folds(a) => self.and(a, self.like(a, y - 1)),
            _ => self.umod_of(a, b),
        }
    }

    pub fn umin(&self, a: Id, b: Id) -> Id {
        self.select(self.ult(a, b), a, b)
    }

    pub fn neg(&self, v: Id) -> Id {
        self.of(Op::SNegate, self.type_of(v), &[v])
    }

    pub fn not_bits(&self, v: Id) -> Id {
        self.of(Op::Not, self.type_of(v), &[v])
    }

    pub fn not(&self, v: Id) -> Id {
        match self.as_bits(v) {
            Some(bits) => self.truth(bits == 0),
            None => self.of(Op::LogicalNot, self.bool(), &[v]),
        }
    }

    pub fn select(&self, c: Id, a: Id, b: Id) -> Id {
        match self.as_bits(c) {
            _ if a == b => a,
            Some(bits) => [b, a][usize::from(bits != 0)],
            None => self.of(Op::Select, self.type_of(a), &[c, a, b]),
        }
    }

    pub fn fneg(&self, v: Id) -> Id {
        self.of(Op::FNegate, self.type_of(v), &[v])
    }

    /// A function of GLSL.
    pub fn gl(&self, op: GlslOp, operands: &[Id]) -> Id {
        self.extended(op as u32, self.type_of(operands[0]), operands)
    }

    pub fn fabs(&self, v: Id) -> Id {
        self.gl(GlslOp::FAbs, &[v])
    }

    pub fn fused(&self, a: Id, b: Id, c: Id) -> Id {
        self.gl(GlslOp::Fma, &[a, b, c])
    }

    /// The same bits as a value of another type.
    pub fn bitcast(&self, v: Id, to: Id) -> Id {
        if self.type_of(v) == to { v } else { self.of(Op::Bitcast, to, &[v]) }
    }

    /// An integer in more bits, with zeros.
    pub fn zext(&self, v: Id, bits: u32) -> Id {
        let to = self.int_type(bits);
        match self.as_bits(v) {
            _ if self.type_of(v) == to => v,
            Some(word) => self.int(bits, word as i64),
            None if bits == 64 && self.type_of(v) == self.u32() => self.pair(v, self.u32c(0)),
            None => self.of(Op::UConvert, to, &[v]),
        }
    }

    /// An integer of 64 bits by its halves. Not as a conversion of 32 bits: Mesa (22.3) compares the result of one with
    /// constants in 32 bits, and wrongly.
    fn pair(&self, low: Id, high: Id) -> Id {
        let two = self.vector_type(self.u32(), 2);
        self.bitcast(self.of(Op::CompositeConstruct, two, &[low, high]), self.u64())
    }

    /// An integer of `from` bits in more bits, with copies of its sign.
    pub fn sext(&self, v: Id, from: u32, bits: u32) -> Id {
        let to = self.int_type(bits);
        match self.as_int(v, from) {
            _ if self.type_of(v) == to => v,
            Some(value) => self.int(bits, value),
            None if bits == 64 && from == 32 => self.pair(v, self.ashr(v, self.u32c(31))),
            None => self.of(Op::SConvert, to, &[v]),
        }
    }

    /// The low bits of an integer. Of 64 bits not as a conversion: Mesa (22.3) replaces that by the number itself if
    /// the result is converted back.
    pub fn trunc(&self, v: Id, bits: u32) -> Id {
        let to = self.int_type(bits);
        if let Some(word) = self.as_bits(v) {
            return self.int(bits, word as i64);
        }
        let from = self.type_of(v);
        if from == to {
            return v;
        }
        let low = if from == self.u64() {
            let pair = self.bitcast(v, self.vector_type(self.u32(), 2));
            self.extract_value(pair, self.u32(), 0)
        } else {
            v
        };
        if bits == 32 { low } else { self.of(Op::UConvert, to, &[low]) }
    }

    /// A truth value as an integer.
    pub fn truth_to_int(&self, v: Id, bits: u32) -> Id {
        self.select(v, self.int(bits, 1), self.int(bits, 0))
    }

    pub fn float_convert(&self, v: Id, bits: u32) -> Id {
        let to = self.float_type(bits);
        if self.type_of(v) == to {
            return v;
        }
        if bits == 16 && self.features.rounds_float16 {
            self.need(Capability::RoundingModeRTE);
            self.extend("SPV_KHR_float_controls");
        }
        self.of(Op::FConvert, to, &[v])
    }

    /// The bits of a scalar, an integer of its width; truth values have eight.
    pub fn bits_of(&self, v: Id, s: Scalar) -> Id {
        match s {
            Scalar::U1 => self.truth_to_int(v, 8),
            s if s.is_float() => self.bitcast(v, self.int_type(s.bits())),
            _ => v,
        }
    }

    /// The bits of a scalar in an integer that has at least as many.
    pub fn bits_in(&self, v: Id, s: Scalar, bits: u32) -> Id {
        match s {
            Scalar::U1 => self.truth_to_int(v, bits),
            _ => self.zext(self.bits_of(v, s), bits),
        }
    }

    /// The scalar that has the low bits of an integer.
    pub fn scalar_of_bits(&self, word: Id, s: Scalar) -> Id {
        match s {
            Scalar::U1 => self.ine(word, self.null(self.type_of(word))),
            s => self.bitcast(self.trunc(word, s.bits()), self.scalar(s)),
        }
    }

    /// Reads a variable.
    pub fn load(&self, ty: Id, from: Id) -> Id {
        self.of(Op::Load, ty, &[from])
    }

    /// Writes a variable.
    pub fn store(&self, to: Id, value: Id) {
        self.effect(Op::Store, vec![Operand::IdRef(to), Operand::IdRef(value)]);
    }
}
