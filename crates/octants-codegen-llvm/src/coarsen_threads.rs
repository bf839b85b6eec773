//! Thread coarsening: the assumptions that the launcher checks and the code of a task's coarsened variant relies on.

use octants_artifact::WideForm;

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// Passes the conditions that the launcher has checked to the optimizer.
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
