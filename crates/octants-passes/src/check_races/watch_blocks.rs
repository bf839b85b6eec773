//! Race-check words of block-local arrays, in block memory. They start as zeros, and their epoch is the number of
//! barriers that the block has passed. Accesses separated by a barrier are ordered.

use octants_ir::{
    BinaryOp, BlockId, Body, Buffer, BufferId, Builder, ComponentLayout, GridValue, Kernel, Layout, LocalId,
    MemorySpace, Op, Placement, Scalar, ThreadScope, Type, ValueId,
};

use octants_ir::insert_code::push_if;

use super::watch_functions::push_accessor_bits;

/// The values that identify a thread of a block, and the barrier phase.
#[derive(Debug, Clone, Copy)]
pub struct BlockThread {
    /// The barriers that it has been at, and one.
    barriers: LocalId,
    /// There are some.
    meets: bool,
}

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
pub fn begin_block(body: &mut Body, block: BlockId, words: &[(BufferId, u64)], meets: bool) -> BlockThread {
    let barriers = body.add_local("barriers", Scalar::U64.into());
    let next = body.add_local("next", Type::I32);
    super::insert_at_top(body, block, |b| {
        for &(words, count) in words {
            push_clear(b, words, count, next);
        }
        b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        let one = b.int(1, Scalar::U64);
        b.store_local(barriers, one);
    });
    BlockThread { barriers, meets }
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
    /// The thread as it is stored in the words.
    pub fn push_accessor(self, b: &mut Builder) -> ValueId {
        let barriers = b.load_local(self.barriers);
        let thread = b.push(Op::Grid(GridValue::Thread), Type::I32);
        let thread = b.cast(thread, Scalar::U64);
        push_accessor_bits(b, barriers, thread)
    }

    /// Counts a barrier that was just placed.
    pub fn count_barrier(self, b: &mut Builder, v: ValueId) {
        if self.meets && matches!(b.body.inst(v).op, Op::Barrier(ThreadScope::Block) | Op::BlockCount(_)) {
            b.update_local(self.barriers, |b, old| {
                let one = b.int(1, Scalar::U64);
                b.binary(BinaryOp::Add, old, one)
            });
        }
    }
}
