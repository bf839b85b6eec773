//! [`unproved_buffers`]: the buffers for which it is not proved that iterations of a parallel loop access them without
//! a race.

use std::collections::{BTreeMap, BTreeSet};

use octants_ir::{Body, BufferId, Effect, Op, ValueId};

use crate::addresses::{Place, trace_address};
use crate::effects::{Effects, inst_effects};
use crate::iterations::touched_at_own_indices;

/// The accesses of a loop's iterations to a buffer.
#[derive(Default)]
struct Touches {
    reads: bool,
    writes: bool,
    updates: bool,
}

/// The buffers that some iteration of a parallel loop may change while another one touches the same element, except for
/// pairs of updates. `functions` are the effects of the functions that the loop may call.
pub fn unproved_buffers(body: &Body, around: ValueId, functions: &[Effects]) -> BTreeSet<BufferId> {
    let Op::For(l) = &body.inst(around).op else { return BTreeSet::new() };
    let mut touched: BTreeMap<BufferId, Touches> = BTreeMap::new();
    let mut note = |address: ValueId, f: fn(&mut Touches)| {
        if let Place::Buffer(b) = trace_address(body, address) {
            f(touched.entry(b).or_default());
        }
    };
    let mut called = Effects::default();
    body.visit(l.body, &mut |_, inst| match inst.op.effect() {
        Effect::Read(a) | Effect::ReadVolatile(a) => note(a, |t| t.reads = true),
        Effect::Write(a) => note(a, |t| t.writes = true),
        Effect::Update(a) => note(a, |t| t.updates = true),
        Effect::Call(..) => inst_effects(body, &inst.op, functions, &mut called),
        _ => {}
    });
    called.access.reads.iter().for_each(|b| touched.entry(*b).or_default().reads = true);
    called.access.writes.iter().for_each(|b| touched.entry(*b).or_default().writes = true);
    let own = touched_at_own_indices(body, around);
    let is_safe = |b: &BufferId, t: &Touches| {
        let one_kind = !(t.writes || t.reads && t.updates);
        one_kind || own.contains(b)
    };
    touched.into_iter().filter(|(b, t)| !is_safe(b, t)).map(|(b, _)| b).collect()
}
