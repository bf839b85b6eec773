//! [`Wave`]: the registers of threads that run in lockstep, and access to operands.

use crate::fault::Fault;
use crate::garbage::Garbage;
use crate::lanewise::Row;
use crate::modifiers::Modifiers;
use crate::number::{Ty, flush, narrowed, widened};
use crate::operand::{HalfOf, Operand, Value, scalar};

/// Number of vector registers, with accumulation registers.
const VECTORS: usize = 512;

/// The state of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Runnable.
    Running,
    /// Waiting at a barrier.
    AtBarrier,
    /// Ended.
    Ended,
}

/// A wave.
#[derive(Debug)]
pub struct Wave {
    /// Its number in the block.
    pub number: u32,
    /// Number of lanes: 32 or 64.
    pub lanes: usize,
    /// The address of the next instruction.
    pub pc: u64,
    /// Scalar registers.
    pub scalars: [u32; scalar::COUNT],
    /// Vector registers.
    pub vectors: Vec<[u32; 64]>,
    /// SCC.
    pub scc: bool,
    /// Rounding and denormal modes in the descriptor's encoding: bits 4 and 5 for 32-bit floats, 6 and 7 for others.
    pub mode: u32,
    /// The private memory of all lanes, lane after lane.
    pub private: Vec<u8>,
    /// The state.
    pub state: State,
    /// It has signaled arrival at the barrier.
    pub signaled: bool,
    /// Number of executed instructions.
    pub steps: u64,
    /// 16-bit results preserve the upper half of the destination.
    pub keeps_upper_half: bool,
    /// The operands that the low byte of M0 indexes: a bit for each of three sources and the destination.
    pub indexed: u8,
}

impl Wave {
    /// A wave whose registers hold garbage.
    pub fn new(number: u32, lanes: usize, private_bytes: usize, garbage: &mut Garbage) -> Wave {
        let mut scalars = [0; scalar::COUNT];
        garbage.fill_words(&mut scalars);
        scalars[scalar::NULL as usize..].fill(0);
        let mut vectors = vec![[0; 64]; VECTORS];
        vectors.iter_mut().for_each(|v| garbage.fill_words(v));
        let mut private = vec![0; private_bytes * lanes];
        garbage.fill_bytes(&mut private);
        Wave {
            number,
            lanes,
            pc: 0,
            scalars,
            vectors,
            scc: garbage.word() & 1 != 0,
            mode: 0,
            private,
            state: State::Running,
            signaled: false,
            steps: 0,
            keeps_upper_half: false,
            indexed: 0,
        }
    }

    /// An operand, indexed by M0 if `applies`.
    pub fn relative(&self, operand: &Operand, applies: bool) -> Result<Operand, Fault> {
        let Value::Vector(at) = operand.value else { return Ok(*operand) };
        if !applies {
            return Ok(*operand);
        }
        let at = u32::from(at) + self.scalars[scalar::M0 as usize];
        if at >= VECTORS as u32 / 2 {
            return Err(Fault::launch(format!("the vector register {at} by an index, of 256")));
        }
        Ok(Operand { value: Value::Vector(at as u16), ..*operand })
    }

    /// All lanes, as a mask.
    pub fn all_lanes(&self) -> u64 {
        if self.lanes == 64 { u64::MAX } else { 0xffff_ffff }
    }

    /// EXEC: the active lanes.
    pub fn exec(&self) -> u64 {
        self.mask(scalar::EXEC)
    }

    /// Sets the active lanes.
    pub fn set_exec(&mut self, mask: u64) {
        self.set_mask(scalar::EXEC, mask);
    }

    /// A mask in scalar registers.
    pub fn mask(&self, at: u16) -> u64 {
        self.pair(at) & self.all_lanes()
    }

    /// Sets a mask, with one bit per lane.
    pub fn set_mask(&mut self, at: u16, mask: u64) {
        self.set_scalar(at, mask as u32);
        if self.lanes == 64 {
            self.set_scalar(at + 1, (mask >> 32) as u32);
        }
    }

    /// Reads two scalar registers.
    pub fn pair(&self, at: u16) -> u64 {
        u64::from(self.scalars[at as usize + 1]) << 32 | u64::from(self.scalars[at as usize])
    }

    /// Sets a scalar register.
    pub fn set_scalar(&mut self, at: u16, value: u32) {
        // Writes to the null register, and past it for a pair, are discarded.
        if at < scalar::NULL {
            self.scalars[at as usize] = value;
        }
    }

    /// Reads a scalar operand of the given width in bits.
    pub fn scalar(&self, operand: &Operand, bits: u32) -> u64 {
        let value = match operand.value {
            Value::Scalar(at) if bits == 64 => self.pair(at),
            Value::Scalar(at) => self.scalars[at as usize].into(),
            Value::Scc => self.scc.into(),
            _ => {
                let ty = if bits == 64 { Ty::B64 } else { Ty::F32 };
                let constant = operand.constant(ty).unwrap_or(0);
                // A 32-bit read of an aperture returns its upper half.
                if bits == 32 && constant >> 48 != 0 && constant as i64 > 0 { constant >> 32 } else { constant }
            }
        };
        let value = if bits >= 64 { value } else { value & ((1 << bits) - 1) };
        signs(value, operand.negate, operand.absolute, bits)
    }

    /// Writes a scalar operand of 32 or 64 bits.
    pub fn write_scalar(&mut self, operand: &Operand, bits: u32, value: u64) {
        match operand.value {
            Value::Scalar(at) => {
                self.set_scalar(at, value as u32);
                if bits == 64 {
                    self.set_scalar(at + 1, (value >> 32) as u32);
                }
            }
            Value::Scc => self.scc = value & 1 != 0,
            _ => {}
        }
    }

    /// Reads an operand for all lanes, without its modifiers.
    pub fn bits(&self, operand: &Operand, ty: Ty) -> Row {
        let mut row = [0; 64];
        match operand.value {
            Value::Vector(at) => {
                let low = &self.vectors[at as usize];
                if ty.bits() == 64 {
                    let high = &self.vectors[at as usize + 1];
                    for i in 0..64 {
                        row[i] = u64::from(high[i]) << 32 | u64::from(low[i]);
                    }
                } else {
                    let shift = if operand.half == HalfOf::High { 16 } else { 0 };
                    for i in 0..64 {
                        row[i] = u64::from(low[i]) >> shift;
                    }
                }
            }
            Value::Scalar(at) if ty == Ty::Mask => {
                let mask = self.mask(at);
                (0..64).for_each(|i| row[i] = mask >> i & 1);
            }
            Value::Scalar(at) => {
                let value = if ty.bits() == 64 { self.pair(at) } else { self.scalars[at as usize].into() };
                row.fill(if operand.half == HalfOf::High { value >> 16 } else { value });
            }
            Value::Scc => row.fill(self.scc.into()),
            _ => row.fill(operand.constant(ty).unwrap_or(0)),
        }
        row
    }

    /// Reads an operand for all lanes.
    pub fn row(&self, operand: &Operand, ty: Ty) -> Row {
        let mut row = self.bits(operand, ty);
        self.apply_signs(&mut row, operand, ty);
        row
    }

    /// Applies sign modifiers to an operand, and flushes denormals.
    pub fn apply_signs(&self, row: &mut Row, operand: &Operand, ty: Ty) {
        if ty.bits() < 64 {
            let kept = (1u64 << ty.bits()) - 1;
            row.iter_mut().for_each(|v| *v &= kept);
        }
        if operand.negate || operand.absolute {
            row.iter_mut().for_each(|v| *v = signs(*v, operand.negate, operand.absolute, ty.bits()));
        }
        if self.flushes(ty, 0) {
            row.iter_mut().for_each(|v| *v = flush(*v, ty));
        }
    }

    /// Whether denormals of a type are flushed: as a source (0) or as a result (1).
    fn flushes(&self, ty: Ty, which: u32) -> bool {
        match ty {
            Ty::F32 => self.mode >> (4 + which) & 1 == 0,
            Ty::F16 | Ty::F64 => self.mode >> (6 + which) & 1 == 0,
            _ => false,
        }
    }

    /// Applies output modifiers to a result.
    pub fn finished(&self, mut row: Row, ty: Ty, modifiers: &Modifiers) -> Row {
        if matches!(ty, Ty::F16 | Ty::F32 | Ty::F64) {
            if modifiers.times != 1.0 {
                row.iter_mut().for_each(|v| *v = narrowed(widened(*v, ty) * modifiers.times, ty));
            }
            if modifiers.clamp {
                row.iter_mut().for_each(|v| {
                    let value = widened(*v, ty);
                    *v = narrowed(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }, ty);
                });
            }
            if self.flushes(ty, 1) {
                row.iter_mut().for_each(|v| *v = flush(*v, ty));
            }
        }
        row
    }

    /// Writes lanes of a vector register, with the width of the type.
    pub fn write(&mut self, operand: &Operand, ty: Ty, row: &Row, lanes: u64) {
        let at = match operand.value {
            Value::Vector(at) => at as usize,
            // A uniform result.
            _ => return self.write_scalar(operand, ty.bits(), row[lanes.trailing_zeros().min(63) as usize]),
        };
        let keeps = self.keeps_upper_half || operand.half != HalfOf::All;
        for i in (0..self.lanes).filter(|i| lanes >> i & 1 != 0) {
            let old = self.vectors[at][i];
            self.vectors[at][i] = match (ty.bits(), operand.half) {
                (16, HalfOf::High) => old & 0xffff | (row[i] as u32) << 16,
                (16, _) if keeps => old & 0xffff_0000 | row[i] as u32 & 0xffff,
                (16, _) => row[i] as u32 & 0xffff,
                _ => row[i] as u32,
            };
            if ty.bits() == 64 {
                self.vectors[at + 1][i] = (row[i] >> 32) as u32;
            }
        }
    }
}

/// Applies absolute value and negation.
pub fn signs(value: u64, negate: bool, absolute: bool, bits: u32) -> u64 {
    if !negate && !absolute {
        return value;
    }
    let sign = 1u64 << (bits.max(1) - 1);
    let value = if absolute { value & !sign } else { value };
    if negate { value ^ sign } else { value }
}
