//! The task graph of an artifact: the program's graph, with conditions as locations in slots and frame.

use octants_artifact::{Condition, GraphPart, GuardedIterations};
use octants_ir::{Condition as Place, Layout, TaskGraph, Type};

use crate::facts::{Facts, kind_of};

/// The graph of an artifact's tasks; empty if each task runs once, in order.
pub fn graph_parts(facts: &Facts<'_>) -> Vec<GraphPart> {
    let mut parts = Vec::new();
    add(facts, &facts.program.graph, &mut parts);
    let all = facts.program.tasks.len() as u32;
    if parts == [GraphPart::Tasks(0, all)] { Vec::new() } else { parts }
}

fn within(facts: &Facts<'_>, graph: &TaskGraph) -> Vec<GraphPart> {
    let mut parts = Vec::new();
    add(facts, graph, &mut parts);
    parts
}

fn add(facts: &Facts<'_>, graph: &TaskGraph, out: &mut Vec<GraphPart>) {
    match graph {
        TaskGraph::Sequence(parts) => parts.iter().for_each(|part| add(facts, part, out)),
        TaskGraph::Launch { task, .. } => match out.last_mut() {
            Some(GraphPart::Tasks(_, end)) if *end == task.0 => *end += 1,
            _ => out.push(GraphPart::Tasks(task.0, task.0 + 1)),
        },
        TaskGraph::Parallel(groups) => out.push(GraphPart::Parallel(groups.iter().map(|g| within(facts, g)).collect())),
        TaskGraph::While { condition, body, guarded } => out.push(GraphPart::While {
            condition: place(facts, *condition),
            body: within(facts, body),
            guarded: guarded.map(|g| GuardedIterations {
                per_decision: g.per_decision,
                guard: facts.frame_offsets[g.guard.index()],
            }),
        }),
        TaskGraph::If { condition, then, otherwise } => out.push(GraphPart::If {
            condition: place(facts, *condition),
            then: within(facts, then),
            otherwise: within(facts, otherwise),
        }),
        TaskGraph::Switch { selector, cases, otherwise } => out.push(GraphPart::Switch {
            selector: place(facts, *selector),
            cases: cases.iter().map(|case| within(facts, case)).collect(),
            otherwise: within(facts, otherwise),
        }),
        TaskGraph::Checkpoint { label, yields_on, body } => out.push(GraphPart::Checkpoint {
            label: *label,
            yields_on: place(facts, *yields_on),
            body: within(facts, body),
        }),
    }
}

fn place(facts: &Facts<'_>, condition: Place) -> Condition {
    let kind = match facts.program.condition_type(condition) {
        Some(Type::Scalar(s)) if !s.is_float() => kind_of(*s),
        ty => panic!("compiler bug: a condition of type {ty:?}\n{}", facts.program),
    };
    let (slot, offset) = match condition {
        Place::Frame(slot) => (None, facts.frame_offsets[slot.index()]),
        Place::Buffer(b) => match (&facts.program.buffers[b.index()].layout, facts.args.buffers[b.index()]) {
            (Layout::Dense { components, .. }, _) => {
                (Some(facts.args.roots[components[0].root as usize]), components[0].place.base)
            }
            (_, slot) => (slot, 0),
        },
    };
    Condition { slot, offset, kind }
}
