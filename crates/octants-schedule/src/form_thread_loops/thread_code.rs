//! The code of a region: a loop over the threads of a subgroup, with the code between two synchronization points.

use std::collections::BTreeSet;

use octants_analysis::{first_use_sets, may_leave, trace_element};
use octants_ir::{BinaryOp, BlockId, GridValue, LocalId, MemorySpace, Op, Scalar, Type, ValueId, push_plain_swap};

use super::emit::Emitter;
use super::plan::Region;
use super::rates::Rate;
use super::recompute::is_recomputed;
use super::values::LocalStorage;

/// The values and locals that a region uses.
#[derive(Default)]
struct Uses {
    values: Vec<ValueId>,
    /// Locals, and which of them it writes to.
    locals: BTreeSet<LocalId>,
    written: BTreeSet<LocalId>,
    /// Remainders of values that step from thread to thread.
    remainders: Vec<ValueId>,
    /// Threads update the same memory of their block.
    updates: bool,
}

impl Emitter<'_> {
    /// A loop over the threads of a subgroup.
    pub fn region(&mut self, region: &Region) {
        let uses = self.uses(&region.insts);
        for v in &uses.remainders {
            self.value(*v);
        }
        self.in_region(region, !uses.updates, |e| {
            e.start_locals(Rate::Thread, region.number);
            let mut copied = Vec::new();
            for l in &uses.locals {
                if let Some(LocalStorage::Memory { is_copied: true, .. }) = e.storage.locals.get(l) {
                    e.copy_in(*l, region);
                    copied.push(*l);
                }
            }
            e.written = copied.into_iter().filter(|l| uses.written.contains(l)).collect();
            for v in &uses.values {
                e.value(*v);
            }
            region.insts.iter().for_each(|v| e.thread_inst(*v));
            e.write_back();
        });
    }

    /// Copies a kept local, unless the region sets it first.
    fn copy_in(&mut self, l: LocalId, region: &Region) {
        let body = self.code.body;
        let copy = self.copy_local(l);
        let is_set = first_use_sets(body, &region.insts, l) == Some(true);
        let leaves = region.insts.iter().any(|v| body.inst(*v).op.blocks().into_iter().any(|b| may_leave(body, b)));
        if is_set && !leaves {
            return;
        }
        let slots = self.slots;
        let slot = &slots.locals[&l];
        let index = self.slot_index(slot);
        let ty = &body.locals[l.index()].ty;
        let mut value = slot.tree.load(&mut self.b, index, ty);
        if is_set {
            // A thread that exits earlier writes back a value that may be undefined.
            value = self.b.push(Op::Freeze(value), ty.clone());
        }
        self.b.store_local(copy, value);
    }

    /// Runs code for each thread of the subgroup, or for the only one that a region is for.
    fn in_region(&mut self, region: &Region, are_independent: bool, code: impl FnOnce(&mut Self)) {
        match region.only {
            None => self.in_lanes(are_independent, code),
            Some([steps, other]) => {
                let [first, other] = [steps, other].map(|v| self.value(v));
                let lane = self.b.binary(BinaryOp::Sub, other, first);
                self.in_lane(lane, code);
            }
        }
    }

    /// Collects the uses of instructions, including nested ones.
    fn uses(&self, insts: &[ValueId]) -> Uses {
        let mut uses = Uses::default();
        let body = self.code.body;
        let mut inside = BTreeSet::new();
        let mut note = |v: ValueId, is_top: bool| {
            inside.insert(v);
            if self.plan.sites[v.index()].is_none() || self.code.becomes_no_code(v) {
                return;
            }
            let op = &body.inst(v).op;
            let mut locals = Vec::new();
            op.for_each_operand(|u| {
                locals.extend(self.code.local_of(u));
                self.collect(u, &inside, &mut uses);
            });
            uses.locals.extend(&locals);
            if matches!(op, Op::Store(..) | Op::Atomic(..) | Op::AtomicCas(..) | Op::Call(..)) {
                uses.written.extend(&locals);
            }
            if let Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) = op {
                uses.updates |= self.is_of_block(*a);
            }
            if is_top && self.is_remainder(v) {
                uses.remainders.push(v);
            }
        };
        for &v in insts {
            note(v, true);
            body.inst(v).op.blocks().into_iter().for_each(|b| body.visit(b, &mut |v, _| note(v, false)));
        }
        uses
    }

    /// Collects a value from outside of a region.
    fn collect(&self, u: ValueId, inside: &BTreeSet<ValueId>, uses: &mut Uses) {
        let u = self.code.locals.source(u);
        if inside.contains(&u) || self.plan.sites[u.index()].is_none() {
            return;
        }
        if is_recomputed(self.code, self.rates, u) && !self.values.contains_key(&u) {
            self.code.body.inst(u).op.for_each_operand(|w| self.collect(w, inside, uses));
            if self.is_remainder(u) {
                uses.remainders.push(u);
            }
        }
        uses.values.push(u);
        uses.locals.extend(self.code.local_of(u));
    }

    /// Whether the memory belongs to the block, whose threads run in sequence.
    fn is_of_block(&self, address: ValueId) -> bool {
        trace_element(self.code.body, address).is_some_and(|(b, _)| self.code.spaces[b.index()] == MemorySpace::Shared)
    }

    /// A remainder that is its value on the first thread plus the index in the subgroup.
    fn is_remainder(&self, v: ValueId) -> bool {
        let is_remainder =
            matches!(self.code.body.inst(v).op, Op::Binary(BinaryOp::Mod | BinaryOp::Rem | BinaryOp::And, ..));
        is_remainder && self.rates.steps[v.index()].is_some()
    }

    /// An instruction of a thread.
    pub fn thread_inst(&mut self, v: ValueId) {
        if self.code.becomes_no_code(v) {
            return;
        }
        let inst = self.code.body.inst(v);
        self.b.span = inst.span;
        let copy = match &inst.op {
            Op::If(..) | Op::For(_) | Op::Loop(_) => return self.control(v, &inst.op),
            Op::Continue => {
                if self.depth == 0 {
                    self.write_back();
                }
                self.b.push(Op::Continue, Type::Unit);
                return;
            }
            Op::Subgroup(op, operands) => Some(self.exchange(*op, operands)),
            op => self.plain(v, op),
        };
        if let Some(copy) = copy {
            self.bind(v, copy);
            self.keep(v);
        }
    }

    /// Control of a thread by itself.
    fn control(&mut self, v: ValueId, op: &Op) {
        let mut copied = op.clone();
        copied.map_operands(|u| self.value(u));
        let blocks: Vec<BlockId> = op.blocks().iter().map(|_| self.b.body.add_block()).collect();
        copied.set_blocks(&blocks);
        let copy = self.b.push(copied, Type::Unit);
        self.bind(v, copy);
        let is_loop = !matches!(op, Op::If(..));
        self.depth += usize::from(is_loop);
        let back = self.b.cursor();
        for (from, to) in op.blocks().into_iter().zip(blocks) {
            self.b.set_cursor(to);
            self.code.body.block(from).iter().for_each(|v| self.thread_inst(*v));
        }
        self.b.set_cursor(back);
        self.depth -= usize::from(is_loop);
    }

    /// Copies of stored locals are written back.
    fn write_back(&mut self) {
        for l in self.written.clone() {
            let slots = self.slots;
            let slot = &slots.locals[&l];
            let index = self.slot_index(slot);
            let value = self.b.load_local(self.copies[&l]);
            slot.tree.store(&mut self.b, index, value);
        }
    }

    /// Any other instruction, at the rate of the code at the cursor; returns its replacement, if any.
    pub fn plain(&mut self, v: ValueId, op: &Op) -> Option<ValueId> {
        let ty = &self.code.body.inst(v).ty;
        match op {
            Op::LoopIndex(l, axis) if *l == self.code.loop_id => {
                let indices = self.here.lane.as_ref().map_or(&self.here.indices, |(_, indices)| indices);
                Some(indices[*axis as usize])
            }
            Op::Grid(value) => Some(self.grid_value(*value)),
            Op::Binary(..) if self.here.lane.is_some() && self.is_remainder(v) => self.stepped(v, op),
            Op::LocalAddr(l) => Some(self.local_address(v, *l)),
            Op::Atomic(op, a, x) if self.is_alone(*a) => {
                let [a, x] = [*a, *x].map(|u| self.value(u));
                let old = self.b.load(a);
                let new = op.binary().map_or(x, |op| self.b.binary(op, old, x));
                self.b.store(a, new);
                Some(old)
            }
            Op::AtomicCas(a, expected, desired) if self.is_alone(*a) => {
                let [a, expected, desired] = [*a, *expected, *desired].map(|u| self.value(u));
                let old = self.b.load(a);
                let mut placed = Vec::new();
                let like = self.code.body.inst(v);
                push_plain_swap(&mut self.b.body, &mut placed, like, (a, expected, desired), old);
                placed.into_iter().for_each(|v| self.b.place(v));
                Some(old)
            }
            op => {
                let mut op = op.clone();
                op.map_operands(|u| self.value(u));
                Some(self.b.push(op, ty.clone()))
            }
        }
    }

    fn grid_value(&mut self, value: GridValue) -> ValueId {
        match value {
            GridValue::Thread => self.thread(),
            GridValue::Lane => {
                let size = self.code.subgroup_size;
                if self.rates.width == size.min(self.code.block_dim) {
                    return self.lane();
                }
                let thread = self.thread();
                let mask = self.b.int(i64::from(size) - 1, Scalar::I32);
                self.b.binary(BinaryOp::And, thread, mask)
            }
            GridValue::BlockSize => self.b.int(self.code.block_dim.into(), Scalar::I32),
            GridValue::Block => self.here.block,
            GridValue::Blocks => self.here.blocks,
            GridValue::SubgroupSize => self.b.int(self.code.subgroup_size.into(), Scalar::I32),
        }
    }

    /// A remainder on this thread: on the first one of the subgroup, plus the index in it.
    fn stepped(&mut self, v: ValueId, op: &Op) -> Option<ValueId> {
        let ty = self.code.body.ty(v).clone();
        let Some(first) = self.firsts.get(&(v, Rate::Subgroup)).copied() else {
            let mut op = op.clone();
            op.map_operands(|u| self.value(u));
            return Some(self.b.push(op, ty));
        };
        let lane = self.lane();
        let lane = self.b.cast(lane, ty.scalar().expect("compiler bug: a remainder that is not a scalar"));
        Some(self.b.binary(BinaryOp::Add, first, lane))
    }

    /// The address of a local.
    fn local_address(&mut self, v: ValueId, l: LocalId) -> ValueId {
        match self.storage.locals.get(&l) {
            Some(LocalStorage::Memory { is_copied: false, .. }) => {
                let slots = self.slots;
                let slot = &slots.locals[&l];
                let index = self.slot_index(slot);
                let Type::Ref(ty) = self.code.body.ty(v) else { panic!("compiler bug: {v} is not an address") };
                slot.tree.address(&mut self.b, index, ty)
            }
            Some(LocalStorage::Block) | None => self.b.local_addr(l),
            Some(_) => self.b.local_addr(self.copies[&l]),
        }
    }

    /// No other thread of the machine updates the memory.
    fn is_alone(&self, address: ValueId) -> bool {
        let local_storage = self.code.local_of(address).and_then(|l| self.storage.locals.get(&l));
        self.is_of_block(address) || matches!(local_storage, Some(LocalStorage::Memory { is_copied: false, .. }))
    }
}
