//! [`describe_schedule`]: a schedule as text, for people and tests. Entries without a decision are omitted.

use std::collections::BTreeSet;
use std::fmt::Write;

use octants_ir::schedule::{Forms, RegionMemory, Role, ScatterPrivatization, TaskHints, TaskSchedule, Variant};
use octants_ir::{Body, CodeSizeHint, LoopHints, Op, Program, Scheduled, Task, renumber};

/// The schedule of each task and function of a program.
pub fn describe_schedule(scheduled: &Scheduled) -> String {
    let Scheduled { program, schedule } = scheduled;
    let mut text = String::new();
    for (task, found) in program.tasks.iter().zip(&schedule.tasks) {
        _ = writeln!(text, "task {}", task.name);
        describe_forms(program, &found.forms, &mut text);
        describe_groups(found, &mut text);
        // Passes keep the numbers of the task's loops.
        let main = found.variant(Role::Main).map_or(&task.body, |variant| &variant.body);
        describe_hints(found.hints, parallel_hints(main), &mut text);
        describe_body(&task.body, main, &mut text);
        describe_variants(task, found, &mut text);
    }
    for (function, found) in program.functions.iter().zip(&schedule.functions) {
        let inlined = if found.is_inlined { ", inlined" } else { "" };
        _ = writeln!(text, "function {}{inlined}", function.name);
        describe_body(&function.body, &function.body, &mut text);
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
        let how = if forms.copy_merge.is_atomic { ", atomically" } else { "" };
        _ = writeln!(text, "    copies are merged by {} scalars{how}", forms.copy_merge.lanes);
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
}

/// The groups of iterations that the variants run.
fn describe_groups(found: &TaskSchedule, text: &mut String) {
    let is_jammed = |v: &&Variant| v.role != Role::Coarse && !v.groups().is_empty();
    for variant in found.variants.iter().filter(is_jammed) {
        let factors: Vec<String> = variant.groups().iter().map(|group| group.factor.to_string()).collect();
        _ = writeln!(text, "  unroll and jam in the {} variant, factors {}", variant.role.name(), factors.join(", "));
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
    let TaskHints { narrow_vectors, prefetches, many_threads, shares_tiles } = hints;
    let LoopHints { independent, no_vectors, .. } = parallel;
    let all = [
        (independent, "independent iterations"),
        (no_vectors, "not vectorized"),
        (narrow_vectors && !no_vectors, "narrow vectors"),
        (prefetches, "registers for prefetching"),
        (many_threads, "registers for occupancy"),
        (shares_tiles, "registers for two blocks"),
    ];
    for (_, name) in all.iter().filter(|(holds, _)| *holds) {
        _ = writeln!(text, "  {name}");
    }
}

/// The serial loops of `body`, whose hints are in `hinted`.
fn describe_body(body: &Body, hinted: &Body, text: &mut String) {
    let mut loops = BTreeSet::new();
    body.visit(body.root, &mut |v, inst| {
        loops.extend(matches!(&inst.op, Op::For(l) if l.parallel.is_none()).then_some(v));
    });
    for v in loops {
        let Op::For(l) = &hinted.inst(v).op else { continue };
        if l.hints != LoopHints::default() {
            _ = writeln!(text, "  loop {v}");
            describe_loop(l.hints, text);
        }
    }
}

fn describe_loop(hints: LoopHints, text: &mut String) {
    if let Some(unroll) = hints.unroll {
        let remainder = unroll.remainder_factor.map_or(String::new(), |factor| format!(", {factor} for the remainder"));
        _ = writeln!(text, "    unroll factor {}{remainder}", unroll.factor);
    }
    if hints.masked {
        text.push_str("    masked vectors\n");
    }
    match hints.code_size {
        CodeSizeHint::None => {}
        CodeSizeHint::UnrollFully => text.push_str("    fully unrolled\n"),
        CodeSizeHint::NotUnrolledUncounted => text.push_str("    unrolled only if the trip count is known\n"),
        CodeSizeHint::NotInterleaved => text.push_str("    not interleaved\n"),
        CodeSizeHint::Lean => text.push_str("    lean\n"),
        CodeSizeHint::VectorsFirst => text.push_str("    unrolled as vectors\n"),
    }
}

/// The variants whose code differs from the task's by more than hints.
fn describe_variants(task: &Task, found: &TaskSchedule, text: &mut String) {
    let without_hints = |body: &Body| {
        let mut body = body.clone();
        for inst in &mut body.insts {
            if let Op::For(l) = &mut inst.op {
                l.hints = LoopHints::default();
            }
        }
        body
    };
    let of_task = without_hints(&task.body);
    for variant in found.variants.iter().filter(|v| without_hints(&v.body) != of_task) {
        _ = writeln!(text, "  {} variant", variant.role.name());
        let mut body = variant.body.clone();
        renumber(&mut body);
        body.to_string().lines().for_each(|line| _ = writeln!(text, "    {line}"));
    }
}
