//! [`persistent_loops`]: the data-dependent loops that a single launch may run as a whole.
//!
//! The blocks of such a launch stay on the device until the loop ends, and meet at a barrier of the grid after each
//! parallel task. A task takes part if any grid computes its result, with blocks of any size.

use octants_ir::{Task, TaskGraph, TaskId, TaskKind};

use crate::describe_loop::is_grid;
use crate::facts::Facts;

/// A loop that may be persistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentLoop {
    /// Its number among the loops of the graph.
    pub number: u32,
    /// Its tasks, in order.
    pub tasks: Vec<usize>,
    /// The frame offset of its guard.
    pub guard: u64,
}

/// The loops of a program that may be persistent.
pub fn persistent_loops(facts: &Facts<'_>) -> Vec<PersistentLoop> {
    let (mut loops, mut found) = (0, Vec::new());
    facts.program.graph.visit(&mut |part| {
        let TaskGraph::While { body, guarded, .. } = part else { return };
        let number = loops;
        loops += 1;
        let Some(guarded) = guarded else { return };
        let mut tasks = Vec::new();
        body.visit(&mut |part| {
            if let TaskGraph::Launch { task: TaskId(number), .. } = part {
                tasks.push(*number as usize);
            }
        });
        if tasks.iter().all(|task| suits(facts, *task)) {
            found.push(PersistentLoop { number, tasks, guard: facts.frame_offsets[guarded.guard.index()] });
        }
    });
    found
}

/// One thread runs the task.
pub fn is_serial(task: &Task) -> bool {
    match &task.kind {
        TaskKind::Serial => true,
        TaskKind::Parallel(config) | TaskKind::Grid(config) => config.serialize,
    }
}

/// Any grid computes the result of a task.
fn suits(facts: &Facts<'_>, number: usize) -> bool {
    let (task, schedule) = (&facts.program.tasks[number], &facts.schedule.tasks[number]);
    let shares = schedule.hints.shares_tiles || schedule.forms.block_privatization.is_some();
    is_serial(task) || is_grid(schedule) && !schedule.behavior.cooperates && !shares
}
