//! Activity analysis: the values that gradients flow through. They depend on memory with a gradient, and memory with a
//! gradient depends on them.
//!
//! Locals are treated as a whole and without regard to order, so the result may contain too many values, never too
//! few.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic};
use octants_ir::{AtomicOp, BlockId, Body, BufferId, Derivative, LocalId, Op, ValueId, task_statements};

use crate::derivative_rules::has_derivative;
use crate::memory_use::{MemoryUse, memory_use};
use octants_analysis::{Place, locals_of_all_iterations, runs_once, touched_at_own_indices, trace_address};

/// The active values, locals and memory.
pub(super) struct Activity {
    values: Vec<bool>,
    locals: Vec<bool>,
    /// Instructions that the reverse sweep must handle, and the branches and loops around them.
    works: Vec<bool>,
}

impl Activity {
    /// Runs the analysis on a body, for buffers with these gradients.
    pub fn of(body: &Body, gradients: &[Option<BufferId>]) -> Activity {
        let n = (body.insts.len(), body.locals.len());
        let mut useful = Marks { values: vec![false; n.0], locals: vec![false; n.1] };
        let has_gradient = |b: BufferId| gradients.get(b.index()).is_some_and(Option::is_some);
        let varied = Marks::varied(body, &has_gradient);
        let mut order = Vec::new();
        body.visit(body.root, &mut |v, _| order.push(v));
        while spread_backward(body, &order, &has_gradient, &mut useful) {}
        let both = |a: Vec<bool>, b: Vec<bool>| a.into_iter().zip(b).map(|(a, b)| a && b).collect::<Vec<bool>>();
        let mut activity = Activity {
            values: both(varied.values, useful.values),
            locals: both(varied.locals, useful.locals),
            works: vec![false; n.0],
        };
        activity.find_work(body, body.root, &has_gradient);
        activity
    }

    /// Gradients flow through a value.
    pub fn value(&self, v: ValueId) -> bool {
        self.values[v.index()]
    }

    /// The reverse sweep must handle an instruction, or one in its blocks.
    pub fn works(&self, v: ValueId) -> bool {
        self.works[v.index()]
    }

    fn find_work(&mut self, body: &Body, block: BlockId, has_gradient: &impl Fn(BufferId) -> bool) -> bool {
        let mut any = false;
        for &v in body.block(block) {
            let inst = body.inst(v);
            let place_has_adjoint = |a: ValueId| match trace_address(body, a) {
                Place::Buffer(b) => has_gradient(b),
                Place::Local(l) => self.locals[l.index()],
                _ => false,
            };
            let works = match memory_use(&inst.op) {
                MemoryUse::Store { address, value } => has_derivative(body.ty(value)) && place_has_adjoint(address),
                MemoryUse::Update { op: AtomicOp::Add | AtomicOp::Sub, address, operand } => {
                    place_has_adjoint(address) && (self.values[operand.index()] || self.values[v.index()])
                }
                // The old value is not passed on unchanged, even if the operand is constant.
                MemoryUse::Update { address, .. } | MemoryUse::CompareAndSwap { address, .. } => {
                    has_derivative(&inst.ty) && place_has_adjoint(address)
                }
                MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) => self.values[v.index()],
                MemoryUse::Nothing => {
                    let blocks = inst.op.blocks();
                    let mut found = blocks.is_empty() && self.values[v.index()];
                    for b in blocks {
                        found |= self.find_work(body, b, has_gradient);
                    }
                    found
                }
            };
            self.works[v.index()] = works;
            any |= works;
        }
        any
    }
}

struct Marks {
    values: Vec<bool>,
    locals: Vec<bool>,
}

/// For each value, whether it depends on memory with a gradient.
pub(crate) fn varied_values(body: &Body, has_gradient: &impl Fn(BufferId) -> bool) -> Vec<bool> {
    Marks::varied(body, has_gradient).values
}

impl Marks {
    /// The values that depend on memory with a gradient.
    fn varied(body: &Body, has_gradient: &impl Fn(BufferId) -> bool) -> Marks {
        let mut varied = Marks { values: vec![false; body.insts.len()], locals: vec![false; body.locals.len()] };
        while spread_forward(body, has_gradient, &mut varied) {}
        varied
    }

    /// Marks a value; true when it was not marked.
    fn value(&mut self, v: ValueId) -> bool {
        !std::mem::replace(&mut self.values[v.index()], true)
    }

    fn local(&mut self, l: LocalId) -> bool {
        !std::mem::replace(&mut self.locals[l.index()], true)
    }
}

/// One round of marking what depends on memory with a gradient.
fn spread_forward(body: &Body, has_gradient: &impl Fn(BufferId) -> bool, marks: &mut Marks) -> bool {
    let mut changed = false;
    body.visit(body.root, &mut |v, inst| {
        let from_place = |marks: &Marks, a: ValueId| match trace_address(body, a) {
            Place::Buffer(b) => has_gradient(b),
            Place::Local(l) => marks.locals[l.index()],
            _ => false,
        };
        let mut into_place = |marks: &mut Marks, a: ValueId, x: ValueId| {
            if marks.values[x.index()]
                && let Place::Local(l) = trace_address(body, a)
            {
                changed |= marks.local(l);
            }
        };
        let varied = match memory_use(&inst.op) {
            MemoryUse::Load(a) => from_place(marks, a),
            MemoryUse::Store { address, value } => {
                into_place(marks, address, value);
                false
            }
            MemoryUse::Update { address, operand: x, .. } | MemoryUse::CompareAndSwap { address, desired: x } => {
                into_place(marks, address, x);
                from_place(marks, address)
            }
            MemoryUse::Nothing if inst.op.derivative() == Derivative::Rule => {
                let mut any = false;
                inst.op.for_each_operand(|u| any |= marks.values[u.index()]);
                any
            }
            // Other threads change the target of a volatile load.
            MemoryUse::VolatileLoad(_) | MemoryUse::Nothing => false,
        };
        if varied && has_derivative(&inst.ty) {
            changed |= marks.value(v);
        }
    });
    changed
}

/// One round of marking what memory with a gradient depends on.
fn spread_backward(
    body: &Body,
    order: &[ValueId],
    has_gradient: &impl Fn(BufferId) -> bool,
    marks: &mut Marks,
) -> bool {
    let mut changed = false;
    for &v in order.iter().rev() {
        let inst = body.inst(v);
        let place_is_useful = |marks: &Marks, a: ValueId| match trace_address(body, a) {
            Place::Buffer(b) => has_gradient(b),
            Place::Local(l) => marks.locals[l.index()],
            _ => false,
        };
        let (written, read) = match memory_use(&inst.op) {
            MemoryUse::Load(a) => (None, Some(a)),
            MemoryUse::Store { address, value } => (Some((address, value)), None),
            MemoryUse::Update { address, operand: x, .. } | MemoryUse::CompareAndSwap { address, desired: x } => {
                (Some((address, x)), Some(address))
            }
            MemoryUse::Nothing if inst.op.derivative() == Derivative::Rule && marks.values[v.index()] => {
                inst.op.for_each_operand(|u| {
                    if has_derivative(body.ty(u)) {
                        changed |= marks.value(u);
                    }
                });
                continue;
            }
            MemoryUse::VolatileLoad(_) | MemoryUse::Nothing => continue,
        };
        if let Some((address, x)) = written
            && place_is_useful(marks, address)
            && has_derivative(body.ty(x))
        {
            changed |= marks.value(x);
        }
        if let Some(address) = read
            && marks.values[v.index()]
            && let Place::Local(l) = trace_address(body, address)
            && has_derivative(&body.locals[l.index()].ty)
        {
            changed |= marks.local(l);
        }
    }
    changed
}

/// Refuses active operations without a rule.
pub(super) fn refuse_unsupported(body: &Body, activity: &Activity) -> Result<(), Box<Diagnostic>> {
    let mut used = HashSet::new();
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| _ = used.insert(u)));
    let mut found = None;
    body.visit(body.root, &mut |v, inst| {
        if found.is_some() || !activity.works(v) {
            return;
        }
        let (what, hint) = match memory_use(&inst.op) {
            MemoryUse::Update { op: AtomicOp::Add | AtomicOp::Sub, .. } => return,
            MemoryUse::Update { op, address, .. } if is_extreme(op) => match trace_address(body, address) {
                Place::Local(l) => (
                    format!(
                        "the {}imum that the iterations of a parallel loop compute in the variable `{}`",
                        op.name(),
                        body.locals[l.index()].name
                    ),
                    "keep it in a field, or put `qd.loop_config(serialize=True)` before the loop",
                ),
                _ if activity.value(v) => (
                    format!("the return value of atomic_{}()", op.name()),
                    "read the element in a separate kernel after this one",
                ),
                _ => return,
            },
            // If the old value is unused, only updates of shared memory are still atomic.
            MemoryUse::Update { op, .. } if used.contains(&v) => (
                format!("the return value of atomic_{}() on a value with a gradient", op.name()),
                "read the element first, and write the new value with `=`, in a loop that runs in order or whose \
                 iterations use different elements",
            ),
            MemoryUse::Update { op, .. } => (
                format!(
                    "the atomic {} of a value with a gradient that iterations of a parallel loop may share",
                    op.name()
                ),
                if op == AtomicOp::Mul {
                    "write `x[i] = x[i] * c` if iterations use different elements, or put \
                     `qd.loop_config(serialize=True)` before the loop"
                } else {
                    "write `x[i] = c` if iterations use different elements, or put \
                     `qd.loop_config(serialize=True)` before the loop"
                },
            ),
            MemoryUse::CompareAndSwap { .. } => (
                "the compare-and-swap of a value with a gradient".to_string(),
                "move it to a separate kernel, and define its gradient with `qd.ad.grad_replaced`",
            ),
            MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) | MemoryUse::Store { .. } | MemoryUse::Nothing => return,
        };
        let message = format!("{what} cannot be differentiated in reverse mode");
        found = Some(Diagnostic::new(Code::Derivative, inst.span, message).with_hint(hint));
    });
    for v in task_statements(body) {
        if let Op::For(l) = &body.inst(v).op
            && l.is_parallel()
            && !runs_once(body, l)
        {
            found = found.or_else(|| find_running_sum(body, activity, v, l.body));
        }
    }
    found.map_or(Ok(()), Err)
}

/// Finds a used old value of an addition to memory that iterations of a parallel loop share. It depends on the order of
/// the iterations, which the gradient would have to reverse.
fn find_running_sum(body: &Body, activity: &Activity, parallel: ValueId, inner: BlockId) -> Option<Box<Diagnostic>> {
    let mut found = None;
    let mut places = None;
    body.visit(inner, &mut |v, inst| {
        let MemoryUse::Update { address, .. } = memory_use(&inst.op) else { return };
        if found.is_some() || !activity.value(v) {
            return;
        }
        let (own, shared) = places
            .get_or_insert_with(|| (touched_at_own_indices(body, parallel), locals_of_all_iterations(body, parallel)));
        let is_shared = match trace_address(body, address) {
            Place::Buffer(b) => !own.contains(&b),
            Place::Local(l) => shared.contains(&l),
            _ => true,
        };
        if is_shared {
            let message = "the gradient depends on the order in which iterations of a parallel loop add to this";
            found = Some(
                Diagnostic::new(Code::Derivative, inst.span, message)
                    .with_hint("put `qd.loop_config(serialize=True)` before the loop"),
            );
        }
    });
    found
}

/// The update of an element by the smaller or larger number.
pub(super) fn is_extreme(op: AtomicOp) -> bool {
    matches!(op, AtomicOp::Min | AtomicOp::Max)
}
