//! Shared-memory privatization: each thread block accumulates scattered sums in copies in shared memory, and adds the
//! copies to global memory at the end. Applies to histograms and to gradients of memory that all iterations read.
//!
//! The variant becomes code that each thread of the grid runs: the threads of a block clear the copies, synchronize,
//! run the parallel loop on the copies, synchronize again, and add the nonzero elements. The size of an array is known
//! only at launch, so for arrays there is a second loop without copies, used if the array is too large.

use std::collections::HashSet;

use octants_analysis::local_uses;
use octants_ir::insert_code::{any_bits, push_if, zero};
use octants_ir::schedule::{Region, RegionMemory, ScatterPrivatization, Variant};
use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Buffer, BufferId, Builder, GridValue, Layout, MemorySpace, Op, Program, Scalar,
    Scheduled, ThreadScope, Type, ValueId,
};

use crate::clone_code::{Cloner, plainly};
use crate::scheduling::Scheduling;
use crate::shared_buffers::{add_buffer_in_root, add_shared_buffer, flat_buffer, next_root};

/// Every copy begins at a multiple of this many bytes.
const ALIGNMENT: u64 = 8;

/// The copy of a buffer.
struct Copy {
    original: BufferId,
    copy: BufferId,
    elem: Type,
    extents: Extents,
}

/// The axes of a buffer.
enum Extents {
    /// Extent and first index of each axis. The copy has the same axes.
    Known(Vec<(u64, i64)>),
    /// Number of axes. The copies of all arrays are in one root, each with one axis.
    AtLaunch(u32),
}

/// Privatizes as scheduled, in all variants.
pub(crate) fn privatize_in_shared_memory(scheduled: &mut Scheduled, of: &Scheduling) {
    for task in 0..scheduled.schedule.tasks.len() {
        let Some(found) = scheduled.schedule.tasks[task].forms.block_privatization.clone() else { continue };
        let known: u64 = found.regions.iter().map(Region::known_bytes).sum();
        let pool = pool_bytes(&scheduled.program, of, &found, known);
        let copies = add_copies(scheduled, of, &found, pool);
        for variant in &mut scheduled.schedule.tasks[task].variants {
            privatize(variant, &copies, known + pool);
        }
    }
}

/// Bytes for the copies of all arrays.
fn pool_bytes(program: &Program, of: &Scheduling, found: &ScatterPrivatization, known: u64) -> u64 {
    let left = of.target.shared_bytes - known;
    if !of.target.types_shared_memory {
        return left;
    }
    let buffers = found.regions.iter().flat_map(|region| &region.buffers);
    let types: HashSet<Scalar> = buffers.flat_map(|b| program.buffers[*b].elem.leaves()).collect();
    left / types.len().max(1) as u64
}

/// Adds the buffers for the copies.
fn add_copies(scheduled: &mut Scheduled, of: &Scheduling, found: &ScatterPrivatization, bytes: u64) -> Vec<Copy> {
    let mut pool = None;
    let mut copies = Vec::new();
    for region in &found.regions {
        let [b] = region.buffers[..] else { panic!("compiler bug: a shared-memory copy of several buffers") };
        let buffer = scheduled.program.buffers[b].clone();
        let name = format!("{} of a block", buffer.name);
        let (copy, extents) = match (&region.memory, &buffer.layout) {
            (RegionMemory::Root { start, .. }, Layout::Dense { shape, offset, .. }) => {
                let extents = shape.iter().copied().zip(offset.iter().copied()).collect();
                let copy = add_shared_buffer(scheduled, of, copy_of_field(&buffer, name, *start));
                (copy, Extents::Known(extents))
            }
            _ => {
                let root = *pool.get_or_insert_with(|| next_root(&scheduled.program.buffers, MemorySpace::Shared));
                let elements = bytes / bytes_of(&buffer.elem);
                let copy = flat_buffer(&name, buffer.elem.clone(), elements);
                (add_buffer_in_root(scheduled, of, copy, root), Extents::AtLaunch(buffer.ndim))
            }
        };
        copies.push(Copy { original: BufferId(b as u32), copy, elem: buffer.elem, extents });
    }
    copies
}

/// A field in shared memory with the same layout, without the first bytes of its root.
fn copy_of_field(field: &Buffer, name: String, start: u64) -> Buffer {
    let mut copy = Buffer { name, space: MemorySpace::Shared, short_offsets: true, ..field.clone() };
    if let Layout::Dense { components, .. } = &mut copy.layout {
        components.iter_mut().for_each(|c| c.place.base -= start);
    }
    copy
}

fn bytes_of(elem: &Type) -> u64 {
    elem.leaves().iter().map(|s| u64::from(s.bytes())).sum()
}

fn privatize(variant: &mut Variant, copies: &[Copy], limit: u64) {
    let source = variant.body.clone();
    let root = source.root;
    let Some((&v, prologue)) = source.block(root).split_last() else { panic!("compiler bug: a task without a loop") };
    let mut b = Builder::new();
    b.body = std::mem::take(&mut variant.body);
    b.body.blocks[root.index()] = prologue.to_vec();
    b.set_cursor(root);
    b.span = source.inst(v).span;
    let thread = [GridValue::Thread, GridValue::BlockSize].map(|g| {
        let value = b.push(Op::Grid(g), Type::I32);
        b.cast(value, Scalar::U32)
    });
    let mut sizes = Sizes { known: 0, at_launch: None };
    let copies: Vec<Placed<'_>> = copies.iter().map(|copy| sizes.place(&mut b, copy)).collect();
    let code = Privatization { copies, thread };
    let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: a task that does not end in its loop") };
    code.redirect(&mut b, l.body);
    match sizes.at_launch {
        None => code.insert(&mut b, v),
        Some(bytes) => {
            let limit = b.int((limit - sizes.known) as i64, Scalar::U64);
            let bytes = b.cast(bytes, Scalar::U64);
            let fits = b.binary(BinaryOp::Le, bytes, limit);
            let blocks = [b.body.add_block(), b.body.add_block()];
            b.push(Op::If(fits, blocks[0], blocks[1]), Type::Unit);
            b.set_cursor(blocks[0]);
            code.insert(&mut b, v);
            b.set_cursor(blocks[1]);
            let locals = local_uses(&source);
            let mut cloner = Cloner::with_own_locals(&source, &locals);
            cloner.inst(&mut b, v, &mut plainly);
        }
    }
    variant.body = b.body;
}

/// Bytes of all copies so far.
struct Sizes {
    known: u64,
    /// The bytes for arrays, i64.
    at_launch: Option<ValueId>,
}

/// A copy and its extent in shared memory.
struct Placed<'a> {
    of: &'a Copy,
    /// For an array: the first element of its copy, if not the first of all, and the number of elements, both i64.
    array: Option<(Option<ValueId>, ValueId)>,
}

impl Sizes {
    fn place<'a>(&mut self, b: &mut Builder, of: &'a Copy) -> Placed<'a> {
        let bytes = bytes_of(&of.elem);
        let ndim = match &of.extents {
            Extents::AtLaunch(ndim) => *ndim,
            Extents::Known(extents) => {
                let elements: u64 = extents.iter().map(|e| e.0).product();
                self.known += (elements * bytes).next_multiple_of(ALIGNMENT);
                return Placed { of, array: None };
            }
        };
        let one = b.int(1, Scalar::I64);
        let elements = (0..ndim).fold(one, |n, axis| {
            let extent = b.push(Op::Shape(of.original, axis), Scalar::I64.into());
            if n == one { extent } else { b.binary(BinaryOp::Mul, n, extent) }
        });
        let int = |b: &mut Builder, n: u64| b.int(n as i64, Scalar::I64);
        // Elements of one type follow one another without gaps.
        let first = self.at_launch.map(|before| {
            let round = int(b, bytes - 1);
            let up = b.binary(BinaryOp::Add, before, round);
            let size = int(b, bytes);
            b.binary(BinaryOp::Div, up, size)
        });
        let end = first.map_or(elements, |first| b.binary(BinaryOp::Add, first, elements));
        let size = int(b, bytes);
        self.at_launch = Some(b.binary(BinaryOp::Mul, end, size));
        Placed { of, array: Some((first, elements)) }
    }
}

/// The code around the loop.
struct Privatization<'a> {
    copies: Vec<Placed<'a>>,
    /// This thread in its block, and the number of the block's threads, u32.
    thread: [ValueId; 2],
}

impl Privatization<'_> {
    /// Lets the code of the loop use the copies.
    fn redirect(&self, b: &mut Builder, block: BlockId) {
        let cursor = b.set_cursor(block);
        for v in std::mem::take(&mut b.body.blocks[block.index()]) {
            b.set_cursor(block);
            let inst = b.body.inst(v);
            let (blocks, span) = (inst.op.blocks(), inst.span);
            if let Op::BufferAddr(buffer, index) = &inst.op
                && let Some(copy) = self.copies.iter().find(|c| c.of.original == *buffer)
            {
                let index = index.clone();
                b.span = span;
                let index = copy.index(b, index);
                b.body.inst_mut(v).op = Op::BufferAddr(copy.of.copy, index);
            }
            b.place(v);
            blocks.into_iter().for_each(|inner| self.redirect(b, inner));
        }
        b.set_cursor(cursor);
    }

    /// The loop on the copies.
    fn insert(&self, b: &mut Builder, v: ValueId) {
        for copy in &self.copies {
            self.each_element(b, copy, |b, element| {
                let address = copy.of_element(b, element);
                let zero = zero(b, &copy.of.elem);
                b.store(address, zero);
            });
        }
        b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        b.place(v);
        b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        for copy in &self.copies {
            self.each_element(b, copy, |b, element| {
                let address = copy.of_element(b, element);
                let sum = b.load(address);
                copy.add(b, element, sum);
            });
        }
    }

    /// Runs code for each element of a copy, shared among the threads of the block. The element is a u32.
    fn each_element(&self, b: &mut Builder, copy: &Placed<'_>, code: impl FnOnce(&mut Builder, ValueId)) {
        let count = match (&copy.of.extents, copy.array) {
            (_, Some((_, elements))) => b.cast(elements, Scalar::U32),
            (Extents::Known(extents), None) => b.int(extents.iter().map(|e| e.0 as i64).product(), Scalar::U32),
            _ => panic!("compiler bug: an array without a size"),
        };
        let [thread, threads] = self.thread;
        let local = b.body.add_local("element", Scalar::U32.into());
        b.store_local(local, thread);
        let body = b.body.add_block();
        b.push(Op::Loop(body), Type::Unit);
        let back = b.set_cursor(body);
        let element = b.load_local(local);
        let is_behind = b.binary(BinaryOp::Ge, element, count);
        push_if(b, is_behind, |b| {
            b.push(Op::Break, Type::Unit);
        });
        code(b, element);
        let next = b.binary(BinaryOp::Add, element, threads);
        b.store_local(local, next);
        b.set_cursor(back);
    }
}

impl Placed<'_> {
    /// The index in the copy of an index of the original.
    fn index(&self, b: &mut Builder, index: Vec<ValueId>) -> Vec<ValueId> {
        let Some((first, _)) = self.array else { return index };
        if let ([only], None) = (&index[..], first) {
            return vec![*only];
        }
        let mut linear = first;
        let mut inner: Option<ValueId> = None;
        for (axis, i) in index.into_iter().enumerate() {
            let i = b.cast(i, Scalar::I64);
            inner = Some(match inner {
                None => i,
                Some(outer) => {
                    let extent = b.push(Op::Shape(self.of.original, axis as u32), Scalar::I64.into());
                    let row = b.binary(BinaryOp::Mul, outer, extent);
                    b.binary(BinaryOp::Add, row, i)
                }
            });
        }
        if let Some(inner) = inner {
            linear = Some(linear.map_or(inner, |first| b.binary(BinaryOp::Add, first, inner)));
        }
        vec![linear.unwrap_or_else(|| b.int(0, Scalar::I64))]
    }

    /// The address of an element of the copy.
    fn of_element(&self, b: &mut Builder, element: ValueId) -> ValueId {
        let index = match self.array {
            Some((None, _)) => vec![element],
            Some((Some(first), _)) => {
                let element = b.cast(element, Scalar::I64);
                vec![b.binary(BinaryOp::Add, first, element)]
            }
            None => self.index_of(b, element),
        };
        b.push(Op::BufferAddr(self.of.copy, index), Type::Ref(Box::new(self.of.elem.clone())))
    }

    /// The index of an element in the original.
    fn index_of(&self, b: &mut Builder, element: ValueId) -> Vec<ValueId> {
        let mut rest = element;
        let mut index = Vec::new();
        let axes = match &self.of.extents {
            Extents::Known(extents) => extents.len(),
            Extents::AtLaunch(ndim) => *ndim as usize,
        };
        for axis in (0..axes).rev() {
            let mut i = rest;
            if axis > 0 {
                let extent = match &self.of.extents {
                    Extents::Known(extents) => b.int(extents[axis].0 as i64, Scalar::U32),
                    Extents::AtLaunch(_) => {
                        let extent = b.push(Op::Shape(self.of.original, axis as u32), Scalar::I64.into());
                        b.cast(extent, Scalar::U32)
                    }
                };
                i = b.binary(BinaryOp::Rem, rest, extent);
                rest = b.binary(BinaryOp::Div, rest, extent);
            }
            if let Extents::Known(extents) = &self.of.extents
                && extents[axis].1 != 0
            {
                let first = b.int(extents[axis].1, Scalar::I32);
                let narrow = b.cast(i, Scalar::I32);
                i = b.binary(BinaryOp::Add, narrow, first);
            }
            index.push(i);
        }
        index.reverse();
        index
    }

    /// Adds an element of the copy to the original. Zeros are not added.
    fn add(&self, b: &mut Builder, element: ValueId, sum: ValueId) {
        let elem = &self.of.elem;
        let scalar = elem.scalar().expect("compiler bug: a sum of a type without scalars");
        let original = |b: &mut Builder| {
            let index = self.index_of(b, element);
            b.push(Op::BufferAddr(self.of.original, index), Type::Ref(Box::new(elem.clone())))
        };
        for component in 0..elem.leaf_count() as u32 {
            let part = if elem.is_tensor() { b.extract(sum, component) } else { sum };
            let is_some = any_bits(b, part);
            push_if(b, is_some, |b| {
                let mut address = original(b);
                if elem.is_tensor() {
                    let index = component_index(b, elem, component);
                    address = b.element_addr(address, index);
                }
                b.push(Op::Atomic(AtomicOp::Add, address, part), scalar.into());
            });
        }
    }
}

/// The indices of a component of a tensor.
fn component_index(b: &mut Builder, tensor: &Type, component: u32) -> Vec<ValueId> {
    match tensor.shape()[..] {
        [_, columns] => [component / columns, component % columns].map(|i| b.int(i.into(), Scalar::I32)).to_vec(),
        _ => vec![b.int(component.into(), Scalar::I32)],
    }
}
