//! Inlines the functions that concurrent groups call, so that the accesses there are known to belong to a group.

use std::collections::BTreeSet;

use octants_ir::{Body, FuncId, Kernel, Op};

use super::watch_groups::grouped_statements;
use crate::inline_calls::inline_functions;

/// Inlines the functions that `stream_parallel` blocks or sections call, unless they are recursive.
pub fn inline_group_calls(kernel: &mut Kernel) {
    let mut found = BTreeSet::new();
    let mut open = Vec::new();
    for (v, _) in grouped_statements(&kernel.body) {
        let call = |of: &Op| if let Op::Call(f, _) = of { Some(*f) } else { None };
        open.extend(call(&kernel.body.inst(v).op));
        for block in kernel.body.inst(v).op.blocks() {
            kernel.body.visit(block, &mut |_, inst| open.extend(call(&inst.op)));
        }
    }
    while let Some(f) = open.pop() {
        if found.insert(f) {
            open.extend(called_by(&kernel.functions[f.index()].body));
        }
    }
    inline_functions(kernel, &found.into_iter().collect::<Vec<_>>());
}

fn called_by(body: &Body) -> Vec<FuncId> {
    let mut called = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::Call(f, _) = inst.op {
            called.push(f);
        }
    });
    called
}
