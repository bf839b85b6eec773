//! Race checks of threads that form blocks.
//!
//! Words of block-local arrays are in block memory. They start as zeros, and their epoch is the number of barriers that
//! the block has passed. Accesses separated by a barrier are ordered. If subgroups synchronize too, these words compare
//! the subgroups of a block, and a second word of each scalar compares the threads of a subgroup.
//!
//! Other memory has two words for each scalar: one compares the blocks, the other compares the threads of a block. If
//! subgroups synchronize too, the second one compares the subgroups of a block, and a third one the threads of a
//! subgroup.

use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Builder, ComponentLayout, GridValue, Kernel, Layout, LocalId,
    MemorySpace, Op, Placement, Scalar, ThreadScope, Type, ValueId,
};

use octants_ir::insert_code::push_if;

use super::watch_functions::{OWNER_BITS, push_accessor_bits, push_phased_bits};
use super::watched_accesses::Synchronization;

/// The values that identify a thread of a block, and its phase.
#[derive(Debug, Clone, Copy)]
pub struct BlockThread {
    /// The barriers that it has been at, and one.
    barriers: LocalId,
    /// The same with those of its subgroup, if there are some. Exchanges of values count too.
    meetings: Option<LocalId>,
    meet: Synchronization,
}

/// Bits of a lane.
const LANE_BITS: u32 = 6;
/// Bits of a thread, at most 1,024 of which form a block.
const THREAD_BITS: u32 = 10;
/// Bits of a subgroup in a block.
const SUBGROUP_BITS: u32 = 5;

/// An accessor, with the bits that tell it apart from others.
pub type Accessor = (ValueId, u32);

/// Adds words for an array of a block.
pub fn add_shared_words(kernel: &mut Kernel, of: BufferId) -> BufferId {
    let dense = |b: &Buffer| match &b.layout {
        Layout::Dense { components, .. } if b.space == MemorySpace::Shared => {
            components.iter().map(|c| c.root + 1).max()
        }
        _ => None,
    };
    let root = kernel.buffers.iter().filter_map(dense).max().unwrap_or(0);
    let (name, count) = (kernel.buffers[of.index()].name.clone(), scalars(&kernel.buffers[of.index()]));
    let component = ComponentLayout { root, place: Placement::row_major(0, &[count], 8) };
    kernel.buffers.push(Buffer {
        name,
        elem: Scalar::U64.into(),
        ndim: 1,
        layout: Layout::Dense { shape: vec![count], offset: vec![0], components: vec![component] },
        space: MemorySpace::Shared,
        short_offsets: true,
        is_metadata: false,
    });
    BufferId(kernel.buffers.len() as u32 - 1)
}

fn scalars(buffer: &Buffer) -> u64 {
    match &buffer.layout {
        Layout::Dense { shape, .. } => shape.iter().product::<u64>() * buffer.elem.leaf_count() as u64,
        _ => 0,
    }
}

/// How many words a buffer of words of a block has.
pub fn word_count(kernel: &Kernel, words: BufferId) -> u64 {
    scalars(&kernel.buffers[words.index()])
}

/// Clears the words at the start of a loop's body, and begins to count barriers.
pub fn begin_block(body: &mut Body, block: BlockId, words: &[(BufferId, u64)], meet: Synchronization) -> BlockThread {
    let barriers = body.add_local("barriers", Scalar::U64.into());
    let meets = meet == Synchronization::InSubgroups;
    let meetings = meets.then(|| body.add_local("meetings", Scalar::U64.into()));
    let next = body.add_local("next", Type::I32);
    super::insert_at_top(body, block, |b| {
        for &(words, count) in words {
            push_clear(b, words, count, next);
        }
        if !words.is_empty() {
            b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        }
        let one = b.int(1, Scalar::U64);
        b.store_local(barriers, one);
        meetings.into_iter().for_each(|meetings| b.store_local(meetings, one));
    });
    BlockThread { barriers, meetings, meet }
}

/// The threads of the block set words to zero by turns.
fn push_clear(b: &mut Builder, words: BufferId, count: u64, next: LocalId) {
    let thread = b.push(Op::Grid(GridValue::Thread), Type::I32);
    b.store_local(next, thread);
    let inner = b.body.add_block();
    b.push(Op::Loop(inner), Type::Unit);
    let back = b.set_cursor(inner);
    let word = b.load_local(next);
    let count = b.int(count as i64, Scalar::I32);
    let is_done = b.binary(BinaryOp::Ge, word, count);
    push_if(b, is_done, |b| _ = b.push(Op::Break, Type::Unit));
    let address = b.push(Op::BufferAddr(words, vec![word]), Type::Ref(Box::new(Scalar::U64.into())));
    let zero = b.int(0, Scalar::U64);
    b.store(address, zero);
    let threads = b.push(Op::Grid(GridValue::BlockSize), Type::I32);
    let following = b.binary(BinaryOp::Add, word, threads);
    b.store_local(next, following);
    b.set_cursor(back);
}

impl BlockThread {
    /// The thread among those of its block, or its subgroup if threads of that are compared separately.
    fn push_member(self, b: &mut Builder) -> ValueId {
        let thread = b.push(Op::Grid(GridValue::Thread), Type::I32);
        let member = match self.meetings {
            None => thread,
            Some(_) => {
                let size = b.push(Op::Grid(GridValue::SubgroupSize), Type::I32);
                b.binary(BinaryOp::Div, thread, size)
            }
        };
        b.cast(member, Scalar::U64)
    }

    /// The thread as it is stored in the words of an array of its block.
    pub fn push_accessor(self, b: &mut Builder) -> Accessor {
        let barriers = b.load_local(self.barriers);
        let member = self.push_member(b);
        (push_accessor_bits(b, barriers, member), OWNER_BITS)
    }

    /// The same in the words for the accesses of a subgroup, if its threads synchronize.
    pub fn push_accessor_in_subgroup(self, b: &mut Builder) -> Option<Accessor> {
        let meetings = b.load_local(self.meetings?);
        let number = self.push_lane(b);
        Some((push_accessor_bits(b, meetings, number), LANE_BITS))
    }

    /// The thread among those of its subgroup, and above it the subgroup, whose threads are compared with each other.
    fn push_lane(self, b: &mut Builder) -> ValueId {
        let lane = b.push(Op::Grid(GridValue::Lane), Type::I32);
        let lane = b.cast(lane, Scalar::U64);
        let subgroup = self.push_member(b);
        push_above(b, subgroup, LANE_BITS, lane)
    }

    /// The thread as it is stored in the words of other memory, for the accesses of a subgroup. `of_block` is the
    /// block's accessor.
    pub fn push_accessor_in_subgroup_of(self, b: &mut Builder, of_block: ValueId) -> Option<Accessor> {
        let meetings = b.load_local(self.meetings?);
        let lane = self.push_lane(b);
        let number = push_above(b, meetings, LANE_BITS + SUBGROUP_BITS, lane);
        Some((push_phased_bits(b, of_block, number), LANE_BITS))
    }

    /// The same in the words of other memory, for the accesses of a block. `of_block` is the block's accessor.
    pub fn push_accessor_in_block(self, b: &mut Builder, of_block: ValueId) -> Option<Accessor> {
        let own_bits = match self.meet {
            Synchronization::Never => return None,
            Synchronization::InSubgroups => SUBGROUP_BITS,
            _ => THREAD_BITS,
        };
        let barriers = b.load_local(self.barriers);
        let member = self.push_member(b);
        let number = push_above(b, barriers, own_bits, member);
        Some((push_phased_bits(b, of_block, number), own_bits))
    }

    /// Counts a barrier that was just placed.
    pub fn count_barrier(self, b: &mut Builder, v: ValueId) {
        let in_block = matches!(b.body.inst(v).op, Op::Barrier(ThreadScope::Block) | Op::BlockCount(_));
        let in_subgroup = matches!(b.body.inst(v).op, Op::Barrier(ThreadScope::Subgroup) | Op::Subgroup(..));
        if in_block && self.meet != Synchronization::Never {
            push_increment(b, self.barriers);
        }
        if let Some(meetings) = self.meetings.filter(|_| in_block || in_subgroup) {
            push_increment(b, meetings);
        }
    }
}

fn push_increment(b: &mut Builder, counter: LocalId) {
    b.update_local(counter, |b, old| {
        let one = b.int(1, Scalar::U64);
        b.binary(BinaryOp::Add, old, one)
    });
}

/// A number above the lowest bits of another one.
fn push_above(b: &mut Builder, above: ValueId, bits: u32, below: ValueId) -> ValueId {
    let bits = b.int(i64::from(bits), Scalar::U64);
    let above = b.binary(BinaryOp::Shl, above, bits);
    b.binary(BinaryOp::Or, above, below)
}
