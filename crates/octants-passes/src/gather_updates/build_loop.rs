//! Builds the loop that gathers the sums, and removes them from the loop that scattered them.

use std::collections::{HashMap, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Const, ForLoop, Inst, LocalId, LoopConfig, Op, Range,
    Scalar, Type, UnaryOp, ValueId,
};

use super::{Gather, Index, Mirror, axes, for_loop, known_range};
use crate::normalize_loop_direction::{is_int, is_last};
use octants_analysis::{MemoryClasses, Place, trace_address};
use octants_ir::insert_code::{push_if, zero};

/// Maximum ratio of the serial loop's length to the number of elements along the gathered axis.
const LONGEST: i64 = 16;

/// Builds one loop.
pub(super) struct Emission<'a> {
    pub gather: &'a Gather,
    pub buffers: &'a [Buffer],
    /// Fewer elements are not gathered.
    pub least: i64,
}

/// Copies of an iteration's values.
struct Copies {
    values: HashMap<ValueId, ValueId>,
    locals: HashMap<LocalId, LocalId>,
    /// For each update, the local that accumulates its sum, and one that records whether it ran: its address is one
    /// then.
    sums: Vec<[LocalId; 2]>,
}

impl Emission<'_> {
    /// Rewrites a body.
    pub fn apply(&self, body: &mut Body) {
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
        if let Profitability::Known(false) = pays {
            *body = b.body;
            return;
        }
        let end = match pays {
            Profitability::Known(_) => range.end,
            Profitability::If(c) => {
                let ty = b.ty(range.end).clone();
                b.push(Op::Select(c, range.end, range.begin), ty)
            }
        };
        let range = Range { begin: range.begin, end };
        if self.shares_iterations(&b.body, &outer, range) {
            let element = b.push(Op::LoopIndex(*parallel, 0), b.ty(range.begin).clone());
            self.gather_element(&mut b, &outer, &l, &serial, &[element]);
            *body = b.body;
            let code = std::mem::take(&mut body.blocks[front.index()]);
            body.blocks[outer.body.index()].splice(0..0, code);
        } else {
            self.emit(&mut b, &outer, &l, &serial, range);
            *body = b.body;
            let code = std::mem::take(&mut body.blocks[front.index()]);
            let root = body.root;
            let at =
                body.block(root).iter().position(|v| v == parallel).expect("compiler bug: a loop is not in its block");
            body.blocks[root.index()].splice(at..at, code);
        }
        self.remove(body, pays);
    }

    /// The elements along the gathered axis.
    fn range(&self, b: &mut Builder, l: &ForLoop) -> Range {
        let s = b.ty(l.dims[0].begin).scalar().expect("compiler bug: a bound is not a scalar");
        if let Some((begin, end)) = known_range(self.buffers, &self.gather.updates[0]) {
            return Range { begin: b.int(begin, s), end: b.int(end, s) };
        }
        // If the arrays have different lengths, iterations beyond the shorter one are skipped.
        let mut end = None;
        for u in &self.gather.updates {
            let axis = u.indices.iter().position(|i| *i == Index::Inner).unwrap_or(0);
            let extent = b.push(Op::Shape(u.buffer, axis as u32), s.into());
            end = Some(end.map_or(extent, |end| b.binary(BinaryOp::Max, end, extent)));
        }
        let begin = b.int(0, s);
        Range { begin, end: end.unwrap_or(begin) }
    }

    /// Whether there are enough elements.
    fn pays(&self, b: &mut Builder, outer: &ForLoop, serial: &[u32], range: Range) -> Profitability {
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
            return Profitability::Known(
                gathered.saturating_mul(kept) >= self.least && gathered.saturating_mul(LONGEST) >= long,
            );
        }
        // Short, so that tasks compute it again: otherwise it would need a separate task.
        let mut multiply = |rs: Vec<Range>| {
            let mut n = None;
            for r in rs {
                let (from_zero, end) = (known(b, r.begin) == Some(0), b.cast(r.end, Scalar::I64));
                let extent = if from_zero {
                    end
                } else {
                    let begin = b.cast(r.begin, Scalar::I64);
                    b.binary(BinaryOp::Sub, end, begin)
                };
                n = Some(n.map_or(extent, |n| b.binary(BinaryOp::Mul, n, extent)));
            }
            n.expect("compiler bug: a loop without axes")
        };
        let gathered = multiply(vec![range]);
        let elements = multiply(others.into_iter().chain([range]).collect());
        let long = multiply(left);
        let (least, longest) = (b.int(self.least, Scalar::I64), b.int(LONGEST, Scalar::I64));
        let many = b.binary(BinaryOp::Ge, elements, least);
        let bound = b.binary(BinaryOp::Mul, gathered, longest);
        let short = b.binary(BinaryOp::Ge, bound, long);
        Profitability::If(b.binary(BinaryOp::And, many, short))
    }

    /// Whether the loop over elements can be merged with the parallel loop: both have the same iterations, and no
    /// iteration writes memory that another one reads to gather its element.
    fn shares_iterations(&self, body: &Body, outer: &ForLoop, range: Range) -> bool {
        let same = |a, b| matches!((body.as_const(a), body.as_const(b)), (Some(x), Some(y)) if x == y);
        let [Index::Inner] = axes(&self.gather.updates[0])[..] else { return false };
        let [dim] = outer.dims[..] else { return false };
        if !same(dim.begin, range.begin) || !same(dim.end, range.end) || body.ty(dim.begin) != body.ty(range.begin) {
            return false;
        }
        let buffer_of = |a: ValueId| match trace_address(body, a) {
            Place::Buffer(b) => Some(b),
            _ => None,
        };
        let loads = self.gather.needed.iter().filter_map(|v| match body.inst(*v).op {
            Op::Load(a) => buffer_of(a),
            _ => None,
        });
        let read: Vec<BufferId> = loads.collect();
        let mut keeps = true;
        body.visit(outer.body, &mut |_, inst| {
            let (Op::Store(a, _) | Op::Atomic(_, a, _) | Op::AtomicCas(a, ..)) = &inst.op else { return };
            let Some(w) = buffer_of(*a) else { return };
            let memory = MemoryClasses::of(self.buffers, true);
            let overlaps = |r: &BufferId| memory.may_alias(r.index(), w.index());
            keeps &= !read.iter().any(overlaps);
        });
        keeps
    }

    /// The loop over elements.
    fn emit(&self, b: &mut Builder, outer: &ForLoop, l: &ForLoop, serial: &[u32], range: Range) {
        let axes = axes(&self.gather.updates[0]);
        let dims: Vec<Range> =
            axes.iter().map(|i| if let Index::Outer(a) = i { outer.dims[*a as usize] } else { range }).collect();
        let group = outer.parallel.as_ref().and_then(|c| c.group);
        let element = b.body.add_block();
        let config = LoopConfig { group, ..LoopConfig::default() };
        let types: Vec<Type> = dims.iter().map(|d| b.ty(d.begin).clone()).collect();
        let over_elements = ForLoop::parallel(dims, element, config);
        let over_elements = b.push(Op::For(Box::new(over_elements)), Type::Unit);
        b.set_cursor(element);
        let indices: Vec<ValueId> =
            (0u32..).zip(types).map(|(axis, ty)| b.push(Op::LoopIndex(over_elements, axis), ty)).collect();
        self.gather_element(b, outer, l, serial, &indices);
    }

    /// Gathers the sum of the element with these indices.
    fn gather_element(
        &self,
        b: &mut Builder,
        outer: &ForLoop,
        l: &ForLoop,
        serial: &[u32],
        element_indices: &[ValueId],
    ) {
        let Gather { parallel, updates, mirror, .. } = self.gather;
        let (element, iteration) = (b.cursor(), b.body.add_block());
        let mut copies = self.begin_sums(b);
        let mut indices = HashMap::new();
        let mut of_element = None;
        for (index, value) in axes(&updates[0]).into_iter().zip(element_indices) {
            match index {
                Index::Outer(a) => _ = indices.insert(*a, *value),
                _ => of_element = Some(*value),
            }
        }
        let of_element =
            of_element.expect("compiler bug: gathering an address that does not use the inner loop's index");
        let position = |b: &Builder, v: &ValueId, indices: &HashMap<u32, ValueId>| match b.body.inst(*v).op {
            Op::LoopIndex(l, a) if l == *parallel => indices.get(&a).copied(),
            _ => None,
        };
        let needed = &self.gather.needed;
        copies.values = needed.iter().filter_map(|v| Some((*v, position(b, v, &indices)?))).collect();
        // If all iterations reach the same elements, no loop over the others is needed. If the elements follow from a
        // comparison with the iteration's index, the loop covers the iterations that reach this one.
        let bounds = [l.dims[0].begin, l.dims[0].end].into_iter().chain(mirror.map(|m| m.last));
        let ahead = bounds.clone().all(|v| self.is_same_in_all(&b.body, outer, serial, v));
        let mut dims: Vec<Range> = serial.iter().map(|a| outer.dims[*a as usize]).collect();
        let mut limits = Vec::new();
        if ahead {
            self.enter_if_any(b, &dims);
            bounds.for_each(|v| self.copy_value(b, v, &mut copies));
            let (_, reached) = self.reached(b, l, of_element, &copies);
            self.enter_if(b, reached);
        } else if let Some(found) = self.limits(&b.body, outer, serial, l) {
            if found.iter().any(|l| matches!(l, Limit::Fixed(v, _) if needed.contains(v))) {
                self.enter_if_any(b, &dims);
            }
            for limit in &found {
                match *limit {
                    Limit::Fixed(v, op) => {
                        self.copy_value(b, v, &mut copies);
                        let reached = b.binary(op, of_element, copies.get(v));
                        self.enter_if(b, reached);
                    }
                    Limit::First(ahead) => {
                        let first = self.further(b, of_element, ahead);
                        dims[0].begin = b.binary(BinaryOp::Max, dims[0].begin, first);
                    }
                    Limit::End(ahead) => {
                        let end = self.further(b, of_element, ahead);
                        dims[0].end = b.binary(BinaryOp::Min, dims[0].end, end);
                    }
                }
            }
            limits = found;
        }
        let types: Vec<Type> = dims.iter().map(|d| b.ty(d.begin).clone()).collect();
        let in_order = ForLoop::serial(dims, iteration);
        let in_order = b.push(Op::For(Box::new(in_order)), Type::Unit);
        b.set_cursor(iteration);
        for ((axis, a), ty) in (0u32..).zip(serial).zip(types) {
            indices.insert(*a, b.push(Op::LoopIndex(in_order, axis), ty));
        }
        copies.values.extend(needed.iter().filter_map(|v| Some((*v, position(b, v, &indices)?))));
        self.copy_block(b, outer.body, &mut copies);
        let (index, reached) = self.reached(b, l, of_element, &copies);
        let of_inner = |v: &&ValueId| b.body.inst(**v).op == Op::LoopIndex(self.gather.inner, 0);
        let inner_indices: Vec<ValueId> = self.gather.needed.iter().filter(of_inner).copied().collect();
        copies.values.extend(inner_indices.into_iter().map(|v| (v, index)));
        if !ahead && limits.is_empty() {
            self.enter_if(b, reached);
        }
        self.copy_block(b, l.body, &mut copies);
        b.set_cursor(element);
        self.add_sums(b, &copies.sums, &indices, of_element);
    }

    /// Locals of the copy, and for each update its sum and whether anything was added to it.
    fn begin_sums(&self, b: &mut Builder) -> Copies {
        let mut copies = Copies { values: HashMap::new(), locals: HashMap::new(), sums: Vec::new() };
        for l in &self.gather.private {
            let local = b.body.locals[l.index()].clone();
            copies.locals.insert(*l, b.body.add_local(local.name, local.ty));
        }
        for u in &self.gather.updates {
            let ty = b.ty(u.value).clone();
            let sum = b.body.add_local("gathered", ty.clone());
            let (addr, zero) = (b.local_addr(sum), zero(b, &ty));
            b.store(addr, zero);
            let any = b.body.add_local("any", Type::Scalar(Scalar::U1));
            let (addr, no) = (b.local_addr(any), b.int(0, Scalar::U1));
            b.store(addr, no);
            copies.sums.push([sum, any]);
        }
        copies
    }

    /// Adds the gathered sums to the elements with the indices of the parallel loop and `of_element`.
    fn add_sums(&self, b: &mut Builder, sums: &[[LocalId; 2]], indices: &HashMap<u32, ValueId>, of_element: ValueId) {
        for (u, [sum, any]) in self.gather.updates.iter().zip(sums) {
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

    /// The remaining code runs in every iteration, and must not run if there is none: a load may have no memory.
    fn enter_if_any(&self, b: &mut Builder, dims: &[Range]) {
        for Range { begin, end } in dims {
            let some = b.binary(BinaryOp::Lt, *begin, *end);
            self.enter_if(b, some);
        }
    }

    /// The remaining code is in a branch.
    fn enter_if(&self, b: &mut Builder, condition: ValueId) {
        let blocks = [b.body.add_block(), b.body.add_block()];
        b.push(Op::If(condition, blocks[0], blocks[1]), Type::Unit);
        b.set_cursor(blocks[0]);
    }

    /// The index at which the inner loop adds to an element, and whether it runs to it.
    fn reached(&self, b: &mut Builder, l: &ForLoop, element: ValueId, copies: &Copies) -> (ValueId, ValueId) {
        let [begin, end] = [l.dims[0].begin, l.dims[0].end].map(|v| copies.get(v));
        let index = match self.gather.mirror {
            Some(Mirror { last, from_begin }) => {
                let left = if from_begin { b.binary(BinaryOp::Sub, element, begin) } else { element };
                b.binary(BinaryOp::Sub, copies.get(last), left)
            }
            None => element,
        };
        let (from, to) = (b.binary(BinaryOp::Ge, index, begin), b.binary(BinaryOp::Lt, index, end));
        (index, b.binary(BinaryOp::And, from, to))
    }

    /// The iterations whose inner loop reaches an element. Each bound is uniform, or the iteration's index, or the next
    /// index.
    fn limits(&self, body: &Body, outer: &ForLoop, serial: &[u32], l: &ForLoop) -> Option<Vec<Limit>> {
        let [axis] = *serial else { return None };
        let Range { begin, end } = l.dims[0];
        // A loop that runs backwards reaches the same elements.
        let keeps_range = |m: Mirror| is_last(body, m.last, end) && (m.from_begin || is_int(body, begin, 0));
        if !self.gather.mirror.is_none_or(keeps_range) {
            return None;
        }
        let limit = |v: ValueId, fixed: BinaryOp, moving: fn(u32) -> Limit| match self.ahead_of_index(body, axis, v) {
            Some(ahead) => Some(moving(ahead)),
            None => self.is_same_in_all(body, outer, serial, v).then_some(Limit::Fixed(v, fixed)),
        };
        // i + a <= e is i < e + 1 - a; e < i + a is e + 1 - a <= i.
        Some(vec![
            limit(begin, BinaryOp::Ge, |a| Limit::End(1 - a))?,
            limit(end, BinaryOp::Lt, |a| Limit::First(1 - a))?,
        ])
    }

    /// Zero if a value is the index of an axis of the parallel loop, one if it is the next index. Neither overflows.
    fn ahead_of_index(&self, body: &Body, axis: u32, v: ValueId) -> Option<u32> {
        let is_index = |v: ValueId| body.inst(v).op == Op::LoopIndex(self.gather.parallel, axis);
        match body.inst(v).op {
            Op::Binary(BinaryOp::Add, a, b) => {
                let is_one = |v| body.as_const(v) == Some(Const::Int(1));
                (is_index(a) && is_one(b) || is_index(b) && is_one(a)).then_some(1)
            }
            _ => is_index(v).then_some(0),
        }
    }

    /// An index, or the next one.
    fn further(&self, b: &mut Builder, index: ValueId, ahead: u32) -> ValueId {
        if ahead == 0 {
            return index;
        }
        let s = b.ty(index).scalar().expect("compiler bug: an index is not a scalar");
        let ahead = b.int(i64::from(ahead), s);
        b.binary(BinaryOp::Add, index, ahead)
    }

    /// Whether a value is independent of the serial axes, and computed in every iteration.
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

    /// Copies a value and its operands.
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

    /// Copies the needed part of a block, up to the inner loop.
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

    /// Removes the updates from the loop that scattered them, or keeps them for launches in which gathering does not
    /// pay off.
    fn remove(&self, body: &mut Body, pays: Profitability) {
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
                    Profitability::If(c) if moved.contains(&v) => {
                        b.span = b.body.inst(v).span;
                        let stays = b.unary(UnaryOp::LogicNot, c);
                        push_if(&mut b, stays, |b| b.place(v));
                    }
                    Profitability::Known(_) if moved.contains(&v) => {}
                    _ => b.place(v),
                }
            }
        }
        *body = b.body;
    }
}

/// A condition for an iteration's inner loop to reach an element.
enum Limit {
    /// The element is at least, or below, a value that is the same in all iterations.
    Fixed(ValueId, BinaryOp),
    /// No iteration before the one of the element's index, or the next, does.
    First(u32),
    /// No iteration from the one of the element's index, or the next, on does.
    End(u32),
}

/// Whether gathering pays.
#[derive(Debug, Clone, Copy)]
enum Profitability {
    Known(bool),
    /// The condition at launch.
    If(ValueId),
}

impl Copies {
    /// The copy of a value, or the value itself if the loop does not compute it.
    fn get(&self, v: ValueId) -> ValueId {
        self.values.get(&v).copied().unwrap_or(v)
    }
}
