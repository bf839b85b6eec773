//! Tasks of which each thread runs several neighboring iterations, as the schedule says: what the launcher sees to,
//! and what code of the form relies on.

use octants_artifact::WideForm;
use octants_ir::Layout;
use octants_ir::schedule::Grouping;

use crate::emit::{IntCmp, V};
use crate::facts::Facts;
use crate::lowering::Lowering;

/// What a launch must fulfil.
pub(crate) fn wide_form(facts: &Facts<'_>, symbol: String, grouping: Grouping) -> WideForm {
    let mut form = WideForm {
        symbol,
        code: Vec::new(),
        lanes: grouping.lanes,
        alignment: grouping.alignment,
        least_iterations: grouping.least_iterations,
        least_row: grouping.least_row,
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
