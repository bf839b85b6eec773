//! [`schedule_program`]: the schedule of a whole program.

use octants_analysis::{OwnBehavior, inlined_sizes};
use octants_ir::schedule::{BodySchedule, FunctionSchedule, ScheduleOptions};
use octants_ir::{Program, Schedule, Scheduled, TargetInfo};

use crate::facts::{BodyFacts, ProgramFacts};
use crate::freeze_conditional_loads::freeze_conditional_loads;
use crate::schedule_task::{LoopFacts, schedule_loops, schedule_task};

/// Functions of at most this many instructions, callees included, are always inlined. The optimizer decides about the
/// others.
const INLINE_SIZE: usize = 80;

/// Schedules a program for a kind of machine.
pub fn schedule_program(program: Program, target: &TargetInfo, options: ScheduleOptions) -> Scheduled {
    let schedule = decide(&program, target, options);
    Scheduled { program, schedule }
}

fn decide(program: &Program, target: &TargetInfo, options: ScheduleOptions) -> Schedule {
    let facts = ProgramFacts::of(program, target, options);
    let inlined = inlined_sizes(&facts.own);
    let functions = program.functions.iter().enumerate().map(|(i, function)| {
        let of_body = BodyFacts::new(&facts, &function.body, None);
        let mut body = BodySchedule::default();
        if target.has_vectors {
            body.frozen_loads = freeze_conditional_loads(&facts, &function.body, true);
        }
        schedule_loops(&of_body, LoopFacts::default(), function.body.root, &mut body.loops);
        body.locals = of_body.locals;
        FunctionSchedule {
            body,
            behavior: facts.behaviors[i],
            size: facts.own[i].behavior.size,
            is_inlined: inlined[i] <= INLINE_SIZE,
        }
    });
    let functions = functions.collect();
    let tasks: Vec<_> = program.tasks.iter().map(|t| OwnBehavior::of(&t.body)).collect();
    let tasks = program.tasks.iter().zip(&tasks).map(|(task, own)| schedule_task(&facts, task, own)).collect();
    Schedule { memory: facts.memory.access_classes(target.has_vectors), tasks, functions }
}
