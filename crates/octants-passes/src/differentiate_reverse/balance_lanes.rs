//! Iterations whose loops keep states are handed to threads by the lengths of these loops, where those come from memory: threads that
//! run in step then have as much to do as each other, and write and read the store together.
//!
//! Where code generation has no threads in step, or cannot let them exchange what they have, nothing comes of it but the lengths, which
//! nobody asks for then.

use std::collections::HashMap;

use octants_ir::{BinaryOp, ForLoop, Op, Range, Scalar, ValueId};

use super::copy_values::Indices;
use super::emit_forward::Mode;
use super::emit_sweeps::Emitter;
use super::keep_states::{uses_store, uses_store_within};
use super::plan_sweeps::{Need, Plan, Seed, close};
use crate::trace_address::{Place, trace_address};

/// The loops in the body of a parallel loop that an iteration's length is told from, and what must be computed for it; `None` where that is
/// no short straight code, or is the same for like indices.
fn lengths(plan: &Plan, l: &ForLoop) -> Option<(Vec<ValueId>, Need)> {
    let body = plan.body;
    let loops: Vec<ValueId> =
        body.block(l.body).iter().copied().filter(|v| plan.is_counted(*v) && uses_store_of_any(plan, *v)).collect();
    let mut seeds = Vec::new();
    loops.iter().for_each(|v| body.inst(*v).op.for_each_operand(|u| seeds.push(Seed::Value(u))));
    let need = close(body, &plan.layout, l.body, seeds);
    let is_plain = |v: &ValueId| {
        let op = &body.inst(*v).op;
        op.is_pure() || matches!(op, Op::Load(_) | Op::LoopIndex(..))
    };
    let reads = |v: &ValueId| match body.inst(*v).op {
        Op::Load(a) => matches!(trace_address(body, a), Place::Buffer(_)),
        _ => false,
    };
    (need.values.iter().all(is_plain) && need.values.iter().any(reads)).then_some((loops, need))
}

/// A loop keeps states in the store, or one within it does.
fn uses_store_of_any(plan: &Plan, v: ValueId) -> bool {
    uses_store(plan, v) || plan.body.inst(v).op.blocks().into_iter().any(|b| uses_store_within(plan, b))
}

impl Emitter<'_> {
    /// The iteration that a lane runs in its turn, of the parallel loop `v`: `[its own, those of turns before, lanes, iterations]`.
    pub(super) fn balance(
        &mut self,
        v: ValueId,
        l: &ForLoop,
        dims: &[Range],
        [own, before, lanes, n]: [ValueId; 4],
    ) -> ValueId {
        let Some((loops, need)) = lengths(self.plan, l) else { return own };
        let sum = self.b.body.add_local("length", Scalar::I64.into());
        self.set(sum, 0);
        let inside = self.b.binary(BinaryOp::Lt, own, n);
        let measure = |e: &mut Self| {
            let indices = e.spread(own, dims);
            e.indices.insert(v, Indices::Are(indices));
            e.scopes.push(HashMap::new());
            e.forward(l.body, &need, Mode::Pass);
            for v in loops {
                let Op::For(l) = &e.source().inst(v).op else {
                    panic!("compiler bug: a loop of known length is no `for`")
                };
                let length = e.extent(&l.dims);
                e.b.update_local(sum, |b, sum| b.binary(BinaryOp::Add, sum, length));
            }
            e.scopes.pop();
        };
        self.branch(inside, measure, |_| ());
        let length = self.b.load_local(sum);
        let end = self.b.binary(BinaryOp::Add, before, lanes);
        self.b.push(Op::Balance(own, length, end), Scalar::I64.into())
    }
}
