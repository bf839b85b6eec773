//! Control flow of a task's or function's body: blocks, branches, sequential loops, calls and returns.
//!
//! The IR is structured, as SPIR-V is. An exit from more than one SPIR-V loop at a time (a `Break` from a loop with
//! several axes, a failure) sets a variable, which is tested after each of them.

use octants_ir::{BlockId, ForLoop, FuncId, Op, Scalar, ValueId};

use crate::emit::{Id, Op as Spirv};
use crate::lowering::{BodyKind, Helper, Index, LoopTargets, Lowering, OpenLoop, Val};
use crate::place::Pointer;
use crate::structure::Loop;
use rspirv::spirv::StorageClass;

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
        let inst = body.inst(v);
        self.e.place.set(Some(inst.span));
        match &inst.op {
            Op::If(c, then, otherwise) => self.branch(*c, *then, *otherwise),
            Op::For(l) if l.parallel.is_some() => self.strided_for(v, l),
            Op::For(l) => self.serial_for(v, l),
            Op::Loop(b) => self.forever(v, *b),
            Op::Break => {
                let to = *self.targets.last().expect("compiler bug: break outside a loop");
                self.note_left(true);
                if let Some(variable) = to.is_left {
                    self.e.store(variable, self.e.truth(true));
                }
                self.e.br(to.on_break);
            }
            Op::Continue => {
                let to = self.targets.last().expect("compiler bug: continue outside a loop").on_continue;
                self.e.br(to);
            }
            Op::Return(value) => self.return_from_body(*value),
            Op::Call(f, args) => self.call(v, *f, args),
            _ => self.values[v.index()] = self.value_of(v),
        }
    }

    fn branch(&mut self, c: ValueId, then: BlockId, otherwise: BlockId) {
        let c = self.value(c);
        if let Some(known) = self.e.as_bits(c) {
            return self.block(if known != 0 { then } else { otherwise });
        }
        let has_else = !self.body.block(otherwise).is_empty();
        let mut selection = self.e.begin_if(c, has_else);
        self.block(then);
        if has_else {
            self.e.begin_else(&mut selection);
            self.block(otherwise);
        }
        self.e.end_if(selection);
    }

    /// A bound of a loop in 64 bits.
    pub fn bound(&self, v: ValueId) -> Id {
        self.widen(self.value(v), self.scalar_of(v))
    }

    /// The loop's body is under way.
    pub fn open(&mut self, l: &Loop) {
        self.loops.push(OpenLoop { done: l.done, fails: false });
    }

    /// After a loop: continues to leave if a failure has ended it.
    pub fn close(&mut self) {
        let closed = self.loops.pop().expect("compiler bug: the loop is not open");
        let (true, Some((end, around)), Some(variable)) = (closed.fails, self.iteration_end, self.has_failed) else {
            return;
        };
        let failed = self.e.load(self.e.bool(), variable);
        let selection = self.e.begin_if(failed, false);
        let to = if self.loops.len() > around { self.loops[self.loops.len() - 1].done } else { end };
        self.e.br(to);
        self.e.end_if(selection);
    }

    /// After a loop that the device may have exited too early: an error if it has. `goes_on` says that there were more
    /// rounds to run, unless a `Break` has left the loop. It is not the loop's condition, which drivers can prove to be
    /// false here.
    pub fn check_rounds(&self, v: ValueId, goes_on: Id, has_breaks: bool) {
        let (e, body) = (self.e, self.body);
        let Some(site) = self.u.facts.loop_site(body.inst(v)) else { return };
        let goes_on = match has_breaks {
            true => e.both(goes_on, e.ieq(e.load_shared(e.u32(), self.left_word()), e.u32c(0))),
            false => goes_on,
        };
        let selection = e.begin_if(goes_on, false);
        self.record(Helper::Claim, site, &[]);
        e.end_if(selection);
    }

    /// Records whether a `Break` leaves the loop; false at the end of an iteration. The record is in memory: for a
    /// variable, drivers would infer the value from the loop's exits, which is wrong when a driver leaves the loop too
    /// early.
    pub fn note_left(&self, is_left: bool) {
        if self.e.features.limits_loops {
            self.e.store_shared(self.left_word(), self.e.u32c(u32::from(is_left)));
        }
    }

    fn left_word(&self) -> Id {
        let e = self.e;
        let known = self.u.left_words.get();
        let words = known.unwrap_or_else(|| {
            let ty = e.sized_array_type(e.u32(), self.u.block_size);
            e.global(StorageClass::Workgroup, ty)
        });
        self.u.left_words.set(Some(words));
        let pointer = e.pointer_type(StorageClass::Workgroup, e.u32());
        e.of(Spirv::AccessChain, pointer, &[words, self.thread()])
    }

    fn forever(&mut self, v: ValueId, b: BlockId) {
        let (l, _) = self.e.begin_loop(&[]);
        self.e.loop_always(&l);
        self.open(&l);
        self.targets.push(LoopTargets { on_break: l.done, on_continue: l.next, is_left: None });
        self.block(b);
        self.targets.pop();
        self.e.end_body(&l);
        self.note_left(false);
        self.e.end_loop(&l, &[]);
        self.check_rounds(v, self.e.truth(true), true);
        self.close();
    }

    /// A sequential loop.
    fn serial_for(&mut self, v: ValueId, l: &'p ForLoop) {
        let bounds: Vec<(Id, Id, Scalar)> =
            l.dims.iter().map(|d| (self.value(d.begin), self.value(d.end), self.scalar_of(d.begin))).collect();
        self.indices.insert(v, Vec::new());
        let is_left = (bounds.len() > 1 && self.breaks(l.body)).then(|| {
            let variable = self.e.variable(self.e.bool());
            self.e.store(variable, self.e.truth(false));
            variable
        });
        if bounds.is_empty() {
            // One iteration, which may be left.
            let (once, _) = self.e.begin_loop(&[]);
            self.e.loop_always(&once);
            self.open(&once);
            let done = once.done;
            self.targets.push(LoopTargets { on_break: done, on_continue: done, is_left: None });
            self.block(l.body);
            self.targets.pop();
            self.e.br(done);
            self.e.position(once.next);
            self.e.end_loop(&once, &[]);
            self.close();
        } else {
            self.serial_axis(v, l, &bounds, is_left);
        }
        self.indices.remove(&v);
    }

    /// Whether the loop with this body is left by a `Break`.
    pub fn breaks(&self, body: BlockId) -> bool {
        self.body.block(body).iter().any(|v| match &self.body.inst(*v).op {
            Op::Break => true,
            Op::If(_, then, otherwise) => self.breaks(*then) || self.breaks(*otherwise),
            _ => false,
        })
    }

    /// Counts through an axis, and runs the axes inside for each index.
    fn serial_axis(&mut self, v: ValueId, of: &'p ForLoop, bounds: &[(Id, Id, Scalar)], is_left: Option<Id>) {
        let e = self.e;
        let (begin, end, s) = bounds[0];
        let is_unsigned = s.is_unsigned();
        let (l, counters) = e.begin_loop(&[begin]);
        let counter = counters[0];
        let is_less = |a: Id, b: Id| if is_unsigned { e.ult(a, b) } else { e.slt(a, b) };
        e.loop_while(&l, is_less(counter, end));
        let index = Index { narrow: counter, wide: self.widen(counter, s) };
        self.indices.get_mut(&v).expect("compiler bug: no open loop").push(index);
        self.open(&l);
        if bounds.len() == 1 {
            self.targets.push(LoopTargets { on_break: l.done, on_continue: l.next, is_left });
            self.block(of.body);
            self.targets.pop();
        } else {
            self.serial_axis(v, of, &bounds[1..], is_left);
            if let Some(variable) = is_left {
                let left = e.load(e.bool(), variable);
                let selection = e.begin_if(left, false);
                e.br(l.done);
                e.end_if(selection);
            }
        }
        e.end_body(&l);
        let has_breaks = self.breaks(of.body);
        if has_breaks {
            self.note_left(false);
        }
        let next = e.add(counter, e.int(s.bits(), 1));
        e.end_loop(&l, &[next]);
        self.indices.get_mut(&v).expect("compiler bug: no open loop").pop();
        if e.features.limits_loops {
            let last = e.select(is_less(begin, end), end, begin);
            self.check_rounds(v, e.ine(counter, last), has_breaks);
        }
        self.close();
    }

    fn return_from_body(&mut self, value: Option<ValueId>) {
        let leaves = value.map_or_else(Vec::new, |v| self.leaves(v));
        match self.kind {
            BodyKind::Task => {
                let results = self.context_word(1);
                for (i, (leaf, s)) in leaves.into_iter().zip(self.ret.leaves()).enumerate() {
                    let at = self.e.add(results, self.e.u64c(8 * i as u64));
                    self.store_at(at, Scalar::U64, self.slot_bits(leaf, s));
                }
                self.e.ret();
            }
            BodyKind::Function { fails } => self.return_leaves(leaves, fails.then_some(false)),
        }
    }

    /// Ends execution after a failed assertion: the iteration of a task's parallel loop, or else the function, with
    /// zeros for results.
    pub fn leave_after_failure(&mut self) {
        let e = self.e;
        match (self.kind, self.iteration_end) {
            (BodyKind::Task, Some((end, around))) => {
                if let Some(variable) = self.has_failed {
                    e.store(variable, e.truth(true));
                }
                self.loops[around..].iter_mut().for_each(|l| l.fails = true);
                let to = if self.loops.len() > around { self.loops[self.loops.len() - 1].done } else { end };
                e.br(to);
            }
            (BodyKind::Task, None) => e.ret(),
            (BodyKind::Function { .. }, _) => self.return_leaves(self.zeros(), Some(true)),
        }
    }

    fn zeros(&self) -> Vec<Id> {
        self.ret.leaves().into_iter().map(|s| self.e.zero(s)).collect()
    }

    /// How a body ends when control reaches its end.
    pub fn end_of_body(&self) {
        match self.kind {
            BodyKind::Task => self.e.ret(),
            BodyKind::Function { fails } => self.return_leaves(self.zeros(), fails.then_some(false)),
        }
    }

    fn return_leaves(&self, mut leaves: Vec<Id>, failed: Option<bool>) {
        let e = self.e;
        leaves.extend(failed.map(|f| e.truth(f)));
        match leaves.as_slice() {
            [] => e.ret(),
            [one] => e.ret_value(*one),
            many => {
                let types: Vec<Id> = many.iter().map(|v| e.type_of(*v)).collect();
                e.ret_value(e.of(Spirv::CompositeConstruct, e.struct_type(&types), many));
            }
        }
    }

    fn call(&mut self, v: ValueId, f: FuncId, args: &[ValueId]) {
        let e = self.e;
        let behavior = self.u.facts.schedule.functions[f.index()].behavior;
        let mut scalars = Vec::new();
        if behavior.draws {
            let state =
                self.rng.expect("compiler bug: a call of a function that draws random numbers, without a random state");
            scalars.extend([state.linear, state.draws]);
        }
        let mut refs = Vec::new();
        for a in args {
            match &self.values[a.index()] {
                Some(Val::Leaves(leaves)) => {
                    scalars.extend(leaves);
                    refs.push(None);
                }
                Some(Val::Place(place)) => {
                    for (ptr, memory) in place.ptrs.iter().zip(&place.shape.memory) {
                        match ptr {
                            Pointer::Address(address) => scalars.push(*address),
                            Pointer::Element(variable, index) => {
                                if matches!(memory, crate::place::Memory::Local { .. }) {
                                    scalars.push(*variable);
                                }
                                scalars.push(index.unwrap_or_else(|| e.u32c(0)));
                            }
                        }
                    }
                    refs.push(Some((*place.shape).clone()));
                }
                None => panic!("compiler bug: argument {a} of a call was not computed"),
            }
        }
        let (callee, ret) = self.u.instance(f, refs);
        let operands: Vec<Id> = [callee].into_iter().chain(scalars).collect();
        let result = e.of(Spirv::FunctionCall, ret, &operands);
        let types = self.u.result_types(f);
        let mut leaves: Vec<Id> = match types.as_slice() {
            [] => Vec::new(),
            [_] => vec![result],
            many => many.iter().enumerate().map(|(i, ty)| e.extract_value(result, *ty, i as u32)).collect(),
        };
        if behavior.fails {
            let failed = leaves.pop().expect("compiler bug: a call without a failure flag among its results");
            let selection = e.begin_if(failed, false);
            self.leave_after_failure();
            e.end_if(selection);
        }
        self.values[v.index()] = Some(Val::Leaves(leaves));
    }
}
