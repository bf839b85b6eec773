//! Finds loops whose number of rounds the adjoint cannot determine.
//!
//! An adjoint runs the rounds of a loop again, from counters that it keeps (`promote_counters`) and from memory as it
//! is after the kernel. If the condition of a round is read from memory that rounds write, it would run different
//! rounds. Where the trip counts are recorded (`loop_trips`), the condition is no longer read from memory.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic};
use octants_ir::{Body, Buffer, BufferId, Op, ValueId};

use super::plan_sweeps::{Plan, Seed, close};
use crate::memory_use::{MemoryUse, changed_by, memory_use};
use octants_analysis::{CodeLayout, Place, trace_address};

/// Finds such loops among those that the adjoint runs. `warn` receives those inside parallel loops, whose iterations
/// may write other elements than they read.
///
/// # Errors
/// The first outside of parallel loops.
pub(super) fn check_rounds(
    plan: &Plan,
    buffers: &[Buffer],
    warn: &mut dyn FnMut(Diagnostic),
) -> Result<(), Box<Diagnostic>> {
    let of_tasks: HashSet<ValueId> = plan.statements().collect();
    let mut loops: Vec<ValueId> = plan.loops.keys().copied().collect();
    loops.sort_by_key(|v| plan.layout.position[v.index()]);
    for v in loops.into_iter().filter(|v| matches!(plan.body.inst(*v).op, Op::Loop(_))) {
        let Some((read, buffer)) = overwritten_read(plan, v) else { continue };
        let depends = format!(
            "depends on `{}`, which is read here and which the iterations overwrite",
            buffers[buffer.index()].name
        );
        let is_error = of_tasks.contains(&v);
        let message = if is_error {
            format!("the gradient cannot determine the number of iterations: it {depends}")
        } else {
            format!("the gradient will be wrong: the number of iterations {depends}")
        };
        let found = Diagnostic::new(Code::Derivative, plan.body.inst(read).span, message).with_hint(
            "control the loop with an integer counter (`left[()] -= 1`), or store the value that each iteration tests \
             in a separate element (`error[step[()]]`)",
        );
        if is_error {
            return Err(found);
        }
        warn(*found);
    }
    Ok(())
}

/// A read that determines the number of iterations of a loop, from memory that the iterations write.
fn overwritten_read(plan: &Plan, v: ValueId) -> Option<(ValueId, BufferId)> {
    find_overwritten_read(plan.body, &plan.layout, v)
}

/// The same for a body with structured exits and without calls.
pub(super) fn find_overwritten_read(body: &Body, layout: &CodeLayout, v: ValueId) -> Option<(ValueId, BufferId)> {
    let mut written = Vec::new();
    for block in body.inst(v).op.blocks() {
        body.visit(block, &mut |_, inst| {
            if let Some(Place::Buffer(b)) = changed_by(&inst.op).map(|a| trace_address(body, a)) {
                written.push(b);
            }
        });
    }
    let decides = close(body, layout, body.root, vec![Seed::Value(v)]);
    let mut reads: Vec<ValueId> = decides.values.into_iter().collect();
    reads.sort_by_key(|r| layout.position[r.index()]);
    reads.into_iter().find_map(|r| match memory_use(&body.inst(r).op) {
        MemoryUse::Load(a) | MemoryUse::VolatileLoad(a) => match trace_address(body, a) {
            // An element that only one round accesses is read unchanged.
            Place::Buffer(b) if written.contains(&b) && !is_of_round(body, layout, a, v) => Some((r, b)),
            _ => None,
        },
        _ => None,
    })
}

/// Whether the operands of a value change between iterations of a loop.
fn is_of_round(body: &Body, layout: &CodeLayout, value: ValueId, rounds: ValueId) -> bool {
    let changes = |l: octants_ir::LocalId| {
        let blocks = body.inst(rounds).op.blocks();
        layout.stores[l.index()].iter().any(|s| blocks.iter().any(|b| layout.is_inside(*s, *b)))
    };
    match &body.inst(value).op {
        Op::Load(a) if matches!(trace_address(body, *a), Place::Local(l) if changes(l)) => true,
        op if op.is_pure() => {
            let mut found = false;
            op.for_each_operand(|u| found |= is_of_round(body, layout, u, rounds));
            found
        }
        _ => false,
    }
}
