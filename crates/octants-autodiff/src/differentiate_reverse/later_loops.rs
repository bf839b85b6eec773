//! Whether a later statement of a kernel certainly overwrites what an earlier one has read: it is unconditional, in
//! loops over the same ranges or in loops that certainly run. The dependence test compares indices as functions of
//! these loops' indices.

use octants_analysis::{Dependence, SameRanges, Subscript, known_int};
use octants_ir::{Op, ValueId};

use super::plan_sweeps::Plan;

/// Each element that is `read` somewhere in a statement of the root, with these subscripts, is `written` with those in
/// a later one.
pub(super) fn overwrites_later(
    plan: &Plan,
    dependence: &Dependence<'_>,
    (read, from): (ValueId, &[Subscript]),
    (written, to): (ValueId, &[Subscript]),
) -> bool {
    let position = |v| plan.layout.position[statement(plan, v).index()];
    if position(read) >= position(written) {
        return false;
    }
    dependence.in_later_loops(from, to).is_some_and(|ranges| runs_wherever_read(plan, written, &ranges))
}

/// The statement of the root that an instruction is in.
fn statement(plan: &Plan, v: ValueId) -> ValueId {
    std::iter::successors(Some(v), |u| plan.layout.around(*u)).last().unwrap_or(v)
}

/// A write runs for each element that was read.
fn runs_wherever_read(plan: &Plan, written: ValueId, ranges: &SameRanges) -> bool {
    let mut around = std::iter::successors(plan.layout.around(written), |u| plan.layout.around(*u));
    around.all(|v| {
        let Op::For(l) = &plan.body.inst(v).op else { return false };
        let runs = |axis: usize| {
            ranges.is_paired((v, axis as u32))
                || matches!(
                    (known_int(plan.body, l.dims[axis].begin), known_int(plan.body, l.dims[axis].end)),
                    (Some(begin), Some(end)) if begin < end
                )
        };
        plan.is_counted(v) && (0..l.dims.len()).all(runs)
    })
}
