//! What a task graph needs from its program: the iteration count of a task's launch, and the types of conditions.

use std::collections::BTreeSet;

use crate::body::Body;
use crate::kernel::{MemorySpace, Program, Task, TaskKind};
use crate::op::{Const, Op, ValueId};
use crate::task_graph::{Condition, LaunchCount, TaskGraph, TaskId};
use crate::types::Type;

impl TaskGraph {
    /// A launch of each task, in order: the graph of a program without control flow.
    pub fn in_order(tasks: &[Task]) -> TaskGraph {
        TaskGraph::Sequence((0..tasks.len() as u32).map(|t| TaskGraph::launch(tasks, TaskId(t))).collect())
    }

    /// A launch of a task, with the iteration count computed from its body.
    pub fn launch(tasks: &[Task], task: TaskId) -> TaskGraph {
        TaskGraph::Launch { task, count: launch_count(&tasks[task.index()]) }
    }
}

impl Program {
    /// The type of the location that a condition reads, if it exists.
    pub fn condition_type(&self, condition: Condition) -> Option<&Type> {
        match condition {
            Condition::Buffer(b) => {
                let of = self.buffers.get(b.index())?;
                (of.ndim == 0 && of.space == MemorySpace::Global).then_some(&of.elem)
            }
            Condition::Frame(slot) => self.frame.get(slot.index()),
        }
    }
}

/// The source of a task's iteration count.
pub fn launch_count(task: &Task) -> LaunchCount {
    let body = &task.body;
    if task.kind == TaskKind::Serial {
        return LaunchCount::Known(1);
    }
    // A task of a grid has one parallel loop for each way in which it may run, all of the same iterations.
    let mut dims = None;
    body.visit(body.root, &mut |_, inst| {
        if let Op::For(l) = &inst.op
            && l.parallel.is_some()
        {
            dims.get_or_insert_with(|| l.dims.clone());
        }
    });
    let Some(dims) = dims else { return LaunchCount::Known(1) };
    let mut known = Some(1u64);
    let mut from_arguments = true;
    for range in dims {
        known = known.and_then(|n| n.checked_mul(known_extent(body, range.begin, range.end)?));
        from_arguments &= is_of_arguments(body, range.begin) && is_of_arguments(body, range.end);
    }
    match known {
        Some(count) => LaunchCount::Known(count),
        None if from_arguments => LaunchCount::Argument,
        None => LaunchCount::Memory,
    }
}

fn known_extent(body: &Body, begin: ValueId, end: ValueId) -> Option<u64> {
    match (body.as_const(begin)?, body.as_const(end)?) {
        (Const::Int(begin), Const::Int(end)) => Some(i128::from(end).saturating_sub(begin.into()).max(0) as u64),
        _ => None,
    }
}

/// The value follows from parameters, shapes and constants.
fn is_of_arguments(body: &Body, v: ValueId) -> bool {
    let (mut seen, mut work) = (BTreeSet::new(), vec![v]);
    while let Some(v) = work.pop() {
        if !seen.insert(v) {
            continue;
        }
        let op = &body.inst(v).op;
        if !op.is_pure() {
            return false;
        }
        op.for_each_operand(|u| work.push(u));
    }
    true
}
