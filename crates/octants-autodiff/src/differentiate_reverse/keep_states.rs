//! Stores the state at the start of each iteration of a loop. If the trip count is a small compile-time constant,
//! states are kept in local arrays. Otherwise they are kept in the store, memory of the launch of which every lane
//! owns a part.
//!
//! The store is two buffers of words, of 32 bits and of 64, to which values are written as their bits. A lane uses its
//! part as a stack, so two positions describe its state. A counting kernel (`count_words`) computes the capacity in
//! advance, so the stack cannot overflow.

use std::collections::HashMap;

use octants_analysis::known_int;
use octants_ir::{BinaryOp, Body, BufferId, Builder, Local, LocalId, Op, Scalar, Type, ValueId};

use super::StoredState;
use super::plan_sweeps::Plan;
use super::store_arguments::{StoreArguments, WORDS};
use super::sweep_state::{Stack, Store};

/// Maximum bytes of a loop's states that are kept in locals.
const MOST_BYTES_IN_LOCALS: u64 = 4096;
/// The maximum number of loops using the store for which LLVM may see the positions.
const MOST_IN_SIGHT: usize = 6;

/// The words that a value of a scalar type takes: index 0 for those of 32 bits, 1 for 64.
pub(super) fn word_class(s: Scalar) -> usize {
    usize::from(s.bits() > 32)
}

/// The states of a loop are kept in locals.
pub(super) fn fits_locals(plan: &Plan, v: ValueId) -> bool {
    let Op::For(l) = &plan.body.inst(v).op else { return false };
    let mut bytes: u64 = plan.loops[&v].kept.iter().map(|l| bytes_of(&plan.body.locals[l.index()].ty)).sum();
    for r in &l.dims {
        let (Some(begin), Some(end)) = (known_int(plan.body, r.begin), known_int(plan.body, r.end)) else {
            return false;
        };
        bytes = bytes.saturating_mul(end.saturating_sub(begin).max(0) as u64);
    }
    bytes <= MOST_BYTES_IN_LOCALS
}

fn bytes_of(ty: &Type) -> u64 {
    ty.leaves().iter().map(|s| u64::from(s.bytes())).sum()
}

/// A loop keeps states in the store.
pub(super) fn uses_store(plan: &Plan, v: ValueId) -> bool {
    plan.loops.get(&v).is_some_and(|p| !p.kept.is_empty()) && !fits_locals(plan, v)
}

/// Words that an iteration of a loop takes, by class.
pub(super) fn words_of(plan: &Plan, v: ValueId) -> [i64; 2] {
    let mut words = [0; 2];
    for l in &plan.loops[&v].kept {
        for s in plan.body.locals[l.index()].ty.leaves() {
            words[word_class(s)] += 1;
        }
    }
    words
}

impl Store {
    pub fn new(args: Option<StoreArguments>) -> Store {
        Store { args, tops: None, at_root: false }
    }

    pub fn args(&self) -> StoreArguments {
        self.args.expect("compiler bug: a loop stores states, but there is no store")
    }

    /// Lets the root begin its part of the store.
    pub fn begin_root(&mut self, b: &mut Builder) {
        if self.args.is_some() {
            let zero = b.int(0, Scalar::I64);
            self.begin_at(b, [zero; 2]);
            self.at_root = true;
        }
    }

    /// Enters a lane's part of the store. Returns the previous state, to be restored.
    pub fn begin_lane(&mut self, b: &mut Builder, lane: ValueId) -> Store {
        let outside = self.clone();
        let args = self.args();
        let starts = [0, 1].map(|class| args.start(b, lane, class));
        self.begin_at(b, starts);
        self.at_root = false;
        outside
    }

    fn begin_at(&mut self, b: &mut Builder, starts: [ValueId; 2]) {
        self.tops = Some(starts.map(|start| {
            let top = b.body.add_local("top", Scalar::I64.into());
            b.store_local(top, start);
            top
        }));
    }

    /// The stack of a loop that is about to run.
    pub fn begin(&self, b: &mut Builder, plan: &Plan, v: ValueId) -> Stack {
        let locals = plan.loops[&v].kept.clone();
        if !fits_locals(plan, v) {
            self.settle(b, plan);
            return Stack { locals, arrays: None };
        }
        let Op::For(l) = &plan.body.inst(v).op else {
            panic!("compiler bug: a loop of unknown length stores states in locals")
        };
        let length = |r: &octants_ir::Range| {
            let (begin, end) = (known_int(plan.body, r.begin), known_int(plan.body, r.end));
            (end.unwrap_or(0) - begin.unwrap_or(0)).max(0) as u32
        };
        // With an empty axis, the lengths of the others do not matter.
        let n = l.dims.iter().map(length).fold(1, u32::saturating_mul).max(1);
        let top = b.body.add_local("top", Type::I32);
        let (addr, zero) = (b.local_addr(top), b.int(0, Scalar::I32));
        b.store(addr, zero);
        let mut arrays = Vec::new();
        for l in &locals {
            let Local { name, ty } = &plan.body.locals[l.index()];
            arrays
                .extend(ty.leaves().into_iter().map(|s| b.body.add_local(format!("kept {name}"), Type::Vector(s, n))));
        }
        Stack { locals, arrays: Some((top, arrays)) }
    }

    /// Before a loop that keeps states or takes them back: hides the computation of the position from LLVM if there are
    /// many such loops. Otherwise LLVM expands it to a sum over all earlier loops for each access, in time that grows
    /// with the fourth power of their number.
    pub fn settle(&self, b: &mut Builder, plan: &Plan) {
        if plan.loops.keys().filter(|v| uses_store(plan, **v)).count() <= MOST_IN_SIGHT {
            return;
        }
        for top in self.tops.iter().flatten() {
            let at = b.load_local(*top);
            let place = b.body.add_local("top", Scalar::I64.into());
            b.store_local(place, at);
            let addr = b.local_addr(place);
            let at = b.push(Op::VolatileLoad(addr), Scalar::I64.into());
            b.store_local(*top, at);
        }
    }

    /// Keeps the state as it is.
    pub fn push(&self, b: &mut Builder, stack: &Stack) {
        let mut leaves = Vec::new();
        for &l in &stack.locals {
            let value = b.load_local(l);
            take_apart(b, value, &mut leaves);
        }
        match &stack.arrays {
            Some((top, arrays)) => {
                let [at, _] = move_by_one(b, *top, BinaryOp::Add);
                for (array, leaf) in arrays.iter().zip(leaves) {
                    let array = b.local_addr(*array);
                    let addr = b.element_addr(array, vec![at]);
                    b.store(addr, leaf);
                }
            }
            None => {
                for leaf in leaves {
                    let s = b.ty(leaf).scalar().expect("compiler bug: a leaf that is not a scalar");
                    let at = self.move_top(b, s, BinaryOp::Add);
                    let word = to_word(b, leaf, s);
                    let addr = self.word_addr(b, s, at);
                    b.store(addr, word);
                }
            }
        }
    }

    /// Restores the state that was stored last, and pops it.
    pub fn pop(&self, b: &mut Builder, stack: &Stack) {
        let types: Vec<Type> = stack.locals.iter().map(|l| b.body.locals[l.index()].ty.clone()).collect();
        let scalars: Vec<Scalar> = types.iter().flat_map(Type::leaves).collect();
        let mut leaves: Vec<ValueId> = match &stack.arrays {
            Some((top, arrays)) => {
                let [_, at] = move_by_one(b, *top, BinaryOp::Sub);
                let load = |array: &LocalId| {
                    let array = b.local_addr(*array);
                    let addr = b.element_addr(array, vec![at]);
                    b.load(addr)
                };
                arrays.iter().map(load).collect()
            }
            None => {
                let mut leaves: Vec<ValueId> = scalars
                    .iter()
                    .rev()
                    .map(|&s| {
                        let at = self.move_top(b, s, BinaryOp::Sub);
                        let addr = self.word_addr(b, s, at);
                        let word = b.load(addr);
                        from_word(b, word, s)
                    })
                    .collect();
                leaves.reverse();
                leaves
            }
        };
        leaves.reverse();
        for (&l, ty) in stack.locals.iter().zip(&types) {
            let value = put_together(b, ty, &mut leaves);
            b.store_local(l, value);
        }
    }

    /// Moves a position in the store forward and yields the old position, or back and yields the new one.
    fn move_top(&self, b: &mut Builder, s: Scalar, op: BinaryOp) -> ValueId {
        let tops = self.tops.expect("compiler bug: states are stored outside a lane");
        let [was, is] = b.update_local(tops[word_class(s)], |b, at| {
            let step = if self.at_root { b.int(1, Scalar::I64) } else { self.args().step(b) };
            b.binary(op, at, step)
        });
        if op == BinaryOp::Add { was } else { is }
    }

    fn word_addr(&self, b: &mut Builder, s: Scalar, at: ValueId) -> ValueId {
        let class = word_class(s);
        let buffer = BufferId(self.args().first_buffer + class as u32);
        b.push(Op::BufferAddr(buffer, vec![at]), Type::Ref(Box::new(WORDS[class].into())))
    }
}

/// Moves a position in arrays; returns the old and the new value.
fn move_by_one(b: &mut Builder, top: LocalId, op: BinaryOp) -> [ValueId; 2] {
    b.update_local(top, |b, at| {
        let one = b.int(1, Scalar::I32);
        b.binary(op, at, one)
    })
}

/// The bits of a scalar as a word.
pub(super) fn to_word(b: &mut Builder, v: ValueId, s: Scalar) -> ValueId {
    let word = WORDS[word_class(s)];
    if s.is_float() {
        let bits = if s == Scalar::F16 { Scalar::U16 } else { word };
        let bits = b.push(Op::Bitcast(v), bits.into());
        return b.cast(bits, word);
    }
    b.cast(v, word)
}

fn from_word(b: &mut Builder, word: ValueId, s: Scalar) -> ValueId {
    if s.is_float() {
        let bits = if s == Scalar::F16 { b.cast(word, Scalar::U16) } else { word };
        return b.push(Op::Bitcast(bits), s.into());
    }
    b.cast(word, s)
}

/// Appends the scalars of a value.
pub(super) fn take_apart(b: &mut Builder, v: ValueId, out: &mut Vec<ValueId>) {
    let parts = match b.ty(v) {
        Type::Scalar(_) => return out.push(v),
        Type::Struct(s) => s.members.len(),
        ty => ty.leaf_count(),
    };
    for i in 0..parts as u32 {
        let part = b.extract(v, i);
        take_apart(b, part, out);
    }
}

/// A value of the scalars at the end of `leaves`, in reverse order.
fn put_together(b: &mut Builder, ty: &Type, leaves: &mut Vec<ValueId>) -> ValueId {
    match ty {
        Type::Scalar(_) => leaves.pop().expect("compiler bug: a state with a missing scalar"),
        Type::Struct(s) => {
            let members: Vec<Type> = s.members.iter().map(|(_, t)| t.clone()).collect();
            let parts = members.iter().map(|t| put_together(b, t, leaves)).collect();
            b.push(Op::MakeStruct(parts), ty.clone())
        }
        _ => {
            let parts = leaves.split_off(leaves.len() - ty.leaf_count()).into_iter().rev().collect();
            b.push(Op::MakeTensor(parts), ty.clone())
        }
    }
}

/// Some loop of the body keeps states in the store.
pub(super) fn any_uses_store(plan: &Plan) -> bool {
    plan.loops.keys().any(|v| uses_store(plan, *v))
}

/// A loop within a block keeps states in the store.
pub(super) fn uses_store_within(plan: &Plan, block: octants_ir::BlockId) -> bool {
    let body: &Body = plan.body;
    let mut found = false;
    body.visit(block, &mut |v, _| found |= uses_store(plan, v));
    found
}

/// The variables that are kept in the store, and their loops. `lengths` are the strip lengths of strip-mined loops.
pub(super) fn stored_states(plan: &Plan, lengths: &HashMap<ValueId, u32>) -> Vec<StoredState> {
    let mut out = Vec::new();
    plan.body.visit(plan.body.root, &mut |v, inst| {
        if uses_store(plan, v) {
            let of = |l: &LocalId| {
                let Local { name, ty } = &plan.body.locals[l.index()];
                let bytes = ty.leaves().iter().map(|s| if word_class(*s) == 0 { 4 } else { 8 }).sum();
                let every = lengths.get(&v).copied().unwrap_or(1);
                StoredState { name: name.clone(), span: inst.span, bytes, every }
            };
            out.extend(plan.loops[&v].kept.iter().map(of));
        }
    });
    out
}
