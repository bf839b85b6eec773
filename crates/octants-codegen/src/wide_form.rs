//! [`wide_form`]: the conditions of a task's coarsened variant. The launcher checks them, and the code relies on them.

use octants_artifact::WideForm;
use octants_ir::Layout;
use octants_ir::schedule::Coarsening;

use crate::facts::Facts;

/// The conditions that a launch must fulfill.
pub fn wide_form(facts: &Facts<'_>, symbol: String, coarsening: Coarsening) -> WideForm {
    let mut form = WideForm {
        symbol,
        code: Vec::new(),
        lanes: coarsening.factor,
        alignment: coarsening.alignment,
        least_iterations: coarsening.min_iterations,
        least_row: coarsening.min_row,
        addresses: Vec::new(),
        extents: Vec::new(),
    };
    for (buffer, slot) in facts.program.buffers.iter().zip(&facts.args.buffers) {
        if let (Layout::Contiguous, Some(slot)) = (&buffer.layout, slot) {
            form.addresses.push(*slot);
            if buffer.ndim > 1 {
                form.extents.push(slot + buffer.ndim);
            }
        }
    }
    form
}
