//! [`schedule_program`]: decides how a program runs on a kind of machine, and rewrites the variants of its tasks so.

use octants_analysis::{OwnBehavior, inlined_sizes};
use octants_ir::schedule::{BodySchedule, FunctionSchedule, ScheduleOptions};
use octants_ir::{Pass, Program, Schedule, Scheduled, TargetInfo, always, run_pipeline};

use crate::demote_atomics::demote_atomics;
use crate::facts::{BodyFacts, ProgramFacts};
use crate::freeze_conditional_loads::freeze_conditional_loads;
use crate::hint_loops::hint_loops;
use crate::privatize_scatter::privatize_scatter;
use crate::schedule_task::{LoopFacts, schedule_loops, schedule_task};
use crate::scheduling::Scheduling;
use crate::unroll_and_jam::unroll_and_jam;

/// Functions of at most this many instructions, callees included, are always inlined. The optimizer decides about the
/// others.
const INLINE_SIZE: usize = 80;

/// Schedules a program for a kind of machine.
pub fn schedule_program(program: Program, target: &TargetInfo, options: ScheduleOptions) -> Scheduled {
    let mut scheduled = decide_schedule(program, target, options);
    run_pipeline(PASSES, &mut scheduled, &mut Scheduling { target: *target, options });
    scheduled
}

/// A program with its schedule before the passes of [`PASSES`].
pub fn decide_schedule(program: Program, target: &TargetInfo, options: ScheduleOptions) -> Scheduled {
    let schedule = decide(&program, target, options);
    Scheduled { program, schedule }
}

/// The passes that rewrite the variants of tasks, and functions, in order.
pub const PASSES: &[Pass<Scheduled, Scheduling>] = &[
    Pass { name: "hint_loops", runs: always, run: |scheduled, s| hint_loops(scheduled, s) },
    Pass {
        name: "freeze_conditional_loads",
        runs: |_, s| s.target.has_vectors,
        run: |scheduled, s| freeze_conditional_loads(scheduled, s),
    },
    Pass {
        name: "unroll_and_jam",
        runs: |_, s| !s.target.has_grid && s.options.opt_level >= 2,
        run: |scheduled, s| unroll_and_jam(scheduled, s),
    },
    Pass { name: "demote_atomics", runs: |_, s| !s.target.has_grid, run: |scheduled, _| demote_atomics(scheduled) },
    Pass {
        name: "privatize_scatter",
        runs: |_, s| !s.target.has_grid,
        run: |scheduled, _| privatize_scatter(scheduled),
    },
];

fn decide(program: &Program, target: &TargetInfo, options: ScheduleOptions) -> Schedule {
    let facts = ProgramFacts::of(program, target, options);
    let inlined = inlined_sizes(&facts.own);
    let functions = program.functions.iter().enumerate().map(|(i, function)| {
        let of_body = BodyFacts::new(&facts, &function.body, None);
        let mut body = BodySchedule::default();
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
