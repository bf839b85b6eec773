//! The matrix-product instructions.

use crate::number::Ty;

/// Rows and columns of the accumulators.
pub const SIDE: usize = 16;

/// The shape and types of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// The element type of the operands.
    pub operand: Ty,
    /// The element type of the accumulators.
    pub sum: Ty,
    /// Columns of `a`.
    pub depth: usize,
    /// For a wave of 32, whose halves split the rows of the accumulators.
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
    /// The accumulator row in a register of a lane. `shares`: both halves hold all of the operands, as on RDNA3.
    pub fn row_of_sum(&self, lane: usize, i: usize, shares: bool) -> usize {
        let part = lane / SIDE;
        match (self.by_wave, self.sum) {
            (true, _) if shares => 2 * i + part,
            (true, _) => 8 * part + i,
            (false, Ty::F64) => 4 * i + part,
            (false, _) => 4 * part + i,
        }
    }
}
