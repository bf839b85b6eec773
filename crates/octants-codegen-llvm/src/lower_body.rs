//! Control flow of a task's or function's body: blocks, branches, endless loops, calls and returns. `serial_loops` has
//! the loops over ranges.
//!
//! Serial loops count in 64 bits so that addresses stay affine; the index that the program sees is the truncation,
//! marked as exact.

use octants_ir::{BlockId, FuncId, Op, Scalar, ValueId};

use crate::emit::{Bb, T, V};
use crate::lowering::{BodyKind, LoopTargets, Lowering, Val};

impl<'p> Lowering<'_, 'p> {
    /// Lowers the instructions of a block; stops where it ends.
    pub fn block(&mut self, b: BlockId) {
        for &v in self.body.block(b) {
            if self.e.is_terminated() {
                return;
            }
            self.inst(v);
        }
    }

    /// Lowers one instruction.
    pub fn inst(&mut self, v: ValueId) {
        let body = self.body;
        match &body.inst(v).op {
            Op::If(c, then, otherwise) => self.branch(*c, *then, *otherwise),
            Op::For(l) if l.parallel.is_some() => self.strided_for(v, l),
            Op::For(l) => self.serial_for(v, l),
            Op::Loop(b) => self.forever(*b),
            Op::Break => {
                let to = self.open.targets.last().expect("compiler bug: break outside a loop").on_break;
                self.e.br(to);
            }
            Op::Continue => {
                let to = self.open.targets.last().expect("compiler bug: continue outside a loop").on_continue;
                self.e.br(to);
            }
            Op::Return(value) => self.return_from_body(*value),
            Op::Call(f, args) => self.call(v, *f, args),
            _ => {
                self.values[v.index()] = self.value_of(v);
            }
        }
    }

    fn branch(&mut self, c: ValueId, then: BlockId, otherwise: BlockId) {
        let c = self.value(c);
        if let Some(known) = self.e.as_int(c) {
            return self.block(if known != 0 { then } else { otherwise });
        }
        let has_else = !self.body.block(otherwise).is_empty();
        let then_bb = self.new_block(c"then");
        let after = self.new_block(c"after");
        let else_bb = if has_else { self.new_block(c"else") } else { after };
        self.e.cond_br(c, then_bb, else_bb);
        self.arm(then_bb, then, after);
        if has_else {
            self.arm(else_bb, otherwise, after);
        }
        self.e.position(after);
    }

    fn arm(&mut self, bb: Bb, block: BlockId, after: Bb) {
        self.e.position(bb);
        self.block(block);
        if !self.e.is_terminated() {
            self.e.br(after);
        }
    }

    /// A bound of a loop in 64 bits.
    pub fn bound(&self, v: ValueId) -> V {
        self.widen(self.value(v), self.scalar_of(v))
    }

    /// The index as the program sees it.
    pub fn narrow_index(&self, wide: V, s: Scalar) -> V {
        if s.bits() == 64 {
            return wide;
        }
        self.e.no_signed_wrap(self.e.trunc(wide, self.e.i32))
    }

    fn forever(&mut self, b: BlockId) {
        let head = self.new_block(c"loop");
        let exit = self.new_block(c"loop.end");
        self.e.br(head);
        self.e.position(head);
        self.open.targets.push(LoopTargets { on_break: exit, on_continue: head });
        self.block(b);
        self.open.targets.pop();
        if !self.e.is_terminated() {
            self.e.br(head);
        }
        self.e.position(exit);
    }

    fn return_from_body(&mut self, value: Option<ValueId>) {
        let leaves = value.map_or_else(Vec::new, |v| self.leaves(v));
        match self.form.kind {
            BodyKind::Task => {
                for (i, (leaf, s)) in leaves.into_iter().zip(self.form.ret.leaves()).enumerate() {
                    let slot = self.u.target.result_slot(self.e, self.code.context, i);
                    self.e.store(slot, self.slot_bits(leaf, s), 8);
                }
                self.u.target.return_from_task(self.e, self.e.i32c(0));
            }
            BodyKind::Function { fails } => self.return_leaves(leaves, fails.then_some(false)),
            BodyKind::Count => panic!("compiler bug: `return` in a task's prologue"),
        }
    }

    /// Ends execution after a failed assertion: the iteration of a task's parallel loop, or else the function, with
    /// zeros for results.
    pub fn leave_after_failure(&self) {
        let e = self.e;
        match (self.form.kind, self.parallel.iteration_end) {
            (BodyKind::Task, Some(end)) => {
                let flag = self.parallel.failed.get().unwrap_or_else(|| {
                    self.at_entry(|| {
                        let flag = e.alloca(e.i32, 4);
                        e.store(flag, e.i32c(0), 4);
                        flag
                    })
                });
                self.parallel.failed.set(Some(flag));
                e.store(flag, e.i32c(1), 4);
                e.br(end);
            }
            (BodyKind::Task, None) => self.u.target.return_from_task(e, e.i32c(1)),
            (BodyKind::Count, _) => e.ret(e.i64c(0)),
            (BodyKind::Function { .. }, _) => {
                let zeros = self.form.ret.leaves().into_iter().map(|s| self.e.zero(self.e.scalar(s))).collect();
                self.return_leaves(zeros, Some(true));
            }
        }
    }

    /// How a body ends when control reaches its end.
    pub fn end_of_body(&self) {
        if self.e.is_terminated() {
            return;
        }
        match self.form.kind {
            BodyKind::Task => {
                let none = self.e.i32c(0);
                let status = self.parallel.failed.get().map_or(none, |flag| self.e.load(self.e.i32, flag, 4));
                self.u.target.return_from_task(self.e, status);
            }
            BodyKind::Count => self.e.ret(self.e.i64c(0)),
            BodyKind::Function { fails } => {
                let zeros = self.form.ret.leaves().into_iter().map(|s| self.e.zero(self.e.scalar(s))).collect();
                self.return_leaves(zeros, fails.then_some(false));
            }
        }
    }

    fn return_leaves(&self, mut leaves: Vec<V>, failed: Option<bool>) {
        leaves.extend(failed.map(|f| self.e.int(self.e.i1, i64::from(f))));
        match leaves.as_slice() {
            [] => self.e.ret_void(),
            [one] => self.e.ret(*one),
            many => {
                let mut types: Vec<T> = many.iter().map(|v| self.e.type_of(*v)).collect();
                let mut all = self.e.undef(self.e.struct_type(&mut types));
                for (i, v) in many.iter().enumerate() {
                    all = self.e.insert_value(all, *v, i);
                }
                self.e.ret(all);
            }
        }
    }

    fn call(&mut self, v: ValueId, f: FuncId, args: &[ValueId]) {
        let mut scalars = vec![self.code.context];
        let behavior = self.u.facts.schedule.functions[f.index()].behavior;
        if behavior.draws {
            scalars.push(
                self.parallel
                    .rng
                    .expect("compiler bug: a call of a function that draws random numbers, without a random state"),
            );
        }
        let mut refs = Vec::new();
        for a in args {
            match &self.values[a.index()] {
                Some(Val::Leaves(leaves)) => {
                    scalars.extend(leaves);
                    refs.push(None);
                }
                Some(Val::Place(place)) => {
                    scalars.extend(&place.ptrs);
                    refs.push(Some((*place.shape).clone()));
                }
                Some(Val::Vector(_)) => panic!("compiler bug: argument {a} of a call is a vector"),
                None => panic!("compiler bug: argument {a} of a call was not computed"),
            }
        }
        let callee = self.u.instance(f, refs);
        let result = self.e.call(callee, &scalars);
        self.e.set_fast_call(result, true);
        let ret = &self.u.program.functions[f.index()].ret;
        let count = ret.leaf_count();
        let total = count + usize::from(behavior.fails);
        let mut leaves: Vec<V> = match total {
            0 => Vec::new(),
            1 => vec![result],
            _ => (0..total).map(|i| self.e.extract_value(result, i)).collect(),
        };
        if behavior.fails {
            let failed = leaves.pop().expect("compiler bug: a call without a failure flag among its results");
            let stop = self.new_block(c"failed");
            let go_on = self.new_block(c"ok");
            self.e.cond_br(failed, stop, go_on);
            self.e.position(stop);
            self.leave_after_failure();
            self.e.position(go_on);
        }
        self.values[v.index()] = Some(Val::Leaves(leaves));
    }
}
