//! [`Emitter`]: writes the code of a block from its [`Plan`]: loops over subgroups and threads, the control around
//! them, and what runs once. `thread_code` writes the bodies of loops over threads, `exchange` the exchanges between
//! threads.

use std::collections::HashMap;

use octants_ir::insert_code::zero;
use octants_ir::{
    BinaryOp, Body, Builder, CodeSizeHint, ForLoop, LocalId, LoopHints, Op, Range, Scalar, Type, ValueId,
};

use super::memory::{Slot, Slots};
use super::plan::{Node, Plan};
use super::rates::{Rate, Rates, ThreadCode};
use super::recompute::is_recomputed;
use super::values::{Extent, LocalStorage, Storage};

/// Which threads the code at the cursor is for.
#[derive(Debug, Clone)]
pub(super) struct Position {
    /// The first iteration of the block in the flattened index space, i64.
    pub first: ValueId,
    /// The block's index and the number of blocks, i32.
    pub block: ValueId,
    pub blocks: ValueId,
    /// Threads of the block, i32.
    pub threads: ValueId,
    /// The first thread of the subgroup, or of the block, i32, and the indices of its iteration.
    pub base: ValueId,
    pub indices: Vec<ValueId>,
    /// In a loop over subgroups: the subgroup, and how many threads it has, i32.
    pub subgroup: Option<(ValueId, ValueId)>,
    /// In a loop over threads: the index in the subgroup, i32, and the indices of the iteration.
    pub lane: Option<(ValueId, Vec<ValueId>)>,
}

/// Whether blocks have all their threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Whole,
    /// The last block: its code is short rather than fast.
    Partial,
}

/// Writes the code of a block.
pub(super) struct Emitter<'a> {
    pub code: &'a ThreadCode<'a>,
    pub rates: &'a Rates,
    pub plan: &'a Plan,
    pub storage: &'a Storage,
    pub slots: &'a Slots,
    pub b: Builder,
    pub fill: Fill,
    pub here: Position,
    /// The copies of values of the threads' code that are in scope.
    pub values: HashMap<ValueId, ValueId>,
    /// The value on the first of the threads that it serves, by rate.
    pub firsts: HashMap<(ValueId, Rate), ValueId>,
    /// Locals that serve subgroups or threads in turn, and copies of kept locals.
    pub copies: HashMap<LocalId, LocalId>,
    /// Entries that the open scopes have made.
    entries: Vec<Entry>,
    /// Loops of a thread around the cursor.
    pub depth: usize,
    /// Locals that a region writes back.
    pub written: Vec<LocalId>,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Value(ValueId),
    First(ValueId, Rate),
}

impl<'a> Emitter<'a> {
    /// An emitter at the start of a block's code.
    pub fn new(
        (code, rates, plan): (&'a ThreadCode<'a>, &'a Rates, &'a Plan),
        (storage, slots): (&'a Storage, &'a Slots),
        b: Builder,
        fill: Fill,
        here: Position,
    ) -> Emitter<'a> {
        Emitter {
            code,
            rates,
            plan,
            storage,
            slots,
            b,
            fill,
            here,
            values: HashMap::new(),
            firsts: HashMap::new(),
            copies: HashMap::new(),
            entries: Vec::new(),
            depth: 0,
            written: Vec::new(),
        }
    }

    /// The code of the block.
    pub fn block(mut self) -> Body {
        self.clear_kept_locals();
        let plan = self.plan;
        self.nodes(&plan.nodes);
        self.b.body
    }

    /// How many times the code at the cursor runs.
    pub fn rate(&self) -> Rate {
        match (&self.here.lane, &self.here.subgroup) {
            (Some(_), _) => Rate::Thread,
            (None, Some(_)) => Rate::Subgroup,
            (None, None) => Rate::Block,
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Once(v) => self.once(*v),
                Node::Lanes(region) => self.region(region),
                Node::Subgroups(inner, number) => self.in_subgroups(|e| {
                    e.start_locals(Rate::Subgroup, *number);
                    e.nodes(inner);
                }),
                Node::If(v, yes, no) => {
                    let Op::If(c, ..) = self.code.body.inst(*v).op else { panic!("compiler bug: {v} is not a branch") };
                    let c = self.value(c);
                    let blocks = [self.b.body.add_block(), self.b.body.add_block()];
                    self.b.push(Op::If(c, blocks[0], blocks[1]), Type::Unit);
                    let back = self.b.cursor();
                    for (block, nodes) in blocks.into_iter().zip([yes, no]) {
                        self.b.set_cursor(block);
                        self.scoped(|e| e.nodes(nodes));
                    }
                    self.b.set_cursor(back);
                }
                Node::Repeat(v, inner) => self.repeat(*v, inner),
            }
        }
    }

    /// A loop that the threads run together.
    fn repeat(&mut self, v: ValueId, inner: &[Node]) {
        let mut op = self.code.body.inst(v).op.clone();
        op.map_operands(|u| self.value(u));
        let body = self.b.body.add_block();
        op.set_blocks(&[body]);
        let copy = self.b.push(op, Type::Unit);
        let back = self.b.set_cursor(body);
        self.scoped(|e| {
            e.bind(v, copy);
            e.nodes(inner);
        });
        self.b.set_cursor(back);
    }

    /// An instruction that runs once for several threads.
    fn once(&mut self, v: ValueId) {
        let inst = self.code.body.inst(v);
        self.b.span = inst.span;
        let copy = match &inst.op {
            Op::BlockCount(c) => Some(self.count_threads(*c)),
            Op::Subgroup(op, operands) => match op.product() {
                Some(kind) => return self.product(v, kind, [operands[0], operands[1], operands[2]]),
                None => Some(self.exchange_once(*op, operands)),
            },
            op => self.plain(v, op),
        };
        if let Some(copy) = copy {
            self.bind(v, copy);
        }
        self.keep(v);
    }

    /// The copy of a value of the threads' code at the cursor.
    pub fn value(&mut self, v: ValueId) -> ValueId {
        let v = self.code.locals.source(v);
        if self.plan.sites[v.index()].is_none() {
            // It is before the loop.
            return v;
        }
        let (rate, here) = (self.rates.runs[v.index()], self.rate());
        let found = if rate <= here { self.values.get(&v) } else { self.firsts.get(&(v, here)) };
        if let Some(found) = found {
            return *found;
        }
        let (span, slots) = (self.b.span, self.slots);
        // A value that is stored only for an exchange may be available in only one loop over subgroups.
        let kept = slots.values.get(&v).filter(|_| !is_recomputed(self.code, self.rates, v));
        let made = match kept {
            Some(slot) => {
                let index = self.slot_index(slot);
                slot.tree.load(&mut self.b, index, self.code.body.ty(v))
            }
            None => {
                let inst = self.code.body.inst(v);
                let made = self.plain(v, &inst.op);
                made.unwrap_or_else(|| panic!("compiler bug: {v} is neither stored nor recomputed"))
            }
        };
        self.b.span = span;
        if rate <= here {
            self.bind(v, made);
        } else {
            self.firsts.insert((v, here), made);
            self.entries.push(Entry::First(v, here));
        }
        made
    }

    /// Registers `copy` as the copy of a value in this scope.
    pub fn bind(&mut self, v: ValueId, copy: ValueId) {
        self.values.insert(v, copy);
        self.entries.push(Entry::Value(v));
    }

    /// Emits code in a nested scope of copies.
    pub fn scoped(&mut self, code: impl FnOnce(&mut Self)) {
        let start = self.entries.len();
        code(self);
        for entry in self.entries.split_off(start) {
            match entry {
                Entry::Value(v) => _ = self.values.remove(&v),
                Entry::First(v, rate) => _ = self.firsts.remove(&(v, rate)),
            }
        }
    }

    /// Keeps a value that other regions need.
    pub fn keep(&mut self, v: ValueId) {
        let slots = self.slots;
        if let Some(slot) = slots.values.get(&v) {
            let index = self.slot_index(slot);
            let value = self.values[&v];
            slot.tree.store(&mut self.b, index, value);
        }
    }

    /// The index of the current thread's element, or of the first thread's if the code serves several.
    pub fn slot_index(&mut self, slot: &Slot) -> ValueId {
        let index = match slot.extent {
            Extent::Lane => self.lane(),
            Extent::Thread => self.thread(),
            Extent::Subgroup => match self.here.subgroup {
                Some((number, _)) => number,
                None => self.b.int(0, Scalar::I32),
            },
        };
        self.plus(index, slot.padding.into())
    }

    /// The index in the subgroup.
    pub fn lane(&mut self) -> ValueId {
        match &self.here.lane {
            Some((lane, _)) => *lane,
            None => self.b.int(0, Scalar::I32),
        }
    }

    /// The index in the block.
    pub fn thread(&mut self) -> ValueId {
        match &self.here.lane {
            Some((lane, _)) => self.b.binary(BinaryOp::Add, self.here.base, *lane),
            None => self.here.base,
        }
    }

    /// A sum with a constant.
    pub fn plus(&mut self, v: ValueId, n: i64) -> ValueId {
        if n == 0 {
            return v;
        }
        let scalar = self.b.ty(v).scalar().expect("compiler bug: a sum of a type without scalars");
        let n = self.b.int(n, scalar);
        self.b.binary(BinaryOp::Add, v, n)
    }

    /// A loop over the subgroups of the block.
    pub fn in_subgroups(&mut self, code: impl FnOnce(&mut Self)) {
        let width = i64::from(self.rates.width);
        let is_whole = self.fill == Fill::Whole;
        let count = match self.fill {
            Fill::Whole => self.b.int(i64::from(self.code.block_dim.div_ceil(self.rates.width)), Scalar::I32),
            Fill::Partial => {
                let round = self.plus(self.here.threads, width - 1);
                let width = self.b.int(width, Scalar::I32);
                self.b.binary(BinaryOp::Div, round, width)
            }
        };
        let around = self.here.clone();
        self.counted(count, LoopHints::default(), |e, number| {
            let size = e.b.int(width, Scalar::I32);
            let base = e.b.binary(BinaryOp::Mul, number, size);
            let threads = if is_whole && e.code.block_dim.is_multiple_of(e.rates.width) {
                size
            } else {
                let rest = e.b.binary(BinaryOp::Sub, e.here.threads, base);
                e.b.binary(BinaryOp::Min, size, rest)
            };
            let offset = e.b.cast(base, Scalar::I64);
            let linear = e.b.binary(BinaryOp::Add, e.here.first, offset);
            let indices = e.decode(linear);
            e.here = Position { base, indices, subgroup: Some((number, threads)), ..e.here.clone() };
            code(e);
        });
        self.here = around;
    }

    /// A loop over the threads of the current subgroup. `are_independent`: no thread reads memory that another one
    /// writes.
    pub fn in_lanes(&mut self, are_independent: bool, code: impl FnOnce(&mut Self)) {
        let (_, threads) = self.here.subgroup.expect("compiler bug: no enclosing loop over subgroups");
        let hints = LoopHints {
            independent: are_independent && self.fill == Fill::Whole,
            no_vectors: self.fill == Fill::Partial,
            code_size: CodeSizeHint::VectorsFirst,
            ..LoopHints::default()
        };
        self.counted(threads, hints, |e, lane| {
            let indices = e.indices_of_lane(lane);
            e.here.lane = Some((lane, indices));
            code(e);
            e.here.lane = None;
        });
    }

    /// Runs code for the thread with an index in the subgroup, if there is one.
    pub fn in_lane(&mut self, lane: ValueId, code: impl FnOnce(&mut Self)) {
        let (_, threads) = self.here.subgroup.expect("compiler bug: no enclosing loop over subgroups");
        let scalar = self.b.ty(lane).scalar().expect("compiler bug: an index is not a scalar");
        // An index below zero or beyond the last thread is invalid.
        let zero = self.b.int(0, scalar);
        let end = self.b.cast(threads, scalar);
        let [is_from, is_to] = [self.b.binary(BinaryOp::Ge, lane, zero), self.b.binary(BinaryOp::Lt, lane, end)];
        let is_there = self.b.binary(BinaryOp::And, is_from, is_to);
        let [yes, no] = [self.b.body.add_block(), self.b.body.add_block()];
        self.b.push(Op::If(is_there, yes, no), Type::Unit);
        let back = self.b.set_cursor(yes);
        self.scoped(|e| {
            let lane = e.b.cast(lane, Scalar::I32);
            let indices = e.indices_of_lane(lane);
            e.here.lane = Some((lane, indices));
            code(e);
            e.here.lane = None;
        });
        self.b.set_cursor(back);
    }

    /// A loop from zero to a count, i32.
    pub fn counted(&mut self, end: ValueId, hints: LoopHints, code: impl FnOnce(&mut Self, ValueId)) {
        let (begin, body) = (self.b.int(0, Scalar::I32), self.b.body.add_block());
        let l = ForLoop { hints, ..ForLoop::serial(vec![Range { begin, end }], body) };
        let l = self.b.push(Op::For(Box::new(l)), Type::Unit);
        let back = self.b.set_cursor(body);
        let index = self.b.push(Op::LoopIndex(l, 0), Type::I32);
        self.scoped(|e| code(e, index));
        self.b.set_cursor(back);
    }

    /// The indices of an iteration.
    pub fn decode(&mut self, linear: ValueId) -> Vec<ValueId> {
        decode(&mut self.b, self.code, linear)
    }

    /// The indices of the iteration that a thread of the subgroup runs.
    fn indices_of_lane(&mut self, lane: ValueId) -> Vec<ValueId> {
        let Some(last) = self.code.of.dims.len().checked_sub(1) else { return Vec::new() };
        if last > 0 && !self.rates.rows_are_whole(self.code) {
            let thread = self.b.binary(BinaryOp::Add, self.here.base, lane);
            let offset = self.b.cast(thread, Scalar::I64);
            let linear = self.b.binary(BinaryOp::Add, self.here.first, offset);
            return self.decode(linear);
        }
        let mut indices = self.here.indices.clone();
        let scalar = self.b.ty(indices[last]).scalar().expect("compiler bug: an index is not a scalar");
        let lane = self.b.cast(lane, scalar);
        indices[last] = self.b.binary(BinaryOp::Add, indices[last], lane);
        indices
    }

    /// Locals that serve subgroups or threads in turn, from here on.
    pub fn start_locals(&mut self, rate: Rate, number: usize) {
        for (l, local_storage) in &self.storage.locals {
            if let LocalStorage::InTurn { rate: of, at, is_zeroed } = local_storage
                && (*of, *at) == (rate, number)
            {
                let copy = self.copy_local(*l);
                if *is_zeroed {
                    let zero = zero(&mut self.b, &self.code.body.locals[l.index()].ty);
                    self.b.store_local(copy, zero);
                }
            }
        }
        if rate == Rate::Subgroup {
            self.clear_kept(Some(number));
        }
    }

    /// A local that replaces one of the threads' code from here on.
    pub fn copy_local(&mut self, l: LocalId) -> LocalId {
        let local = &self.code.body.locals[l.index()];
        let copy = self.b.body.add_local(local.name.clone(), local.ty.clone());
        self.copies.insert(l, copy);
        copy
    }

    /// Locals that are kept for the whole block are zero at its start.
    fn clear_kept_locals(&mut self) {
        let is_needed = |of: &LocalStorage| match of {
            LocalStorage::Memory { is_zeroed, extent, .. } => *is_zeroed && *extent != Extent::Lane,
            _ => false,
        };
        if self.storage.locals.values().any(is_needed) {
            self.in_subgroups(|e| e.clear_kept(None));
        }
    }

    /// Clears locals that are kept for the whole block, or for one loop over subgroups.
    fn clear_kept(&mut self, number: Option<usize>) {
        let slots = self.slots;
        let mut cleared: Vec<(&Slot, &Type)> = Vec::new();
        for (l, local_storage) in &self.storage.locals {
            let LocalStorage::Memory { extent, in_loop, is_zeroed: true, .. } = local_storage else { continue };
            let is_here = match number {
                None => *extent != Extent::Lane,
                Some(_) => *in_loop == number,
            };
            if is_here {
                cleared.push((&slots.locals[l], &self.code.body.locals[l.index()].ty));
            }
        }
        let clear = |e: &mut Self, slot: &Slot, ty: &Type| {
            let index = e.slot_index(slot);
            let zero = zero(&mut e.b, ty);
            slot.tree.store(&mut e.b, index, zero);
        };
        let (once, each): (Vec<_>, Vec<_>) = cleared.into_iter().partition(|(s, _)| s.extent == Extent::Subgroup);
        once.into_iter().for_each(|(slot, ty)| clear(self, slot, ty));
        if !each.is_empty() {
            self.in_lanes(true, |e| each.into_iter().for_each(|(slot, ty)| clear(e, slot, ty)));
        }
    }
}

/// The indices of an iteration of the parallel loop, from its number.
pub(super) fn decode(b: &mut Builder, code: &ThreadCode<'_>, linear: ValueId) -> Vec<ValueId> {
    let mut rest = linear;
    let mut indices = Vec::new();
    for (axis, range) in code.of.dims.iter().enumerate().rev() {
        let mut at = rest;
        if axis > 0 {
            let extent = extent(b, code, axis);
            at = b.binary(BinaryOp::Rem, rest, extent);
            rest = b.binary(BinaryOp::Div, rest, extent);
        }
        let scalar = b.ty(range.begin).scalar().expect("compiler bug: a bound is not a scalar");
        let at = b.cast(at, scalar);
        indices.push(if code.known(range.begin) == Some(0) { at } else { b.binary(BinaryOp::Add, range.begin, at) });
    }
    indices.reverse();
    indices
}

/// The extent of an axis of the parallel loop, i64, not negative.
pub(super) fn extent(b: &mut Builder, code: &ThreadCode<'_>, axis: usize) -> ValueId {
    if let Some(known) = code.extent(axis) {
        return b.int(known, Scalar::I64);
    }
    let range = &code.of.dims[axis];
    let [begin, end] = [range.begin, range.end].map(|v| b.cast(v, Scalar::I64));
    let trips = b.binary(BinaryOp::Sub, end, begin);
    let none = b.int(0, Scalar::I64);
    b.binary(BinaryOp::Max, trips, none)
}
