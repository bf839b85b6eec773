//! The first call in a kernel that leads to each of its functions, for messages about code in functions.

use octants_diag::Span;
use octants_ir::{Body, FuncId, Kernel, Op};

/// For each function, the span of the call in the kernel's own code that it is first reached by, directly or through
/// other functions. `None` for functions that are not called.
pub fn first_calls(kernel: &Kernel) -> Vec<Option<Span>> {
    let mut found = vec![None; kernel.functions.len()];
    for (function, call) in calls_in(&kernel.body) {
        let mut reached = vec![function];
        while let Some(function) = reached.pop() {
            let first = &mut found[function.index()];
            if first.is_none() {
                *first = Some(call);
                reached.extend(calls_in(&kernel.functions[function.index()].body).into_iter().map(|(f, _)| f));
            }
        }
    }
    found
}

/// The functions that a body calls, with the calls, in the order of the code.
fn calls_in(body: &Body) -> Vec<(FuncId, Span)> {
    let mut calls = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::Call(f, _) = inst.op {
            calls.push((f, inst.span));
        }
    });
    calls
}
