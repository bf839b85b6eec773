//! Sums that the inner loop of a parallel loop scatters are gathered: by a parallel loop over the elements that they are added to, with
//! the original's iterations in order inside. No two threads meet there, so that nothing is atomic.
//!
//! In `for i: for j: g[j] += f(i, j)` threads of a GPU add to the same element at the same time, which takes a hundred times as long as
//! computing what they add. Here this becomes `for j: for i: g[j] += f(i, j)`, which computes what both loops need twice. Other indices of the parallel
//! loop in the address (the gradient of a product of matrices has them) stay parallel.
//!
//! Only gradients are gathered, where nothing else runs meanwhile and nobody sees the order. The new loop runs first: it reads what the
//! original reads before it writes, and adds to memory that the original does not read. It has as many iterations as the buffer has elements along that axis;
//! a comparison leaves out those that the inner loop does not reach. Where elements are too few to keep a device busy, atomics stay.

use std::collections::{BTreeSet, HashMap, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Const, ForLoop, Inst, Kernel, Layout, LocalId,
    LoopConfig, Op, Range, Scalar, Type, UnaryOp, ValueId,
};

use crate::derivative_rules::zero;
use crate::differentiate_reverse::CodeLayout;
use crate::eliminate_dead_code::eliminate_dead_code;
use crate::hoist_invariants::hoist_invariants;
use crate::insert_code::push_if;
use crate::make_own_updates_plain::may_overlap;
use crate::pipeline::PassOptions;
use crate::trace_address::{Place, trace_address};

/// The serial loop may be so much longer than there are elements along the gathered axis.
const LONGEST: i64 = 16;

/// Gathers sums of gradients that inner loops scatter over at least `options.gather` elements.
pub fn gather_updates(kernel: &mut Kernel, options: &PassOptions) {
    let Some(least) = options.gather.filter(|_| !kernel.companions.is_empty() && !options.arrays_may_alias) else {
        return;
    };
    hoist_invariants(kernel);
    let companions: BTreeSet<BufferId> = kernel.companions.values().copied().collect();
    let mut done = HashSet::new();
    for v in kernel.body.block(kernel.body.root).to_vec() {
        while let Some(gather) = find(&kernel.body, &kernel.buffers, &companions, v, &done) {
            done.extend(gather.updates.iter().map(|u| u.inst));
            Emission { gather: &gather, buffers: &kernel.buffers, least: i64::from(least) }.apply(&mut kernel.body);
        }
    }
    if !done.is_empty() {
        eliminate_dead_code(kernel);
    }
}

/// What an index of a scattered address is.
#[derive(Debug, Clone, PartialEq)]
enum Index {
    /// The parallel loop's, along an axis.
    Outer(u32),
    /// The inner loop's, or what it lacks to `mirror`.
    Inner,
    /// A constant or parameter.
    Fixed(Op),
}

/// A sum into a gradient.
struct Update {
    inst: ValueId,
    op: BinaryOp,
    buffer: BufferId,
    indices: Vec<Index>,
    /// Indices of the component, where it is one.
    component: Vec<Op>,
    value: ValueId,
}

/// Sums of one inner loop that can be gathered by one loop.
struct Gather {
    parallel: ValueId,
    inner: ValueId,
    /// The inner loop's index is this value minus the element's.
    mirror: Option<ValueId>,
    updates: Vec<Update>,
    /// What must be computed again.
    needed: HashSet<ValueId>,
    /// Locals that iterations set.
    private: HashSet<LocalId>,
}

fn for_loop(body: &Body, v: ValueId) -> Option<&ForLoop> {
    match &body.inst(v).op {
        Op::For(l) => Some(l),
        _ => None,
    }
}

fn find(
    body: &Body,
    buffers: &[Buffer],
    companions: &BTreeSet<BufferId>,
    parallel: ValueId,
    done: &HashSet<ValueId>,
) -> Option<Gather> {
    let l = for_loop(body, parallel)?;
    if l.parallel.as_ref().is_none_or(|c| c.serialize) || !l.reductions.is_empty() {
        return None;
    }
    // What ends an iteration ends what comes after it as well.
    let mut plain = true;
    body.visit(l.body, &mut |_, inst| plain &= !matches!(inst.op, Op::Assert(..) | Op::Call(..) | Op::Return(_)));
    if !plain {
        return None;
    }
    let layout = CodeLayout::of(body);
    for &inner in body.block(l.body) {
        let Some(i) = for_loop(body, inner).filter(|i| i.dims.len() == 1) else { continue };
        let mut leaves = false;
        body.visit(i.body, &mut |_, inst| leaves |= matches!(inst.op, Op::Break | Op::Continue));
        if leaves {
            continue;
        }
        let search = Search { body, buffers, layout: &layout, parallel, outer: l, inner };
        let mut found: Vec<(Update, Option<ValueId>)> = Vec::new();
        search.updates(i.body, companions, done, &mut found);
        for first in 0..found.len() {
            let like = |(u, m): &(Update, Option<ValueId>)| {
                let (first, mirror) = &found[first];
                m == mirror && axes(u) == axes(first) && known_range(buffers, u) == known_range(buffers, first)
            };
            // With those that the same loop gathers, or alone.
            let all: Vec<usize> = (first..found.len()).filter(|k| like(&found[*k])).collect();
            for members in [all, vec![first]] {
                let mirror = found[first].1;
                let seeds = members.iter().flat_map(|k| [found[*k].0.inst, found[*k].0.value]).chain(mirror);
                let seeds = seeds.chain([i.dims[0].begin, i.dims[0].end]).collect();
                let Some((needed, private)) = search.slice(seeds) else { continue };
                let chosen = found.into_iter().enumerate().filter(|(k, _)| members.contains(k));
                let updates = chosen.map(|(_, (u, _))| u).collect();
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

    /// The sums in a block of the inner loop and its branches whose elements can be told from indices.
    fn updates(
        &self,
        block: BlockId,
        companions: &BTreeSet<BufferId>,
        done: &HashSet<ValueId>,
        found: &mut Vec<(Update, Option<ValueId>)>,
    ) {
        let mut used = HashSet::new();
        self.body.visit(self.outer.body, &mut |_, inst| inst.op.for_each_operand(|u| _ = used.insert(u)));
        for &v in self.body.block(block) {
            match &self.body.inst(v).op {
                Op::If(_, yes, no) => [yes, no].iter().for_each(|b| self.updates(**b, companions, done, found)),
                Op::Atomic(op @ (AtomicOp::Add | AtomicOp::Sub), addr, value)
                    if !used.contains(&v) && !done.contains(&v) =>
                {
                    let op = if *op == AtomicOp::Add { BinaryOp::Add } else { BinaryOp::Sub };
                    if let Some((buffer, indices, component, mirror)) = self.parse(*addr)
                        && companions.contains(&buffer)
                        && self.only_added_to(buffer)
                    {
                        found.push((Update { inst: v, op, buffer, indices, component, value: *value }, mirror));
                    }
                }
                _ => {}
            }
        }
    }

    /// The element of an address: one axis for the inner loop, some for the parallel one, of which an axis is left to go through in order.
    #[allow(clippy::type_complexity)] // The parts of an address.
    fn parse(&self, addr: ValueId) -> Option<(BufferId, Vec<Index>, Vec<Op>, Option<ValueId>)> {
        let is_fixed =
            |v: ValueId| *self.body.ty(v) == Type::I32 && matches!(self.body.inst(v).op, Op::Const(_) | Op::Param(_));
        let fixed = |v: &ValueId| is_fixed(*v).then(|| self.body.inst(*v).op.clone());
        let (element, component) = match &self.body.inst(addr).op {
            Op::ElementAddr(base, path) => (*base, path.iter().map(fixed).collect::<Option<Vec<_>>>()?),
            _ => (addr, Vec::new()),
        };
        let Op::BufferAddr(buffer, indices) = &self.body.inst(element).op else { return None };
        let (mut out, mut mirror) = (Vec::new(), None);
        for &i in indices {
            let index = match &self.body.inst(i).op {
                Op::LoopIndex(l, axis) if *l == self.parallel => Index::Outer(*axis),
                Op::LoopIndex(l, 0) if *l == self.inner => Index::Inner,
                op if is_fixed(i) => Index::Fixed(op.clone()),
                Op::Binary(BinaryOp::Sub, c, k)
                    if self.body.inst(*k).op == Op::LoopIndex(self.inner, 0)
                        && !self.layout.is_inside(*c, self.inner_body()) =>
                {
                    mirror = Some(*c);
                    Index::Inner
                }
                _ => return None,
            };
            if out.contains(&index) && !matches!(index, Index::Fixed(_)) {
                return None;
            }
            out.push(index);
        }
        let outer = out.iter().filter(|i| matches!(i, Index::Outer(_))).count();
        (out.contains(&Index::Inner) && outer < self.outer.dims.len()).then_some((*buffer, out, component, mirror))
    }

    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        let (x, y) = (&self.buffers[a.index()], &self.buffers[b.index()]);
        let array = |b: &Buffer| !matches!(b.layout, Layout::Dense { .. });
        a == b || !(array(x) && array(y)) && may_overlap(x, y)
    }

    /// The parallel loop does nothing with a buffer but add to it.
    fn only_added_to(&self, buffer: BufferId) -> bool {
        let mut only = true;
        self.body.visit(self.outer.body, &mut |_, inst| {
            let addr = match &inst.op {
                Op::Load(a) | Op::Store(a, _) | Op::AtomicCas(a, ..) => *a,
                Op::Atomic(op, a, _) if !matches!(op, AtomicOp::Add | AtomicOp::Sub) => *a,
                Op::AddressBits(a) => *a,
                _ => return,
            };
            only &= !matches!(trace_address(self.body, addr), Place::Buffer(b) if self.overlap(b, buffer));
        });
        only
    }

    /// What is computed of an iteration so that the seeds can be; `None` where it cannot be computed apart.
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
                // Its value is a seed, its address is made anew.
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

    /// What an iteration writes to a local before the end of the inner loop: nothing where iterations only read it; `None` where a
    /// read may see what another iteration wrote.
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

    /// The conditions under which an iteration comes to an instruction, and which way they go; `None` where there are loops other than
    /// the inner one around it.
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

/// What the axes of an element depend on.
fn axes(u: &Update) -> Vec<&Index> {
    u.indices.iter().filter(|i| !matches!(i, Index::Fixed(_))).collect()
}

/// The range of an update's gathered axis, where it is known.
fn known_range(buffers: &[Buffer], u: &Update) -> Option<(i64, i64)> {
    let axis = u.indices.iter().position(|i| *i == Index::Inner)?;
    match &buffers[u.buffer.index()].layout {
        Layout::Dense { shape, offset, .. } => Some((offset[axis], offset[axis] + shape[axis] as i64)),
        _ => None,
    }
}

struct Emission<'a> {
    gather: &'a Gather,
    buffers: &'a [Buffer],
    least: i64,
}

/// Copies of an iteration's values.
struct Copies {
    values: HashMap<ValueId, ValueId>,
    locals: HashMap<LocalId, LocalId>,
    /// For each update the local that sums up what it adds, and one that tells whether it ran: its address is one then.
    sums: Vec<[LocalId; 2]>,
}

impl Emission<'_> {
    fn apply(&self, body: &mut Body) {
        let Gather { parallel, inner, updates, .. } = self.gather;
        let (Some(outer), Some(l)) = (for_loop(body, *parallel).cloned(), for_loop(body, *inner).cloned()) else {
            return;
        };
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        b.span = b.body.inst(updates[0].inst).span;
        let front = b.body.add_block();
        b.set_cursor(front);
        let range = self.range(&mut b, &l);
        let is_serial = |a: &u32| !updates[0].indices.contains(&Index::Outer(*a));
        let serial: Vec<u32> = (0..outer.dims.len() as u32).filter(is_serial).collect();
        let pays = self.pays(&mut b, &outer, &serial, range);
        if let Pays::Known(false) = pays {
            *body = b.body;
            return;
        }
        let end = match pays {
            Pays::Known(_) => range.end,
            Pays::If(c) => {
                let ty = b.ty(range.end).clone();
                b.push(Op::Select(c, range.end, range.begin), ty)
            }
        };
        self.emit(&mut b, &outer, &l, &serial, Range { begin: range.begin, end });
        *body = b.body;
        let code = std::mem::take(&mut body.blocks[front.index()]);
        let root = body.root;
        let at = body.block(root).iter().position(|v| v == parallel).expect("compiler bug: a loop left its block");
        body.blocks[root.index()].splice(at..at, code);
        self.remove(body, pays);
    }

    /// The elements along the gathered axis.
    fn range(&self, b: &mut Builder, l: &ForLoop) -> Range {
        let s = b.ty(l.dims[0].begin).scalar().expect("compiler bug: bounds are scalars");
        if let Some((begin, end)) = known_range(self.buffers, &self.gather.updates[0]) {
            return Range { begin: b.int(begin, s), end: b.int(end, s) };
        }
        // Where arrays differ, iterations beyond the shorter one are among those left out.
        let mut end = b.int(0, s);
        for u in &self.gather.updates {
            let axis = u.indices.iter().position(|i| *i == Index::Inner).unwrap_or(0);
            let extent = b.push(Op::Shape(u.buffer, axis as u32), s.into());
            end = b.binary(BinaryOp::Max, end, extent);
        }
        Range { begin: b.int(0, s), end }
    }

    /// Whether there are enough elements.
    fn pays(&self, b: &mut Builder, outer: &ForLoop, serial: &[u32], range: Range) -> Pays {
        let known = |b: &Builder, v| match b.body.as_const(v) {
            Some(Const::Int(i)) => Some(i),
            _ => None,
        };
        let extent = |b: &Builder, r: &Range| Some(known(b, r.end)?.saturating_sub(known(b, r.begin)?).max(0));
        let product =
            |b: &Builder, rs: &[Range]| rs.iter().try_fold(1i64, |n, r| Some(n.saturating_mul(extent(b, r)?)));
        let (left, others): (Vec<_>, Vec<_>) = (0u32..).zip(&outer.dims).partition(|(a, _)| serial.contains(a));
        let [left, others] = [left, others].map(|of| of.into_iter().map(|(_, r)| *r).collect::<Vec<Range>>());
        let (gathered, kept, long) = (extent(b, &range), product(b, &others), product(b, &left));
        if let (Some(gathered), Some(kept), Some(long)) = (gathered, kept, long) {
            return Pays::Known(
                gathered.saturating_mul(kept) >= self.least && gathered.saturating_mul(LONGEST) >= long,
            );
        }
        let mut multiply = |rs: Vec<Range>| {
            let mut n = b.int(1, Scalar::I64);
            for r in rs {
                let (begin, end) = (b.cast(r.begin, Scalar::I64), b.cast(r.end, Scalar::I64));
                let extent = b.binary(BinaryOp::Sub, end, begin);
                n = b.binary(BinaryOp::Mul, n, extent);
            }
            n
        };
        let gathered = multiply(vec![range]);
        let elements = multiply(others.into_iter().chain([range]).collect());
        let long = multiply(left);
        let (least, longest) = (b.int(self.least, Scalar::I64), b.int(LONGEST, Scalar::I64));
        let many = b.binary(BinaryOp::Ge, elements, least);
        let bound = b.binary(BinaryOp::Mul, gathered, longest);
        let short = b.binary(BinaryOp::Ge, bound, long);
        Pays::If(b.binary(BinaryOp::And, many, short))
    }

    /// The loop over elements.
    fn emit(&self, b: &mut Builder, outer: &ForLoop, l: &ForLoop, serial: &[u32], range: Range) {
        let Gather { parallel, updates, mirror, private, .. } = self.gather;
        let axes = axes(&updates[0]);
        let dims = axes.iter().map(|i| if let Index::Outer(a) = i { outer.dims[*a as usize] } else { range }).collect();
        let group = outer.parallel.as_ref().and_then(|c| c.group);
        let (element, iteration) = (b.body.add_block(), b.body.add_block());
        let config = LoopConfig { group, ..LoopConfig::default() };
        let over_elements = ForLoop { dims, body: element, parallel: Some(config), reductions: Vec::new() };
        let over_elements = b.push(Op::For(Box::new(over_elements)), Type::Unit);
        b.set_cursor(element);
        let mut copies = Copies { values: HashMap::new(), locals: HashMap::new(), sums: Vec::new() };
        for l in private {
            let local = b.body.locals[l.index()].clone();
            copies.locals.insert(*l, b.body.add_local(local.name, local.ty));
        }
        for u in updates {
            let ty = b.ty(u.value).clone();
            let sum = b.body.add_local("gathered", ty.clone());
            let (addr, zero) = (b.local_addr(sum), zero(b, &ty));
            b.store(addr, zero);
            let any = b.body.add_local("any", Type::Scalar(Scalar::U1));
            let (addr, no) = (b.local_addr(any), b.int(0, Scalar::U1));
            b.store(addr, no);
            copies.sums.push([sum, any]);
        }
        let mut indices = HashMap::new();
        let mut of_element = None;
        for (axis, index) in axes.iter().enumerate() {
            let ty = if let Index::Outer(a) = index { b.ty(outer.dims[*a as usize].begin) } else { b.ty(range.begin) };
            let ty = ty.clone();
            let value = b.push(Op::LoopIndex(over_elements, axis as u32), ty);
            match index {
                Index::Outer(a) => _ = indices.insert(*a, value),
                _ => of_element = Some(value),
            }
        }
        let of_element = of_element.expect("compiler bug: an address without the inner loop's index is gathered");
        let position = |b: &Builder, v: &ValueId, indices: &HashMap<u32, ValueId>| match b.body.inst(*v).op {
            Op::LoopIndex(l, a) if l == *parallel => indices.get(&a).copied(),
            _ => None,
        };
        let needed = &self.gather.needed;
        copies.values = needed.iter().filter_map(|v| Some((*v, position(b, v, &indices)?))).collect();
        // Which elements the inner loop reaches may be the same in all iterations: then the others need no loop.
        let bounds = [l.dims[0].begin, l.dims[0].end].into_iter().chain(*mirror);
        let ahead = bounds.clone().all(|v| self.is_same_in_all(&b.body, outer, serial, v));
        if ahead {
            for a in serial {
                let Range { begin, end } = outer.dims[*a as usize];
                let some = b.binary(BinaryOp::Lt, begin, end);
                self.enter_if(b, some);
            }
            bounds.for_each(|v| self.copy_value(b, v, &mut copies));
            let (_, reached) = self.reached(b, l, of_element, &copies);
            self.enter_if(b, reached);
        }
        let dims = serial.iter().map(|a| outer.dims[*a as usize]).collect();
        let in_order = ForLoop { dims, body: iteration, parallel: None, reductions: Vec::new() };
        let in_order = b.push(Op::For(Box::new(in_order)), Type::Unit);
        b.set_cursor(iteration);
        for (axis, a) in serial.iter().enumerate() {
            let ty = b.ty(outer.dims[*a as usize].begin).clone();
            indices.insert(*a, b.push(Op::LoopIndex(in_order, axis as u32), ty));
        }
        copies.values.extend(needed.iter().filter_map(|v| Some((*v, position(b, v, &indices)?))));
        self.copy_block(b, outer.body, &mut copies);
        let (index, reached) = self.reached(b, l, of_element, &copies);
        let of_inner = |v: &&ValueId| b.body.inst(**v).op == Op::LoopIndex(self.gather.inner, 0);
        let inner_indices: Vec<ValueId> = self.gather.needed.iter().filter(of_inner).copied().collect();
        copies.values.extend(inner_indices.into_iter().map(|v| (v, index)));
        if !ahead {
            self.enter_if(b, reached);
        }
        self.copy_block(b, l.body, &mut copies);
        b.set_cursor(element);
        for (u, [sum, any]) in updates.iter().zip(&copies.sums) {
            let any = b.local_addr(*any);
            let any = b.load(any);
            push_if(b, any, |b| {
                let at = b.local_addr(*sum);
                let sum = b.load(at);
                let mut element = Vec::new();
                for i in &u.indices {
                    element.push(match i {
                        Index::Outer(a) => indices[a],
                        Index::Inner => of_element,
                        Index::Fixed(op) => b.push(op.clone(), Type::I32),
                    });
                }
                let elem = self.buffers[u.buffer.index()].elem.clone();
                let mut addr = b.push(Op::BufferAddr(u.buffer, element), Type::Ref(Box::new(elem)));
                if !u.component.is_empty() {
                    let path = u.component.iter().map(|c| b.push(c.clone(), Type::I32)).collect();
                    addr = b.element_addr(addr, path);
                }
                let ty = b.ty(sum).clone();
                b.push(Op::Atomic(AtomicOp::Add, addr, sum), ty);
            });
        }
    }

    /// What goes on stands in a branch.
    fn enter_if(&self, b: &mut Builder, condition: ValueId) {
        let blocks = [b.body.add_block(), b.body.add_block()];
        b.push(Op::If(condition, blocks[0], blocks[1]), Type::Unit);
        b.set_cursor(blocks[0]);
    }

    /// The index at which the inner loop adds to an element, and whether it runs to it.
    fn reached(&self, b: &mut Builder, l: &ForLoop, element: ValueId, copies: &Copies) -> (ValueId, ValueId) {
        let [begin, end] = [l.dims[0].begin, l.dims[0].end].map(|v| copies.get(v));
        let index = match self.gather.mirror {
            Some(c) => b.binary(BinaryOp::Sub, copies.get(c), element),
            None => element,
        };
        let (from, to) = (b.binary(BinaryOp::Ge, index, begin), b.binary(BinaryOp::Lt, index, end));
        (index, b.binary(BinaryOp::And, from, to))
    }

    /// A value of an iteration depends on none of the axes that are gone through in order, and is computed in every iteration.
    fn is_same_in_all(&self, body: &Body, outer: &ForLoop, serial: &[u32], v: ValueId) -> bool {
        if !self.gather.needed.contains(&v) {
            return true;
        }
        let op = &body.inst(v).op;
        let mut same = match op {
            Op::LoopIndex(l, a) => *l == self.gather.parallel && !serial.contains(a),
            Op::Load(a) => matches!(trace_address(body, *a), Place::Buffer(_)) && body.block(outer.body).contains(&v),
            op => op.is_pure() && body.block(outer.body).contains(&v),
        };
        if !matches!(op, Op::LoopIndex(..)) {
            op.for_each_operand(|u| same &= self.is_same_in_all(body, outer, serial, u));
        }
        same
    }

    /// Copies a value and what it is computed from.
    fn copy_value(&self, b: &mut Builder, v: ValueId, copies: &mut Copies) {
        if self.gather.needed.contains(&v) && !copies.values.contains_key(&v) {
            let Inst { mut op, ty, span } = b.body.inst(v).clone();
            op.for_each_operand(|u| self.copy_value(b, u, copies));
            op.map_operands(|u| copies.get(u));
            b.span = span;
            let copy = b.push(op, ty);
            copies.values.insert(v, copy);
        }
    }

    /// Copies what is needed of a block, up to the inner loop.
    fn copy_block(&self, b: &mut Builder, block: BlockId, copies: &mut Copies) {
        for v in b.body.block(block).to_vec() {
            if v == self.gather.inner {
                return;
            }
            if !self.gather.needed.contains(&v) || copies.values.contains_key(&v) {
                continue;
            }
            b.span = b.body.inst(v).span;
            if let Some(k) = self.gather.updates.iter().position(|u| u.inst == v) {
                let value = copies.get(self.gather.updates[k].value);
                let [sum, any] = copies.sums[k];
                let addr = b.local_addr(sum);
                let old = b.load(addr);
                let new = b.binary(self.gather.updates[k].op, old, value);
                b.store(addr, new);
                let (addr, yes) = (b.local_addr(any), b.int(1, Scalar::U1));
                b.store(addr, yes);
                continue;
            }
            let inst = b.body.inst(v).clone();
            let mut op = inst.op;
            op.map_operands(|u| copies.get(u));
            if let Op::LocalAddr(l) = &mut op {
                *l = copies.locals.get(l).copied().unwrap_or(*l);
            }
            if let Op::If(c, yes, no) = op {
                let blocks = [b.body.add_block(), b.body.add_block()];
                b.push(Op::If(c, blocks[0], blocks[1]), Type::Unit);
                for (from, to) in [yes, no].into_iter().zip(blocks) {
                    let back = b.set_cursor(to);
                    self.copy_block(b, from, copies);
                    b.set_cursor(back);
                }
                continue;
            }
            let copy = b.push(op, inst.ty);
            copies.values.insert(v, copy);
        }
    }

    /// Takes the updates out of the loop that scattered them, or leaves them for where gathering does not pay.
    fn remove(&self, body: &mut Body, pays: Pays) {
        let moved: HashSet<ValueId> = self.gather.updates.iter().map(|u| u.inst).collect();
        let mut b = Builder::new();
        b.body = std::mem::take(body);
        for block in 0..b.body.blocks.len() {
            if !b.body.blocks[block].iter().any(|v| moved.contains(v)) {
                continue;
            }
            b.set_cursor(BlockId(block as u32));
            for v in std::mem::take(&mut b.body.blocks[block]) {
                match pays {
                    Pays::If(c) if moved.contains(&v) => {
                        b.span = b.body.inst(v).span;
                        let stays = b.unary(UnaryOp::LogicNot, c);
                        push_if(&mut b, stays, |b| b.place(v));
                    }
                    Pays::Known(_) if moved.contains(&v) => {}
                    _ => b.place(v),
                }
            }
        }
        *body = b.body;
    }
}

/// Whether gathering pays.
#[derive(Debug, Clone, Copy)]
enum Pays {
    Known(bool),
    /// Where this is true at launch.
    If(ValueId),
}

impl Copies {
    /// The copy of a value, or the value where the loop does not compute it.
    fn get(&self, v: ValueId) -> ValueId {
        self.values.get(&v).copied().unwrap_or(v)
    }
}
