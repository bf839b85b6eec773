//! Finds the sums that a parallel loop's inner loops scatter along their indices, and the slice of an iteration that
//! computes them.
//!
//! A slice consists of the values that a sum needs, the branches around them, and the locals that they pass through.
//! It contains no loop but the inner one, reads no memory that the iteration has changed, and reads no local that
//! another iteration of the inner loop has set.

use std::collections::{BTreeSet, HashSet};

use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Effect, ForLoop, LocalId, Op, Type, ValueId};

use super::{Gather, Index, Mirror, Update, axes, for_loop, known_range};
use octants_analysis::{CodeLayout, MemoryClasses, Place, Sums, Term, may_leave, trace_address};

/// The first sums of a parallel loop that can be gathered, except those that were processed.
pub(super) fn find(
    body: &Body,
    buffers: &[Buffer],
    shadow_buffers: &BTreeSet<BufferId>,
    parallel: ValueId,
    done: &HashSet<ValueId>,
) -> Option<Gather> {
    let l = for_loop(body, parallel)?;
    if !l.is_parallel() || !l.reductions.is_empty() {
        return None;
    }
    // An exit from an iteration also skips later code.
    let mut plain = true;
    body.visit(l.body, &mut |_, inst| plain &= !matches!(inst.op, Op::Assert(..) | Op::Call(..) | Op::Return(_)));
    if !plain || may_leave(body, l.body) {
        return None;
    }
    let layout = CodeLayout::of(body);
    let mut used = HashSet::new();
    body.visit(l.body, &mut |_, inst| inst.op.for_each_operand(|u| _ = used.insert(u)));
    let is_wanted =
        |u: &Update| shadow_buffers.contains(&u.buffer) && !used.contains(&u.inst) && !done.contains(&u.inst);
    for &inner in body.block(l.body) {
        let Some(i) = for_loop(body, inner).filter(|i| i.dims.len() == 1) else { continue };
        if may_leave(body, i.body) {
            continue;
        }
        let search = Search { body, buffers, layout: &layout, parallel, outer: l, inner };
        let mut found = Vec::new();
        search.updates(i.body, &mut found);
        found.retain(|u| is_wanted(u) && search.only_added_to(u.buffer));
        for first in 0..found.len() {
            let like = |a: &Update, b: &Update| {
                a.mirror == b.mirror && axes(a) == axes(b) && known_range(buffers, a) == known_range(buffers, b)
            };
            // Together with those that the same loop gathers, or separately.
            let all: Vec<usize> = (first..found.len()).filter(|k| like(&found[*k], &found[first])).collect();
            for members in [all, vec![first]] {
                let mirror = found[first].mirror;
                let seeds =
                    members.iter().flat_map(|k| [found[*k].inst, found[*k].value]).chain(mirror.map(|m| m.last));
                let seeds = seeds.chain([i.dims[0].begin, i.dims[0].end]).collect();
                let Some((needed, private)) = search.slice(seeds) else { continue };
                let chosen = found.into_iter().enumerate().filter(|(k, _)| members.contains(k));
                let updates = chosen.map(|(_, u)| u).collect();
                return Some(Gather { parallel, inner, mirror, updates, needed, private });
            }
        }
    }
    None
}

struct Search<'a> {
    body: &'a Body,
    buffers: &'a [Buffer],
    layout: &'a CodeLayout,
    parallel: ValueId,
    outer: &'a ForLoop,
    inner: ValueId,
}

impl Search<'_> {
    fn inner_body(&self) -> BlockId {
        self.body.inst(self.inner).op.blocks()[0]
    }

    /// The sums in a block of the inner loop and its branches whose elements are determined by indices.
    fn updates(&self, block: BlockId, found: &mut Vec<Update>) {
        for &v in self.body.block(block) {
            match &self.body.inst(v).op {
                Op::If(_, yes, no) => [yes, no].iter().for_each(|b| self.updates(**b, found)),
                Op::Atomic(AtomicOp::Add, addr, value) => found.extend(self.update(v, BinaryOp::Add, *addr, *value)),
                Op::Atomic(AtomicOp::Sub, addr, value) => found.extend(self.update(v, BinaryOp::Sub, *addr, *value)),
                _ => {}
            }
        }
    }

    /// A sum into an element with one axis indexed by the inner loop, and some by the parallel loop. The other axes of
    /// the parallel loop become serial.
    fn update(&self, inst: ValueId, op: BinaryOp, addr: ValueId, value: ValueId) -> Option<Update> {
        let is_fixed =
            |v: ValueId| *self.body.ty(v) == Type::I32 && matches!(self.body.inst(v).op, Op::Const(_) | Op::Param(_));
        let fixed = |v: &ValueId| is_fixed(*v).then(|| self.body.inst(*v).op.clone());
        let (element, component) = match &self.body.inst(addr).op {
            Op::ElementAddr(base, path) => (*base, path.iter().map(fixed).collect::<Option<Vec<_>>>()?),
            _ => (addr, Vec::new()),
        };
        let Op::BufferAddr(buffer, positions) = &self.body.inst(element).op else { return None };
        let mut sums = Sums::new(self.body);
        let (mut indices, mut mirror) = (Vec::new(), None);
        for &i in positions {
            let term = sums.of(i).and_then(|sum| sum.as_term());
            let index = match term {
                Some(Term::Index(l, axis)) if l == self.parallel => Index::Outer(axis),
                Some(Term::Index(l, 0)) if l == self.inner => Index::Inner,
                _ if is_fixed(i) => Index::Fixed(self.body.inst(i).op.clone()),
                _ => {
                    mirror = Some(self.mirror(i)?);
                    Index::Inner
                }
            };
            if indices.contains(&index) && !matches!(index, Index::Fixed(_)) {
                return None;
            }
            indices.push(index);
        }
        let outer = indices.iter().filter(|i| matches!(i, Index::Outer(_))).count();
        let is_gathered = indices.contains(&Index::Inner) && outer < self.outer.dims.len();
        is_gathered.then_some(Update { inst, op, buffer: *buffer, indices, mirror, component, value })
    }

    /// How an index follows the inner loop's backwards.
    fn mirror(&self, index: ValueId) -> Option<Mirror> {
        let (op, begin) = (&self.body.inst(index).op, for_loop(self.body, self.inner)?.dims[0].begin);
        let (left, from_begin) = match op {
            Op::Binary(BinaryOp::Add, first, left) if *first == begin => (&self.body.inst(*left).op, true),
            _ => (op, false),
        };
        let Op::Binary(BinaryOp::Sub, last, k) = *left else { return None };
        let is_index = self.body.inst(k).op == Op::LoopIndex(self.inner, 0);
        (is_index && !self.layout.is_inside(last, self.inner_body())).then_some(Mirror { last, from_begin })
    }

    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        MemoryClasses::of(self.buffers, false).may_alias(a.index(), b.index())
    }

    /// The parallel loop does nothing with a buffer but add to it.
    fn only_added_to(&self, buffer: BufferId) -> bool {
        let mut only = true;
        self.body.visit(self.outer.body, &mut |_, inst| {
            let addr = match (&inst.op, inst.op.effect()) {
                (Op::Atomic(AtomicOp::Add | AtomicOp::Sub, ..), _) => return,
                (Op::AddressBits(a), _) => *a,
                (_, Effect::Read(a) | Effect::ReadVolatile(a) | Effect::Write(a) | Effect::Update(a)) => a,
                _ => return,
            };
            only &= !matches!(trace_address(self.body, addr), Place::Buffer(b) if self.overlap(b, buffer));
        });
        only
    }

    /// The slice of an iteration that computes the seeds; `None` if it cannot be computed separately.
    fn slice(&self, seeds: Vec<ValueId>) -> Option<(HashSet<ValueId>, HashSet<LocalId>)> {
        let (body, layout) = (self.body, self.layout);
        let (mut needed, mut private) = (HashSet::new(), HashSet::new());
        let updates: HashSet<ValueId> = seeds.iter().copied().collect();
        let mut work = seeds;
        while let Some(v) = work.pop() {
            if !layout.is_inside(v, self.outer.body) || !needed.insert(v) {
                continue;
            }
            match &body.inst(v).op {
                // Its value is a seed, its address is made again.
                Op::Atomic(..) if updates.contains(&v) => {}
                Op::LoopIndex(l, _) if *l == self.parallel || *l == self.inner => {}
                Op::If(c, ..) => work.push(*c),
                Op::Load(a) => {
                    work.push(*a);
                    match trace_address(body, *a) {
                        Place::Buffer(b) => self.keeps_until_read(v, b)?,
                        Place::Local(l) => self.need_local(v, l, &mut work, &mut private)?,
                        _ => return None,
                    }
                }
                Op::Store(a, x) if matches!(trace_address(body, *a), Place::Local(_)) => work.extend([*a, *x]),
                Op::Atomic(_, a, x) => {
                    let Place::Local(l) = trace_address(body, *a) else { return None };
                    work.extend([*a, *x]);
                    self.need_local(v, l, &mut work, &mut private)?;
                }
                op if op.is_pure() => op.for_each_operand(|u| work.push(u)),
                _ => return None,
            }
            let mut at = layout.home[v.index()];
            self.branches_around(v)?;
            while let Some(owner) = layout.owner[at.index()].filter(|o| *o != self.parallel) {
                work.extend(matches!(body.inst(owner).op, Op::If(..)).then_some(owner));
                at = layout.home[owner.index()];
            }
        }
        Some((needed, private))
    }

    fn need_local(
        &self,
        read: ValueId,
        local: LocalId,
        work: &mut Vec<ValueId>,
        private: &mut HashSet<LocalId>,
    ) -> Option<()> {
        let writes = self.writes_of(read, local)?;
        if !writes.is_empty() {
            private.insert(local);
        }
        work.extend(writes);
        Some(())
    }

    /// Nothing has changed a buffer in an iteration when it is read.
    fn keeps_until_read(&self, load: ValueId, buffer: BufferId) -> Option<()> {
        let (body, layout) = (self.body, self.layout);
        let mut keeps = true;
        body.visit(self.outer.body, &mut |w, inst| {
            let (Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..)) = &inst.op else { return };
            if !matches!(trace_address(body, *a), Place::Buffer(b) if self.overlap(b, buffer)) {
                return;
            }
            let both = |b| layout.is_inside(w, b) && layout.is_inside(load, b);
            keeps &= layout.position[w.index()] > layout.position[load.index()] && !both(self.inner_body());
        });
        keeps.then_some(())
    }

    /// The writes of an iteration to a local before the end of the inner loop. Empty if iterations only read it; `None`
    /// if a read may observe a write of another iteration.
    fn writes_of(&self, read: ValueId, local: LocalId) -> Option<Vec<ValueId>> {
        let (body, layout) = (self.body, self.layout);
        let inside = |v: &ValueId, b: BlockId| layout.is_inside(*v, b);
        let of = layout.stores[local.index()].iter().copied();
        let writes: Vec<ValueId> = of.filter(|w| inside(w, self.outer.body)).collect();
        if writes.is_empty() {
            return Some(writes);
        }
        let in_inner = |w: &ValueId| inside(w, self.inner_body());
        let carries = in_inner(&read) && writes.iter().any(in_inner);
        let around = self.branches_around(read)?;
        let sets = |w: &ValueId| {
            let whole = matches!(body.inst(*w).op, Op::Store(a, _) if body.inst(a).op == Op::LocalAddr(local));
            let branches = self.branches_around(*w);
            let runs = branches.is_some_and(|of| of.iter().all(|b| around.contains(b)));
            whole && runs && layout.position[w.index()] < layout.position[read.index()] && (!carries || in_inner(w))
        };
        if !writes.iter().any(sets) {
            return None;
        }
        let end = layout.position[self.inner.index()];
        Some(writes.into_iter().filter(|w| layout.position[w.index()] < end || in_inner(w)).collect())
    }

    /// The conditions under which an iteration reaches an instruction, and their outcomes; `None` if it is inside a
    /// loop other than the inner one.
    fn branches_around(&self, v: ValueId) -> Option<Vec<(ValueId, bool)>> {
        let mut out = Vec::new();
        let mut at = self.layout.home[v.index()];
        while let Some(owner) = self.layout.owner[at.index()].filter(|o| *o != self.parallel) {
            match self.body.inst(owner).op {
                Op::If(c, yes, _) => out.push((c, at == yes)),
                _ if owner == self.inner => {}
                _ => return None,
            }
            at = self.layout.home[owner.index()];
        }
        Some(out)
    }
}
