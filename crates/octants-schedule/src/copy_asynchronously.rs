//! [`copy_asynchronously`]: makes copies from global to shared memory asynchronous, if a block barrier follows. They
//! bypass the thread's registers and overlap its other work.
//!
//! A copy is a run of stores to adjacent elements of a shared array, 16 bytes in total, of values that were loaded from
//! adjacent elements of global memory and have no other use. If the source is 16-byte aligned, which the code checks at
//! run time, the copy becomes one `copy_async`. Each barrier of the block then waits for all copies of its threads.
//!
//! Until then, a thread must not observe that the copy is incomplete. Every path from the copy reaches a block barrier,
//! without a call or an exit. On such a path, the thread does not write to global memory, and accesses the array only
//! to write to elements that are provably different. Accesses by other threads before the barrier would race with the
//! plain copy too. Two stages of tiles must therefore be two arrays.

use std::collections::{HashMap, HashSet};

use octants_analysis::{local_uses, trace_element};
use octants_ir::schedule::LocalUses;
use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Effect, Layout, LocalId, MemorySpace, Op, Scalar, Scheduled,
    ThreadScope, Type, ValueId,
};

use crate::index_offsets::Offsets;

/// Bytes of a copy.
const BYTES: u32 = 16;

/// A run of stores, all in one block of code.
struct Copy {
    stores: Vec<ValueId>,
    /// The address that each loads from.
    sources: Vec<ValueId>,
    buffer: BufferId,
    /// Indices of the first element.
    index: Vec<Split>,
}

/// An index as a value, if there is one, plus a constant.
type Split = (Option<ValueId>, i64);

/// Makes the copies of all tasks asynchronous.
pub(crate) fn copy_asynchronously(scheduled: &mut Scheduled) {
    let buffers = &scheduled.program.buffers;
    for variant in scheduled.schedule.tasks.iter_mut().flat_map(|t| &mut t.variants) {
        in_body(&mut variant.body, buffers);
    }
}

fn in_body(body: &mut Body, buffers: &[Buffer]) {
    let has_barrier = body.insts.iter().any(|inst| matches!(inst.op, Op::Barrier(ThreadScope::Block)));
    if !has_barrier {
        return;
    }
    let locals = local_uses(body);
    let copies = Search::of(body, buffers, &locals).copies();
    if !copies.is_empty() {
        rewrite(body, &copies);
    }
}

struct Search<'a> {
    offsets: Offsets<'a>,
    buffers: &'a [Buffer],
    /// How many times each value is used.
    uses: HashMap<ValueId, usize>,
    /// The block of code around each block, and the instruction there that it is part of.
    around: HashMap<BlockId, (BlockId, ValueId)>,
}

impl<'a> Search<'a> {
    fn of(body: &'a Body, buffers: &'a [Buffer], locals: &'a LocalUses) -> Search<'a> {
        let (mut uses, mut around) = (HashMap::new(), HashMap::new());
        for (number, insts) in body.blocks.iter().enumerate() {
            for v in insts {
                let op = &body.inst(*v).op;
                op.for_each_operand(|u| *uses.entry(u).or_insert(0) += 1);
                op.blocks().into_iter().for_each(|b| _ = around.insert(b, (BlockId(number as u32), *v)));
            }
        }
        Search { offsets: Offsets { body, locals }, buffers, uses, around }
    }

    fn copies(&self) -> Vec<Copy> {
        let body = self.offsets.body;
        let mut found = Vec::new();
        for number in 0..body.blocks.len() {
            let block = BlockId(number as u32);
            let mut open: Option<Copy> = None;
            for (at, &v) in body.block(block).iter().enumerate() {
                let one = self.store(v);
                let is_quiet = matches!(body.inst(v).op.effect(), Effect::Pure | Effect::Index | Effect::Read(_));
                match one {
                    Some(one) => {
                        let joined = open.take().and_then(|open| self.join(open, &one));
                        let run = joined.unwrap_or(one);
                        if run.stores.len() as u32 * self.bytes(&run) < BYTES {
                            open = Some(run);
                        } else if self.is_aligned(&run) && self.is_awaited(block, at + 1, &run) {
                            found.push(run);
                        }
                    }
                    None if is_quiet && !self.touches(v, open.as_ref()) => {}
                    None => open = None,
                }
            }
        }
        found
    }

    /// A store to shared memory of an element that was loaded from global memory for it only.
    fn store(&self, v: ValueId) -> Option<Copy> {
        let body = self.offsets.body;
        let Op::Store(to, value) = &body.inst(v).op else { return None };
        let Op::BufferAddr(buffer, index) = &body.inst(*to).op else { return None };
        let Op::Load(from) = &body.inst(*value).op else { return None };
        let Op::BufferAddr(source, _) = &body.inst(*from).op else { return None };
        let [to, from] = [buffer, source].map(|b| &self.buffers[b.index()]);
        let is_scalar = matches!(to.elem, Type::Scalar(s) if s != Scalar::U1) && to.elem == from.elem;
        let spaces = (from.space, to.space) == (MemorySpace::Global, MemorySpace::Shared);
        if !is_scalar || !spaces || self.uses.get(value) != Some(&1) {
            return None;
        }
        let index = index.iter().map(|i| self.offsets.split(*i)).collect();
        Some(Copy { stores: vec![v], sources: vec![*body_operand(body, *value)], buffer: *buffer, index })
    }

    fn bytes(&self, copy: &Copy) -> u32 {
        self.buffers[copy.buffer.index()].elem.scalar().map_or(BYTES, Scalar::bytes)
    }

    /// A run with one more store after it.
    fn join(&self, mut run: Copy, one: &Copy) -> Option<Copy> {
        let n = run.stores.len() as i64;
        let follows = |first: &[Split], next: &[Split]| {
            let last = first.len().checked_sub(1)?;
            let mut pairs = first.iter().zip(next).enumerate();
            Some(pairs.all(|(axis, (a, b))| {
                let distance = if axis == last { n } else { 0 };
                a.1 + distance == b.1 && self.offsets.have_same_base(a.0, b.0)
            }))
        };
        let source = |v: ValueId| match &self.offsets.body.inst(v).op {
            Op::BufferAddr(b, index) => Some((*b, index.iter().map(|i| self.offsets.split(*i)).collect::<Vec<_>>())),
            _ => None,
        };
        let (from, next_from) = (source(run.sources[0])?, source(one.sources[0])?);
        let are_neighbors = run.buffer == one.buffer
            && follows(&run.index, &one.index)?
            && from.0 == next_from.0
            && follows(&from.1, &next_from.1)?
            && has_rows_together(&self.buffers[from.0.index()]);
        if !are_neighbors {
            return None;
        }
        run.stores.extend(&one.stores);
        run.sources.extend(&one.sources);
        Some(run)
    }

    /// An instruction reads the array of a run, or is a store to it.
    fn touches(&self, v: ValueId, run: Option<&Copy>) -> bool {
        let Effect::Read(a) = self.offsets.body.inst(v).op.effect() else { return false };
        run.is_some_and(|run| trace_element(self.offsets.body, a).is_some_and(|(b, _)| b == run.buffer))
    }

    /// The first element of a run is at a multiple of 16 bytes in the block's memory.
    fn is_aligned(&self, run: &Copy) -> bool {
        let buffer = &self.buffers[run.buffer.index()];
        let Layout::Dense { components, offset, .. } = &buffer.layout else { return false };
        let [component] = &components[..] else { return false };
        let own = i64::from(self.bytes(run));
        let is_whole = |(axis, (base, fixed)): (usize, &Split)| {
            let [digit] = &component.place.axes[axis][..] else { return false };
            let Ok(stride) = i64::try_from(digit.stride) else { return false };
            let is_last = axis + 1 == component.place.axes.len();
            // A power of two. The stride is one part of it, the index the other.
            let needed = (i64::from(BYTES) >> stride.trailing_zeros().min(4)).max(1);
            let divides = base.is_none_or(|v| self.offsets.is_multiple(v, needed)) && fixed % needed == 0;
            divides && (!is_last || stride == own)
        };
        offset.iter().all(|n| *n == 0)
            && component.place.base % u64::from(BYTES) == 0
            && run.index.iter().enumerate().all(is_whole)
    }

    /// Whether every path from a point in the code reaches a barrier before the thread can observe the copy.
    fn is_awaited(&self, mut block: BlockId, mut at: usize, copy: &Copy) -> bool {
        let body = self.offsets.body;
        loop {
            for &v in &body.block(block)[at..] {
                if matches!(body.inst(v).op, Op::Barrier(ThreadScope::Block)) {
                    return true;
                }
                let mut allowed = self.allows(v, copy);
                for inner in body.inst(v).op.blocks() {
                    body.visit(inner, &mut |v, _| allowed &= self.allows(v, copy));
                }
                if !allowed {
                    return false;
                }
            }
            let Some((outer, owner)) = self.around.get(&block) else { return false };
            if !matches!(body.inst(*owner).op, Op::If(..)) {
                return false;
            }
            let place = body.block(*outer).iter().position(|v| v == owner);
            (block, at) = (*outer, place.map_or(usize::MAX, |p| p + 1));
            if at == usize::MAX {
                return false;
            }
        }
    }

    /// The thread may do this while the copy is on its way.
    fn allows(&self, v: ValueId, copy: &Copy) -> bool {
        let inst = self.offsets.body.inst(v);
        match inst.op.effect() {
            Effect::Pure | Effect::Index | Effect::Exchange | Effect::Branch(..) | Effect::For(_) => true,
            Effect::Draw | Effect::ReadClock | Effect::Reduce => true,
            Effect::Read(a) | Effect::ReadVolatile(a) => !self.may_be_of(a, copy.buffer),
            Effect::Write(a) | Effect::Update(a) => self.writes_elsewhere(a, copy),
            Effect::Synchronize => matches!(inst.op, Op::Barrier(_)),
            Effect::Loop(_) | Effect::Leave | Effect::Call(..) | Effect::Print | Effect::Assert => false,
        }
    }

    fn may_be_of(&self, address: ValueId, buffer: BufferId) -> bool {
        match trace_element(self.offsets.body, address) {
            Some((b, _)) => b == buffer,
            None => self.local(address).is_none(),
        }
    }

    fn local(&self, mut address: ValueId) -> Option<LocalId> {
        loop {
            match &self.offsets.body.inst(address).op {
                Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => address = *base,
                Op::LocalAddr(l) => return Some(*l),
                _ => return None,
            }
        }
    }

    /// Whether a write goes to a local, to another shared array, or to other elements of the same one.
    fn writes_elsewhere(&self, address: ValueId, copy: &Copy) -> bool {
        let Some((b, _)) = trace_element(self.offsets.body, address) else { return self.local(address).is_some() };
        if b != copy.buffer {
            return self.buffers[b.index()].space == MemorySpace::Shared;
        }
        let Op::BufferAddr(_, index) = &self.offsets.body.inst(address).op else { return false };
        let n = copy.stores.len() as i64;
        index.iter().zip(&copy.index).enumerate().any(|(axis, (i, first))| {
            let (base, fixed) = self.offsets.split(*i);
            let extent = if axis + 1 == copy.index.len() { n } else { 1 };
            self.offsets.have_same_base(base, first.0) && !(0..extent).contains(&(fixed - first.1))
        })
    }
}

/// The address of a load.
fn body_operand(body: &Body, load: ValueId) -> &ValueId {
    match &body.inst(load).op {
        Op::Load(from) => from,
        _ => panic!("compiler bug: {load} is not a load"),
    }
}

/// The elements of a row are adjacent.
fn has_rows_together(buffer: &Buffer) -> bool {
    match &buffer.layout {
        Layout::Contiguous => true,
        Layout::Dense { components, .. } => match &components[..] {
            [component] => matches!(
                component.place.axes.last().map(Vec::as_slice),
                Some([digit]) if buffer.elem.scalar().is_some_and(|s| digit.stride == u64::from(s.bytes()))
            ),
            _ => false,
        },
        _ => false,
    }
}

fn rewrite(body: &mut Body, copies: &[Copy]) {
    let last: HashMap<ValueId, &Copy> = copies.iter().filter_map(|c| Some((*c.stores.last()?, c))).collect();
    let dropped: HashSet<ValueId> = copies.iter().flat_map(|c| &c.stores).copied().collect();
    octants_ir::insert_code::rebuild_blocks(body, |b, v| {
        if let Some(copy) = last.get(&v) {
            return push_copy(b, copy);
        }
        if dropped.contains(&v) {
            return;
        }
        if matches!(b.body.inst(v).op, Op::Barrier(ThreadScope::Block)) {
            b.push(Op::AwaitCopies, Type::Unit);
        }
        b.place(v);
    });
}

/// One asynchronous copy, or a plain one if the source is not aligned.
fn push_copy(b: &mut Builder, copy: &Copy) {
    let target = |b: &Builder, store: ValueId| match &b.body.inst(store).op {
        Op::Store(to, _) => *to,
        _ => panic!("compiler bug: an asynchronous copy without a store"),
    };
    let bits = b.push(Op::AddressBits(copy.sources[0]), Scalar::U64.into());
    let mask = b.int(i64::from(BYTES) - 1, Scalar::U64);
    let rest = b.binary(BinaryOp::And, bits, mask);
    let zero = b.int(0, Scalar::U64);
    let is_aligned = b.binary(BinaryOp::Eq, rest, zero);
    let [aligned, other] = [b.body.add_block(), b.body.add_block()];
    b.push(Op::If(is_aligned, aligned, other), Type::Unit);
    let back = b.set_cursor(aligned);
    let to = target(b, copy.stores[0]);
    b.push(Op::CopyAsync(to, copy.sources[0]), Type::Unit);
    b.set_cursor(other);
    for (store, from) in copy.stores.iter().zip(&copy.sources) {
        let to = target(b, *store);
        let value = b.load(*from);
        b.store(to, value);
    }
    b.set_cursor(back);
}
