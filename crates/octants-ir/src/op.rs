//! The operations. Each instruction is an [`Op`] with a result type. `lib.rs` documents their semantics,
//! `operation_table` their properties.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use crate::matrix_product::FragmentElement;
use crate::operation_table::{AtomicOp, BinaryOp, GridValue, ReduceOp, SubgroupOp, UnaryOp};
use crate::types::Scalar;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in its arena.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// An instruction of a body, and the value it yields.
    ValueId, "%"
);
id!(
    /// A block of a body.
    BlockId, "^"
);
id!(
    /// A local variable of a body.
    LocalId, "$"
);
id!(
    /// A buffer of a kernel.
    BufferId, "@"
);
id!(
    /// A function of a kernel.
    FuncId, "fn"
);
id!(
    /// A slot of a program's frame.
    FrameSlot, "frame"
);

/// A compile-time scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Const {
    /// Any integer type: the value, sign- or zero-extended. The instruction's type gives the width.
    Int(i64),
    /// Any float type.
    Float(f64),
}

/// By the bits of a float: constants that print alike may still compute differently.
impl Hash for Const {
    fn hash<H: Hasher>(&self, state: &mut H) {
        discriminant(self).hash(state);
        match self {
            Const::Int(c) => c.hash(state),
            Const::Float(c) => c.to_bits().hash(state),
        }
    }
}

/// One bound pair of a loop; i32 or i64 values, half open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// First index.
    pub begin: ValueId,
    /// One past the last index.
    pub end: ValueId,
}

/// User options of a parallel loop: `loop_config`, and its position in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LoopConfig {
    /// Run the iterations in order on one thread.
    pub serialize: bool,
    /// Threads per block on GPUs, iterations per chunk on the CPU.
    pub block_dim: Option<u32>,
    /// Maximum number of CPU threads.
    pub num_threads: Option<u32>,
    /// The user's name of the loop.
    pub name: Option<String>,
    /// The group that the loop is part of.
    pub group: Option<LoopGroup>,
}

/// A group of loops at the root, or in a loop of tasks, that run in order, but concurrently with the other groups of
/// their region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopGroup {
    /// The `graph.parallel_context` of the section; `None` for a `stream_parallel` block.
    pub region: Option<u32>,
    /// Its number, unique in the kernel.
    pub number: u32,
}

impl LoopGroup {
    /// Whether both are groups of the same region.
    pub fn are_neighbors(a: Option<LoopGroup>, b: Option<LoopGroup>) -> bool {
        a.zip(b).is_some_and(|(a, b)| a.region == b.region)
    }
}

/// A loop over a box of indices; `dims` outermost first, the last one varies fastest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ForLoop {
    /// The bounds, read once on entry.
    pub dims: Vec<Range>,
    /// The body; `LoopIndex` inside reads the index of an axis of `dims`.
    pub body: BlockId,
    /// Bodies for several iterations along the last axis of a parallel loop, largest factor first; `body` runs the
    /// remainder. Only in the scheduled dialect.
    pub groups: Vec<IterationGroup>,
    /// Set if iterations may run in any order and concurrently: only at the root of a kernel or task.
    pub parallel: Option<LoopConfig>,
    /// Filled by the pass `privatize_reductions`: the target of `Reduce { slot }` in the body.
    pub reductions: Vec<Reduction>,
    /// Hints for the optimizer.
    pub hints: LoopHints,
}

/// Code that runs several iterations of a parallel loop, which are neighbors along its last axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IterationGroup {
    /// The number of iterations.
    pub factor: u32,
    /// The code; `LoopIndex` of the last axis is the index of the first of them.
    pub body: BlockId,
    pub placement: GroupPlacement,
}

/// The alignment of a loop's groups, and the threads that run them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum GroupPlacement {
    /// At the first iteration that is left.
    #[default]
    Consecutive,
    /// At indices that are multiples of the factor, a power of two.
    Aligned,
    /// Aligned. The threads of a block run a tile of the last two axes, which has this many groups in each row.
    Tiled(u32),
}

impl ForLoop {
    /// A loop in order.
    pub fn serial(dims: Vec<Range>, body: BlockId) -> ForLoop {
        let (groups, reductions) = (Vec::new(), Vec::new());
        ForLoop { dims, body, groups, parallel: None, reductions, hints: LoopHints::default() }
    }

    /// A parallel loop.
    pub fn parallel(dims: Vec<Range>, body: BlockId, config: LoopConfig) -> ForLoop {
        ForLoop { parallel: Some(config), ..ForLoop::serial(dims, body) }
    }

    /// Its blocks: the body, then those of groups.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> {
        std::iter::once(self.body).chain(self.groups.iter().map(|g| g.body))
    }

    /// Whether iterations run in any order and concurrently.
    pub fn is_parallel(&self) -> bool {
        self.parallel.as_ref().is_some_and(|c| !c.serialize)
    }
}

/// A fold of all iterations into one address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// The fold.
    pub op: AtomicOp,
    /// `Ref` to a scalar, computed before the loop.
    pub target: ValueId,
    /// The target is updated by a load, an operation and a store: no other thread updates it meanwhile.
    pub plain: bool,
}

/// Hints to the optimizer for a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LoopHints {
    /// Unrolling of the innermost axis. Without it the optimizer chooses the factor.
    pub unroll: Option<Unroll>,
    /// For the other axes, and for the innermost one without `unroll`.
    pub code_size: CodeSizeHint,
    /// Its iterations carry no dependence that the optimizer must respect.
    pub independent: bool,
    /// It is not vectorized.
    pub no_vectors: bool,
    /// It has few iterations: vector code masks those that are missing in the last vector, instead of running the rest
    /// one by one.
    pub masked: bool,
    /// The threads of a subgroup run it in lockstep. Passes leave it and the loops in it as they are.
    pub converged: bool,
}

/// Unroll factors of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unroll {
    /// The factor of the loop.
    pub factor: u32,
    /// The factor of the remainder loop.
    pub remainder_factor: Option<u32>,
}

/// How many times the optimizer may repeat a loop's body in the code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CodeSizeHint {
    /// As often as it chooses.
    #[default]
    None,
    /// Once for each iteration: unroll fully.
    UnrollFully,
    /// Not unrolled when the trip count is unknown.
    NotUnrolledUncounted,
    /// Not interleaved. It may be vectorized.
    NotInterleaved,
    /// Not interleaved, and not unrolled when the trip count is unknown.
    Lean,
    /// Not unrolled before it has become vector code.
    VectorsFirst,
}

impl CodeSizeHint {
    /// Every hint.
    pub const ALL: &[CodeSizeHint] = &[
        CodeSizeHint::UnrollFully,
        CodeSizeHint::NotUnrolledUncounted,
        CodeSizeHint::NotInterleaved,
        CodeSizeHint::Lean,
        CodeSizeHint::VectorsFirst,
    ];

    /// The word in the IR's text; `None` without a hint.
    pub fn name(self) -> Option<&'static str> {
        match self {
            CodeSizeHint::None => None,
            CodeSizeHint::UnrollFully => Some("unroll_fully"),
            CodeSizeHint::NotUnrolledUncounted => Some("not_unrolled_uncounted"),
            CodeSizeHint::NotInterleaved => Some("not_interleaved"),
            CodeSizeHint::Lean => Some("lean"),
            CodeSizeHint::VectorsFirst => Some("vectors_first"),
        }
    }
}

/// Which threads a barrier or a fence is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ThreadScope {
    /// The subgroup: the threads that run in step.
    Subgroup,
    /// The block: the threads with common shared memory.
    Block,
    /// All threads of the device.
    Device,
}

impl ThreadScope {
    /// Every scope, from small to large.
    pub const ALL: &[ThreadScope] = &[ThreadScope::Subgroup, ThreadScope::Block, ThreadScope::Device];

    /// The word in the IR's text.
    pub fn name(self) -> &'static str {
        match self {
            ThreadScope::Subgroup => "subgroup",
            ThreadScope::Block => "block",
            ThreadScope::Device => "device",
        }
    }
}

/// A piece of a printed line or of an assertion's message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TextPart {
    /// Literal text.
    Text(String),
    /// A value, with an optional format specification in Python's or C's style (without `%` or `:`).
    Value(ValueId, Option<String>),
    /// Precedes the message of a race: the buffer's name, a choice of text for each access (its kind and source
    /// location), and the indices.
    Race,
    /// Selects one of several texts by a zero-based i32.
    Choice(ValueId, Vec<String>),
    /// Precedes a printed line that is shown once, however often a launch reaches it.
    Once,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Hash)]
pub enum Op {
    // Values.
    /// A constant; the instruction's type is a scalar.
    Const(Const),
    /// Parameter of the kernel (in a kernel's or task's body) or of the function (in a function's body).
    Param(u32),
    Unary(UnaryOp, ValueId),
    Binary(BinaryOp, ValueId, ValueId),
    /// `cond ? a : b`; the condition is `u1` of the same shape, or a scalar `u1`.
    Select(ValueId, ValueId, ValueId),
    /// Value conversion to the instruction's type, element by element.
    Cast(ValueId),
    /// Same bits, other type of the same width.
    Bitcast(ValueId),
    /// Scalar components, row-major.
    MakeTensor(Vec<ValueId>),
    /// A scalar copied to every component of the instruction's type.
    Splat(ValueId),
    /// Members in order.
    MakeStruct(Vec<ValueId>),
    /// Component (row-major position) of a tensor, or member of a struct, known at compile time.
    Extract(ValueId, u32),
    /// Component of a tensor at indices known at run time: `[i]` or `[i, j]`.
    ExtractDyn(ValueId, Vec<ValueId>),
    /// Matrix times matrix or vector, vector times matrix.
    MatMul(ValueId, ValueId),
    Transpose(ValueId),
    /// The value, the same at each use: an undefined one becomes some value of its type.
    Freeze(ValueId),
    /// Fold of a tensor's components.
    Fold(ReduceOp, ValueId),
    /// Extent of a buffer's axis; i32, or i64 if the axis may exceed i32.
    Shape(BufferId, u32),
    /// This thread's position in the grid of threads, or an extent of the grid: i32.
    Grid(GridValue),
    /// The row or column in its matrix of a component that this thread has of a fragment: i32.
    FragmentIndex(FragmentElement),
    /// Uniform in [0, 1) for floats, every bit pattern for integers.
    Random,
    /// The same, of the sequence of an iteration (linear index, i64), from the 32-bit word with a number (i32) on; it
    /// is even for types of 64 bits. Only in the scheduled dialect.
    RandomAt(ValueId, ValueId),
    /// Ticks of the processor's counter, i64.
    Clock,

    // Addresses: the instruction's type is a `Ref`.
    LocalAddr(LocalId),
    /// An element; as many integer indices as the buffer has axes.
    BufferAddr(BufferId, Vec<ValueId>),
    /// A slot of the frame: memory of one launch, shared by its tasks (after `offload`).
    FrameAddr(FrameSlot),
    /// Component of the tensor at an address: `[i]` or `[i, j]`, constant or not.
    ElementAddr(ValueId, Vec<ValueId>),
    /// Member of the struct at an address.
    MemberAddr(ValueId, u32),
    /// The address as a u64: the device address of the value, or of its first component, during this launch.
    AddressBits(ValueId),

    // Memory.
    Load(ValueId),
    /// Loads a vector: the local at the address, or consecutive scalars that start there. Only in the scheduled
    /// dialect.
    VectorLoad(ValueId),
    /// Stores a vector. Only in the scheduled dialect.
    VectorStore(ValueId, ValueId),
    /// Reads four matrices of 8 x 8 scalars of 16 bits from shared memory, together with the other 31 threads of the
    /// subgroup. Thread `i` passes the address, a multiple of 16 bytes, of row `i % 8` of matrix `i / 8`, 8
    /// contiguous scalars. Of each matrix, or of its transpose if set, it receives row `i / 4`, columns `2 * (i % 4)`
    /// and the next one.
    LoadMatrices(ValueId, bool),
    /// Asynchronously copies 16 bytes of contiguous scalars from the second address, in global memory, to the first
    /// one, in shared memory; both are multiples of 16 bytes. Completes by the next `AwaitCopies` of this thread.
    CopyAsync(ValueId, ValueId),
    /// Waits for the copies of this thread.
    AwaitCopies,
    /// Prefetches the memory at the address for reading and writing. The address may be outside of its buffer.
    Prefetch(ValueId),
    /// A volatile load: reads memory each time it is executed, and is never moved.
    VolatileLoad(ValueId),
    Store(ValueId, ValueId),
    /// address, operand; yields the old value. Element by element on tensors.
    Atomic(AtomicOp, ValueId, ValueId),
    /// address, expected, desired; yields the old value.
    AtomicCas(ValueId, ValueId, ValueId),
    /// Folds a value into reduction `slot` of the enclosing parallel loop.
    Reduce(u32, ValueId),

    // Threads.
    /// A barrier for the subgroup or block, which makes earlier writes of its threads visible to each other.
    Barrier(ThreadScope),
    /// A memory fence for the block or device.
    Fence(ThreadScope),
    /// A barrier of the block that yields the number of its threads whose condition holds, i32.
    BlockCount(ValueId),
    /// An operation of the subgroup's threads.
    Subgroup(SubgroupOp, Vec<ValueId>),

    // Control.
    If(ValueId, BlockId, BlockId),
    For(Box<ForLoop>),
    /// Repeats until a `Break` or `Return`.
    Loop(BlockId),
    /// Index of an axis of an enclosing `For`.
    LoopIndex(ValueId, u32),
    /// Exchanges i64 numbers between threads, such that threads of a subgroup get numbers of similar weights. Adjacent
    /// threads pass adjacent numbers. Threads with numbers below the end exchange them: each gets the number of another
    /// thread, or its own. All threads of a block with such a number execute this. With `heaviest_first`, the threads
    /// that would get the lightest numbers get the heaviest ones.
    Balance {
        number: ValueId,
        weight: ValueId,
        end: ValueId,
        heaviest_first: bool,
    },
    Break,
    /// The end of a checkpoint with this label, which is the `loop` that the `break` after it leaves: a launch may end
    /// here when the integer is not zero, and another one resume at the start of the loop. Only in task blocks.
    Checkpoint(i64, ValueId),
    /// The end of a section of a `graph.parallel_context`, which is the `loop` that the `break` after it leaves.
    /// Sections that hold other parts of the graph have this form; others are loops with a group. Only in task blocks.
    Section(LoopGroup),
    Continue,
    /// From a function, or a kernel's result (at the end of the kernel's root).
    Return(Option<ValueId>),
    Call(FuncId, Vec<ValueId>),

    // Effects seen by the host.
    Print(Vec<TextPart>),
    /// Records the message and ends the iteration when the condition is false.
    Assert(ValueId, Vec<TextPart>),
}

impl Op {
    /// Calls `f` on every value operand, in order.
    pub fn for_each_operand(&self, mut f: impl FnMut(ValueId)) {
        self.clone().map_operands(|v| {
            f(v);
            v
        });
    }

    /// Replaces every value operand by `f` of it.
    pub fn map_operands(&mut self, mut f: impl FnMut(ValueId) -> ValueId) {
        let mut on = |v: &mut ValueId| *v = f(*v);
        match self {
            Op::Const(_)
            | Op::Param(_)
            | Op::Shape(..)
            | Op::Grid(_)
            | Op::FragmentIndex(_)
            | Op::Barrier(_)
            | Op::Fence(_)
            | Op::Random
            | Op::Clock
            | Op::LocalAddr(_)
            | Op::FrameAddr(_)
            | Op::Loop(_)
            | Op::Section(_)
            | Op::Break
            | Op::AwaitCopies
            | Op::Continue
            | Op::Return(None) => {}
            Op::Unary(_, a)
            | Op::Cast(a)
            | Op::Bitcast(a)
            | Op::AddressBits(a)
            | Op::Splat(a)
            | Op::Extract(a, _)
            | Op::Transpose(a)
            | Op::Freeze(a)
            | Op::Fold(_, a)
            | Op::MemberAddr(a, _)
            | Op::Load(a)
            | Op::VectorLoad(a)
            | Op::LoadMatrices(a, _)
            | Op::Prefetch(a)
            | Op::BlockCount(a)
            | Op::VolatileLoad(a)
            | Op::Reduce(_, a)
            | Op::Checkpoint(_, a)
            | Op::If(a, _, _)
            | Op::LoopIndex(a, _)
            | Op::Return(Some(a)) => on(a),
            Op::Binary(_, a, b)
            | Op::MatMul(a, b)
            | Op::RandomAt(a, b)
            | Op::Store(a, b)
            | Op::VectorStore(a, b)
            | Op::CopyAsync(a, b)
            | Op::Atomic(_, a, b) => {
                on(a);
                on(b);
            }
            Op::Select(a, b, c) | Op::AtomicCas(a, b, c) | Op::Balance { number: a, weight: b, end: c, .. } => {
                on(a);
                on(b);
                on(c);
            }
            Op::MakeTensor(vs) | Op::MakeStruct(vs) | Op::BufferAddr(_, vs) | Op::Call(_, vs) | Op::Subgroup(_, vs) => {
                vs.iter_mut().for_each(on);
            }
            Op::ExtractDyn(a, vs) | Op::ElementAddr(a, vs) => {
                on(a);
                vs.iter_mut().for_each(on);
            }
            Op::For(l) => {
                for d in &mut l.dims {
                    on(&mut d.begin);
                    on(&mut d.end);
                }
                for r in &mut l.reductions {
                    on(&mut r.target);
                }
            }
            Op::Print(parts) => parts.iter_mut().for_each(|p| {
                if let TextPart::Value(v, _) | TextPart::Choice(v, _) = p {
                    on(v)
                }
            }),
            Op::Assert(c, parts) => {
                on(c);
                parts.iter_mut().for_each(|p| {
                    if let TextPart::Value(v, _) | TextPart::Choice(v, _) = p {
                        on(v)
                    }
                });
            }
        }
    }
}

/// The identity of a fold: the initial value of an accumulator. `None` for `Exchange`.
pub fn fold_identity(op: AtomicOp, s: Scalar) -> Option<Const> {
    let float = s.is_float();
    let min_int = || match s {
        s if s.is_unsigned() => 0,
        s => -1i64 << (s.bits() - 1),
    };
    let max_int = || match s {
        Scalar::U1 => 1,
        Scalar::U64 => -1,
        s if s.is_unsigned() => (1i64 << s.bits()) - 1,
        Scalar::I64 => i64::MAX,
        s => (1i64 << (s.bits() - 1)) - 1,
    };
    Some(match op {
        AtomicOp::Add | AtomicOp::Sub if float => Const::Float(0.0),
        AtomicOp::Add | AtomicOp::Sub | AtomicOp::Or | AtomicOp::Xor => Const::Int(0),
        AtomicOp::Mul if float => Const::Float(1.0),
        AtomicOp::Mul => Const::Int(1),
        AtomicOp::Min if float => Const::Float(f64::INFINITY),
        AtomicOp::Max if float => Const::Float(f64::NEG_INFINITY),
        AtomicOp::Min => Const::Int(max_int()),
        AtomicOp::Max => Const::Int(min_int()),
        AtomicOp::And => Const::Int(-1),
        AtomicOp::Exchange => return None,
    })
}
