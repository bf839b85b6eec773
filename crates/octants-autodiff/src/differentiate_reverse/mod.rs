//! Reverse mode: turns a kernel into its adjoint, which maps the gradients of the kernel's outputs to those of its
//! inputs.
//!
//! The adjoint runs the kernel's tasks in reverse order. Each iteration of a parallel loop first runs forward, reading
//! memory as it is now and writing none, and then backward. A load adds its adjoint to the gradient of the element. A
//! store takes the element's gradient and clears it. An atomic sum takes the element's gradient and leaves it.
//!
//! Assumes reversible code: the passes before this one in [`DIFFERENTIATE`](crate::DIFFERENTIATE) have structured
//! exits, inlined functions, and made sums atomic. Gradients are already buffers of the kernel, and the rules are in
//! [`crate::derivative_rules`].
//!
//! Reading order: `find_active_values` finds what gradients flow through; `plan_sweeps` decides what is recomputed and
//! what is kept; `check_overwritten` finds reads that later writes of the kernel invalidate, and `check_rounds` rounds
//! that cannot be repeated; `strip_kept_loops` strip-mines loops so that less is kept; `emit_sweeps`, `copy_values`,
//! `emit_forward`, `emit_reverse`, `sum_adjoints`, `reverse_extremes` and `reverse_loops` build both sweeps, with
//! `keep_states` for stored states, `count_words` for their size, `defer_updates` for gradients that are summed in a
//! local, and `balance_lanes` for load balancing. `record_trip_counts` builds the kernel that detects changed loops.
//!
//! All of these share one plan, which costs as much as the sweeps, so they are steps of one pass.

mod balance_lanes;
mod check_overwritten;
mod check_rounds;
mod copy_values;
mod count_words;
mod defer_updates;
mod emit_forward;
mod emit_reverse;
mod emit_sweeps;
mod find_active_values;
mod keep_states;
mod later_loops;
mod needed_operands;
mod plan_sweeps;
pub mod record_trip_counts;
mod reverse_extremes;
mod reverse_loops;
mod store_arguments;
mod strip_kept_loops;
mod sum_adjoints;
mod sweep_state;

use std::collections::{HashMap, HashSet};

use octants_analysis::CodeLayout;
use octants_diag::{Code, Diagnostic, Span};
use octants_ir::{Body, BufferId, Kernel, Op, Type, ValueId};

use check_overwritten::check_overwritten;
use check_rounds::{check_rounds, find_overwritten_read};
use count_words::{count_words, need_of_count};
use emit_sweeps::Emitter;
pub(crate) use find_active_values::varied_values;
use find_active_values::{Activity, refuse_unsupported};
use keep_states::{any_uses_store, stored_states};
use plan_sweeps::Plan;
pub use record_trip_counts::may_record_trip_counts;
use reverse_extremes::refuse_rounded_extremes;
pub use store_arguments::{STORE_PARAMS, StoreArguments};
use strip_kept_loops::{Stripped, strip_kept_loops};
use sweep_state::Store;

/// The store that an adjoint needs.
#[derive(Debug, Clone)]
pub struct StoreNeed {
    /// The arguments that describe the adjoint's store.
    pub arguments: StoreArguments,
    /// A kernel with the same arguments that computes the size of the store, and has no other effect. Its result is a
    /// struct of numbers of type i64: iterations of the largest parallel loop that keeps states, words of a lane (of 32
    /// bits, of 64), words of the root (of 32 bits, of 64).
    pub count: Kernel,
    /// The contents of the store.
    pub kept: Vec<StoredState>,
}

/// A variable whose value at the start of each iteration of a loop is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    /// The variable.
    pub name: String,
    /// The loop.
    pub span: Span,
    /// Bytes of a state of a thread.
    pub bytes: u64,
    /// Iterations from one state to the next.
    pub every: u32,
}

/// How many times the state of a loop is kept in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keeping {
    /// In every iteration.
    #[default]
    Iterations,
    /// For short iterations: once per strip of a few iterations, whose other states are recomputed.
    Blocks,
}

/// The gradient, or the dual, of each buffer.
pub(crate) fn gradients(kernel: &Kernel) -> Vec<Option<BufferId>> {
    (0..kernel.buffers.len() as u32).map(|b| kernel.shadow_buffers.get(&BufferId(b)).copied()).collect()
}

/// Whether memory that the iterations of a loop write determines their number. The exits of the body are structured,
/// and it has no calls.
pub(crate) fn ends_by_written_memory(body: &Body, layout: &CodeLayout, v: ValueId) -> bool {
    find_overwritten_read(body, layout, v).is_some()
}

/// Refuses a kernel in which a function calls itself: any other call has been inlined.
///
/// # Errors
/// The first such call.
pub fn refuse_recursion(kernel: &Kernel) -> Result<(), Box<Diagnostic>> {
    let Some(call) = kernel.body.insts.iter().find(|i| matches!(i.op, Op::Call(..))) else { return Ok(()) };
    let message = "a recursive function cannot be differentiated in reverse mode";
    Err(Diagnostic::new(Code::Derivative, call.span, message)
        .with_hint("write it as a loop, or define its gradient with `qd.ad.grad_for`"))
}

/// Turns a kernel into its adjoint, which stores states according to `keeping`. Buffers without a shadow buffer have no
/// gradient. `found` are the loads of old values that atomic operations overwrote. The result is the memory that the
/// adjoint needs per launch. `warn` receives warnings about code that makes the gradient wrong but may be intended.
///
/// # Errors
/// An operation of the kernel that has no derivative, or that cannot be recomputed.
pub fn differentiate_reverse(
    kernel: &mut Kernel,
    keeping: Keeping,
    found: &HashSet<ValueId>,
    warn: &mut dyn FnMut(Diagnostic),
) -> Result<Option<StoreNeed>, Box<Diagnostic>> {
    let source = std::mem::take(&mut kernel.body);
    let gradients = gradients(kernel);
    let activity = Activity::of(&source, &gradients);
    refuse_unsupported(&source, &activity)?;
    let plan = Plan::of(&source, &activity);
    plan.refuse_unrepeatable(found)?;
    refuse_rounded_extremes(&plan)?;
    check_overwritten(&plan, &kernel.buffers, &gradients, warn)?;
    check_rounds(&plan, &kernel.buffers, warn)?;
    let stripped = (keeping == Keeping::Blocks).then(|| strip_kept_loops(&plan, &gradients)).flatten();
    let Some(Stripped { body, lengths }) = stripped else {
        return emit_adjoint(kernel, &plan, found, &HashMap::new(), &gradients);
    };
    let activity = Activity::of(&body, &gradients);
    emit_adjoint(kernel, &Plan::of(&body, &activity), found, &lengths, &gradients)
}

/// Emits the adjoint according to its plan. `lengths` are the strip lengths of strip-mined loops.
fn emit_adjoint(
    kernel: &mut Kernel,
    plan: &Plan,
    found: &HashSet<ValueId>,
    lengths: &HashMap<ValueId, u32>,
    gradients: &[Option<BufferId>],
) -> Result<Option<StoreNeed>, Box<Diagnostic>> {
    let counted = any_uses_store(plan).then(|| need_of_count(plan));
    if let Some(need) = &counted {
        plan.refuse_in(need, found)?;
    }
    kernel.name = format!("{}_grad", kernel.name);
    kernel.ret = Type::Unit;
    let arguments = counted.as_ref().map(|_| StoreArguments::declare(kernel));
    kernel.body = Emitter::new(plan, gradients, &kernel.buffers, Store::new(arguments)).root();
    Ok(arguments.zip(counted).map(|(arguments, need)| {
        let count = count_words(plan, &need, kernel);
        StoreNeed { arguments, count, kept: stored_states(plan, lengths) }
    }))
}
