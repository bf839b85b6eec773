//! Gradients of atomic minima and maxima: elements that hold the smallest or the largest of many values.
//!
//! When the gradient runs, the element holds the winner of this launch, or of a later one of the same kind. The
//! iteration that contributed it takes the element's adjoint and leaves zero, so of several equal values one gets it.
//! An adjoint that no iteration takes belongs to the element's earlier value.
//!
//! The contributed value is recomputed and must match bit for bit. Compilers may contract and reorder chains of float
//! operations, differently each time, so the value must be at most one rounded operation away from memory. Only
//! elements of buffers are updated in this way, because the final value of a local is not available.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic};
use octants_ir::{AtomicOp, BinaryOp, LocalId, Op, Type, UnaryOp, ValueId};

use super::emit_sweeps::Emitter;
use super::find_active_values::is_extreme;
use super::plan_sweeps::Plan;
use super::sum_adjoints::component_addr;
use crate::derivative_rules::Part;
use octants_analysis::{Place, trace_address};
use octants_ir::insert_code::zero;

/// Refuses contributions that may come out otherwise when they are computed again.
pub(super) fn refuse_rounded_extremes(plan: &Plan) -> Result<(), Box<Diagnostic>> {
    let mut found = None;
    plan.body.visit(plan.body.root, &mut |v, inst| {
        if let Op::Atomic(op, _, x) = inst.op
            && is_extreme(op)
            && plan.activity.works(v)
            && found.is_none()
            && !is_bitwise_reproducible(plan, x, false, &mut HashSet::new())
        {
            let message = format!(
                "the gradient of atomic_{0}() must find the value that was the {0}imum, but recomputing this value may \
                 round differently",
                op.name()
            );
            let hint = format!(
                "write the values to a field in a separate kernel, and apply atomic_{}() to the field in the next \
                 kernel",
                op.name()
            );
            found = Some(Diagnostic::new(Code::Derivative, inst.span, message).with_hint(hint));
        }
    });
    found.map_or(Ok(()), Err)
}

/// Whether recomputing a value yields the same bits: it consists of values from memory, selected and rearranged, and,
/// unless `exact`, added or multiplied once. Locals in `seen` are being visited.
fn is_bitwise_reproducible(plan: &Plan, v: ValueId, exact: bool, seen: &mut HashSet<(LocalId, bool)>) -> bool {
    let body = plan.body;
    let inst = body.inst(v);
    if !inst.ty.leaves().iter().any(|s| s.is_float()) {
        return true;
    }
    let exact = match inst.op {
        Op::Load(a) => match trace_address(body, a) {
            Place::Local(l) => return !seen.insert((l, exact)) || is_set_the_same(plan, l, exact, seen),
            _ => return true,
        },
        Op::Const(_) | Op::Param(_) => return true,
        Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..) if !exact => true,
        Op::Binary(BinaryOp::Min | BinaryOp::Max, ..)
        | Op::Unary(
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sgn
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::StopGrad,
            _,
        )
        | Op::Select(..)
        | Op::Cast(_)
        | Op::Splat(_)
        | Op::Transpose(_)
        | Op::Extract(..)
        | Op::ExtractDyn(..)
        | Op::MakeTensor(_)
        | Op::MakeStruct(_) => exact,
        _ => return false,
    };
    let mut same = true;
    inst.op.for_each_operand(|u| same = same && is_bitwise_reproducible(plan, u, exact, seen));
    same
}

/// So is all that is stored to a local.
fn is_set_the_same(plan: &Plan, l: LocalId, exact: bool, seen: &mut HashSet<(LocalId, bool)>) -> bool {
    plan.layout.stores[l.index()].iter().all(|s| match plan.body.inst(*s).op {
        Op::Store(_, x) => is_bitwise_reproducible(plan, x, exact, seen),
        Op::Atomic(op, _, x) => is_extreme(op) && is_bitwise_reproducible(plan, x, exact, seen),
        _ => false,
    })
}

impl Emitter<'_> {
    /// The contribution `x` to the element at an address takes the element's adjoint if it equals the element.
    pub(super) fn reverse_extreme(&mut self, addr: ValueId, x: ValueId) {
        let Some((adjoint, shared)) = self.adjoint_address(addr) else { return };
        let addr = self.get(addr);
        let (holds, given) = (self.b.load(addr), self.get(x));
        let ty = self.b.ty(given).clone();
        let taken = self.b.body.add_local("taken", ty.clone());
        let none = zero(&mut self.b, &ty);
        let taken = self.b.local_addr(taken);
        self.b.store(taken, none);
        for i in 0..ty.leaf_count() as u32 {
            let [holds, given] = [holds, given].map(|v| if ty.is_tensor() { self.b.extract(v, i) } else { v });
            let is_it = self.b.binary(BinaryOp::Eq, given, holds);
            let take = |e: &mut Self| {
                let [from, to] = [adjoint, taken].map(|a| component_addr(&mut e.b, a, &ty, i));
                let component =
                    Type::Scalar(e.b.ty(given).scalar().expect("compiler bug: a component that is not a scalar"));
                let none = zero(&mut e.b, &component);
                let all = if shared {
                    e.b.push(Op::Atomic(AtomicOp::Exchange, from, none), component)
                } else {
                    let all = e.b.load(from);
                    e.b.store(from, none);
                    all
                };
                e.b.store(to, all);
            };
            self.branch(is_it, take, |_| ());
        }
        let taken = self.b.load(taken);
        self.contribute(x, &Part::Whole, taken);
    }
}
