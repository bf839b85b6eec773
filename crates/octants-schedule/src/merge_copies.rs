//! Merges the private copies of a task's threads. For each region, the parallel loop of a variant walks the region in
//! groups of scalars, adds each group of the copies to memory, and clears it in the copies.
//!
//! Runs after `privatize_scatter`. The launcher runs these variants when all threads are done, and computes the number
//! of groups from the size of a region. Most groups of most copies are zero, and are only read.

use octants_ir::insert_code::{any_bits, push_if, zero};
use octants_ir::schedule::{BodySchedule, CopyMerge, LaunchShape, Region, RegionMemory, Role, Variant};
use octants_ir::{
    AtomicOp, BinaryOp, Body, Buffer, BufferId, Builder, CodeSizeHint, ComponentLayout, ForLoop, Layout, LocalId,
    LoopConfig, LoopHints, MemorySpace, Op, Placement, Range, ReduceOp, Scalar, Scheduled, Type, ValueId,
};

/// Gives tasks that scatter to private copies a variant for each region, in the order of the regions.
pub(crate) fn merge_copies(scheduled: &mut Scheduled) {
    for task in 0..scheduled.schedule.tasks.len() {
        let Some(mut found) = scheduled.schedule.tasks[task].forms.thread_privatization.take() else { continue };
        let merge = scheduled.schedule.tasks[task].forms.copy_merge;
        for (number, region) in found.regions.iter_mut().enumerate() {
            let words = add_buffer(scheduled, region, words_of(&scheduled.program.buffers, region));
            let copies = add_buffer(scheduled, region, copies_of(&scheduled.program.buffers, region));
            region.all_copies = Some(copies.index());
            scheduled.schedule.tasks[task].variants.push(Variant {
                role: Role::Merge(number as u32),
                shape: LaunchShape::Range,
                body: Merge { scalar: region.scalar, words, copies, merge }.body(),
                schedule: BodySchedule::default(),
            });
        }
        scheduled.schedule.tasks[task].forms.thread_privatization = Some(found);
    }
}

/// Adds a buffer with the memory class of a region. Code of a merge touches the region in no other way.
fn add_buffer(scheduled: &mut Scheduled, region: &Region, buffer: Buffer) -> BufferId {
    let Scheduled { program, schedule } = scheduled;
    program.buffers.push(buffer);
    schedule.memory.push(schedule.memory[region.buffers[0]]);
    schedule.tasks.iter_mut().for_each(|t| t.constants.push(false));
    BufferId(program.buffers.len() as u32 - 1)
}

/// The scalars of a region in the shared memory.
fn words_of(buffers: &[Buffer], region: &Region) -> Buffer {
    let layout = match region.memory {
        RegionMemory::Array { buffer } => Layout::Flat(BufferId(buffer as u32)),
        RegionMemory::Root { root, start, bytes } => {
            let unit = u64::from(region.scalar.bytes());
            let extent = bytes / unit;
            let components = vec![ComponentLayout { root, place: Placement::row_major(start, &[extent], unit) }];
            Layout::Dense { shape: vec![extent], offset: vec![0], components }
        }
    };
    Buffer {
        name: format!("scalars of {}", names(buffers, region)),
        elem: region.scalar.into(),
        ndim: 1,
        layout,
        space: MemorySpace::Global,
        short_offsets: false,
        is_metadata: false,
    }
}

/// The copies of a region.
fn copies_of(buffers: &[Buffer], region: &Region) -> Buffer {
    Buffer {
        name: format!("copies of {}", names(buffers, region)),
        elem: region.scalar.into(),
        ndim: 2,
        layout: Layout::Contiguous,
        space: MemorySpace::Copies,
        short_offsets: false,
        is_metadata: false,
    }
}

fn names(buffers: &[Buffer], region: &Region) -> String {
    let names: Vec<&str> = region.buffers.iter().map(|b| buffers[*b].name.as_str()).collect();
    names.join(", ")
}

/// How a region's copies are added up.
struct Merge {
    scalar: Scalar,
    words: BufferId,
    copies: BufferId,
    merge: CopyMerge,
}

impl Merge {
    /// The parallel loop over the groups.
    fn body(&self) -> Body {
        let mut b = Builder::new();
        let local = b.body.add_local("sum", self.vector());
        let words = b.push(Op::Shape(self.words, 0), Scalar::I64.into());
        let lanes = i64::from(self.merge.lanes);
        let (more, lanes) = (b.int(lanes - 1, Scalar::I64), b.int(lanes, Scalar::I64));
        let up = b.binary(BinaryOp::Add, words, more);
        let groups = b.binary(BinaryOp::Div, up, lanes);
        let none = b.int(0, Scalar::I64);
        let count = |begin, end| vec![Range { begin, end }];
        let each = |dims, body| ForLoop::parallel(dims, body, LoopConfig::default());
        push_loop(&mut b, count(none, groups), each, |b, group| {
            let first = b.binary(BinaryOp::Mul, group, lanes);
            let copies = b.push(Op::Shape(self.copies, 0), Scalar::I64.into());
            // There are as many copies as threads: few, with enough to do in each.
            let hints = LoopHints { code_size: CodeSizeHint::NotUnrolledUncounted, ..LoopHints::default() };
            let few = |dims, body| ForLoop { hints, ..ForLoop::serial(dims, body) };
            push_loop(b, count(none, copies), few, |b, copy| {
                let next = b.binary(BinaryOp::Add, first, lanes);
                self.add_copy(b, local, copy, [first, next]);
            });
            self.add_sum(b, local, first);
        });
        b.body
    }

    /// A group of scalars.
    fn vector(&self) -> Type {
        Type::Vector(self.scalar, self.merge.lanes)
    }

    fn address(&self, b: &mut Builder, buffer: BufferId, index: Vec<ValueId>) -> ValueId {
        b.push(Op::BufferAddr(buffer, index), Type::Ref(Box::new(self.scalar.into())))
    }

    fn load(&self, b: &mut Builder, address: ValueId) -> ValueId {
        b.push(Op::VectorLoad(address), self.vector())
    }

    fn store(&self, b: &mut Builder, address: ValueId, value: ValueId) {
        b.push(Op::VectorStore(address, value), Type::Unit);
    }

    /// Adds a group of a copy to the sum, and clears it.
    fn add_copy(&self, b: &mut Builder, sum: LocalId, copy: ValueId, [first, next]: [ValueId; 2]) {
        let at = self.address(b, self.copies, vec![copy, first]);
        let value = self.load(b, at);
        // Another thread has written it: meanwhile, the next group of all copies is fetched.
        let ahead = self.address(b, self.copies, vec![copy, next]);
        b.push(Op::Prefetch(ahead), Type::Unit);
        let is_some = self.is_some(b, value);
        push_if(b, is_some, |b| {
            let local = b.local_addr(sum);
            let old = self.load(b, local);
            let new = b.binary(BinaryOp::Add, old, value);
            self.store(b, local, new);
            let none = zero(b, &self.vector());
            self.store(b, at, none);
        });
    }

    /// Adds the sum of a group to the memory.
    fn add_sum(&self, b: &mut Builder, sum: LocalId, first: ValueId) {
        let local = b.local_addr(sum);
        let total = self.load(b, local);
        let is_some = self.is_some(b, total);
        push_if(b, is_some, |b| {
            if self.merge.is_atomic {
                return self.add_scalars(b, sum, first);
            }
            // Padding between the fields of a region, or after it, may be zero.
            let bits = self.bits(b, total);
            let none = zero(b, &b.ty(bits).clone());
            let added = b.binary(BinaryOp::Ne, bits, none);
            let all = b.push(Op::Fold(ReduceOp::And, added), Type::U1);
            let (whole, parts) = (b.body.add_block(), b.body.add_block());
            b.push(Op::If(all, whole, parts), Type::Unit);
            let back = b.set_cursor(whole);
            let at = self.address(b, self.words, vec![first]);
            let old = self.load(b, at);
            let new = b.binary(BinaryOp::Add, old, total);
            self.store(b, at, new);
            b.set_cursor(parts);
            self.add_scalars(b, sum, first);
            b.set_cursor(back);
        });
    }

    /// Adds the scalars of the sum that are not zero one by one.
    fn add_scalars(&self, b: &mut Builder, sum: LocalId, first: ValueId) {
        let [begin, end] = [0, i64::from(self.merge.lanes)].map(|n| b.int(n, Scalar::I64));
        push_loop(b, vec![Range { begin, end }], ForLoop::serial, |b, lane| {
            let local = b.local_addr(sum);
            let local = b.element_addr(local, vec![lane]);
            let value = b.load(local);
            let is_some = any_bits(b, value);
            push_if(b, is_some, |b| {
                let at = b.binary(BinaryOp::Add, first, lane);
                let at = self.address(b, self.words, vec![at]);
                if self.merge.is_atomic {
                    b.push(Op::Atomic(AtomicOp::Add, at, value), self.scalar.into());
                } else {
                    let old = b.load(at);
                    let new = b.binary(BinaryOp::Add, old, value);
                    b.store(at, new);
                }
            });
        });
    }

    /// The bits of a group. They are compared, because compilers may assume that no float is NaN.
    fn bits(&self, b: &mut Builder, value: ValueId) -> ValueId {
        match self.scalar.bits_type() {
            Some(bits) => b.push(Op::Bitcast(value), Type::Vector(bits, self.merge.lanes)),
            None => value,
        }
    }

    /// A scalar of a group is not zero.
    fn is_some(&self, b: &mut Builder, value: ValueId) -> ValueId {
        let bits = self.bits(b, value);
        let scalar = b.ty(bits).scalar().expect("compiler bug: a group of a type without scalars");
        let all = b.push(Op::Fold(ReduceOp::Or, bits), scalar.into());
        let none = b.int(0, scalar);
        b.binary(BinaryOp::Ne, all, none)
    }
}

/// A loop along one axis; `code` gets the index.
fn push_loop(
    b: &mut Builder,
    dims: Vec<Range>,
    make: impl FnOnce(Vec<Range>, octants_ir::BlockId) -> ForLoop,
    code: impl FnOnce(&mut Builder, ValueId),
) {
    let ty = b.ty(dims[0].begin).clone();
    let body = b.body.add_block();
    let v = b.push(Op::For(Box::new(make(dims, body))), Type::Unit);
    let back = b.set_cursor(body);
    let index = b.push(Op::LoopIndex(v, 0), ty);
    code(b, index);
    b.set_cursor(back);
}
