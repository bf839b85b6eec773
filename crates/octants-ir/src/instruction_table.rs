//! The table of instructions: for each [`Op`] its text, its effect, where it is defined, its cost class and its role
//! in differentiation. Arithmetic operations have a separate table, `operation_table`.

use crate::op::{BlockId, ForLoop, FuncId, Op, ValueId};
use crate::operation_facts::{CostClass, Definedness, Derivative};

/// The side effect of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect<'a> {
    /// None, and it reads no mutable memory: safe to drop, to repeat, and to move to any point where its operands are
    /// defined.
    Pure,
    /// Yields the index of a loop, or of a thread in the grid: safe to drop, to repeat and to move within that loop, or
    /// within a parallel loop.
    Index,
    /// Reads memory at the address.
    Read(ValueId),
    /// Volatile read: never dropped, repeated or moved.
    ReadVolatile(ValueId),
    /// Writes memory at the address.
    Write(ValueId),
    /// Reads and writes memory at the address, atomically if threads share it.
    Update(ValueId),
    /// Folds a value into a reduction of the enclosing loop.
    Reduce,
    /// Advances the iteration's random numbers: safe to drop if the value is unused.
    Draw,
    /// Reads a clock: must not be moved, but is safe to drop if the value is unused.
    ReadClock,
    /// Exchanges values with other threads of a block that execute it together: safe to drop when no one uses the
    /// value.
    Exchange,
    /// Orders accesses to memory that threads share, and may wait for other threads. Memory that another thread may
    /// write must be read again after it.
    Synchronize,
    /// Executes one of two blocks.
    Branch(BlockId, BlockId),
    /// Executes a block for each index, and updates the targets of its reductions.
    For(&'a ForLoop),
    /// Executes a block until something leaves it.
    Loop(BlockId),
    /// Leaves a block.
    Leave,
    /// Has the effects of the callee, including on memory that the arguments point to.
    Call(FuncId, &'a [ValueId]),
    /// Sends a message to the host.
    Print,
    /// If the condition is false, sends a message to the host and ends the iteration.
    Assert,
}

const RULE: Derivative = Derivative::Rule;
const ZERO: Derivative = Derivative::Zero;
const STRUCTURE: Derivative = Derivative::Structure;

operations! {
    scalar {
        Op::Unary(op, _) => op.name(), Effect::Pure, Definedness::Total, op.cost(), op.derivative();
        Op::Binary(op, ..) => op.name(), Effect::Pure, op.definedness(), op.cost(), op.derivative();
    }
    // pattern          text             effect                         defined  costs      derivative
    Op::Const(_)        => "const",         Effect::Pure,               Total,   Free,      ZERO;
    Op::Param(_)        => "param",         Effect::Pure,               Total,   Argument,  STRUCTURE;
    Op::Select(..)      => "select",        Effect::Pure,               Total,   Simple,    RULE;
    Op::Cast(_)         => "cast",          Effect::Pure,               Total,   Simple,    RULE;
    // Bits have no derivative.
    Op::Bitcast(_)      => "bitcast",       Effect::Pure,               Total,   Simple,    ZERO;
    Op::MakeTensor(_)   => "make_tensor",   Effect::Pure,               Total,   Free,      RULE;
    Op::Splat(_)        => "splat",         Effect::Pure,               Total,   Free,      RULE;
    Op::MakeStruct(_)   => "make_struct",   Effect::Pure,               Total,   Free,      RULE;
    Op::Extract(..)     => "extract",       Effect::Pure,               Total,   Free,      RULE;
    Op::ExtractDyn(..)  => "extract_dyn",   Effect::Pure,               Partial, Simple,    RULE;
    Op::MatMul(..)      => "matmul",        Effect::Pure,               Total,   Product,   RULE;
    Op::Transpose(_)    => "transpose",     Effect::Pure,               Total,   Simple,    RULE;
    // The schedule adds it after differentiation.
    Op::Freeze(_)       => "freeze",        Effect::Pure,               Total,   Free,      STRUCTURE;
    Op::Fold(op, _)     => "fold",          Effect::Pure,               Total,   Simple,    op.binary().derivative();
    Op::Shape(..)       => "shape",         Effect::Pure,               Total,   Argument,  ZERO;
    // It differs among the threads that run a parallel loop.
    Op::Grid(_)         => "grid",          Effect::Index,              Total,   Simple,    ZERO;
    Op::FragmentIndex(_) => "fragment_index", Effect::Index,            Total,   Simple,    ZERO;
    // The result depends on no operand.
    Op::Random          => "random",        Effect::Draw,               Total,   Draw,      ZERO;
    Op::RandomAt(..)    => "random_at",     Effect::Pure,               Total,   Draw,      ZERO;
    Op::Clock           => "clock",         Effect::ReadClock,          Total,   Simple,    ZERO;
    Op::LocalAddr(_)    => "local_addr",    Effect::Pure,               Total,   Free,      STRUCTURE;
    Op::BufferAddr(..)  => "buffer_addr",   Effect::Pure,               Total,   Index,     STRUCTURE;
    Op::FrameAddr(_)    => "frame_addr",    Effect::Pure,               Total,   Simple,    STRUCTURE;
    Op::ElementAddr(..) => "element_addr",  Effect::Pure,               Total,   Index,     STRUCTURE;
    Op::MemberAddr(..)  => "member_addr",   Effect::Pure,               Total,   Free,      STRUCTURE;
    Op::AddressBits(_)  => "address_bits",  Effect::Pure,               Total,   Simple,    ZERO;
    Op::Load(a)         => "load",          Effect::Read(*a),           Total,   Memory,    STRUCTURE;
    Op::VolatileLoad(a) => "volatile_load", Effect::ReadVolatile(*a),   Total,   Memory,    STRUCTURE;
    Op::Store(a, _)     => "store",         Effect::Write(*a),          Total,   Memory,    STRUCTURE;
    // The schedule adds vectors and prefetches after differentiation.
    Op::VectorLoad(a)   => "vector_load",   Effect::Read(*a),           Total,   Memory,    STRUCTURE;
    Op::VectorStore(a, _) => "vector_store", Effect::Write(*a),         Total,   Memory,    STRUCTURE;
    Op::LoadMatrices(a, _) => "load_matrices", Effect::Read(*a),        Total,   Memory,    STRUCTURE;
    Op::CopyAsync(a, _) => "copy_async",    Effect::Write(*a),          Total,   Memory,    STRUCTURE;
    Op::AwaitCopies     => "await_copies",  Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::Prefetch(_)     => "prefetch",      Effect::Pure,               Total,   Simple,    STRUCTURE;
    Op::Atomic(_, a, _) => "atomic",        Effect::Update(*a),         Total,   Atomic,    STRUCTURE;
    Op::AtomicCas(a, ..) => "atomic_cas",   Effect::Update(*a),         Total,   Atomic,    STRUCTURE;
    Op::Reduce(..)      => "reduce",        Effect::Reduce,             Total,   Simple,    STRUCTURE;
    Op::Barrier(_)      => "barrier",       Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::Fence(_)        => "fence",         Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::BlockCount(_)   => "block_count",   Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::Subgroup(op, _) => "subgroup",      Effect::Exchange,           Total,   Simple,    op.derivative();
    Op::If(_, a, b)     => "if",            Effect::Branch(*a, *b),     Total,   Nested,    STRUCTURE;
    Op::For(l)          => "for",           Effect::For(l),             Total,   Nested,    STRUCTURE;
    Op::Loop(b)         => "loop",          Effect::Loop(*b),           Total,   Nested,    STRUCTURE;
    Op::LoopIndex(..)   => "loop_index",    Effect::Index,              Total,   Free,      ZERO;
    Op::Balance { .. }  => "balance",       Effect::Exchange,           Total,   Simple,    STRUCTURE;
    Op::Checkpoint(..)  => "checkpoint",    Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::Section(_)      => "section",       Effect::Synchronize,        Total,   Simple,    STRUCTURE;
    Op::Break           => "break",         Effect::Leave,              Total,   Simple,    STRUCTURE;
    Op::Continue        => "continue",      Effect::Leave,              Total,   Simple,    STRUCTURE;
    Op::Return(_)       => "return",        Effect::Leave,              Total,   Simple,    STRUCTURE;
    Op::Call(f, args)   => "call",          Effect::Call(*f, args),     Total,   Nested,    STRUCTURE;
    Op::Print(_)        => "print",         Effect::Print,              Total,   Text,      STRUCTURE;
    Op::Assert(..)      => "assert",        Effect::Assert,             Total,   Simple,    STRUCTURE;
}

impl Op {
    /// Has no effect and reads no memory that may change: safe to drop, to repeat and to move where it is defined.
    pub fn is_pure(&self) -> bool {
        matches!(self.effect(), Effect::Pure)
    }

    /// Ends its block.
    pub fn is_terminator(&self) -> bool {
        matches!(self.effect(), Effect::Leave)
    }

    /// Replaces the blocks nested in this operation, in the order of [`Op::blocks`].
    pub fn set_blocks(&mut self, blocks: &[BlockId]) {
        match self {
            Op::If(_, a, b) => (*a, *b) = (blocks[0], blocks[1]),
            Op::For(l) => {
                l.body = blocks[0];
                l.groups.iter_mut().zip(&blocks[1..]).for_each(|(group, block)| group.body = *block);
            }
            Op::Loop(b) => *b = blocks[0],
            _ => {}
        }
    }

    /// The blocks nested in this operation, in order.
    pub fn blocks(&self) -> Vec<BlockId> {
        match self.effect() {
            Effect::Branch(yes, no) => vec![yes, no],
            Effect::For(l) => l.blocks().collect(),
            Effect::Loop(body) => vec![body],
            Effect::Pure
            | Effect::Index
            | Effect::Read(_)
            | Effect::ReadVolatile(_)
            | Effect::Write(_)
            | Effect::Update(_)
            | Effect::Reduce
            | Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange
            | Effect::Synchronize
            | Effect::Leave
            | Effect::Call(..)
            | Effect::Print
            | Effect::Assert => Vec::new(),
        }
    }
}
