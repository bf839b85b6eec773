//! Warns when a kernel stores the bits of a differentiable value as integers, as the library's reductions and scans do
//! with partial sums. A reader of these bits reads constants, so the derivative would be silently wrong.

use octants_diag::{Code, Diagnostic};
use octants_ir::{BufferId, Kernel, Op};

use crate::derivative_rules::has_derivative;
use crate::differentiate_reverse::{gradients, varied_values};
use octants_analysis::{Place, trace_address};

/// A warning for each store of bits of a differentiable value, or of integers computed from such bits.
pub(crate) fn warn_of_stored_bits(kernel: &Kernel) -> Vec<Diagnostic> {
    let (body, shadow_buffers) = (&kernel.body, gradients(kernel));
    let varied = varied_values(body, &|b: BufferId| shadow_buffers.get(b.index()).is_some_and(Option::is_some));
    let mut bits = vec![false; body.insts.len()];
    let mut locals = vec![false; body.locals.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        body.visit(body.root, &mut |v, inst| {
            let found = match &inst.op {
                Op::Bitcast(x) => varied[x.index()] || bits[x.index()],
                Op::Load(a) => matches!(trace_address(body, *a), Place::Local(l) if locals[l.index()]),
                Op::Store(a, x) => {
                    if bits[x.index()]
                        && let Place::Local(l) = trace_address(body, *a)
                    {
                        changed |= !std::mem::replace(&mut locals[l.index()], true);
                    }
                    false
                }
                Op::Unary(..) | Op::Binary(..) | Op::Cast(_) | Op::Select(..) => {
                    let mut any = false;
                    inst.op.for_each_operand(|x| any |= bits[x.index()]);
                    any
                }
                _ => false,
            };
            // A value that is converted back to a float has a zero derivative, like any constant.
            if found && !has_derivative(&inst.ty) {
                changed |= !std::mem::replace(&mut bits[v.index()], true);
            }
        });
    }
    let mut warnings = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        let (Op::Store(a, x) | Op::Atomic(_, a, x) | Op::AtomicCas(a, _, x)) = inst.op else { return };
        if bits[x.index()] && matches!(trace_address(body, a), Place::Buffer(_)) {
            let message = "the bits of a value with a derivative are stored here as an integer, and no derivative \
                           flows through them: the derivatives of values computed from them will be wrong";
            warnings.push(*Diagnostic::new(Code::Compilation, inst.span, message).with_hint(
                "store the value itself, or use `qd.stop_grad(x)` to treat it as a constant; \
                 `qd.algorithms` have no derivatives: write the sum as a loop, or give its gradient with \
                 `qd.ad.grad_for`",
            ));
        }
    });
    warnings
}
