//! Whether the loops of a fused body are independent but for elements of the own iteration.

use std::collections::{BTreeMap, BTreeSet};

use octants_analysis::{Conflict, Dependence, Subscript, trace_element};
use octants_ir::{Body, BufferId, Effect, ForLoop, Kernel, Layout, Op, ValueId};

use super::{FusionPlan, Refusal, Stage, fused_loop, visit_stage};

/// Different ways to index a buffer in a loop; beyond this number, they are not compared.
const MOST_INDICES: usize = 16;

/// The accesses of a loop to a buffer.
#[derive(Default)]
struct Accesses {
    elements: BTreeSet<ValueId>,
    writes: bool,
    /// Floats are updated atomically.
    adds_floats: bool,
    /// Iterations are folded into it.
    reduces: bool,
}

/// Refuses loops of which one writes an element that another iteration of another loop accesses.
pub(super) fn find_conflicts(kernel: &Kernel, stages: &[Stage], plan: &FusionPlan<'_>) -> Result<(), Refusal> {
    let body = &kernel.body;
    let Some((around, l)) = fused_loop(body) else { return Err("compiler bug: no fused loop".into()) };
    let accesses: Vec<BTreeMap<BufferId, Accesses>> = stages.iter().map(|stage| accesses_of(body, l, stage)).collect();
    find_shared_memory(&accesses, plan)?;
    let mut dependence = Dependence::exact(body);
    // The order of additions may depend on how iterations are divided among threads.
    for (buffer, of) in accesses.iter().flatten().filter(|(_, of)| of.adds_floats) {
        if !is_own(body, around, (of, of), &mut dependence) {
            let name = &plan.buffers[buffer.index()].name;
            return Err(format!("several iterations may add to a float of `{name}`"));
        }
    }
    for (later, of_later) in accesses.iter().enumerate() {
        for (buffer, there) in of_later {
            for here in accesses[..later].iter().filter_map(|of| of.get(buffer)) {
                if here.reduces || there.reduces {
                    let name = &plan.buffers[buffer.index()].name;
                    return Err(format!("both access `{name}`, into which all iterations are folded"));
                }
                if (here.writes || there.writes) && !is_own(body, around, (here, there), &mut dependence) {
                    let name = &plan.buffers[buffer.index()].name;
                    return Err(format!("both access `{name}`, not only at the element of the same iteration"));
                }
            }
        }
    }
    Ok(())
}

fn accesses_of(body: &Body, around: &ForLoop, stage: &Stage) -> BTreeMap<BufferId, Accesses> {
    let mut found: BTreeMap<BufferId, Accesses> = BTreeMap::new();
    visit_stage(body, stage, &mut |v, op| {
        if let Op::Reduce(slot, _) = op
            && let Some((buffer, _)) = trace_element(body, around.reductions[*slot as usize].target)
        {
            let of_buffer = found.entry(buffer).or_default();
            (of_buffer.reduces, of_buffer.writes) = (true, true);
        }
        let (address, writes) = match op.effect() {
            Effect::Read(a) => (a, false),
            Effect::Write(a) | Effect::Update(a) => (a, true),
            _ => return,
        };
        if let Some((buffer, element)) = trace_element(body, address) {
            let of_buffer = found.entry(buffer).or_default();
            of_buffer.elements.insert(element);
            of_buffer.writes |= writes;
            let is_update = matches!(op.effect(), Effect::Update(_));
            of_buffer.adds_floats |= is_update && body.ty(v).leaves().iter().any(|s| s.is_float());
        }
    });
    found
}

/// Refuses buffers that are different parts of the same memory.
fn find_shared_memory(accesses: &[BTreeMap<BufferId, Accesses>], plan: &FusionPlan<'_>) -> Result<(), Refusal> {
    let mut used: BTreeMap<BufferId, bool> = BTreeMap::new();
    for (buffer, of) in accesses.iter().flatten() {
        *used.entry(*buffer).or_default() |= of.writes;
    }
    let fields = used.iter().filter(|(b, _)| matches!(plan.buffers[b.index()].layout, Layout::Dense { .. }));
    let fields: Vec<(&BufferId, &bool)> = fields.collect();
    for (n, (a, a_written)) in fields.iter().enumerate() {
        for (b, b_written) in &fields[n + 1..] {
            let (x, y) = (&plan.buffers[a.index()], &plan.buffers[b.index()]);
            if (**a_written || **b_written) && x.shares_memory(y) {
                return Err(format!("`{}` and `{}` are parts of the same memory", x.name, y.name));
            }
        }
    }
    Ok(())
}

/// Two accesses of different loops reach the same element in the same iteration only.
fn is_own(
    body: &Body,
    around: ValueId,
    (here, there): (&Accesses, &Accesses),
    dependence: &mut Dependence<'_>,
) -> bool {
    let mut subscripts = |of: &Accesses| -> Vec<Vec<Subscript>> {
        let mut found: Vec<Vec<Subscript>> = Vec::new();
        for element in &of.elements {
            let Op::BufferAddr(_, indices) = &body.inst(*element).op else { continue };
            let these = dependence.indices(indices).into_iter().map(|s| s.if_steps_by_one(around)).collect();
            if !found.contains(&these) {
                found.push(these);
            }
        }
        found
    };
    let (x, y) = (subscripts(here), subscripts(there));
    if x.len() > MOST_INDICES || y.len() > MOST_INDICES {
        return false;
    }
    x.iter().all(|x| {
        y.iter().all(|y| {
            let axes = dependence.between_iterations(around, x, y).axes;
            axes.iter().all(|meeting| matches!(meeting, Conflict::SameIteration | Conflict::Apart))
        })
    })
}
