//! Thread coarsening: the conditions of a task's coarsened variant, which the launcher checks and the code relies on.

use octants_artifact::WideForm;
use octants_ir::Layout;
use octants_ir::schedule::Coarsening;

use crate::emit::{IntCmp, V};
use crate::facts::Facts;
use crate::lowering::Lowering;

/// The conditions that a launch must fulfil.
pub(crate) fn wide_form(facts: &Facts<'_>, symbol: String, coarsening: Coarsening) -> WideForm {
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

impl Lowering<'_, '_> {
    /// Tells the optimizer what the launcher saw to.
    pub fn assume_wide(&self, form: &WideForm) {
        let e = self.e;
        for slot in &form.extents {
            self.assume_multiple(self.argument(*slot, e.i64), form.lanes);
        }
    }

    /// Tells the optimizer that a number is a multiple of a power of two.
    pub fn assume_multiple(&self, v: V, of: u32) {
        let e = self.e;
        if e.as_int(v).is_none() {
            let rest = e.and(v, e.i64c(i64::from(of) - 1));
            let whole = e.icmp(IntCmp::LLVMIntEQ, rest, e.i64c(0));
            let assume = e.declare("llvm.assume", e.void, &mut [e.i1]);
            e.call(assume, &[whole]);
        }
    }
}
