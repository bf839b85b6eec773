//! Runs products of matrices.

use crate::fault::Fault;
use crate::instruction::Instruction;
use crate::products::Product;
use crate::wave::Wave;

/// Runs a product of matrices.
pub fn run_product(_wave: &mut Wave, _inst: &Instruction, _product: &Product) -> Result<(), Fault> {
    Err(Fault::launch("no product"))
}
