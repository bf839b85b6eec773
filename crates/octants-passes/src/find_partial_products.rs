//! Finds loops with matrix products whose blocks are not whole subgroups: threads that hold a part of the matrices
//! would be missing.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic};
use octants_ir::{BlockId, Body, FuncId, Kernel, Op};

/// The mistakes, in the order of the loops. `subgroup_size` is the target's.
pub fn find_partial_products(kernel: &Kernel, subgroup_size: u32) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    kernel.body.visit(kernel.body.root, &mut |_, inst| {
        let Op::For(l) = &inst.op else { return };
        let Some(block_dim) = l.parallel.as_ref().and_then(|config| config.block_dim) else { return };
        if block_dim.is_multiple_of(subgroup_size.max(1)) {
            return;
        }
        if has_product(kernel, &kernel.body, l.body, &mut HashSet::new()) {
            let message = format!(
                "a matrix product needs whole subgroups of {subgroup_size} threads, but the blocks of this loop \
                 have {block_dim} threads"
            );
            let hint = "make `block_dim` a multiple of `subgroup.group_size()`";
            found.push(*Diagnostic::new(Code::Compilation, inst.span, message).with_hint(hint));
        }
    });
    found
}

/// Code, or a function that it calls, forms a product.
fn has_product(kernel: &Kernel, body: &Body, block: BlockId, seen: &mut HashSet<FuncId>) -> bool {
    let mut found = false;
    body.visit(block, &mut |_, inst| {
        found |= match &inst.op {
            Op::Subgroup(op, _) => op.product().is_some(),
            Op::Call(f, _) if seen.insert(*f) => {
                let callee = &kernel.functions[f.index()].body;
                has_product(kernel, callee, callee.root, seen)
            }
            _ => false,
        };
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_subgroups() {
        let found = |block_dim: u32| {
            let text = format!(
                "kernel k -> unit {{
  body {{
    %0: i32 = const 0
    %1: i32 = const 96
    %2 = for [%0..%1] parallel(block_dim {block_dim}) {{
      %3: f64 = const 0.0
      %4: vec8<f64> = splat %3
      %5: vec8<f64> = subgroup product_f64(%4, %4, %4)
    }}
  }}
}}
"
            );
            let kernel: Kernel = text.parse().expect("the kernel is one");
            find_partial_products(&kernel, 32)
        };
        assert!(found(96).is_empty());
        assert!(found(48)[0].message.contains("have 48"));
    }
}
