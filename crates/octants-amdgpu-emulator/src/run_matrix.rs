//! Products of matrices by a wave, as the ISA documents of CDNA and RDNA lay their operands out: `a` has its rows, `b`
//! and the sums their columns in the lanes of a row of 16.

use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::number::{Ty, narrowed, widened};
use crate::operand::{Operand, Value};
use crate::wave::Wave;

const SIDE: usize = 16;

/// What an instruction multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// The operands' numbers.
    pub operand: Ty,
    /// The sums' numbers.
    pub sum: Ty,
    /// Columns of `a`.
    pub depth: usize,
    /// By a wave of 32, whose halves have the sums' rows.
    pub by_wave: bool,
}

/// The product that a mnemonic names.
pub fn product(name: &str) -> Option<Product> {
    let of = |operand, sum, depth, by_wave| Some(Product { operand, sum, depth, by_wave });
    match name {
        "v_mfma_f32_16x16x16f16" | "v_mfma_f32_16x16x16_f16" => of(Ty::F16, Ty::F32, 16, false),
        "v_mfma_f32_16x16x4f32" | "v_mfma_f32_16x16x4_f32" => of(Ty::F32, Ty::F32, 4, false),
        "v_mfma_f64_16x16x4f64" | "v_mfma_f64_16x16x4_f64" => of(Ty::F64, Ty::F64, 4, false),
        "v_wmma_f32_16x16x16_f16" => of(Ty::F16, Ty::F32, 16, true),
        _ => None,
    }
}

impl Product {
    /// The row of the sums in a register of a lane. `shares` says that both halves have all of the operands, as on RDNA3.
    fn row_of_sum(&self, lane: usize, i: usize, shares: bool) -> usize {
        let part = lane / SIDE;
        match (self.by_wave, self.sum) {
            (true, _) if shares => 2 * i + part,
            (true, _) => 8 * part + i,
            (false, Ty::F64) => 4 * i + part,
            (false, _) => 4 * part + i,
        }
    }
}

/// An element of an operand in a lane.
fn element(wave: &Wave, at: &Operand, ty: Ty, lane: usize, i: usize) -> Result<f64, Fault> {
    let first = match at.value {
        Value::Vector(first) => usize::from(first),
        _ => return at.constant(ty).map(|bits| widened(bits, ty)).ok_or_else(wrong),
    };
    let word = |n: usize| u64::from(wave.vectors[first + n][lane]);
    let bits = match ty.bits() {
        16 => word(i / 2) >> (16 * (i % 2)) & 0xffff,
        64 => word(2 * i) | word(2 * i + 1) << 32,
        _ => word(i),
    };
    Ok(widened(bits, ty))
}

fn wrong() -> Fault {
    Fault::launch("the operands of a product of matrices are vector registers or constants")
}

/// Runs one.
pub fn run_product(wave: &mut Wave, inst: &Instruction, product: Product) -> Result<(), Fault> {
    let [to, a, b, sums] = &inst.operands[..] else { return Err(wrong()) };
    if wave.exec() != wave.all_lanes() {
        return Err(Fault::launch("a product of matrices with lanes that do not execute"));
    }
    let Value::Vector(to) = to.value else { return Err(wrong()) };
    let per_word = (32 / product.operand.bits()).max(1) as usize;
    let words = (product.operand.bits() / 32).max(1) as usize;
    let per_lane = usize::from(a.count) * per_word / words;
    // RDNA3 has each row of `a` and column of `b` whole in a lane, twice in the wave; others spread them.
    let shares = per_lane == product.depth && product.by_wave;
    let place = |k: usize| if shares { (0, k) } else { (k / per_lane, k % per_lane) };
    let mut made = Vec::new();
    for lane in 0..wave.lanes {
        let column = lane % SIDE;
        for i in 0..SIDE * SIDE / wave.lanes {
            let row = product.row_of_sum(lane, i, shares);
            let mut total = element(wave, sums, product.sum, lane, i)?;
            for k in 0..product.depth {
                let (part, at) = place(k);
                // A lane of the half that is read has the same.
                let half = if shares { lane / SIDE } else { part };
                let x = element(wave, a, product.operand, half * SIDE + row, at)?;
                let y = element(wave, b, product.operand, half * SIDE + column, at)?;
                total += x * y;
            }
            made.push((lane, i, narrowed(total, product.sum)));
        }
    }
    for (lane, i, bits) in made {
        let words = product.sum.bits() as usize / 32;
        for n in 0..words {
            wave.vectors[usize::from(to) + words * i + n][lane] = (bits >> (32 * n)) as u32;
        }
    }
    Ok(())
}
