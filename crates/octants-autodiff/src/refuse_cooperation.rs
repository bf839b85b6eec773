//! Rejects derivatives of kernels whose threads share block memory or wait for each other. Values that move between
//! the threads of a subgroup have derivatives.

use octants_diag::{Code, Diagnostic};
use octants_ir::insert_code::bodies;
use octants_ir::{Effect, Kernel, MemorySpace, Op};

/// Refuses a kernel whose threads share memory or wait for each other: one thread reads values that another writes, and
/// the derivative would have to reverse this.
///
/// # Errors
/// The first operation of that kind.
pub fn refuse_cooperation(kernel: &mut Kernel) -> Result<(), Box<Diagnostic>> {
    let shared: Vec<bool> = kernel.buffers.iter().map(|b| b.space == MemorySpace::Shared).collect();
    let mut found = None;
    for body in bodies(kernel) {
        body.visit(body.root, &mut |_, inst| {
            let is_shared = matches!(inst.op, Op::BufferAddr(b, _) if shared[b.index()]);
            let waits = matches!(inst.op.effect(), Effect::Synchronize) || matches!(inst.op, Op::Balance { .. });
            if is_shared || waits {
                found.get_or_insert(inst.span);
            }
        });
    }
    let Some(span) = found else { return Ok(()) };
    let message = "a kernel that uses shared memory or barriers of a block (`qd.simt`) cannot be \
                   differentiated";
    Err(Diagnostic::new(Code::Derivative, span, message)
        .with_hint("move this to a separate kernel, and define its gradient with `@qd.ad.grad_replaced`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cooperating_threads_are_refused() {
        let kernel = |line: &str| -> Kernel {
            let text = format!(
                "kernel k -> unit {{
  buffer @0 x: f32[1] contiguous
  body {{
    %0: i32 = const 0
    %1: i32 = const 4
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: ref f32 = buffer_addr @0[%3]
      %5: f32 = load %4
      {line}
      store %4, %5
    }}
  }}
}}
"
            );
            text.parse().expect("the kernel is one")
        };
        assert!(refuse_cooperation(&mut kernel("")).is_ok());
        assert!(refuse_cooperation(&mut kernel("barrier block")).is_err());
        assert!(refuse_cooperation(&mut kernel("fence block")).is_err());
        assert!(refuse_cooperation(&mut kernel("%6: f32 = subgroup shuffle(%5, %0)")).is_ok());
    }
}
