//! Rejects gradients of kernels whose arrays overlap in a call while their gradients do not.
//!
//! Runs after `merge_aliased_buffers`, which merges arrays that are the same memory into one buffer.

use std::collections::BTreeSet;

use octants_analysis::trace_element;
use octants_diag::{Code, Diagnostic};
use octants_ir::insert_code::bodies;
use octants_ir::{BufferId, Kernel, Layout, Op};
use octants_passes::Alias;

/// Refuses the gradient of a kernel that writes to an array which, in this call, shares elements with another one that
/// has a separate gradient: a derivative that flows between the two would be in neither gradient.
///
/// # Errors
/// The first such write.
pub fn refuse_shared_writes(kernel: &mut Kernel, aliases: &[Alias]) -> Result<(), Box<Diagnostic>> {
    // Elements of strided arrays may interleave.
    let counts =
        |b: &BufferId| kernel.shadow_buffers.contains_key(b) && kernel.buffers[b.index()].layout == Layout::Contiguous;
    let pairs: Vec<Alias> = aliases.iter().filter(|a| [a.first, a.second].iter().all(counts)).copied().collect();
    let names: Vec<String> = kernel.buffers.iter().map(|b| b.name.clone()).collect();
    let mut used = BTreeSet::new();
    let mut writes = Vec::new();
    for body in bodies(kernel) {
        body.visit(body.root, &mut |_, inst| {
            inst.op.for_each_operand(|u| used.extend(trace_element(body, u).map(|(b, _)| b)));
            if let Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) = inst.op {
                writes.extend(trace_element(body, a).map(|(b, _)| (b, inst.span)));
            }
        });
    }
    for (written, span) in writes {
        let other = |a: &Alias| [(a.first, a.second), (a.second, a.first)].iter().find(|p| p.0 == written).map(|p| p.1);
        if let Some(other) = pairs.iter().filter_map(other).find(|b| used.contains(b)) {
            let (own, other) = (&names[written.index()], &names[other.index()]);
            let message = format!(
                "`{own}` and `{other}` share memory in this call, but their gradients do not: the gradient would \
                 miss the dependence between them"
            );
            return Err(Diagnostic::new(Code::Derivative, span, message)
                .with_hint("pass arrays that do not overlap, or one array and index ranges"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use octants_passes::merge_aliased_buffers::merge_aliased_buffers;

    use super::*;

    fn kernel(written: u32, layout: &str) -> Kernel {
        let text = format!(
            "kernel k -> unit {{
  buffer @0 x: f32[1] {layout}
  buffer @1 y: f32[1] contiguous
  buffer @2 \"x.grad\": f32[1] contiguous
  buffer @3 \"y.grad\": f32[1] contiguous
  buffer @4 z: f32[1] contiguous
  shadow @0 @2
  shadow @1 @3
  body {{
    %0: i32 = const 0
    %1: ref f32 = buffer_addr @0[%0]
    %2: f32 = load %1
    %3: ref f32 = buffer_addr @{written}[%0]
    store %3, %2
  }}
}}
"
        );
        text.parse().expect("the kernel is one")
    }

    fn alias(first: u32, second: u32, same: bool) -> Alias {
        Alias { first: BufferId(first), second: BufferId(second), same }
    }

    fn is_refused(written: u32, aliases: &[Alias]) -> bool {
        let mut kernel = kernel(written, "contiguous");
        merge_aliased_buffers(&mut kernel, aliases);
        refuse_shared_writes(&mut kernel, aliases).is_err()
    }

    #[test]
    fn writes_to_overlapping_arrays_are_refused() {
        assert!(is_refused(1, &[alias(0, 1, false)]));
        assert!(is_refused(1, &[alias(1, 0, false)]));
        // Memory without a gradient is constant.
        assert!(!is_refused(4, &[alias(0, 4, false)]));
        // It is not written.
        assert!(!is_refused(4, &[alias(0, 1, false)]));
    }

    #[test]
    fn interleaved_strided_arrays_are_accepted() {
        assert!(refuse_shared_writes(&mut kernel(1, "strided"), &[alias(0, 1, false)]).is_ok());
    }

    #[test]
    fn aliases_are_accepted_if_their_gradients_alias() {
        assert!(!is_refused(1, &[alias(0, 1, true), alias(2, 3, true)]));
        assert!(is_refused(1, &[alias(0, 1, true)]));
    }
}
