//! Addresses, loads and stores.
//!
//! Addresses are computed in 64 bits. Indices and offsets are computed in 32 bits if all offsets of a buffer fit.

use std::rc::Rc;

use octants_ir::{
    Buffer, ComponentLayout, Const, IndexDigit, Layout, LocalId, MemorySpace, Op as IrOp, Placement, Scalar, Type,
    ValueId,
};
use rspirv::dr::Operand;
use rspirv::spirv::{Capability, MemoryAccess, StorageClass};

use crate::emit::{Id, Op};
use crate::lowering::Lowering;
use crate::place::{LeafAt, Memory, Place, PlaceShape, Pointer, local_variables};

impl Lowering<'_, '_> {
    /// Creates the locals that need memory. Zeroes those selected by `select` whose initial zero is observable.
    pub fn prepare_locals(&mut self, select: impl Fn(&Self, LocalId) -> bool) {
        for i in 0..self.body.locals.len() {
            let id = LocalId(i as u32);
            let uses = self.schedule.locals.of(id);
            if uses.is_unused || uses.is_value {
                continue;
            }
            if self.locals[i].is_none() {
                self.locals[i] = Some(self.local_place(&self.body.locals[i].ty));
            }
            if uses.needs_zero
                && select(self, id)
                && let Some(place) = &self.locals[i]
            {
                for (ptr, memory) in place.ptrs.iter().zip(&place.shape.memory) {
                    if let (Pointer::Element(variable, _), Memory::Local { scalar, count }) = (ptr, memory) {
                        let ty = self.e.array_type(self.e.scalar(*scalar), *count);
                        self.e.store(*variable, self.e.null(ty));
                    }
                }
            }
        }
    }

    /// Fresh variables for a value.
    pub fn local_place(&self, ty: &Type) -> Place {
        let mut shape = PlaceShape { ty: ty.clone(), leaves: Vec::new(), memory: Vec::new() };
        let mut ptrs = Vec::new();
        for (scalar, count) in local_variables(ty) {
            let variable = self.e.variable(self.e.array_type(self.e.scalar(scalar), count));
            let leaf = |i: u32| LeafAt { ptr: ptrs.len() as u32, offset: i64::from(i), scalar };
            shape.leaves.extend((0..count).map(leaf));
            shape.memory.push(Memory::Local { scalar, count });
            ptrs.push(Pointer::Element(variable, None));
        }
        Place { ptrs, shape: Rc::new(shape) }
    }

    /// The address of a leaf in global memory.
    pub fn leaf_address(&self, place: &Place, leaf: &LeafAt) -> Option<Id> {
        match place.ptrs[leaf.ptr as usize] {
            Pointer::Address(address) => Some(self.e.add(address, self.e.u64c(leaf.offset as u64))),
            Pointer::Element(..) => None,
        }
    }

    /// A pointer of SPIR-V to a word of a type at an address.
    pub fn pointer_to(&self, address: Id, word: Id) -> Id {
        let ty = self.e.pointer_type(StorageClass::PhysicalStorageBuffer, word);
        self.e.of(Op::ConvertUToPtr, ty, &[address])
    }

    /// A pointer of SPIR-V to an element of a variable.
    pub fn element_pointer(&self, place: &Place, leaf: &LeafAt) -> Option<Id> {
        let Pointer::Element(variable, index) = place.ptrs[leaf.ptr as usize] else { return None };
        let e = self.e;
        let offset = e.u32c(leaf.offset as u32);
        let index = index.map_or(offset, |index| e.add(index, offset));
        let (class, word) = match place.shape.memory[leaf.ptr as usize] {
            Memory::Shared { scalar, .. } => (StorageClass::Workgroup, self.shared_word(scalar)),
            _ => (StorageClass::Function, e.scalar(leaf.scalar)),
        };
        Some(e.of(Op::AccessChain, e.pointer_type(class, word), &[variable, index]))
    }

    /// The type that shared memory holds a scalar in: floats as integers if they are exchanged as such.
    pub fn shared_word(&self, s: Scalar) -> Id {
        match s {
            s if s.bits() < 32 => self.e.u32(),
            s if self.u.shares_as_words(s) => self.e.int_type(s.bits()),
            s => self.e.scalar(s),
        }
    }

    /// The type that global memory holds a scalar in.
    pub fn global_word(&self, s: Scalar) -> Id {
        let e = self.e;
        match s.bytes() {
            1 => {
                if !e.features.int8 {
                    e.refuse("this device has no 8-bit integers in memory, which bools and 8-bit types need");
                }
                e.need(Capability::StorageBuffer8BitAccess);
            }
            2 => e.need(Capability::StorageBuffer16BitAccess),
            _ => {}
        }
        if s == Scalar::U1 { e.int_type(8) } else { e.scalar(s) }
    }

    /// The memory operands of a load or store; for global memory, the alignment.
    pub fn access(&self, alignment: Option<u32>, volatile: bool) -> Vec<Operand> {
        let mut mask = MemoryAccess::NONE;
        let mut operands = Vec::new();
        if volatile {
            mask |= MemoryAccess::VOLATILE;
        }
        if let Some(alignment) = alignment {
            mask |= MemoryAccess::ALIGNED;
            operands.push(Operand::LiteralBit32(alignment));
        }
        if self.u.shares_memory {
            mask |= MemoryAccess::NON_PRIVATE_POINTER;
        }
        if mask.is_empty() {
            return Vec::new();
        }
        [Operand::MemoryAccess(mask)].into_iter().chain(operands).collect()
    }

    /// Reads a scalar at an address.
    pub fn load_at(&self, address: Id, s: Scalar, volatile: bool) -> Id {
        let word = self.global_word(s);
        let mut operands = vec![Operand::IdRef(self.pointer_to(address, word))];
        operands.extend(self.access(Some(s.bytes()), volatile));
        let v = self.e.op(Op::Load, word, operands);
        if s == Scalar::U1 { self.e.scalar_of_bits(v, s) } else { v }
    }

    /// Writes a scalar at an address.
    pub fn store_at(&self, address: Id, s: Scalar, value: Id) {
        let value = if s == Scalar::U1 { self.e.bits_of(value, s) } else { value };
        let pointer = self.pointer_to(address, self.global_word(s));
        let mut operands = vec![Operand::IdRef(pointer), Operand::IdRef(value)];
        operands.extend(self.access(Some(s.bytes()), false));
        self.e.effect(Op::Store, operands);
    }

    /// Reads a leaf.
    pub fn load_leaf(&self, place: &Place, leaf: &LeafAt, volatile: bool) -> Id {
        let (e, s) = (self.e, leaf.scalar);
        if let Some(address) = self.leaf_address(place, leaf) {
            return self.load_at(address, s, volatile);
        }
        let pointer = self.element_pointer(place, leaf).expect("compiler bug: a pointer to an unknown storage class");
        match place.shape.memory[leaf.ptr as usize] {
            Memory::Shared { .. } => {
                let word = self.shared_word(s);
                let mut operands = vec![Operand::IdRef(pointer)];
                operands.extend(self.access(None, volatile));
                let v = e.op(Op::Load, word, operands);
                if word == e.scalar(s) { v } else { e.scalar_of_bits(v, s) }
            }
            _ => e.load(e.scalar(s), pointer),
        }
    }

    /// Writes a leaf.
    pub fn store_leaf(&self, place: &Place, leaf: &LeafAt, value: Id) {
        let (e, s) = (self.e, leaf.scalar);
        if let Some(address) = self.leaf_address(place, leaf) {
            return self.store_at(address, s, value);
        }
        let pointer = self.element_pointer(place, leaf).expect("compiler bug: a pointer to an unknown storage class");
        match place.shape.memory[leaf.ptr as usize] {
            Memory::Shared { .. } => {
                let is_plain = self.shared_word(s) == e.scalar(s);
                let value = if is_plain { value } else { e.bits_in(value, s, s.bits().max(32)) };
                let mut operands = vec![Operand::IdRef(pointer), Operand::IdRef(value)];
                operands.extend(self.access(None, false));
                e.effect(Op::Store, operands);
            }
            _ => e.store(pointer, value),
        }
    }

    /// Reads all leaves.
    pub fn load_place(&self, place: &Place, volatile: bool) -> Vec<Id> {
        place.shape.leaves.iter().map(|l| self.load_leaf(place, l, volatile)).collect()
    }

    /// Writes all leaves.
    pub fn store_place(&self, place: &Place, values: &[Id]) {
        for (l, v) in place.shape.leaves.iter().zip(values) {
            self.store_leaf(place, l, *v);
        }
    }

    /// A scalar's value in 64 bits.
    pub fn widen(&self, v: Id, s: Scalar) -> Id {
        match s {
            s if s.bits() == 64 => v,
            Scalar::U1 => self.e.truth_to_int(v, 64),
            s if s.is_signed() => self.e.sext(v, s.bits(), 64),
            _ => self.e.zext(v, 64),
        }
    }

    /// An index in 64 bits.
    pub fn index64(&self, v: ValueId) -> Id {
        if let IrOp::LoopIndex(l, axis) = self.body.inst(self.source(v)).op
            && let Some(indices) = self.indices.get(&l)
        {
            return indices[axis as usize].wide;
        }
        self.widen(self.value(v), self.scalar_of(v))
    }

    /// An index in 32 bits, of a buffer that needs no more.
    fn index32(&self, v: ValueId) -> Id {
        match self.scalar_of(v).bits() {
            32 => self.value(v),
            _ => self.e.trunc(self.index64(v), 32),
        }
    }

    /// Extent of a buffer's axis, 64 bits.
    pub fn extent(&self, buffer: usize, axis: usize) -> Id {
        let b = &self.u.facts.program.buffers[buffer];
        match &b.layout {
            Layout::Dense { shape, .. } => self.e.u64c(shape[axis]),
            Layout::Flat(of) => {
                let of = of.index();
                let array = &self.u.facts.program.buffers[of];
                let leaves = self.e.u64c(array.elem.leaf_count() as u64);
                (0..array.ndim).fold(leaves, |n, axis| self.e.mul(n, self.extent(of, axis as usize)))
            }
            Layout::Contiguous | Layout::Strided => {
                let slot = self.u.facts.args.buffers[buffer].expect("compiler bug: an array without argument slots");
                self.argument(slot + 1 + axis as u32)
            }
        }
    }

    /// Address of a buffer's element.
    pub fn buffer_place(&self, buffer: usize, index: &[ValueId]) -> Place {
        let e = self.e;
        let b = &self.u.facts.program.buffers[buffer];
        let is_short = b.short_offsets;
        let bits = if is_short { 32 } else { 64 };
        let index: Vec<Id> = index.iter().map(|v| if is_short { self.index32(*v) } else { self.index64(*v) }).collect();
        let base = |of: usize| {
            let slot = self.u.facts.args.buffers[of].expect("compiler bug: an array without argument slots");
            self.argument(slot)
        };
        let size = |ty: &Type| ty.leaves().iter().map(|s| i64::from(s.bytes())).sum::<i64>();
        let at = |base: Id, bytes: Id| Place::contiguous(e.add(base, e.sext(bytes, bits, 64)), &b.elem);
        match &b.layout {
            Layout::Dense { offset, components, .. } => {
                let from_first = |(v, o): (Id, &i64)| e.sub(v, e.int(bits, *o));
                let index: Vec<Id> = index.into_iter().zip(offset).map(from_first).collect();
                match b.space {
                    MemorySpace::Global => self.dense_place(&b.elem, &index, components, bits),
                    _ => self.variable_place(b, &index, components, bits),
                }
            }
            Layout::Flat(of) => at(base(of.index()), e.mul(index[0], e.int(bits, size(&b.elem)))),
            Layout::Contiguous => {
                let linear = index.into_iter().enumerate().reduce(|(_, outer), (axis, i)| {
                    let extent = e.trunc(self.extent(buffer, axis), bits);
                    (axis, e.add(e.mul(outer, extent), i))
                });
                match linear {
                    None => Place::contiguous(base(buffer), &b.elem),
                    Some((_, linear)) => at(base(buffer), e.mul(linear, e.int(bits, size(&b.elem)))),
                }
            }
            Layout::Strided => {
                let slot = self.u.facts.args.buffers[buffer].expect("compiler bug: an array without argument slots");
                let stride = |axis: usize| e.trunc(self.argument(slot + 1 + b.ndim + axis as u32), bits);
                let parts = index.into_iter().enumerate().map(|(axis, i)| e.mul(i, stride(axis)));
                at(base(buffer), parts.fold(e.int(bits, 0), |sum, part| e.add(sum, part)))
            }
        }
    }

    /// Bytes from a component's first scalar.
    fn dense_offset(&self, c: &ComponentLayout, index: &[Id], bits: u32) -> Id {
        let e = self.e;
        let parts = index.iter().enumerate().flat_map(|(axis, i)| self.digits(&c.place, axis, *i, bits));
        parts.fold(e.int(bits, 0), |sum, (digit, stride)| e.add(sum, e.mul(digit, e.int(bits, stride as i64))))
    }

    /// Components whose axes are the same share a pointer; each has its base as its offset.
    fn dense_place(&self, elem: &Type, index: &[Id], components: &[ComponentLayout], bits: u32) -> Place {
        let e = self.e;
        let mut shape = PlaceShape { ty: elem.clone(), leaves: Vec::new(), memory: Vec::new() };
        let mut ptrs = Vec::new();
        let mut kinds: Vec<&ComponentLayout> = Vec::new();
        for (c, s) in components.iter().zip(elem.leaves()) {
            let known = kinds.iter().position(|k| k.root == c.root && k.place.axes == c.place.axes);
            let ptr = known.unwrap_or_else(|| {
                let root = self.argument(self.u.facts.args.roots[c.root as usize]);
                let base = e.add(root, e.u64c(c.place.base));
                let bytes = self.dense_offset(c, index, bits);
                ptrs.push(Pointer::Address(e.add(base, e.sext(bytes, bits, 64))));
                shape.memory.push(Memory::Global);
                kinds.push(c);
                kinds.len() - 1
            });
            let offset = c.place.base as i64 - kinds[ptr].place.base as i64;
            shape.leaves.push(LeafAt { ptr: ptr as u32, offset, scalar: s });
        }
        Place { ptrs, shape: Rc::new(shape) }
    }

    /// An element of shared or private memory: of each root and type one variable.
    fn variable_place(&self, b: &Buffer, index: &[Id], components: &[ComponentLayout], bits: u32) -> Place {
        let e = self.e;
        let mut shape = PlaceShape { ty: b.elem.clone(), leaves: Vec::new(), memory: Vec::new() };
        let mut ptrs = Vec::new();
        let mut kinds: Vec<(&ComponentLayout, Scalar)> = Vec::new();
        for (c, s) in components.iter().zip(b.elem.leaves()) {
            let known = kinds.iter().position(|(k, of)| k.root == c.root && k.place.axes == c.place.axes && *of == s);
            let unit = u64::from(s.bytes());
            let ptr = known.unwrap_or_else(|| {
                let bytes = e.add(self.dense_offset(c, index, bits), e.int(bits, c.place.base as i64));
                let element = e.trunc(e.udiv(bytes, e.int(bits, unit as i64)), 32);
                let (variable, memory) = self.root_variable(b.space, c.root, s);
                ptrs.push(Pointer::Element(variable, Some(element)));
                shape.memory.push(memory);
                kinds.push((c, s));
                kinds.len() - 1
            });
            let offset = (c.place.base as i64 - kinds[ptr].0.place.base as i64) / unit as i64;
            shape.leaves.push(LeafAt { ptr: ptr as u32, offset, scalar: s });
        }
        Place { ptrs, shape: Rc::new(shape) }
    }

    /// The variable for a root's scalars of a type.
    fn root_variable(&self, space: MemorySpace, root: u32, s: Scalar) -> (Id, Memory) {
        let (e, facts) = (self.e, self.u.facts);
        let count = |bytes: &[u64]| bytes[root as usize].div_ceil(u64::from(s.bytes())) as u32;
        match space {
            MemorySpace::Shared => {
                let known = self.u.shared.borrow().get(&(root, s)).copied();
                let variable = known.unwrap_or_else(|| {
                    let ty = e.array_type(self.shared_word(s), count(&facts.shared_bytes));
                    let variable = e.global(StorageClass::Workgroup, ty);
                    self.u.shared.borrow_mut().insert((root, s), variable);
                    variable
                });
                (variable, Memory::Shared { variable, scalar: s })
            }
            _ => {
                let known = self.private.borrow().get(&(root, s)).copied();
                let (variable, count) = known.unwrap_or_else(|| {
                    let count = count(&facts.private_bytes);
                    let variable = e.variable(e.array_type(e.scalar(s), count));
                    self.private.borrow_mut().insert((root, s), (variable, count));
                    (variable, count)
                });
                (variable, Memory::Local { scalar: s, count })
            }
        }
    }

    /// The digits of an index, and how many bytes apart the elements are that differ by one in them.
    fn digits(&self, place: &Placement, axis: usize, index: Id, bits: u32) -> Vec<(Id, u64)> {
        let e = self.e;
        let value = |(k, (digit, stride)): (usize, (IndexDigit, u64))| {
            let mut value = index;
            if digit.weight > 1 {
                value = e.udiv(value, e.int(bits, digit.weight as i64));
            }
            // The outermost digit needs no remainder: the index is within its axis.
            if k > 0 {
                value = e.umod(value, e.int(bits, digit.extent as i64));
            }
            (value, stride)
        };
        place.index_digits(axis).into_iter().enumerate().map(value).collect()
    }

    /// Address of a frame slot.
    pub fn frame_place(&self, slot: usize, ty: &Type) -> Place {
        let Type::Ref(pointee) = ty else { panic!("compiler bug: a frame address that is not a reference") };
        let frame = self.context_word(0);
        Place::contiguous(self.e.add(frame, self.e.u64c(self.u.facts.frame_offsets[slot])), pointee)
    }

    /// Row-major position of an element of a tensor; a constant if the indices are constants, and otherwise 64 bits.
    pub fn component_index(&self, tensor: &Type, index: &[ValueId]) -> Result<usize, Id> {
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
        let e = self.e;
        let mut linear = self.index64(index[0]);
        for (v, n) in index.iter().zip(&shape).skip(1) {
            linear = e.add(e.mul(linear, e.u64c(u64::from(*n))), self.index64(*v));
        }
        Err(linear)
    }

    /// Address of a tensor's component.
    pub fn element_place(&self, base: ValueId, index: &[ValueId]) -> Place {
        let place = self.place(base);
        let scalar = place.shape.ty.scalar().expect("compiler bug: an element of a type without components");
        let ty = Type::Scalar(scalar);
        let linear = match self.component_index(&place.shape.ty, index) {
            Ok(at) => return place.part(&ty, at),
            Err(linear) => linear,
        };
        let e = self.e;
        let Some((ptr, first, step)) = place.progression() else { return self.chosen_place(&place, &ty, linear) };
        match place.ptrs[ptr as usize] {
            Pointer::Address(address) => {
                let start = e.add(address, e.u64c(first as u64));
                Place::contiguous(e.add(start, e.mul(linear, e.u64c(step as u64))), &ty)
            }
            Pointer::Element(variable, index) => {
                let within = e.mul(e.trunc(linear, 32), e.u32c(step as u32));
                let from = index.map_or(within, |index| e.add(index, within));
                let leaves = vec![LeafAt { ptr: 0, offset: first, scalar }];
                let shape = PlaceShape { ty, leaves, memory: vec![place.shape.memory[ptr as usize]] };
                Place { ptrs: vec![Pointer::Element(variable, Some(from))], shape: Rc::new(shape) }
            }
        }
    }

    /// A component of those that are at uneven distances.
    fn chosen_place(&self, place: &Place, ty: &Type, linear: Id) -> Place {
        let e = self.e;
        let leaves = &place.shape.leaves;
        let addresses: Option<Vec<Id>> = leaves.iter().map(|leaf| self.leaf_address(place, leaf)).collect();
        let Some(addresses) = addresses else {
            e.refuse("a run-time component index into scattered shared memory");
            return place.part(ty, 0);
        };
        let hit = |i: usize| e.ieq(linear, e.u64c(i as u64));
        let choose = |chosen: Id, (i, address): (usize, &Id)| e.select(hit(i), *address, chosen);
        Place::contiguous(addresses.iter().enumerate().skip(1).fold(addresses[0], choose), ty)
    }

    /// Address of a struct's member.
    pub fn member_place(&self, base: ValueId, member: usize) -> Place {
        let place = self.place(base);
        let Type::Struct(s) = &place.shape.ty else { panic!("compiler bug: a member of a type that is not a struct") };
        let first = s.members[..member].iter().map(|(_, t)| t.leaf_count()).sum();
        place.part(&s.members[member].1, first)
    }
}
