//! [`is_short`]: tasks too short to benefit from running concurrently with others.

use std::collections::BTreeSet;

use octants_ir::{BlockId, Body, FuncId, Function, Op, Task, TaskKind};

use crate::cost_model::{CostModel, has_constant_trips};

/// Nanoseconds of the estimate: about a microsecond on a GPU, which is what an edge of a graph costs.
const SHORT: f32 = 100.0;

/// Whether a serial task, or each iteration of a parallel one, is certainly short: all its loops have constant trip
/// counts, and few operations run.
pub fn is_short(task: &Task, functions: &[Function], costs: CostModel<'_>) -> bool {
    let body = &task.body;
    let block = match (&task.kind, body.block(body.root).last().map(|v| &body.inst(*v).op)) {
        (TaskKind::Parallel(_), Some(Op::For(l))) => l.body,
        _ => body.root,
    };
    costs.time(body, block, functions) <= SHORT && ends_soon(body, block, functions, &mut BTreeSet::new())
}

/// All loops of a block, and of the functions that it calls, have constant trip counts.
fn ends_soon(body: &Body, block: BlockId, functions: &[Function], seen: &mut BTreeSet<FuncId>) -> bool {
    let (mut is_bounded, mut called) = (true, Vec::new());
    body.visit(block, &mut |_, inst| match &inst.op {
        Op::For(l) => is_bounded &= has_constant_trips(body, l),
        Op::Loop(_) => is_bounded = false,
        Op::Call(f, _) => called.push(*f),
        _ => {}
    });
    is_bounded
        && called.into_iter().all(|f| {
            // A function that is seen again may call itself.
            let callee = &functions[f.index()].body;
            seen.insert(f) && ends_soon(callee, callee.root, functions, seen)
        })
}

#[cfg(test)]
mod tests {
    use octants_ir::{CostTable, Program};

    use super::*;

    /// Whether a task that sums `count` elements in each iteration is short.
    fn sums(count: &str) -> bool {
        let text = format!(
            "program k -> unit {{
  roots 0
  buffer @0 x: f32[1] contiguous
  buffer @1 y: f32[1] contiguous
  task k_0_range parallel reads [@0] writes [@1] {{
    local $0 sum: f32
    %0: i32 = const 0
    %1: i32 = shape @1, 0
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: f32 = const 0.0
      %5: ref f32 = local_addr $0
      store %5, %4
      %7: i32 = {count}
      %8 = for [%0..%7] {{
        %9: i32 = loop_index %8, 0
        %10: ref f32 = buffer_addr @0[%9]
        %11: f32 = load %10
        %12: f32 = load %5
        %13: f32 = add %12, %11
        store %5, %13
      }}
      %15: f32 = load %5
      %16: ref f32 = buffer_addr @1[%3]
      store %16, %15
    }}
  }}
}}
"
        );
        let program: Program = text.parse().unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        is_short(&program.tasks[0], &program.functions, CostModel::of(&CostTable::GENERIC))
    }

    #[test]
    fn a_task_is_short_if_its_loops_have_provably_few_iterations() {
        assert!(sums("const 4"));
        assert!(!sums("const 4000"));
        assert!(!sums("shape @0, 0"));
    }
}
