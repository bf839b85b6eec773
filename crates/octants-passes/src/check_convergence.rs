//! Inserts an assertion at each branch that threads must take together because they synchronize inside it: all threads
//! of a block for barriers, those of a subgroup for exchanges. If the branch leaves a loop, the assertion is after it.
//! The threads vote, so all of them fail together.
//!
//! Assumes that locals were simplified: a condition with uniform operands is not checked. Bounds of loops around
//! barriers are compared bit by bit, which is acceptable in debug mode only.

use octants_analysis::{exits_of, local_uses};
use octants_ir::insert_code::bodies;
use octants_ir::schedule::LocalUses;
use octants_ir::{
    BinaryOp, BlockId, Builder, GridValue, Kernel, Op, Scalar, SubgroupOp, TextPart, Type, UnaryOp, ValueId,
};

use crate::synchronization::{Synchronization, Synchronizations};

/// Adds the assertions to a kernel and its functions.
pub fn check_convergence(kernel: &mut Kernel) {
    let synchronization = Synchronizations::of(&kernel.functions);
    for body in bodies(kernel) {
        if !synchronization.inside(body, body.root).any() {
            continue;
        }
        let locals = local_uses(body);
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        let root = b.body.root;
        let mut checks = Checks { synchronization: &synchronization, locals, b };
        checks.block(root, BlockPosition::default());
        *body = checks.b.body;
    }
}

/// The position of a block of code.
#[derive(Debug, Clone, Copy, Default)]
struct BlockPosition {
    /// In a parallel loop.
    is_of_threads: bool,
    /// The synchronization in the enclosing loop, and after it in the same iteration.
    in_loop: Synchronization,
    after: Synchronization,
}

struct Checks<'a> {
    synchronization: &'a Synchronizations,
    locals: std::sync::Arc<LocalUses>,
    b: Builder,
}

impl Checks<'_> {
    fn block(&mut self, block: BlockId, around: BlockPosition) {
        let code = std::mem::take(&mut self.b.body.blocks[block.index()]);
        let mut after = vec![around.after; code.len() + 1];
        for (i, v) in code.iter().enumerate().rev() {
            after[i] = after[i + 1].or(self.meeting(*v));
        }
        for (i, v) in code.into_iter().enumerate() {
            self.b.set_cursor(block);
            self.b.span = self.b.body.inst(v).span;
            let here = BlockPosition { after: after[i + 1], ..around };
            self.inst(v, here);
        }
    }

    /// The threads that synchronize at an instruction, or in its blocks.
    fn meeting(&self, v: ValueId) -> Synchronization {
        let op = &self.b.body.inst(v).op;
        let inside = op.blocks().into_iter().map(|b| self.synchronization.inside(&self.b.body, b));
        inside.fold(self.synchronization.at(op), Synchronization::or)
    }

    fn inst(&mut self, v: ValueId, around: BlockPosition) {
        let op = self.b.body.inst(v).op.clone();
        let meeting = self.meeting(v);
        match &op {
            Op::If(c, yes, no) => {
                let [breaks, continues] = exits_of(&self.b.body, v);
                let mut needed = meeting;
                if breaks {
                    needed = needed.or(around.in_loop);
                }
                if continues {
                    needed = needed.or(around.after);
                }
                if around.is_of_threads {
                    self.check_condition(*c, needed);
                }
                self.b.place(v);
                [*yes, *no].into_iter().for_each(|b| self.block(b, around));
            }
            Op::For(l) if l.parallel.is_some() => {
                self.b.place(v);
                let inside = BlockPosition { is_of_threads: true, ..BlockPosition::default() };
                self.block(l.body, inside);
            }
            Op::For(_) | Op::Loop(_) => {
                if let (Op::For(l), true, true) = (&op, around.is_of_threads, meeting.any()) {
                    l.dims.iter().flat_map(|d| [d.begin, d.end]).for_each(|v| self.check_bound(v, meeting));
                }
                self.b.place(v);
                let inside = BlockPosition { in_loop: meeting, after: Synchronization::default(), ..around };
                op.blocks().into_iter().for_each(|b| self.block(b, inside));
            }
            _ => self.b.place(v),
        }
    }

    /// Threads agree on a condition.
    fn check_condition(&mut self, c: ValueId, needed: Synchronization) {
        if !needed.any() || self.is_uniform(c, DEPTH) {
            return;
        }
        let agree = self.agree(c, needed);
        let (threads, at) = words(needed);
        self.assert(agree, format!("the threads of a {threads} disagree on a condition around {at}"));
    }

    /// Threads agree on a bound of a loop.
    fn check_bound(&mut self, v: ValueId, needed: Synchronization) {
        if self.is_uniform(v, DEPTH) {
            return;
        }
        let Some(scalar) = self.b.ty(v).scalar().filter(|s| s.is_int()) else { return };
        let mut all = None;
        for bit in 0..scalar.bits() {
            let place = self.b.int(1i64 << bit, scalar);
            let zero = self.b.int(0, scalar);
            let masked = self.b.binary(BinaryOp::And, v, place);
            let is_set = self.b.binary(BinaryOp::Ne, masked, zero);
            let agree = self.agree(is_set, needed);
            all = Some(octants_ir::insert_code::and(&mut self.b, all, agree));
        }
        let Some(all) = all else { return };
        let (threads, at) = words(needed);
        self.assert(all, format!("the threads of a {threads} disagree on a bound of the loop around {at}"));
    }

    /// Whether threads have the same truth value: the same for all of them.
    fn agree(&mut self, c: ValueId, needed: Synchronization) -> ValueId {
        let b = &mut self.b;
        if needed.block {
            let other = b.unary(UnaryOp::LogicNot, c);
            let zero = b.int(0, Scalar::I32);
            let [none, all] = [c, other].map(|c| {
                let count = b.push(Op::BlockCount(c), Type::I32);
                b.binary(BinaryOp::Eq, count, zero)
            });
            return b.binary(BinaryOp::Or, none, all);
        }
        let [any, all] = [SubgroupOp::Any, SubgroupOp::All].map(|op| b.push(Op::Subgroup(op, vec![c]), Type::U1));
        b.binary(BinaryOp::Eq, any, all)
    }

    fn assert(&mut self, condition: ValueId, text: String) {
        self.b.push(Op::Assert(condition, vec![TextPart::Text(text)]), Type::Unit);
    }

    /// Whether a short analysis shows that all threads of a block have the same value.
    fn is_uniform(&self, v: ValueId, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let op = &self.b.body.inst(self.locals.source(v)).op;
        let is_same = match op {
            Op::Const(_) | Op::Param(_) | Op::Shape(..) | Op::BlockCount(_) => return true,
            Op::FragmentIndex(_) => false,
            Op::Grid(value) => !matches!(value, GridValue::Thread | GridValue::Lane),
            Op::LoopIndex(l, _) => match &self.b.body.inst(*l).op {
                Op::For(l) if l.parallel.is_none() => l.dims.iter().all(|d| self.is_uniform(d.begin, depth)),
                _ => false,
            },
            Op::Unary(..) | Op::Binary(..) | Op::Cast(_) | Op::Select(..) => true,
            _ => false,
        };
        let mut found = is_same;
        if !matches!(op, Op::LoopIndex(..)) {
            op.for_each_operand(|u| found &= self.is_uniform(u, depth));
        }
        found
    }
}

/// Operations that a value is followed through.
const DEPTH: u32 = 8;

/// The names of the group of threads, and of the operation, for messages.
fn words(needed: Synchronization) -> (&'static str, &'static str) {
    if needed.block { ("block", "a barrier") } else { ("subgroup", "an operation of the subgroup") }
}
