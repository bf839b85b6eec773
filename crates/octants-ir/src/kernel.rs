//! [`Kernel`], the result of the front end, and [`Program`], the result of `offload`. They are different types, so
//! code that was not split into tasks cannot reach a back end.

use std::collections::{BTreeMap, BTreeSet};

use octants_layout::Placement;

use crate::body::Body;
use crate::op::{BufferId, FrameSlot, LoopConfig};
use crate::task_graph::TaskGraph;
use crate::types::{Scalar, Type};

/// The location of a scalar component of a field in memory. Its indices count from the field's `offset`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ComponentLayout {
    /// Which of the kernel's roots.
    pub root: u32,
    /// The location in the root.
    pub place: Placement,
}

/// How the elements of a buffer are laid out in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Own pointer; shape known at launch; row-major, components of an element innermost.
    Contiguous,
    /// Own pointer; shape and byte strides of the axes known at launch; components of an element contiguous.
    Strided,
    /// The scalars of a contiguous array as a flat buffer. Only in the scheduled dialect.
    Flat(BufferId),
    /// A field: part of a root; shape known at compile time.
    Dense {
        /// Extent of each axis.
        shape: Vec<u64>,
        /// First valid index of each axis.
        offset: Vec<i64>,
        /// One per scalar component of an element, row-major.
        components: Vec<ComponentLayout>,
    },
}

/// The address space of a buffer: which threads share it, and its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum MemorySpace {
    /// Shared by all threads of the device: arrays and fields of the host.
    #[default]
    Global,
    /// Shared by the threads of a block, with the lifetime of the block, uninitialized. The buffer is dense. Its roots
    /// are numbered separately for this space, and are as large as their buffers need.
    Shared,
    /// Private to one thread. The buffer is dense, as in shared memory, or contiguous with one axis; in the latter case
    /// the caller of the thread chooses its length.
    Private,
    /// The private copies of all threads, for the code that sums them up after the threads have ended. The first index
    /// is the thread, the second the scalar.
    Copies,
}

impl MemorySpace {
    /// Every space.
    pub const ALL: &[MemorySpace] =
        &[MemorySpace::Global, MemorySpace::Shared, MemorySpace::Private, MemorySpace::Copies];

    /// The word in the IR's text.
    pub fn name(self) -> &'static str {
        match self {
            MemorySpace::Global => "global",
            MemorySpace::Shared => "shared",
            MemorySpace::Private => "private",
            MemorySpace::Copies => "copies",
        }
    }

    /// Whether the memory is allocated by the launch, not passed as an argument.
    pub fn is_temporary(self) -> bool {
        matches!(self, MemorySpace::Shared | MemorySpace::Private | MemorySpace::Copies)
    }
}

/// Memory a kernel reads or writes: an array argument, a field, or memory of a block or thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// The user's name, for messages.
    pub name: String,
    /// Scalar, vector or matrix.
    pub elem: Type,
    /// Number of axes.
    pub ndim: u32,
    /// The location of elements.
    pub layout: Layout,
    /// Whose memory it is.
    pub space: MemorySpace,
    /// An i32 holds how many bytes any element is from the first.
    pub short_offsets: bool,
    /// The compiler's metadata about other memory, such as activation states. Race checks ignore it.
    pub is_metadata: bool,
}

/// Set in the base of a component that has no bytes of its own: an element of a quantized type, whose accesses become
/// accesses of words.
pub const NO_BYTES: u64 = 1 << 62;

impl Buffer {
    /// Whether its elements are of a quantized type and still have to be replaced by words. They have no addresses.
    pub fn is_packed(&self) -> bool {
        let has_no_bytes = |c: &ComponentLayout| c.place.base & NO_BYTES != 0;
        matches!(&self.layout, Layout::Dense { components, .. } if components.iter().any(has_no_bytes))
    }

    /// Whether two fields share memory, for example a field and one of its components. For arrays this is unknown
    /// before a launch.
    pub fn shares_memory(&self, other: &Buffer) -> bool {
        let (Layout::Dense { components: a, .. }, Layout::Dense { components: b, .. }) = (&self.layout, &other.layout)
        else {
            return false;
        };
        self.space == other.space
            && a.iter().any(|x| b.iter().any(|y| (x.root, x.place.base) == (y.root, y.place.base)))
    }
}

/// A by-value parameter.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Param {
    /// The user's name.
    pub name: String,
    /// Scalar, vector, matrix or struct.
    pub ty: Type,
}

/// A function compiled once per specialization. It sees the kernel's buffers, not its parameters.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Function {
    /// Name for messages and symbols.
    pub name: String,
    /// Parameter types; `Ref` for parameters passed by reference.
    pub params: Vec<Type>,
    /// `Unit` when it returns nothing.
    pub ret: Type,
    /// The code.
    pub body: Body,
}

/// How a kernel is differentiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum AutodiffMode {
    /// Not at all: computes values.
    #[default]
    None,
    /// Forward mode: computes values, and the duals of its outputs from those of its inputs.
    Forward,
    /// Reverse mode: computes the gradients of its inputs from those of its outputs.
    Reverse,
    /// Computes values, and checks that nothing is overwritten that its gradient will read.
    Validation,
    /// Records the trip counts of the loops that its gradient replays.
    Trips,
    /// Records the trip counts, and the memory that its gradient reads again.
    Reads,
}

impl AutodiffMode {
    /// The shadow buffers that arrays of floats have in the kernel.
    pub fn shadow_buffer(self) -> Option<ShadowBuffer> {
        match self {
            AutodiffMode::None => None,
            AutodiffMode::Forward => Some(ShadowBuffer::Dual),
            AutodiffMode::Reverse | AutodiffMode::Trips | AutodiffMode::Reads => Some(ShadowBuffer::Gradient),
            AutodiffMode::Validation => Some(ShadowBuffer::ReadMarks),
        }
    }
}

/// A buffer with an element for each element of an array of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShadowBuffer {
    /// The derivative of a result by each element.
    Gradient,
    /// The tangent of each element.
    Dual,
    /// An i32 mark of the reads of each element.
    ReadMarks,
}

/// A kernel as the front end leaves it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kernel {
    /// The user's name.
    pub name: String,
    /// By-value parameters.
    pub params: Vec<Param>,
    /// Array arguments and fields.
    pub buffers: Vec<Buffer>,
    /// The shadow buffers that the mode of differentiation needs: gradients or duals, of the same type and shape as the
    /// buffer, or read marks.
    pub shadow_buffers: BTreeMap<BufferId, BufferId>,
    /// Number of distinct field roots that `Layout::Dense` components name.
    pub roots: u32,
    /// Functions called from the body.
    pub functions: Vec<Function>,
    /// The code.
    pub body: Body,
    /// Type of the result; `Unit` for none. Several results are a struct.
    pub ret: Type,
}

/// A kernel split into tasks.
#[derive(Debug, Clone, PartialEq, Hash, Default)]
pub struct Program {
    /// The user's name of the kernel.
    pub name: String,
    /// As in [`Kernel`].
    pub params: Vec<Param>,
    /// As in [`Kernel`].
    pub buffers: Vec<Buffer>,
    /// As in [`Kernel`].
    pub roots: u32,
    /// As in [`Kernel`].
    pub functions: Vec<Function>,
    /// As in [`Kernel`].
    pub ret: Type,
    /// Types of the slots of memory that tasks of one launch share.
    pub frame: Vec<Type>,
    /// What `graph` launches.
    pub tasks: Vec<Task>,
    /// The execution order of the tasks.
    pub graph: TaskGraph,
}

/// How a task runs.
#[derive(Debug, Clone, PartialEq, Hash)]
pub enum TaskKind {
    /// The body runs once, on one thread.
    Serial,
    /// The body's root block is a prologue of instructions without effects that computes bounds, then one parallel
    /// `For` as its last instruction. A back end may run the prologue on every thread.
    Parallel(LoopConfig),
    /// Each thread of a grid runs the whole body. Its parallel loops, at the root or under `if`s that are the same for
    /// all threads of a block, share their iterations among the threads. Only variants of scheduled programs.
    Grid(LoopConfig),
}

/// A unit of launching.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Task {
    /// Symbol-safe, unique in the program.
    pub name: String,
    /// Serial or parallel.
    pub kind: TaskKind,
    /// The code.
    pub body: Body,
    /// The access set, including the functions that it calls.
    pub access: AccessSet,
}

/// The memory a task reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AccessSet {
    /// Buffers read.
    pub reads: BTreeSet<BufferId>,
    /// Buffers written, atomically or not.
    pub writes: BTreeSet<BufferId>,
    /// Frame slots read.
    pub frame_reads: BTreeSet<FrameSlot>,
    /// Frame slots written.
    pub frame_writes: BTreeSet<FrameSlot>,
}

/// The position of each launch argument in the block of 8-byte slots that a launch passes by value.
///
/// Order: roots (one pointer each), then buffers that are not fields (pointer, then one i64 extent per axis, then for
/// `Strided` one i64 byte stride per axis), then parameters (one slot per scalar leaf, value in the low bytes).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArgLayout {
    /// First slot of each root.
    pub roots: Vec<u32>,
    /// First slot of each buffer; `None` for fields.
    pub buffers: Vec<Option<u32>>,
    /// First slot of each parameter.
    pub params: Vec<u32>,
    /// The scalars of each parameter's leaves.
    pub param_leaves: Vec<Vec<Scalar>>,
    /// Number of slots.
    pub slots: u32,
}

impl ArgLayout {
    /// The layout of a kernel's or program's arguments.
    pub fn new(roots: u32, buffers: &[Buffer], params: &[Param]) -> ArgLayout {
        let mut layout = ArgLayout { roots: (0..roots).collect(), slots: roots, ..ArgLayout::default() };
        for b in buffers {
            let slots = match b.layout {
                _ if b.space.is_temporary() => None,
                Layout::Dense { .. } | Layout::Flat(_) => None,
                Layout::Contiguous => Some(1 + b.ndim),
                Layout::Strided => Some(1 + 2 * b.ndim),
            };
            layout.buffers.push(slots.map(|n| {
                layout.slots += n;
                layout.slots - n
            }));
        }
        for p in params {
            let leaves = p.ty.leaves();
            layout.params.push(layout.slots);
            layout.slots += leaves.len() as u32;
            layout.param_leaves.push(leaves);
        }
        layout
    }
}
