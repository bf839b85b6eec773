//! Structured control flow: selections and loops, with the merge blocks that SPIR-V requires.
//!
//! A construct is opened, filled and closed in this order. Unreachable code is dropped.

use rspirv::dr::{Instruction, Operand};
use rspirv::spirv::{LoopControl, Op, SelectionControl};

use crate::emit::{Emitter, Id};

/// A selection that is open.
#[derive(Debug)]
pub(crate) struct Selection {
    otherwise: Option<Id>,
    merge: Id,
    /// An arm reaches the merge block.
    is_reached: bool,
    /// The selection itself is not reached.
    is_dead: bool,
}

/// A loop that is open.
#[derive(Debug, Clone)]
pub(crate) struct Loop {
    head: Id,
    body: Id,
    /// The continue target.
    pub next: Id,
    /// The block after the loop.
    pub done: Id,
    counters: usize,
    is_dead: bool,
}

fn branch(to: Id) -> Instruction {
    Instruction::new(Op::Branch, None, None, vec![Operand::IdRef(to)])
}

fn branch_on(c: Id, then: Id, otherwise: Id) -> Instruction {
    Instruction::new(Op::BranchConditional, None, None, [c, then, otherwise].map(Operand::IdRef).to_vec())
}

fn loop_merge(l: &Loop) -> Instruction {
    let operands = vec![Operand::IdRef(l.done), Operand::IdRef(l.next), Operand::LoopControl(LoopControl::NONE)];
    Instruction::new(Op::LoopMerge, None, None, operands)
}

impl Emitter {
    /// Branches to a block that an open construct allows.
    pub fn br(&self, to: Id) {
        self.terminate(vec![branch(to)]);
    }

    pub fn ret(&self) {
        self.terminate(vec![Instruction::new(Op::Return, None, None, vec![])]);
    }

    pub fn ret_value(&self, v: Id) {
        self.terminate(vec![Instruction::new(Op::ReturnValue, None, None, vec![Operand::IdRef(v)])]);
    }

    pub fn unreachable(&self) {
        self.terminate(vec![Instruction::new(Op::Unreachable, None, None, vec![])]);
    }

    /// Opens a selection; its first arm follows.
    pub fn begin_if(&self, c: Id, has_else: bool) -> Selection {
        let (then, merge) = (self.id(), self.id());
        let otherwise = has_else.then(|| self.id());
        let is_dead = self.is_terminated();
        let operands = vec![Operand::IdRef(merge), Operand::SelectionControl(SelectionControl::NONE)];
        self.terminate(vec![
            Instruction::new(Op::SelectionMerge, None, None, operands),
            branch_on(c, then, otherwise.unwrap_or(merge)),
        ]);
        if !is_dead {
            self.position(then);
        }
        Selection { otherwise, merge, is_reached: !has_else, is_dead }
    }

    /// The second arm follows.
    pub fn begin_else(&self, s: &mut Selection) {
        if s.is_dead {
            return;
        }
        s.is_reached |= !self.is_terminated();
        self.br(s.merge);
        self.position(s.otherwise.expect("compiler bug: a selection without a second arm"));
    }

    /// Closes a selection.
    pub fn end_if(&self, s: Selection) {
        if s.is_dead {
            return;
        }
        let is_reached = s.is_reached || !self.is_terminated();
        self.br(s.merge);
        self.position(s.merge);
        if !is_reached {
            self.unreachable();
        }
    }

    /// Opens a loop whose counters start with these values. The code of the loop's condition follows.
    pub fn begin_loop(&self, begin: &[Id]) -> (Loop, Vec<Id>) {
        let [head, body, next, done] = [(); 4].map(|()| self.id());
        let (from, is_dead) = (self.block(), self.is_terminated());
        self.br(head);
        if !is_dead {
            self.position(head);
        }
        let counter = |first: &Id| {
            let parts = [*first, from, *first, next].map(Operand::IdRef).to_vec();
            self.op(Op::Phi, self.type_of(*first), parts)
        };
        let counters: Vec<Id> = begin.iter().map(counter).collect();
        (Loop { head, body, next, done, counters: counters.len(), is_dead }, counters)
    }

    /// The body follows if the condition holds.
    pub fn loop_while(&self, l: &Loop, c: Id) {
        if !l.is_dead {
            self.terminate(vec![loop_merge(l), branch_on(c, l.body, l.done)]);
            self.position(l.body);
        }
    }

    /// The body follows.
    pub fn loop_always(&self, l: &Loop) {
        if !l.is_dead {
            self.terminate(vec![loop_merge(l), branch(l.body)]);
            self.position(l.body);
        }
    }

    /// Ends the body. The code between iterations follows.
    pub fn end_body(&self, l: &Loop) {
        if !l.is_dead {
            self.br(l.next);
            self.position(l.next);
        }
    }

    /// Closes a loop. `next` are the next values of its counters.
    pub fn end_loop(&self, l: &Loop, next: &[Id]) {
        assert_eq!(next.len(), l.counters, "compiler bug: a loop with a different number of counters");
        if l.is_dead {
            return;
        }
        self.br(l.head);
        for (i, value) in next.iter().enumerate() {
            self.patch(l.head, i, 2, *value);
        }
        self.position(l.done);
    }

    /// Ends the body's block: leaves the loop if the condition holds, or ends the iteration.
    pub fn leave_or_repeat(&self, l: &Loop, c: Id) {
        self.terminate(vec![branch_on(c, l.done, l.next)]);
    }
}
