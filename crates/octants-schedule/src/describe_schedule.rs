//! [`describe_schedule`]: a schedule as text, for people and tests. What is left to the code generator is not
//! mentioned.

use std::fmt::Write;

use octants_ir::schedule::{
    Alignment, BodySchedule, Forms, Jam, LoopHint, LoopSchedule, RegionMemory, Scatter, TaskHints, WrittenOut,
};
use octants_ir::{Program, Schedule, ValueId};

/// The schedule of each task and function of a program.
pub fn describe_schedule(program: &Program, schedule: &Schedule) -> String {
    let mut text = String::new();
    for (task, found) in program.tasks.iter().zip(&schedule.tasks) {
        _ = writeln!(text, "task {}", task.name);
        describe_forms(program, &found.forms, &mut text);
        describe_hints(found.hints, &mut text);
        describe_body(&found.body, &mut text);
    }
    for (function, found) in program.functions.iter().zip(&schedule.functions) {
        let inlined = if found.is_inlined { ", inlined" } else { "" };
        _ = writeln!(text, "function {}{inlined}", function.name);
        describe_body(&found.body, &mut text);
    }
    text
}

fn describe_forms(program: &Program, forms: &Forms, text: &mut String) {
    if forms.runs_alone {
        text.push_str("  runs alone\n");
    }
    if forms.has_single {
        text.push_str("  has a form for one thread\n");
    }
    if let Some(scatter) = &forms.scatter {
        _ = writeln!(text, "  threads keep copies of {}", describe_scatter(program, scatter));
    }
    if let Some(scatter) = &forms.in_blocks {
        _ = writeln!(text, "  blocks keep copies of {}", describe_scatter(program, scatter));
    }
    if let Some(g) = forms.grouping {
        let tiles = if g.tiles { " in tiles" } else { "" };
        let (lanes, least, row, bytes) = (g.lanes, g.least_iterations, g.least_row, g.alignment);
        _ = writeln!(text, "  has a form of {lanes} neighbors at a time{tiles}");
        _ = writeln!(text, "    from {least} iterations, {row} in a row, arrays at multiples of {bytes} bytes");
    }
    describe_jam("", forms.jam.as_ref(), text);
    describe_jam(" where no other thread does", forms.jam_alone.as_ref(), text);
}

fn describe_jam(when: &str, jam: Option<&Jam>, text: &mut String) {
    let Some(jam) = jam else { return };
    _ = writeln!(text, "  runs {} iterations at once{when}", jam.times);
    for (number, across) in in_order(&jam.loops) {
        let how = if *across { "as vectors" } else { "one after the other" };
        _ = writeln!(text, "    {number}: {how}");
    }
}

fn describe_scatter(program: &Program, scatter: &Scatter) -> String {
    let region = |memory: RegionMemory| match memory {
        RegionMemory::Root { root, start, bytes } => format!("{bytes} bytes of root {root} from {start}"),
        RegionMemory::Array { buffer } => program.buffers[buffer].name.clone(),
    };
    let regions: Vec<String> = scatter.regions.iter().map(|r| region(r.memory)).collect();
    format!("{}, about {} sums an iteration", regions.join(", "), scatter.updates)
}

fn describe_hints(hints: TaskHints, text: &mut String) {
    let TaskHints { narrow_vectors, no_vectors, independent, loads_ahead, many_threads } = hints;
    let all = [
        (independent, "iterations are independent"),
        (no_vectors, "no vectors"),
        (narrow_vectors && !no_vectors, "narrow vectors"),
        (loads_ahead, "registers for loads ahead"),
        (many_threads, "registers for many threads"),
    ];
    for (_, name) in all.iter().filter(|(holds, _)| *holds) {
        _ = writeln!(text, "  {name}");
    }
}

fn describe_body(body: &BodySchedule, text: &mut String) {
    let mut held: Vec<_> = body.held.iter().collect();
    held.sort();
    if !held.is_empty() {
        _ = writeln!(text, "  held: {}", list(held));
    }
    for (number, found) in in_order(&body.loops) {
        _ = writeln!(text, "  loop {number}");
        describe_loop(found, text);
    }
}

fn describe_loop(found: &LoopSchedule, text: &mut String) {
    if let Some(unroll) = found.unroll {
        let rest = unroll.rest.map_or(String::new(), |rest| format!(", {rest} times for what is left over"));
        _ = writeln!(text, "    unrolled {} times{rest}", unroll.times);
    }
    match found.hint {
        LoopHint::None => {}
        LoopHint::UnrollFully => text.push_str("    unrolled fully\n"),
        LoopHint::NotUnrolledUncounted => text.push_str("    unrolled where its length is known\n"),
        LoopHint::Lean => text.push_str("    lean\n"),
    }
    if let Some(guarded) = &found.guarded {
        describe_written_out(guarded, text);
    }
    if let Some(alignment) = &found.alignment {
        describe_alignment(alignment, text);
    }
}

fn describe_alignment(alignment: &Alignment, text: &mut String) {
    let backwards = if alignment.descending { " backwards" } else { "" };
    _ = writeln!(text, "    aligned{backwards}, {} iterations at once", alignment.at_once);
    for site in &alignment.sites {
        let (elements, along) = (site.along.elements, site.along.number);
        _ = writeln!(text, "      adds as one: {}, {elements} elements along {along}", list(&site.sums));
    }
    if !alignment.early.loads.is_empty() {
        _ = writeln!(text, "      loads early: {}", list(alignment.early.loads.iter().map(|(load, _)| load)));
    }
    describe_written_out(&alignment.written_out, text);
}

fn describe_written_out(written_out: &WrittenOut, text: &mut String) {
    for (number, indices) in in_order(&written_out.loops) {
        _ = writeln!(text, "      written out: {number}, {} to {}", indices.start, indices.end - 1);
    }
    if let Some(guard) = &written_out.guard {
        _ = writeln!(text, "      whole where {} < {}", guard.most, guard.number);
    }
}

fn list<'a>(values: impl IntoIterator<Item = &'a ValueId>) -> String {
    values.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn in_order<T>(map: &std::collections::HashMap<ValueId, T>) -> Vec<(&ValueId, &T)> {
    let mut all: Vec<_> = map.iter().collect();
    all.sort_by_key(|(number, _)| **number);
    all
}
