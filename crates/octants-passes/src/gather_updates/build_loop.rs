//! Builds the loop that gathers sums, and takes them out of the loop that scattered them.

use std::collections::{HashMap, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Buffer, Builder, Const, ForLoop, Inst, LocalId, LoopConfig, Op, Range, Scalar,
    Type, UnaryOp, ValueId,
};

use super::{Gather, Index, axes, for_loop, known_range};
use crate::derivative_rules::zero;
use crate::insert_code::push_if;
use crate::trace_address::{Place, trace_address};

/// The serial loop may be so much longer than there are elements along the gathered axis.
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
    /// For each update the local that sums up what it adds, and one that tells whether it ran: its address is one then.
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
        // Short, so that tasks compute it again: else it would take a task of its own.
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
