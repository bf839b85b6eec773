//! Addresses, loads and stores.
//!
//! Addresses are computed in 64 bits. Indices are widened *before* they are added and multiplied, so that the
//! optimizer sees an affine function of the loop counters. An intermediate sum that wraps in 32 bits does not wrap in
//! 64 bits; the index is the same. The digits of nested dense layouts are divisions by constants. On GPUs, an index
//! and an offset are truncated to 32 bits again if all offsets of the buffer fit, because 64-bit arithmetic costs
//! registers and time there.

use std::rc::Rc;

use octants_codegen::MemoryLayout;
use octants_ir::{
    BinaryOp, ComponentLayout, Const, IndexDigit, Layout, MemorySpace, Op, Placement, Scalar, Type, ValueId,
};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;
use crate::place::{LeafAt, Place, PlaceShape};

/// How far index expressions are followed to widen their parts.
const WIDEN_DEPTH: u32 = 6;

impl Lowering<'_, '_> {
    /// Allocates the locals that need memory. Zeroes those selected by `select` whose initial zero is observable.
    pub fn prepare_locals(&mut self, select: impl Fn(&Self, octants_ir::LocalId) -> bool) {
        for i in 0..self.body.locals.len() {
            let id = octants_ir::LocalId(i as u32);
            let uses = self.schedule.locals.of(id);
            if uses.is_unused || uses.is_value {
                continue;
            }
            if self.locals[i].is_none() {
                self.locals[i] = Some(self.stack_place(&self.body.locals[i].ty));
            }
            if uses.needs_zero
                && select(self, id)
                && let Some(place) = &self.locals[i]
            {
                self.zero_place(place);
            }
        }
    }

    /// Fresh stack memory for a value.
    pub fn stack_place(&self, ty: &Type) -> Place {
        let e = self.e;
        let layout = MemoryLayout::of(ty);
        let first = layout.leaves.first().map_or(Scalar::U8, |l| l.0);
        let even = layout.leaves.iter().all(|l| l.0 == first);
        let slot = match layout.leaves.len() {
            1 => e.memory(first),
            n if even => e.array_type(e.memory(first), n as u64),
            _ => e.array_type(e.i8, layout.size.max(1)),
        };
        Place::contiguous(self.stack(slot, layout.align), ty, None)
    }

    fn zero_place(&self, place: &Place) {
        let layout = MemoryLayout::of(&place.shape.ty);
        if layout.leaves.len() > 16 {
            return self.e.memset_zero(place.ptrs[0], layout.size, layout.align);
        }
        let zeros: Vec<V> = layout.leaves.iter().map(|(s, _)| self.e.zero(self.e.scalar(*s))).collect();
        self.store_place(place, &zeros);
    }

    /// Address of a leaf.
    pub fn leaf_pointer(&self, place: &Place, leaf: &LeafAt) -> V {
        self.e.byte_offset(place.ptrs[leaf.ptr as usize], leaf.offset)
    }

    /// Reads a scalar.
    pub fn load_scalar(&self, ptr: V, leaf: &LeafAt, independent: bool) -> V {
        let v = self.e.load(self.e.memory(leaf.scalar), ptr, leaf.scalar.bytes());
        if let Some(tag) = leaf.tag {
            self.u.metadata.mark_access(self.e, v, tag, independent);
            if self.u.info.has_constant_loads {
                self.u.metadata.mark_constant(v, tag);
            }
        }
        self.value_of_memory(v, leaf.scalar)
    }

    fn value_of_memory(&self, v: V, scalar: Scalar) -> V {
        if scalar == Scalar::U1 { self.e.trunc(v, self.e.i1) } else { v }
    }

    /// Writes a scalar.
    pub fn store_scalar(&self, ptr: V, leaf: &LeafAt, value: V, independent: bool) {
        let value = if leaf.scalar == Scalar::U1 { self.e.zext(value, self.e.i8) } else { value };
        let store = self.e.store(ptr, value, leaf.scalar.bytes());
        if let Some(tag) = leaf.tag {
            self.u.metadata.mark_access(self.e, store, tag, independent);
        }
    }

    /// Reads all leaves.
    pub fn load_place(&self, place: &Place) -> Vec<V> {
        place.shape.leaves.iter().map(|l| self.load_scalar(self.leaf_pointer(place, l), l, true)).collect()
    }

    /// Reads all leaves, which others may write: no two reads become one, and none is moved.
    pub fn load_place_volatile(&self, place: &Place) -> Vec<V> {
        let read = |leaf: &LeafAt| {
            let v = self.e.load(self.e.memory(leaf.scalar), self.leaf_pointer(place, leaf), leaf.scalar.bytes());
            self.e.set_volatile(v);
            self.value_of_memory(v, leaf.scalar)
        };
        place.shape.leaves.iter().map(read).collect()
    }

    /// Writes all leaves.
    pub fn store_place(&self, place: &Place, values: &[V]) {
        for (l, v) in place.shape.leaves.iter().zip(values) {
            self.store_scalar(self.leaf_pointer(place, l), l, *v, true);
        }
    }

    /// A scalar's value in 64 bits.
    pub fn widen(&self, v: V, s: Scalar) -> V {
        match s {
            s if s.bits() == 64 => v,
            s if s.is_signed() => self.e.sext(v, self.e.i64),
            _ => self.e.zext(v, self.e.i64),
        }
    }

    /// An index in 64 bits, computed from widened operands if it is a sum or product that involves a loop's index.
    pub fn index64(&self, v: ValueId) -> V {
        self.widened(v, WIDEN_DEPTH).unwrap_or_else(|| self.widen(self.value(v), self.scalar_of(v)))
    }

    /// `None` when widening the value as a whole is as good.
    fn widened(&self, v: ValueId, depth: u32) -> Option<V> {
        let v = self.source(v);
        let inst = self.body.inst(v);
        let s = inst.ty.scalar()?;
        match &inst.op {
            Op::LoopIndex(l, axis) => Some(self.open.indices.get(l)?[*axis as usize].wide),
            Op::Cast(a) if depth > 0 && s == Scalar::I64 && self.scalar_of(*a) == Scalar::I32 => {
                self.widened(*a, depth - 1)
            }
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), a, b)
                if depth > 0 && matches!(s, Scalar::I32 | Scalar::I64) =>
            {
                let (x, y) = (self.widened(*a, depth - 1), self.widened(*b, depth - 1));
                if x.is_none() && y.is_none() {
                    return None;
                }
                let part = |v: ValueId| self.widened_sum(v, depth - 1);
                let (x, y) = (x.unwrap_or_else(|| part(*a)), y.unwrap_or_else(|| part(*b)));
                Some(match op {
                    BinaryOp::Add => self.e.add_nsw(x, y),
                    BinaryOp::Sub => self.e.sub_nsw(x, y),
                    _ => self.e.mul_nsw(x, y),
                })
            }
            Op::Extract(a, i) if depth > 0 => match &self.body.inst(self.source(*a)).op {
                Op::MakeTensor(parts) => self.widened(parts[*i as usize], depth - 1),
                Op::Binary(..) => self.widened_component(*a, *i, depth - 1),
                _ => None,
            },
            _ => None,
        }
    }

    /// The same for a component of a vector of indices, such as `I + offset`.
    fn widened_component(&self, v: ValueId, i: u32, depth: u32) -> Option<V> {
        let v = self.source(v);
        let inst = self.body.inst(v);
        match &inst.op {
            Op::MakeTensor(parts) => self.widened(parts[i as usize], depth),
            Op::Splat(a) => self.widened(*a, depth),
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b)
                if depth > 0 && matches!(inst.ty.scalar(), Some(Scalar::I32 | Scalar::I64)) =>
            {
                let (x, y) = (self.widened_component(*a, i, depth - 1), self.widened_component(*b, i, depth - 1));
                if x.is_none() && y.is_none() {
                    return None;
                }
                let part = |v: ValueId| self.widened_sum_component(v, i, depth - 1);
                let (x, y) = (x.unwrap_or_else(|| part(*a)), y.unwrap_or_else(|| part(*b)));
                Some(if *op == BinaryOp::Add { self.e.add_nsw(x, y) } else { self.e.sub_nsw(x, y) })
            }
            _ => None,
        }
    }

    /// A sum in 64 bits: it may be beyond its 32 bits although the index that it is a part of is not.
    fn widened_sum(&self, v: ValueId, depth: u32) -> V {
        match self.body.inst(self.source(v)).op {
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if depth > 0 && self.scalar_of(v) == Scalar::I32 => {
                let (x, y) = (self.widened_sum(a, depth - 1), self.widened_sum(b, depth - 1));
                if op == BinaryOp::Add { self.e.add_nsw(x, y) } else { self.e.sub_nsw(x, y) }
            }
            Op::Extract(a, i) if depth > 0 && self.body.ty(a).scalar().is_some() => {
                self.widened_sum_component(a, i, depth - 1)
            }
            _ => self.widen(self.value(v), self.scalar_of(v)),
        }
    }

    /// The same for a component of a vector.
    fn widened_sum_component(&self, v: ValueId, i: u32, depth: u32) -> V {
        let s = self.body.ty(v).scalar();
        match &self.body.inst(self.source(v)).op {
            Op::MakeTensor(parts) => self.widened_sum(parts[i as usize], depth),
            Op::Splat(a) => self.widened_sum(*a, depth),
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if depth > 0 && s == Some(Scalar::I32) => {
                let [x, y] = [*a, *b].map(|v| self.widened_sum_component(v, i, depth - 1));
                if *op == BinaryOp::Add { self.e.add_nsw(x, y) } else { self.e.sub_nsw(x, y) }
            }
            _ => self.widen(self.leaves(v)[i as usize], self.scalar_of(v)),
        }
    }

    /// Extent of a buffer's axis, i64.
    pub fn extent(&self, buffer: usize, axis: usize) -> V {
        let b = &self.u.program.buffers[buffer];
        match &b.layout {
            Layout::Dense { shape, .. } => self.e.i64c(shape[axis] as i64),
            Layout::Flat(of) => self.count_scalars(of.index()),
            Layout::Contiguous if b.space == MemorySpace::Copies => match axis {
                0 => self.u.target.count_copies(self.e, self.code.context),
                _ => panic!("compiler bug: the length of a private copy is unknown to the code"),
            },
            Layout::Contiguous | Layout::Strided => {
                let slot = self.u.facts.args.buffers[buffer].expect("compiler bug: an array without argument slots");
                self.argument(slot + 1 + axis as u32, self.e.i64)
            }
        }
    }

    /// Address of a buffer's element.
    pub fn buffer_place(&self, buffer: usize, index: &[ValueId]) -> Place {
        let b = &self.u.program.buffers[buffer];
        if let ([thread, scalar], MemorySpace::Copies) = (index, b.space) {
            return self.copy_place(buffer, *thread, *scalar);
        }
        // The load-store vectorizer recognizes neighbors by the index of their row, not by 32-bit sums of bytes.
        let is_coarse = self.form.alignment.is_some();
        // Neighbors of an index of 64 bits are at fixed distances. If they were truncated, each would need its own
        // address.
        let is_wide = matches!(index, [v] if self.scalar_of(*v).bits() == 64);
        let is_short = b.short_offsets && self.u.info.counts_in_32_bits && !is_coarse && !is_wide;
        let index = index.iter().map(|v| self.index64(*v));
        let index: Vec<V> = index.map(|v| if is_short { self.e.trunc(v, self.e.i32) } else { v }).collect();
        let metadata = &self.u.metadata;
        let tagged = |mut shape: PlaceShape| {
            for (i, l) in shape.leaves.iter_mut().enumerate() {
                l.tag = Some(metadata.component(buffer, i));
            }
            Rc::new(shape)
        };
        let e = self.e;
        match &b.layout {
            Layout::Dense { offset, components, .. } => {
                let from_first = |(v, o): (V, &i64)| if *o == 0 { v } else { e.sub_nsw(v, e.int(e.type_of(v), *o)) };
                let index: Vec<V> = index.into_iter().zip(offset).map(from_first).collect();
                self.dense_place(buffer, &b.elem, &index, components)
            }
            Layout::Flat(of) => {
                let slot =
                    self.u.facts.args.buffers[of.index()].expect("compiler bug: an array without argument slots");
                let s = b.elem.scalar().expect("compiler bug: a flat buffer of a type without scalars");
                let ptr = e.gep(e.memory(s), self.argument(slot, e.ptr), index[0]);
                Place { ptrs: vec![ptr], shape: tagged(PlaceShape::contiguous(&b.elem, None)) }
            }
            Layout::Contiguous => {
                let base = match (self.parallel.moved.get(&buffer), self.u.facts.args.buffers[buffer]) {
                    (Some((copy, _)), _) => *copy,
                    (None, Some(slot)) => self.argument(slot, e.ptr),
                    (None, None) => self.parallel.private[&buffer],
                };
                let mut linear: Option<V> = None;
                for (axis, i) in index.into_iter().enumerate() {
                    linear = Some(match linear {
                        None => i,
                        Some(outer) => {
                            let extent = self.extent(buffer, axis);
                            let extent = if is_short { e.trunc(extent, e.i32) } else { extent };
                            e.add_nsw(e.mul_nsw(outer, extent), i)
                        }
                    });
                }
                let shape = PlaceShape::contiguous(&b.elem, None);
                let n = b.elem.leaf_count() as u64;
                let ptr = match linear {
                    None => base,
                    Some(linear) => {
                        let s = b.elem.scalar().expect("compiler bug: an array of a type without scalars");
                        let element = if n == 1 { e.memory(s) } else { e.array_type(e.memory(s), n) };
                        e.gep(element, base, if is_short { e.sext(linear, e.i64) } else { linear })
                    }
                };
                Place { ptrs: vec![ptr], shape: tagged(shape) }
            }
            Layout::Strided => {
                let slot = self.u.facts.args.buffers[buffer].expect("compiler bug: an array without argument slots");
                let stride = |axis: usize| self.argument(slot + 1 + b.ndim + axis as u32, e.i64);
                let base = self.argument(slot, e.ptr);
                let step = |ptr: V, (axis, i): (usize, V)| e.gep(e.i8, ptr, e.mul_nsw(i, stride(axis)));
                let bytes = |(axis, i): (usize, V)| e.mul_nsw(i, e.trunc(stride(axis), e.i32));
                let index = index.into_iter().enumerate();
                let ptr = match is_short {
                    true => self.short_offset(base, index.map(bytes)),
                    false => index.fold(base, step),
                };
                Place { ptrs: vec![ptr], shape: tagged(PlaceShape::contiguous(&b.elem, None)) }
            }
        }
    }

    /// `base` plus the sum of byte offsets, each an i32. The sum must not overflow.
    fn short_offset(&self, base: V, parts: impl Iterator<Item = V>) -> V {
        let e = self.e;
        match parts.reduce(|sum, part| e.add_nsw(sum, part)) {
            Some(bytes) => e.gep(e.i8, base, e.sext(bytes, e.i64)),
            None => base,
        }
    }

    /// Components whose axes are the same share a pointer; each has its base as its offset.
    fn dense_place(&self, buffer: usize, elem: &Type, index: &[V], components: &[ComponentLayout]) -> Place {
        let space = self.u.program.buffers[buffer].space;
        let mut ptrs = Vec::new();
        let mut kinds: Vec<&ComponentLayout> = Vec::new();
        let mut leaves = Vec::new();
        for (i, (c, s)) in components.iter().zip(elem.leaves()).enumerate() {
            let known = kinds.iter().position(|k| k.root == c.root && k.place.axes == c.place.axes);
            let ptr = known.unwrap_or_else(|| {
                let (base, before) = match self.parallel.moved.get(&buffer) {
                    Some(copy) => *copy,
                    None if space == MemorySpace::Shared => (self.shared_root(c.root), 0),
                    None if space == MemorySpace::Private => (self.parallel.private[&buffer], 0),
                    None => (self.argument(self.u.facts.args.roots[c.root as usize], self.e.ptr), 0),
                };
                let base = self.e.byte_offset(base, (c.place.base - before) as i64);
                let parts = index.iter().enumerate().flat_map(|(axis, i)| self.digits(&c.place, axis, *i));
                ptrs.push(match index.first() {
                    Some(i) if self.e.type_of(*i) == self.e.i32 => {
                        self.short_offset(base, parts.map(|(digit, stride)| self.scaled(digit, stride)))
                    }
                    _ => parts.fold(base, |ptr, (digit, stride)| self.strided(ptr, digit, stride)),
                });
                kinds.push(c);
                kinds.len() - 1
            });
            leaves.push(LeafAt {
                ptr: ptr as u32,
                offset: c.place.base as i64 - kinds[ptr].place.base as i64,
                scalar: s,
                tag: Some(self.u.metadata.component(buffer, i)),
            });
        }
        Place { ptrs, shape: Rc::new(PlaceShape { ty: elem.clone(), leaves }) }
    }

    /// A root of shared memory.
    fn shared_root(&self, root: u32) -> V {
        if let (Some(offset), Some(base)) =
            (self.u.facts.launch_memory.offset(root), self.u.target.launch_memory(self.e))
        {
            return self.e.byte_offset(base, offset as i64);
        }
        // Atomics on narrow elements access the word around them.
        let bytes = self.u.facts.shared_bytes[root as usize].next_multiple_of(4);
        self.u.target.shared_memory(self.e, &format!("octants_block_root_{root}"), bytes)
    }

    /// The digits of an index, each with the distance in bytes of elements that differ by one in it.
    fn digits(&self, place: &Placement, axis: usize, index: V) -> Vec<(V, u64)> {
        let e = self.e;
        let ty = e.type_of(index);
        let value = |(k, (digit, stride)): (usize, (IndexDigit, u64))| {
            let mut value = index;
            if digit.weight > 1 {
                value = e.udiv(value, e.int(ty, digit.weight as i64));
            }
            // The outermost digit needs no remainder: the index is within its axis.
            if k > 0 {
                value = e.urem(value, e.int(ty, digit.extent as i64));
            }
            (value, stride)
        };
        place.index_digits(axis).into_iter().enumerate().map(value).collect()
    }

    fn scaled(&self, digit: V, stride: u64) -> V {
        let stride = self.e.int(self.e.type_of(digit), stride as i64);
        self.e.mul_nsw(digit, stride)
    }

    fn strided(&self, ptr: V, digit: V, stride: u64) -> V {
        let e = self.e;
        let cell = match stride {
            1 => e.i8,
            2 => e.i16,
            4 => e.i32,
            8 => e.i64,
            n => e.array_type(e.i8, n),
        };
        e.gep(cell, ptr, digit)
    }

    /// Address of a frame slot.
    pub fn frame_place(&self, slot: usize, ty: &Type) -> Place {
        let Type::Ref(pointee) = ty else { panic!("compiler bug: a frame address that is not a reference") };
        let ptr = self.e.byte_offset(self.code.around.frame, self.u.facts.frame_offsets[slot] as i64);
        Place::contiguous(ptr, pointee, Some(self.u.metadata.frame()))
    }

    /// Row-major position of an element of a tensor; a constant if the indices are constants.
    pub fn component_index(&self, tensor: &Type, index: &[ValueId]) -> Result<usize, V> {
        let shape = tensor.shape();
        let known: Option<Vec<i64>> = index
            .iter()
            .map(|v| match self.body.as_const(self.source(*v)) {
                Some(Const::Int(i)) => Some(i),
                _ => None,
            })
            .collect();
        if let Some(known) = known {
            let at = known.iter().zip(&shape).fold(0, |at, (i, n)| at * i64::from(*n) + i);
            if at >= 0 && (at as usize) < tensor.leaf_count() {
                return Ok(at as usize);
            }
        }
        let mut linear = self.index64(index[0]);
        for (v, n) in index.iter().zip(&shape).skip(1) {
            linear = self.e.add_nsw(self.e.mul_nsw(linear, self.e.i64c(i64::from(*n))), self.index64(*v));
        }
        Err(linear)
    }

    /// Address of a tensor's component.
    pub fn element_place(&self, base: ValueId, index: &[ValueId]) -> Place {
        let place = self.place(base);
        let tensor = &place.shape.ty;
        let scalar = tensor.scalar().expect("compiler bug: an element of a type without components");
        let ty = Type::Scalar(scalar);
        let linear = match self.component_index(tensor, index) {
            Ok(at) => return place.part(&ty, at),
            Err(linear) => linear,
        };
        let e = self.e;
        let ptr = match place.progression() {
            Some((ptr, first, step)) => {
                let start = e.byte_offset(place.ptrs[ptr as usize], first);
                if step == i64::from(scalar.bytes()) {
                    e.gep(e.memory(scalar), start, linear)
                } else {
                    e.gep(e.i8, start, e.mul_nsw(linear, e.i64c(step)))
                }
            }
            None => {
                let mut ptr = self.leaf_pointer(&place, &place.shape.leaves[0]);
                for (i, leaf) in place.shape.leaves.iter().enumerate().skip(1) {
                    let hit = e.icmp(IntCmp::LLVMIntEQ, linear, e.i64c(i as i64));
                    ptr = e.select(hit, self.leaf_pointer(&place, leaf), ptr);
                }
                ptr
            }
        };
        Place::contiguous(ptr, &ty, place.tag())
    }

    /// Address of a struct's member.
    pub fn member_place(&self, base: ValueId, member: usize) -> Place {
        let place = self.place(base);
        let Type::Struct(s) = &place.shape.ty else { panic!("compiler bug: a member of a type that is not a struct") };
        let first = s.members[..member].iter().map(|(_, t)| t.leaf_count()).sum();
        place.part(&s.members[member].1, first)
    }
}
