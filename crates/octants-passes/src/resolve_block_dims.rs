//! [`resolve_block_dims`]: block operations that are written for blocks of one size run in loops with blocks of that
//! size.
//!
//! The library requires a size by the assertion that `grid block_size` equals a constant. A loop without `block_dim`
//! gets the size that its code requires, and another size is a mistake. The assertions are removed.

use octants_diag::{Code, Diagnostic, Span};
use octants_ir::insert_code::bodies;
use octants_ir::{BinaryOp, BlockId, Body, Const, FuncId, GridValue, Kernel, Op, ValueId};

/// Resolves the size of the blocks of each parallel loop; returns the mistakes, in the order of the loops.
pub fn resolve_block_dims(kernel: &mut Kernel) -> Vec<Diagnostic> {
    let requires = |body: &Body| body.insts.iter().any(|inst| required_size(body, &inst.op).is_some());
    if !requires(&kernel.body) && !kernel.functions.iter().any(|f| requires(&f.body)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut sizes = Vec::new();
    kernel.body.visit(kernel.body.root, &mut |v, inst| {
        let Op::For(l) = &inst.op else { return };
        let Some(config) = &l.parallel else { return };
        let given = if config.serialize { Some(1) } else { config.block_dim };
        let required = requirements(kernel, &kernel.body, l.body, &mut Vec::new());
        let size = given.or(required.first().map(|r| r.size));
        if let Some(other) = required.iter().find(|r| Some(r.size) != size) {
            found.push(mistake(other, given, size));
        }
        if let (None, Some(size)) = (given, size) {
            sizes.push((v, size));
        }
    });
    for (v, size) in sizes {
        if let Op::For(l) = &mut kernel.body.insts[v.index()].op
            && let Some(config) = &mut l.parallel
        {
            config.block_dim = Some(size);
        }
    }
    bodies(kernel).for_each(remove_requirements);
    found
}

/// Code that runs in blocks of one size.
#[derive(Debug, Clone)]
struct Requirement {
    size: u32,
    span: Span,
    /// The calls that lead to the code, innermost first: the function, and the place of the call.
    calls: Vec<(String, Span)>,
}

/// The different sizes that code requires. `active` are the functions around it.
fn requirements(kernel: &Kernel, body: &Body, block: BlockId, active: &mut Vec<FuncId>) -> Vec<Requirement> {
    let mut found: Vec<Requirement> = Vec::new();
    let mut add = |new: Requirement| {
        if found.iter().all(|r| r.size != new.size) {
            found.push(new);
        }
    };
    body.visit(block, &mut |_, inst| match &inst.op {
        Op::Call(f, _) if !active.contains(f) => {
            active.push(*f);
            let callee = &kernel.functions[f.index()];
            for mut inner in requirements(kernel, &callee.body, callee.body.root, active) {
                inner.calls.push((callee.name.clone(), inst.span));
                add(inner);
            }
            active.pop();
        }
        op => {
            if let Some(size) = required_size(body, op) {
                add(Requirement { size, span: inst.span, calls: Vec::new() });
            }
        }
    });
    found
}

/// The size in an assertion about the size of blocks.
fn required_size(body: &Body, op: &Op) -> Option<u32> {
    let Op::Assert(condition, _) = op else { return None };
    let Op::Binary(BinaryOp::Eq, size, required) = body.inst(*condition).op else { return None };
    let Op::Grid(GridValue::BlockSize) = body.inst(size).op else { return None };
    match body.inst(required).op {
        Op::Const(Const::Int(n)) => u32::try_from(n).ok(),
        _ => None,
    }
}

fn remove_requirements(body: &mut Body) {
    let is_required = |body: &Body, v: &ValueId| required_size(body, &body.inst(*v).op).is_some();
    for block in 0..body.blocks.len() {
        if body.blocks[block].iter().any(|v| is_required(body, v)) {
            let code = std::mem::take(&mut body.blocks[block]);
            body.blocks[block] = code.into_iter().filter(|v| !is_required(body, v)).collect();
        }
    }
}

fn mistake(required: &Requirement, given: Option<u32>, size: Option<u32>) -> Diagnostic {
    let (required_size, size) = (required.size, size.unwrap_or(1));
    let (message, hint) = match given {
        Some(_) => (
            format!(
                "this operation is for blocks of {required_size} threads, but the blocks of the loop have {size} \
                 (`block_dim`)"
            ),
            format!(
                "pass {size} as its block_dim, or write `qd.loop_config(block_dim={required_size})` above the loop"
            ),
        ),
        None => (
            format!(
                "this operation is for blocks of {required_size} threads, but another operation of the same loop is \
                 for blocks of {size}"
            ),
            String::from("pass the same block_dim to all block operations of a loop"),
        ),
    };
    let mut found = *Diagnostic::new(Code::Compilation, required.span, message).with_hint(hint);
    found.trace.extend(required.calls.iter().cloned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(config: &str, more: &str) -> Kernel {
        let text = format!(
            "kernel k -> unit {{
  func fn0 half() -> unit {{
    %0: i32 = grid block_size
    %1: i32 = const 32
    %2: u1 = eq %0, %1
    assert %2, (\"size\")
    barrier block
  }}
  body {{
    %0: i32 = const 0
    %1: i32 = const 64
    %2 = for [%0..%1] parallel{config} {{
      call fn0()
      {more}
    }}
  }}
}}
"
        );
        text.parse().expect("the kernel is one")
    }

    fn block_dim(kernel: &Kernel) -> Option<u32> {
        kernel.body.insts.iter().find_map(|inst| match &inst.op {
            Op::For(l) => l.parallel.as_ref().and_then(|config| config.block_dim),
            _ => None,
        })
    }

    #[test]
    fn loops_get_the_size_that_their_code_requires() {
        let mut inferred = kernel("", "");
        assert_eq!(resolve_block_dims(&mut inferred), []);
        assert_eq!(block_dim(&inferred), Some(32));
        assert!(!inferred.to_string().contains("assert"));
        let mut given = kernel("(block_dim 32)", "");
        assert_eq!(resolve_block_dims(&mut given), []);
        assert_eq!(block_dim(&given), Some(32));
    }

    #[test]
    fn other_sizes_are_mistakes() {
        let messages = |mut k: Kernel| resolve_block_dims(&mut k).into_iter().map(|d| d.message).collect::<Vec<_>>();
        let found = messages(kernel("(block_dim 64)", ""));
        assert!(found[0].contains("of 32 threads, but the blocks of the loop have 64"), "{found:?}");
        assert_eq!(messages(kernel("(serialize)", "")).len(), 1);
        let other = "%7: i32 = grid block_size
      %8: i32 = const 64
      %9: u1 = eq %7, %8
      assert %9, (\"size\")";
        let found = messages(kernel("", other));
        assert!(found[0].contains("of 64 threads, but another operation of the same loop is for blocks of 32"));
    }
}
