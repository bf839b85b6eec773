//! [`describe_loop`]: the launch metadata of a parallel task that all code generators share.

use octants_artifact::ParallelMeta;
use octants_ir::schedule::{LaunchShape, Role, TaskSchedule};
use octants_ir::{Body, ForLoop, LoopConfig, Op, Task, ValueId};

use crate::facts::Facts;
use crate::launch_bound::launch_bound;

/// The loop of a parallel task, and its value.
pub fn parallel_loop<'p>(task: &Task, body: &'p Body) -> (ValueId, &'p ForLoop) {
    let last = body.block(body.root).last().copied();
    match last.map(|v| (v, &body.inst(v).op)) {
        Some((v, Op::For(l))) => (v, l),
        _ => panic!("compiler bug: the parallel task {} does not end in a loop", task.name),
    }
}

/// The threads of a grid run the task.
pub fn is_grid(schedule: &TaskSchedule) -> bool {
    schedule.variant(Role::Main).is_some_and(|v| matches!(v.shape, LaunchShape::Grid { .. }))
}

/// Threads of a block, if the code relies on that number.
fn fixed_block(schedule: &TaskSchedule) -> Option<u32> {
    match schedule.variant(Role::Main)?.shape {
        LaunchShape::Grid { block_size } if schedule.hints.shares_tiles => block_size,
        _ => None,
    }
}

/// Describes a task to the launcher, without the variants and functions that the code generator has made for it.
pub fn describe_loop(facts: &Facts<'_>, number: usize, config: &LoopConfig) -> ParallelMeta {
    let (task, schedule) = (&facts.program.tasks[number], &facts.schedule.tasks[number]);
    let axes = schedule.bounds.iter().map(|(begin, end)| (launch_bound(facts, begin), launch_bound(facts, end)));
    let (on_grid, extents) = (is_grid(schedule), &schedule.extents);
    let sums_up = !parallel_loop(task, &task.body).1.reductions.is_empty();
    ParallelMeta {
        count: schedule.count(),
        axes: axes.collect(),
        wide: None,
        serialize: config.serialize,
        block_dim: fixed_block(schedule).or(config.block_dim),
        num_threads: config.num_threads,
        inner_extent: if extents.len() > 1 { extents.last().copied().flatten().map(|n| n as u64) } else { None },
        scatter: None,
        block_sums: on_grid && (sums_up || schedule.forms.block_privatization.is_some()),
        cooperates: on_grid && schedule.behavior.cooperates,
        interleave_factor: schedule.interleave_factor(),
        cost_per_iteration: schedule.cost_per_iteration,
        count_symbol: None,
    }
}
