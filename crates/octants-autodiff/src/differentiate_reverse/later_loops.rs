//! Whether a later statement of a kernel is certain to overwrite what an earlier one has read: it stands in loops over
//! the same ranges, or in loops that run for certain, and under no condition. Indices are compared as functions of
//! these loops' indices.

use std::collections::HashMap;

use octants_analysis::known_int;
use octants_ir::{Body, ForLoop, Op, ValueId};

use super::plan_sweeps::Plan;

/// An axis of a loop.
type Axis = (ValueId, u32);

/// Each element that is `read` somewhere in a statement of the root, with these indices, is `written` with those in a
/// later one.
pub(super) fn overwrites_later(
    plan: &Plan,
    (read, from): (ValueId, &[ValueId]),
    (written, to): (ValueId, &[ValueId]),
) -> bool {
    let position = |v| plan.layout.position[statement(plan, v).index()];
    if position(read) >= position(written) {
        return false;
    }
    let mut ranges = SameRanges { body: plan.body, of: HashMap::new() };
    from.iter().zip(to).all(|(x, y)| ranges.lead_to_the_same(*x, *y)) && runs_wherever_read(plan, written, &ranges)
}

/// The statement of the root that an instruction stands in.
fn statement(plan: &Plan, v: ValueId) -> ValueId {
    std::iter::successors(Some(v), |u| plan.layout.around(*u)).last().unwrap_or(v)
}

/// A write runs for each element that was read.
fn runs_wherever_read(plan: &Plan, written: ValueId, ranges: &SameRanges) -> bool {
    let mut around = std::iter::successors(plan.layout.around(written), |u| plan.layout.around(*u));
    around.all(|v| {
        let Op::For(l) = &plan.body.inst(v).op else { return false };
        let runs = |axis: usize| {
            ranges.of.values().any(|a| *a == (v, axis as u32))
                || matches!(
                    (known_int(plan.body, l.dims[axis].begin), known_int(plan.body, l.dims[axis].end)),
                    (Some(begin), Some(end)) if begin < end
                )
        };
        plan.is_counted(v) && (0..l.dims.len()).all(runs)
    })
}

/// Axes of the loops around a read, and those of the loops around a write that have the same ranges.
struct SameRanges<'a> {
    body: &'a Body,
    of: HashMap<Axis, Axis>,
}

impl SameRanges<'_> {
    /// Two values are the same where the indices of such axes are.
    fn lead_to_the_same(&mut self, x: ValueId, y: ValueId) -> bool {
        if x == y {
            return true;
        }
        let body = self.body;
        if body.ty(x) != body.ty(y) {
            return false;
        }
        match (&body.inst(x).op, &body.inst(y).op) {
            (Op::LoopIndex(l, a), Op::LoopIndex(m, b)) => self.pair((*l, *a), (*m, *b)),
            (Op::Binary(f, x, u), Op::Binary(g, y, v)) => {
                f == g && self.lead_to_the_same(*x, *y) && self.lead_to_the_same(*u, *v)
            }
            (Op::Unary(f, x), Op::Unary(g, y)) => f == g && self.lead_to_the_same(*x, *y),
            (Op::Cast(x), Op::Cast(y)) => self.lead_to_the_same(*x, *y),
            (x @ (Op::Const(_) | Op::Param(_) | Op::Shape(..)), y) => x == y,
            _ => false,
        }
    }

    fn pair(&mut self, read: Axis, written: Axis) -> bool {
        if let Some(known) = self.of.get(&read) {
            return *known == written;
        }
        if self.of.values().any(|a| *a == written) {
            return false;
        }
        let (Some(r), Some(w)) = (self.loop_of(read), self.loop_of(written)) else { return false };
        let (r, w) = (r.dims[read.1 as usize], w.dims[written.1 as usize]);
        let same = self.lead_to_the_same(r.begin, w.begin) && self.lead_to_the_same(r.end, w.end);
        if same {
            self.of.insert(read, written);
        }
        same
    }

    fn loop_of(&self, axis: Axis) -> Option<&ForLoop> {
        match &self.body.inst(axis.0).op {
            Op::For(l) => Some(l),
            _ => None,
        }
    }
}
