//! What the host sees while code runs: printed lines and failed assertions.
//!
//! Values pass as one 8-byte slot per scalar: the raw bits of the scalar, zero-extended. The text around them is in the
//! artifact's table of sites.

use octants_artifact::{Site, SiteKind, SitePart};
use octants_ir::{TextPart, Type, ValueId};

use crate::emit::V;
use crate::lower_body::Lowering;
use crate::unit::kind_of;

impl Lowering<'_, '_> {
    /// Prints a line.
    pub fn print(&mut self, at: ValueId, parts: &[TextPart]) {
        let site = self.site(at, SiteKind::Print, parts);
        let (values, count) = self.pass_values(parts);
        self.u.target.print(self.e, self.context, site, values, count);
    }

    /// Ends the iteration, or the body where it stands in none, with a message when the condition is false.
    pub fn assert(&mut self, at: ValueId, condition: ValueId, parts: &[TextPart]) {
        let site = self.site(at, SiteKind::Assert, parts);
        let e = self.e;
        let fail = self.new_block(c"assert.fail");
        let go_on = self.new_block(c"assert.ok");
        e.cond_br(self.value(condition), go_on, fail);
        e.position(fail);
        let (values, count) = self.pass_values(parts);
        self.u.target.fail(e, self.context, site, values, count);
        self.leave_after_failure();
        e.position(go_on);
    }

    /// The number of a place in the table; variants of a task share theirs.
    fn site(&self, at: ValueId, kind: SiteKind, parts: &[TextPart]) -> u32 {
        let mut text = Vec::new();
        for part in parts {
            match part {
                TextPart::Text(t) => text.push(SitePart::Text(t.clone())),
                TextPart::Value(v, format) => describe(self.body.ty(*v), format.as_deref(), &mut text),
            }
        }
        let site = Site { kind, parts: text, location: (self.u.location)(self.body.inst(at).span) };
        let mut sites = self.u.sites.borrow_mut();
        let known = sites.iter().position(|s| *s == site);
        known.unwrap_or_else(|| {
            sites.push(site);
            sites.len() - 1
        }) as u32
    }

    /// Values in memory, and how many.
    fn pass_values(&self, parts: &[TextPart]) -> (V, usize) {
        let e = self.e;
        let mut slots = Vec::new();
        for part in parts {
            if let TextPart::Value(v, _) = part {
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

/// The pieces of text that a value of a type becomes; a struct names its members.
fn describe(ty: &Type, format: Option<&str>, text: &mut Vec<SitePart>) {
    match ty {
        Type::Struct(s) => {
            for (i, (name, member)) in s.members.iter().enumerate() {
                text.push(SitePart::Text(format!("{}{name}: ", if i == 0 { "{" } else { ", " })));
                describe(member, format, text);
            }
            text.push(SitePart::Text(String::from("}")));
        }
        _ => {
            let kind = kind_of(ty.scalar().expect("compiler bug: only values are printed"));
            text.push(SitePart::Value { kind, shape: ty.shape(), format: format.map(str::to_owned) });
        }
    }
}
