//! Emits the reverse sweep of a region: from the last instruction to the first, each propagates the adjoint of its
//! result to those of its operands.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BlockId, Derivative, Op, UnaryOp, ValueId};

use super::emit_sweeps::Emitter;
use super::find_active_values::is_extreme;
use super::needed_operands::needed_operands;
use crate::derivative_rules::{Part, pull_back};
use octants_ir::insert_code::zero;

impl Emitter<'_> {
    /// The reverse sweep of a block.
    pub fn reverse(&mut self, block: BlockId) {
        let mark = self.mark();
        self.reversed.insert(block, mark);
        for &v in self.source().block(block).iter().rev() {
            if self.plan.activity.works(v) {
                self.b.span = self.source().inst(v).span;
                self.reverse_inst(v);
            }
        }
    }

    fn reverse_inst(&mut self, v: ValueId) {
        let source = self.source();
        match &source.inst(v).op {
            Op::If(c, yes, no) => {
                let c = self.get(*c);
                self.branch(c, |e| e.reverse(*yes), |e| e.reverse(*no));
            }
            Op::For(_) | Op::Loop(_) if self.plan.is_parallel(v) => self.reverse_parallel(v),
            Op::For(_) | Op::Loop(_) => self.reverse_loop(v),
            Op::Load(a) => {
                let Some(adjoint) = self.take_adjoint(v) else { return };
                if let Some(sum) = self.deferred_sum(v, *a) {
                    let addr = self.b.local_addr(sum);
                    self.add_at(addr, adjoint, false);
                } else if let Some((addr, shared)) = self.adjoint_address(*a) {
                    self.add_at(addr, adjoint, shared);
                }
            }
            Op::Store(a, x) => {
                if let Some((addr, _)) = self.adjoint_address(*a) {
                    let adjoint = self.b.load(addr);
                    let ty = self.b.ty(adjoint).clone();
                    let zero = zero(&mut self.b, &ty);
                    self.b.store(addr, zero);
                    self.contribute(*x, &Part::Whole, adjoint);
                }
            }
            Op::Atomic(op, a, x) if is_extreme(*op) => self.reverse_extreme(*a, *x),
            Op::Atomic(op, a, x) => {
                if let Some((addr, shared)) = self.adjoint_address(*a) {
                    let mut adjoint = self.b.load(addr);
                    if let Some(old) = self.take_adjoint(v) {
                        self.add_at(addr, old, shared);
                    }
                    if *op == AtomicOp::Sub {
                        adjoint = self.b.unary(UnaryOp::Neg, adjoint);
                    }
                    self.contribute(*x, &Part::Whole, adjoint);
                }
            }
            op if op.derivative() == Derivative::Rule => self.reverse_rule(v),
            op => panic!("compiler bug: {op:?} cannot be reversed\n{source}"),
        }
    }

    fn reverse_rule(&mut self, v: ValueId) {
        let Some(adjoint) = self.take_adjoint(v) else { return };
        let mut operands = Vec::new();
        self.source().inst(v).op.for_each_operand(|u| operands.push(u));
        let y = self.copy_in_sight(v).unwrap_or_else(|| self.make_result(v));
        let activity = self.plan.activity;
        let contributions = pull_back(&mut self.b, y, adjoint, |i| activity.value(operands[i]));
        for c in contributions {
            self.contribute(operands[c.operand], &c.part, c.value);
        }
    }

    /// The instruction with the operands that its rule reads, if the forward sweep's copy cannot be used.
    fn make_result(&mut self, v: ValueId) -> ValueId {
        let inst = self.source().inst(v).clone();
        let mut needed = HashSet::new();
        let activity = self.plan.activity;
        needed_operands(&inst.op, |u| activity.value(u), |u| _ = needed.insert(u));
        let mut op = inst.op;
        op.map_operands(|u| {
            if needed.contains(&u) {
                return self.get(u);
            }
            let ty = self.source().ty(u).clone();
            zero(&mut self.b, &ty)
        });
        self.b.push(op, inst.ty)
    }
}
