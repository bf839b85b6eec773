//! [`describe_schedule`]: a schedule as text, for people and tests. Entries without a decision are omitted.

use std::collections::BTreeSet;
use std::fmt::Write;

use octants_ir::schedule::{
    BodySchedule, ConvergedLoop, Forms, FullUnroll, LoopSchedule, RegionMemory, Role, ScatterPrivatization, TaskHints,
    UnrollAndJam,
};
use octants_ir::{Body, CodeSizeHint, LoopHints, Op, Program, Scheduled, ValueId};

/// The schedule of each task and function of a program.
pub fn describe_schedule(scheduled: &Scheduled) -> String {
    let Scheduled { program, schedule } = scheduled;
    let mut text = String::new();
    for (task, found) in program.tasks.iter().zip(&schedule.tasks) {
        _ = writeln!(text, "task {}", task.name);
        describe_forms(program, &found.forms, &mut text);
        // Passes keep the numbers of the task's loops.
        let main = found.variant(Role::Main).map_or(&task.body, |variant| &variant.body);
        describe_hints(found.hints, parallel_hints(main), &mut text);
        describe_body(&task.body, main, &found.body, &mut text);
    }
    for (function, found) in program.functions.iter().zip(&schedule.functions) {
        let inlined = if found.is_inlined { ", inlined" } else { "" };
        _ = writeln!(text, "function {}{inlined}", function.name);
        describe_body(&function.body, &function.body, &found.body, &mut text);
    }
    text
}

fn describe_forms(program: &Program, forms: &Forms, text: &mut String) {
    if forms.runs_alone {
        text.push_str("  single-threaded\n");
    }
    if forms.has_single {
        text.push_str("  single-thread variant\n");
    }
    if let Some(found) = &forms.thread_privatization {
        _ = writeln!(text, "  privatized per thread: {}", describe_privatization(program, found));
    }
    if let Some(found) = &forms.block_privatization {
        _ = writeln!(text, "  privatized per block: {}", describe_privatization(program, found));
    }
    if let Some(found) = forms.coarsening {
        let tiles = if found.tiles { ", in tiles" } else { "" };
        let (iterations, row, bytes) = (found.min_iterations, found.min_row, found.alignment);
        _ = writeln!(text, "  coarsened variant, factor {}{tiles}", found.factor);
        _ = writeln!(text, "    at least {iterations} iterations, {row} in a row, arrays aligned to {bytes} bytes");
    }
    describe_unroll_and_jam("", forms.unroll_and_jam.as_ref(), text);
    describe_unroll_and_jam(" without other threads", forms.unroll_and_jam_alone.as_ref(), text);
}

fn describe_unroll_and_jam(when: &str, found: Option<&UnrollAndJam>, text: &mut String) {
    let Some(found) = found else { return };
    _ = writeln!(text, "  unroll and jam{when}, interleave factor {}", found.interleave_factor);
    for (loop_id, across) in in_order(&found.loops) {
        let how = if *across { "vectorized across iterations" } else { "interleaved" };
        _ = writeln!(text, "    {loop_id}: {how}");
    }
}

fn describe_privatization(program: &Program, found: &ScatterPrivatization) -> String {
    let region = |memory: RegionMemory| match memory {
        RegionMemory::Root { root, start, bytes } => format!("{bytes} bytes of root {root} from {start}"),
        RegionMemory::Array { buffer } => program.buffers[buffer].name.clone(),
    };
    let regions: Vec<String> = found.regions.iter().map(|r| region(r.memory)).collect();
    format!("{}, about {} updates per iteration", regions.join(", "), found.updates)
}

/// The hints for the parallel loop of a task's body.
fn parallel_hints(body: &Body) -> LoopHints {
    match body.block(body.root).last().map(|v| &body.inst(*v).op) {
        Some(Op::For(l)) if l.parallel.is_some() => l.hints,
        _ => LoopHints::default(),
    }
}

fn describe_hints(hints: TaskHints, parallel: LoopHints, text: &mut String) {
    let TaskHints { narrow_vectors, prefetches, many_threads } = hints;
    let LoopHints { independent, no_vectors, .. } = parallel;
    let all = [
        (independent, "independent iterations"),
        (no_vectors, "not vectorized"),
        (narrow_vectors && !no_vectors, "narrow vectors"),
        (prefetches, "registers for prefetching"),
        (many_threads, "registers for occupancy"),
    ];
    for (_, name) in all.iter().filter(|(holds, _)| *holds) {
        _ = writeln!(text, "  {name}");
    }
}

/// The serial loops of `body`, whose hints are in `hinted`.
fn describe_body(body: &Body, hinted: &Body, schedule: &BodySchedule, text: &mut String) {
    let mut loops = BTreeSet::new();
    body.visit(body.root, &mut |v, inst| {
        loops.extend(matches!(&inst.op, Op::For(l) if l.parallel.is_none()).then_some(v));
    });
    for v in loops {
        let Op::For(l) = &hinted.inst(v).op else { continue };
        let found = schedule.loops.get(&v);
        if l.hints != LoopHints::default() || found.is_some() {
            _ = writeln!(text, "  loop {v}");
            describe_loop(l.hints, found, text);
        }
    }
}

fn describe_loop(hints: LoopHints, found: Option<&LoopSchedule>, text: &mut String) {
    if let Some(unroll) = hints.unroll {
        let remainder = unroll.remainder_factor.map_or(String::new(), |factor| format!(", {factor} for the remainder"));
        _ = writeln!(text, "    unroll factor {}{remainder}", unroll.factor);
    }
    match hints.code_size {
        CodeSizeHint::None => {}
        CodeSizeHint::UnrollFully => text.push_str("    fully unrolled\n"),
        CodeSizeHint::NotUnrolledUncounted => text.push_str("    unrolled only if the trip count is known\n"),
        CodeSizeHint::NotInterleaved => text.push_str("    not interleaved\n"),
        CodeSizeHint::Lean => text.push_str("    lean\n"),
    }
    let Some(found) = found else { return };
    if let Some(guarded) = &found.guarded_unroll {
        describe_full_unroll(guarded, text);
    }
    if let Some(converged) = &found.converged {
        describe_converged(converged, text);
    }
}

fn describe_converged(found: &ConvergedLoop, text: &mut String) {
    let descending = if found.descending { ", descending" } else { "" };
    _ = writeln!(text, "    converged{descending}, interleave factor {}", found.interleave_factor);
    for reduction in &found.reductions {
        let (elements, along) = (reduction.along.elements, reduction.along.loop_id);
        _ = writeln!(text, "      warp reduction: {}, {elements} elements along {along}", list(&reduction.sums));
    }
    if !found.pipelined.loads.is_empty() {
        let loads = list(found.pipelined.loads.iter().map(|(load, _)| load));
        _ = writeln!(text, "      software-pipelined loads: {loads}");
    }
    describe_full_unroll(&found.full_unroll, text);
}

fn describe_full_unroll(found: &FullUnroll, text: &mut String) {
    for (loop_id, indices) in in_order(&found.loops) {
        _ = writeln!(text, "      fully unrolled: {loop_id}, {} to {}", indices.start, indices.end - 1);
    }
    if let Some(guard) = &found.guard {
        _ = writeln!(text, "      without branches if {} < {}", guard.largest_index, guard.bound);
    }
}

fn list<'a>(values: impl IntoIterator<Item = &'a ValueId>) -> String {
    values.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn in_order<T>(map: &std::collections::HashMap<ValueId, T>) -> Vec<(&ValueId, &T)> {
    let mut all: Vec<_> = map.iter().collect();
    all.sort_by_key(|(id, _)| **id);
    all
}
