//! Adds the kernel's line to the messages of functions that are not inlined: failed assertions and reports of overflow
//! then name the call in the kernel that led to them.
//!
//! A function that may report something, itself or in a function that it calls, gets one more parameter: the line of
//! the call in the kernel's own source, which all such calls are in. Calls between functions pass it along.
//!
//! Assumes that all checks were inserted. Inlined code needs no parameter: its spans contain the call.

use octants_diag::{Sources, Span};
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{Builder, Function, Kernel, Op, Scalar, TextPart, ValueId};

/// Adds the parameter to functions that report, and its value to their messages and calls.
pub fn name_call_sites(kernel: &mut Kernel, sources: Option<&Sources>) {
    let reporting = reporting_functions(&kernel.functions);
    if !reporting.contains(&true) {
        return;
    }
    let line = |span: Span| {
        let call = span.outermost_call().unwrap_or(span);
        sources.and_then(|s| s.position(call)).map_or(0, |p| i64::from(p.line))
    };
    let path = sources.and_then(|s| s.get(0)).map_or("<unknown>", |file| &file.path);
    rebuild_blocks(&mut kernel.body, |b, v| {
        pass_line(b, v, &reporting, |b| b.int(line(b.span), Scalar::I32));
        b.place(v);
    });
    for (function, _) in kernel.functions.iter_mut().zip(&reporting).filter(|(_, reports)| **reports) {
        let parameter = function.params.len() as u32;
        function.params.push(Scalar::I32.into());
        rebuild_blocks(&mut function.body, |b, v| {
            let line = |b: &mut Builder| b.push(Op::Param(parameter), Scalar::I32.into());
            pass_line(b, v, &reporting, line);
            let mut op = b.body.inst(v).op.clone();
            if let Some(parts) = message_of(&mut op) {
                add_line(parts, path, line(b));
                b.body.insts[v.index()].op = op;
            }
            b.place(v);
        });
    }
}

/// Whether each function reports something, itself or in a function that it calls.
fn reporting_functions(functions: &[Function]) -> Vec<bool> {
    let mut reporting = vec![false; functions.len()];
    let mut callers = vec![Vec::new(); functions.len()];
    for (i, function) in functions.iter().enumerate() {
        let body = &function.body;
        body.visit(body.root, &mut |_, inst| match &inst.op {
            Op::Call(f, _) => callers[f.index()].push(i),
            op => reporting[i] |= message_of(&mut op.clone()).is_some(),
        });
    }
    let mut open: Vec<usize> = (0..functions.len()).filter(|&i| reporting[i]).collect();
    while let Some(function) = open.pop() {
        for &caller in &callers[function] {
            if !std::mem::replace(&mut reporting[caller], true) {
                open.push(caller);
            }
        }
    }
    reporting
}

/// The message of an assertion or report. Races name their own accesses, and what the user prints stays as it is.
fn message_of(op: &mut Op) -> Option<&mut Vec<TextPart>> {
    match op {
        Op::Assert(_, parts) if parts.first() != Some(&TextPart::Race) => Some(parts),
        Op::Print(parts) if parts.first() == Some(&TextPart::Once) => Some(parts),
        _ => None,
    }
}

/// If `v` calls a function that reports, passes it the line.
fn pass_line(b: &mut Builder, v: ValueId, reporting: &[bool], line: impl FnOnce(&mut Builder) -> ValueId) {
    let Op::Call(f, mut args) = b.body.inst(v).op.clone() else { return };
    if reporting[f.index()] {
        args.push(line(b));
        b.body.insts[v.index()].op = Op::Call(f, args);
    }
}

/// Appends the call to a message.
fn add_line(parts: &mut Vec<TextPart>, path: &str, line: ValueId) {
    let is_report = parts.first() == Some(&TextPart::Once);
    if parts.is_empty() {
        parts.push(TextPart::Text("assertion failed".into()));
    }
    let before = if is_report { "  called at " } else { "\n  called at " };
    parts.extend([TextPart::Text(format!("{before}{path}:")), TextPart::Value(line, None)]);
    if is_report {
        parts.push(TextPart::Text("\n".into()));
    }
}
