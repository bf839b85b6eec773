//! [`decide_schedule`]: the schedule of a program before the passes of [`PASSES`](crate::PASSES) carry it out.

use octants_analysis::{inlined_sizes, own_behavior};
use octants_ir::schedule::{BodySchedule, FunctionSchedule, ScheduleOptions};
use octants_ir::{Program, Schedule, Scheduled, TargetInfo};

use crate::facts::ProgramFacts;
use crate::schedule_task::schedule_task;

/// Functions of at most this many instructions, callees included, are always inlined. The optimizer decides about the
/// others.
const INLINE_SIZE: usize = 80;

/// A program with its schedule before the passes of [`PASSES`](crate::PASSES).
pub fn decide_schedule(program: Program, target: &TargetInfo, options: ScheduleOptions) -> Scheduled {
    let schedule = decide(&program, target, options);
    Scheduled { program, schedule }
}

fn decide(program: &Program, target: &TargetInfo, options: ScheduleOptions) -> Schedule {
    let facts = ProgramFacts::of(program, target, options);
    let inlined = inlined_sizes(&facts.own);
    let functions = (0..program.functions.len()).map(|i| FunctionSchedule {
        body: BodySchedule::default(),
        behavior: facts.behaviors[i],
        size: facts.own[i].behavior.size,
        is_inlined: inlined[i] <= INLINE_SIZE,
    });
    let functions = functions.collect();
    let tasks: Vec<_> = program.tasks.iter().map(|t| own_behavior(&t.body)).collect();
    let tasks = program.tasks.iter().zip(&tasks).map(|(task, own)| schedule_task(&facts, task, own)).collect();
    Schedule { memory: facts.memory.access_classes(target.has_vectors), tasks, functions }
}
