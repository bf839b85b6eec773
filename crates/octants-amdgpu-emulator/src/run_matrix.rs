//! Matrix products of a wave, with the operand layouts of the CDNA and RDNA ISA documents: the lanes of a row of 16
//! hold rows of `a`, and columns of `b` and of the accumulators.

use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::matrix_products::{Product, SIDE};
use crate::number::{Ty, narrowed, widened};
use crate::operand::{Operand, Value};
use crate::wave::Wave;

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

/// Executes a matrix product.
pub fn run_product(wave: &mut Wave, inst: &Instruction, product: Product) -> Result<(), Fault> {
    let [to, a, b, sums] = &inst.operands[..] else { return Err(wrong()) };
    if wave.exec() != wave.all_lanes() {
        return Err(Fault::launch("a product of matrices with lanes that do not execute"));
    }
    let Value::Vector(to) = to.value else { return Err(wrong()) };
    let per_word = (32 / product.operand.bits()).max(1) as usize;
    let words = (product.operand.bits() / 32).max(1) as usize;
    let per_lane = usize::from(a.count) * per_word / words;
    // On RDNA3, each lane holds a whole row of `a` and column of `b`, twice per wave. Other chips spread them.
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
                // The corresponding lane of the other half has the same value.
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
