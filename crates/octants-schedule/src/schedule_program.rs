//! [`schedule_program`]: decides how a program runs on a kind of machine, and rewrites the variants of its tasks.

use octants_analysis::local_uses;
use octants_ir::schedule::ScheduleOptions;
use octants_ir::{Pass, Program, Scheduled, TargetInfo, always, run_pipeline};

use crate::balance_threads::balance_threads;
use crate::coarsen_threads::coarsen_threads;
use crate::converge_loops::converge_loops;
use crate::copy_asynchronously::copy_asynchronously;
use crate::decide_schedule::decide_schedule;
use crate::demote_atomics::demote_atomics;
use crate::form_thread_loops::form_thread_loops;
use crate::freeze_conditional_loads::freeze_conditional_loads;
use crate::full_unroll::full_unroll;
use crate::hint_loops::hint_loops;
use crate::lay_out_fragments::lay_out_fragments;
use crate::merge_accesses::merge_accesses;
use crate::merge_copies::merge_copies;
use crate::narrow_barriers::narrow_barriers;
use crate::narrow_ranges::narrow_ranges;
use crate::privatize_in_shared_memory::privatize_in_shared_memory;
use crate::privatize_scatter::privatize_scatter;
use crate::reduce_in_blocks::reduce_in_blocks;
use crate::scheduling::Scheduling;
use crate::shape_launches::shape_launches;
use crate::split_remainders::split_remainders;
use crate::tile_in_shared_memory::tile_in_shared_memory;
use crate::unroll_and_jam::unroll_and_jam;

/// Schedules a program for a kind of machine.
pub fn schedule_program(mut program: Program, target: &TargetInfo, options: ScheduleOptions) -> Scheduled {
    lay_out_fragments(&mut program, target);
    let mut scheduled = decide_schedule(program, target, options);
    run_pipeline(PASSES, &mut scheduled, &mut Scheduling { target: *target, options });
    find_uses_of_locals(&mut scheduled);
    scheduled
}

/// The passes that rewrite the variants of tasks, and functions, in order.
pub const PASSES: &[Pass<Scheduled, Scheduling>] = &[
    Pass {
        name: "form_thread_loops",
        runs: |_, s| !s.target.has_grid,
        run: |scheduled, s| form_thread_loops(scheduled, s),
    },
    Pass { name: "shape_launches", runs: |_, s| s.target.has_grid, run: |scheduled, _| shape_launches(scheduled) },
    Pass { name: "hint_loops", runs: always, run: |scheduled, s| hint_loops(scheduled, s) },
    Pass { name: "balance_threads", runs: always, run: |scheduled, s| balance_threads(scheduled, s) },
    Pass {
        name: "privatize_in_shared_memory",
        runs: |_, s| s.target.has_grid,
        run: |scheduled, s| privatize_in_shared_memory(scheduled, s),
    },
    Pass { name: "converge_loops", runs: |_, s| s.target.has_grid, run: |scheduled, s| converge_loops(scheduled, s) },
    Pass { name: "full_unroll", runs: |_, s| s.target.has_grid, run: |scheduled, s| full_unroll(scheduled, s) },
    Pass {
        name: "reduce_in_blocks",
        runs: |_, s| s.target.has_grid,
        run: |scheduled, s| reduce_in_blocks(scheduled, s),
    },
    // After `reduce_in_blocks`: all iterations of a group fold into the same locals.
    Pass { name: "coarsen_threads", runs: |_, s| s.target.has_grid, run: |scheduled, _| coarsen_threads(scheduled) },
    // Before passes that add their own copies, for which another thread waits.
    Pass {
        name: "copy_asynchronously",
        runs: |_, s| s.target.copies_async,
        run: |scheduled, _| copy_asynchronously(scheduled),
    },
    Pass {
        name: "merge_accesses",
        runs: |_, s| s.target.has_grid && !s.target.merges_accesses,
        run: |scheduled, _| merge_accesses(scheduled),
    },
    // After the passes that rewrite inner loops for other reasons.
    Pass {
        name: "tile_in_shared_memory",
        runs: |_, s| s.target.has_grid && s.options.opt_level >= 2,
        run: |scheduled, s| tile_in_shared_memory(scheduled, s),
    },
    Pass { name: "narrow_barriers", runs: |_, s| s.target.has_grid, run: |scheduled, s| narrow_barriers(scheduled, s) },
    Pass { name: "narrow_ranges", runs: |_, s| !s.target.has_grid, run: |scheduled, s| narrow_ranges(scheduled, s) },
    // After the passes that need whole loops.
    Pass { name: "split_remainders", runs: always, run: |scheduled, _| split_remainders(scheduled) },
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
    Pass { name: "merge_copies", runs: |_, s| !s.target.has_grid, run: |scheduled, _| merge_copies(scheduled) },
];

/// Finds the uses of locals in the bodies as the passes have left them.
fn find_uses_of_locals(scheduled: &mut Scheduled) {
    for variant in scheduled.schedule.tasks.iter_mut().flat_map(|t| &mut t.variants) {
        variant.schedule.locals = local_uses(&variant.body);
    }
    for (function, schedule) in scheduled.program.functions.iter().zip(&mut scheduled.schedule.functions) {
        schedule.body.locals = local_uses(&function.body);
    }
}
