//! Defers gradient updates of elements that a sequential loop reads repeatedly: contributions of the iterations are
//! summed in a local, and added to memory once, after the loop.
//!
//! The sum is the same if nothing reads the gradient in between: the loop only reads the field or array, and does not
//! store to memory that may alias it. If the loop or the load may not execute, the address may be invalid. The sum is
//! zero then, and is not added.

use octants_ir::{BlockId, BufferId, LocalId, Op, Type, ValueId};

use super::emit_sweeps::Emitter;
use super::sweep_state::{Deferred, Sum};
use crate::memory_use::changed_by;
use octants_analysis::{MemoryClasses, Place, for_each_element, known_int, same_address, trace_address};
use octants_ir::insert_code::any_bits;

impl Emitter<'_> {
    /// Prepares for sums of a loop that is about to be emitted.
    pub(super) fn begin_deferring(&mut self, v: ValueId) {
        let start = self.mark();
        self.deferred.insert(v, Deferred { start, sums: Vec::new() });
    }

    /// The local that accumulates the gradient of a load's source, if there is one.
    pub(super) fn deferred_sum(&mut self, load: ValueId, addr: ValueId) -> Option<LocalId> {
        let ty = self.source().ty(load).clone();
        let around = self.outermost_invariant(load, addr)?;
        let certain = self.runs_for_certain(load, around);
        let source = self.source();
        let deferred = self.deferred.get_mut(&around)?;
        if let Some(sum) = deferred.sums.iter_mut().find(|s| same_address(source, s.addr, addr)) {
            sum.certain |= certain;
            return Some(sum.local);
        }
        let local = self.b.body.add_local("sum of adjoints", ty);
        deferred.sums.push(Sum { addr, local, certain });
        let start = deferred.start;
        self.zero_at(start, local);
        Some(local)
    }

    /// Adds the sums of a loop that has been emitted.
    pub(super) fn end_deferring(&mut self, v: ValueId) {
        for Sum { addr, local, certain } in self.deferred.remove(&v).into_iter().flat_map(|d| d.sums) {
            let sum = self.b.load_local(local);
            if certain {
                self.add_deferred(addr, sum);
                continue;
            }
            let any = any_bits(&mut self.b, sum);
            self.branch(any, |e| e.add_deferred(addr, sum), |_| ());
        }
    }

    fn add_deferred(&mut self, addr: ValueId, sum: ValueId) {
        let (addr, shared) =
            self.adjoint_address(addr).expect("compiler bug: a deferred update of a gradient that does not exist");
        self.add_at(addr, sum, shared);
    }

    /// The outermost sequential loop around a load in which the address is invariant and the memory is only read.
    fn outermost_invariant(&self, load: ValueId, addr: ValueId) -> Option<ValueId> {
        let (source, layout) = (self.source(), &self.plan.layout);
        let Place::Buffer(buffer) = trace_address(source, addr) else { return None };
        let ty = source.ty(load);
        if !(ty.is_tensor() || matches!(ty, Type::Scalar(_))) || self.gradients[buffer.index()].is_none() {
            return None;
        }
        let mut found = None;
        let mut at = layout.home[load.index()];
        while let Some(owner) = layout.owner[at.index()] {
            if matches!(source.inst(owner).op, Op::For(_) | Op::Loop(_)) {
                if self.plan.is_parallel(owner) || !self.is_invariant(addr, at) || !self.only_reads(buffer, at) {
                    break;
                }
                found = Some(owner);
            }
            at = layout.home[owner.index()];
        }
        found
    }

    /// The indices on the way of an address are computed outside of a block.
    fn is_invariant(&self, addr: ValueId, block: BlockId) -> bool {
        let source = self.source();
        let outside = |v: &ValueId| match source.inst(*v).op {
            Op::Const(_) | Op::Param(_) | Op::Shape(..) => true,
            Op::LoopIndex(l, _) => {
                !self.plan.layout.is_inside(l, block) && !source.inst(l).op.blocks().contains(&block)
            }
            _ => !self.plan.layout.is_inside(*v, block),
        };
        match &source.inst(addr).op {
            Op::ElementAddr(base, indices) => indices.iter().all(outside) && self.is_invariant(*base, block),
            Op::MemberAddr(base, _) => self.is_invariant(*base, block),
            Op::BufferAddr(_, indices) => indices.iter().all(outside),
            _ => false,
        }
    }

    /// Running a block backwards adds to the gradient of a buffer and does not read it.
    fn only_reads(&self, buffer: BufferId, block: BlockId) -> bool {
        let source = self.source();
        let memory = MemoryClasses::of(self.buffers, true);
        let Some(own) = self.gradients[buffer.index()] else { return false };
        let mut only = true;
        // A kernel may use a gradient like any other memory.
        for_each_element(source, block, &mut |b, _| only &= self.gradients[buffer.index()] != Some(b));
        source.visit(block, &mut |_, inst| {
            let Some(a) = changed_by(&inst.op) else { return };
            if let Place::Buffer(b) = trace_address(source, a) {
                only &= self.gradients[b.index()].is_none_or(|g| !memory.may_alias(own.index(), g.index()));
            }
        });
        only
    }

    /// A loop, and a load in it, run whenever the loop is reached.
    fn runs_for_certain(&self, load: ValueId, around: ValueId) -> bool {
        let (source, layout) = (self.source(), &self.plan.layout);
        let mut at = load;
        while at != around {
            let owner = layout.around(at).expect("compiler bug: a load is not in its loop");
            let Op::For(l) = &source.inst(owner).op else { return false };
            let runs = |r: &octants_ir::Range| match (known_int(source, r.begin), known_int(source, r.end)) {
                (Some(begin), Some(end)) => begin < end,
                _ => false,
            };
            if !self.plan.is_counted(owner) || !l.dims.iter().all(runs) {
                return false;
            }
            at = owner;
        }
        true
    }
}
