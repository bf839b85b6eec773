//! Effects that the host observes while code runs: printed lines and failed assertions.
//!
//! Values are passed as one 8-byte slot per scalar: the raw bits of the scalar, zero-extended. The surrounding text is
//! in the artifact's site table (`facts`).

use octants_ir::{TextPart, ValueId};

use crate::emit::V;
use crate::lowering::Lowering;

impl Lowering<'_, '_> {
    /// Prints a line.
    pub fn print(&mut self, at: ValueId, parts: &[TextPart]) {
        let site = self.u.facts.site(self.body, self.body.inst(at));
        let (values, count) = self.pass_values(parts);
        self.u.target.print(self.e, self.code.context, site, values, count);
    }

    /// Ends the iteration, or the body if it is in none, with a message when the condition is false.
    pub fn assert(&mut self, at: ValueId, condition: ValueId, parts: &[TextPart]) {
        let site = self.u.facts.site(self.body, self.body.inst(at));
        let e = self.e;
        let fail = self.new_block(c"assert.fail");
        let go_on = self.new_block(c"assert.ok");
        e.cond_br(self.value(condition), go_on, fail);
        e.position(fail);
        let (values, count) = self.pass_values(parts);
        self.u.target.fail(e, self.code.context, site, values, count);
        self.leave_after_failure();
        e.position(go_on);
    }

    /// Values in memory, and how many.
    fn pass_values(&self, parts: &[TextPart]) -> (V, usize) {
        let e = self.e;
        let mut slots = Vec::new();
        for part in parts {
            if let TextPart::Value(v, _) | TextPart::Choice(v, _) = part {
                let scalars = self.body.ty(*v).leaves();
                slots.extend(self.leaves(*v).into_iter().zip(scalars).map(|(x, s)| self.slot_bits(x, s)));
            }
        }
        if slots.is_empty() {
            return (e.zero(e.ptr), 0);
        }
        let count = slots.len();
        let array = self.stack(e.array_type(e.i64, count as u64), 8);
        for (i, slot) in slots.into_iter().enumerate() {
            e.store(e.byte_offset(array, 8 * i as i64), slot, 8);
        }
        (array, count)
    }
}
