//! Compiled code and its launch metadata: the only serialized types of the system.
//!
//! An artifact contains no address of a host or device. `octants_ir::ArgLayout` fixes the order of its argument slots;
//! only their count is stored here.
//!
//! [`Store`] keeps artifacts in a folder for later processes, each under its [`Key`]. It also keeps [`Trace`]s, through
//! which a process finds the right artifact without compiling.

mod access;
mod conflict;
mod entry;
mod key;
mod saved_graph;
mod scatter_copies;
mod split_task;
mod store;
mod task_graph;
mod trace;
mod trace_entries;
mod trust;

pub use access::{Access, AccessAxis, AccessColor, AccessKind, AccessPart, Indices, SlotSum, UpdateOp};
pub use conflict::{Overlap, TaskLaunch};
pub use key::{Key, KeyBuilder, key_of_bytes};
pub use saved_graph::{
    SavedGraph, SavedKernel, SavedMemory, SavedPlace, SavedSlot, SavedStep, SavedWork, UnreadableGraph,
};
pub use scatter_copies::{CopiedRegion, ScatterCopies};
pub use split_task::{LocalRows, RowBound, SplitMemory, SplitTask};
pub use store::{Contents, Policy, Store, StoreCounts, StoreOptions};
pub use task_graph::{Condition, GraphPart, GuardedIterations, PersistentLoop, graph_of_groups};
pub use trace::{
    ArgumentPlan, ArraySource, ArrayType, Dependence, Fingerprint, Lookup, Made, Outcome, ParamSource, Reach,
    StoreOfGradient, StoredWarning, Trace, ValueType, WarningKind,
};

use serde::{Deserialize, Serialize};

/// The scalar kinds of results and printed values; same order and names as the IR's scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ScalarKind {
    U1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl ScalarKind {
    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            ScalarKind::U1 => "u1",
            ScalarKind::I8 => "i8",
            ScalarKind::I16 => "i16",
            ScalarKind::I32 => "i32",
            ScalarKind::I64 => "i64",
            ScalarKind::U8 => "u8",
            ScalarKind::U16 => "u16",
            ScalarKind::U32 => "u32",
            ScalarKind::U64 => "u64",
            ScalarKind::F16 => "f16",
            ScalarKind::F32 => "f32",
            ScalarKind::F64 => "f64",
        }
    }

    /// Its length in memory.
    pub fn bytes(self) -> u32 {
        match self {
            ScalarKind::U1 | ScalarKind::I8 | ScalarKind::U8 => 1,
            ScalarKind::I16 | ScalarKind::U16 | ScalarKind::F16 => 2,
            ScalarKind::I32 | ScalarKind::U32 | ScalarKind::F32 => 4,
            ScalarKind::I64 | ScalarKind::U64 | ScalarKind::F64 => 8,
        }
    }
}

/// Compiled code of one specialization of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The user's name of the kernel.
    pub kernel: String,
    /// Where the user defines it, as `path:line`: kept for devices in debug mode, for errors that no site reports.
    pub defined_at: Option<String>,
    /// It updates memory without atomics where only other launches could interfere.
    pub assumes_order: bool,
    /// Target triple, CPU and features the code was made for.
    pub target: String,
    /// Relocatable object files for the host, to be linked together; for a device, binaries or texts that are loaded
    /// separately.
    pub modules: Vec<Vec<u8>>,
    /// Launch argument slots of 8 bytes each.
    pub arg_slots: u32,
    /// Bytes of frame that the tasks of a launch share; slots are 8-byte aligned.
    pub frame_bytes: u64,
    /// Scalars of the result's leaves, one 8-byte slot each.
    pub result: Vec<ScalarKind>,
    /// The user's names of its buffers, as access sets number them.
    pub buffers: Vec<String>,
    /// The tasks that `graph` launches.
    pub tasks: Vec<TaskMeta>,
    /// The execution order of the tasks; empty if each runs once, in order.
    pub graph: Vec<GraphPart>,
    /// Loops of the graph that a single launch can run as a whole.
    pub loops: Vec<PersistentLoop>,
    /// Integers in memory that its data-dependent loops change. The gradient starts from their initial values.
    pub counters: Vec<Condition>,
    /// Places that print or assert, named by index in the code.
    pub sites: Vec<Site>,
}

/// One task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskMeta {
    /// Name for profiles.
    pub name: String,
    /// Symbol of the task's code.
    pub symbol: String,
    /// Index of its module in the artifact.
    pub module: u32,
    /// Symbol of the variant without atomics for a launch on one thread, if it differs.
    pub single_thread_symbol: Option<String>,
    /// Set for parallel tasks.
    pub parallel: Option<ParallelMeta>,
    /// On a GPU: its code waits for preceding work, so its blocks may start before that ends.
    pub waits_itself: bool,
    /// It draws random numbers, which depend on the number of the launch.
    pub draws_random: bool,
    /// On the host: run the code with denormals treated as zero.
    pub flushes_denormals: bool,
    /// On the host: long loops call [`HostContext::poll`] periodically.
    pub polls: bool,
    /// Indices of the kernel's buffers it reads.
    pub reads: Vec<u32>,
    /// Indices of the kernel's buffers it writes.
    pub writes: Vec<u32>,
    /// A superset of the buffer elements that it accesses.
    pub access: Vec<Access>,
    /// The earlier tasks that it depends on directly, by number, if some adjacent tasks of the graph are independent.
    /// `None`: all earlier tasks.
    pub depends_on: Option<Vec<u32>>,
    /// It, or an iteration if it is parallel, certainly takes about a microsecond at most.
    pub is_short: bool,
    /// Dynamic shared memory per block in bytes, in addition to what the code declares.
    pub block_bytes: u64,
    /// How it runs on rows of split arrays, if it touches any.
    pub split: Option<SplitTask>,
}

/// An argument slot that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// The slot.
    pub slot: u32,
    /// Some task writes to the memory.
    pub written: bool,
    /// The kernel's buffer with this memory, if it is exactly one.
    pub buffer: Option<u32>,
}

/// How a parallel task is divided.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ParallelMeta {
    /// Symbol of the function that computes the number of iterations, if it cannot be computed from `axes`.
    pub count_symbol: Option<String>,
    /// The number of iterations, if known at compile time.
    pub count: Option<u64>,
    /// The bounds of each axis, `[begin, end)`, as far as the launcher can know them.
    pub axes: Vec<(Bound, Bound)>,
    /// A form in which each thread runs several neighboring iterations, for launches that it fits.
    pub wide: Option<WideForm>,
    /// Run in order on one thread.
    pub serialize: bool,
    /// Iterations per chunk (CPU), threads per block (GPU).
    pub block_dim: Option<u32>,
    /// Maximum number of threads on the CPU.
    pub num_threads: Option<u32>,
    /// Extent of the fastest axis where known: chunks are best cut at its multiples.
    pub inner_extent: Option<u64>,
    /// Interleave factor along the fastest axis (CPU). A remainder below a quarter costs as much as a quarter.
    pub interleave_factor: u32,
    /// On the CPU: the private copies for scatter privatization, if each call may have its own.
    pub scatter: Option<ScatterCopies>,
    /// On a GPU: blocks sum up copies at their end, so there should not be more blocks than run concurrently.
    pub block_sums: bool,
    /// Threads of a block wait for each other or exchange values: a block has exactly `block_dim` threads, and a thread
    /// runs one iteration, if the launcher knows the iteration count (GPU).
    pub cooperates: bool,
    /// Rough cost of one iteration in nanoseconds, to decide whether threads pay.
    pub cost_per_iteration: f32,
}

/// A bound of a parallel loop as the launcher sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Known at compile time.
    Known(i64),
    /// The value of an argument slot (an integer of this kind in its low bytes) plus a number. The addition wraps as
    /// for integers of this kind. The number is zero except for I32 and I64.
    Slot(u32, ScalarKind, i64),
    /// The larger of two values: the begin of a loop that a launch runs in parts.
    Larger(BoundTerm, BoundTerm),
    /// The smaller of two values: the end of such a loop.
    Smaller(BoundTerm, BoundTerm),
    /// Something that the code computes.
    Computed,
}

/// An operand of the minimum or maximum that a [`Bound`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundTerm {
    /// As [`Bound::Known`].
    Known(i64),
    /// As [`Bound::Slot`].
    Slot(u32, ScalarKind, i64),
}

impl Bound {
    /// Its value in a launch with these argument slots.
    pub fn value(self, args: &[u64]) -> Option<i64> {
        match self {
            Bound::Known(value) => Some(value),
            Bound::Slot(slot, kind, more) => BoundTerm::Slot(slot, kind, more).value(args),
            Bound::Larger(a, b) => Some(a.value(args)?.max(b.value(args)?)),
            Bound::Smaller(a, b) => Some(a.value(args)?.min(b.value(args)?)),
            Bound::Computed => None,
        }
    }

    /// It as a term of another bound, if it is simple enough.
    pub fn term(self) -> Option<BoundTerm> {
        match self {
            Bound::Known(value) => Some(BoundTerm::Known(value)),
            Bound::Slot(slot, kind, more) => Some(BoundTerm::Slot(slot, kind, more)),
            Bound::Larger(..) | Bound::Smaller(..) | Bound::Computed => None,
        }
    }
}

impl BoundTerm {
    fn value(self, args: &[u64]) -> Option<i64> {
        let (slot, kind, more) = match self {
            BoundTerm::Known(value) => return Some(value),
            BoundTerm::Slot(slot, kind, more) => (slot, kind, more),
        };
        let bits = *args.get(slot as usize)?;
        Some(match kind {
            ScalarKind::I64 | ScalarKind::U64 => (bits as i64).wrapping_add(more),
            ScalarKind::I32 => i64::from((bits as i32).wrapping_add(more as i32)),
            ScalarKind::U32 => i64::from(bits as u32),
            ScalarKind::I16 => i64::from(bits as i16),
            ScalarKind::U16 => i64::from(bits as u16),
            ScalarKind::I8 => i64::from(bits as i8),
            ScalarKind::U8 => i64::from(bits as u8),
            ScalarKind::U1 => i64::from(bits & 1 != 0),
            ScalarKind::F16 | ScalarKind::F32 | ScalarKind::F64 => return None,
        })
    }
}

/// A task's coarsened variant. Each thread runs `lanes` adjacent iterations of the last axis. `lanes` is a power of
/// two. Each axis has fewer than 2^30 indices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WideForm {
    /// Symbol of its code.
    pub symbol: String,
    /// Its code, if separate from the artifact's modules: loaded when a launch first fits.
    pub code: Vec<u8>,
    /// Iterations at a time.
    pub lanes: u32,
    /// The required alignment, in bytes, of the addresses in these slots.
    pub alignment: u32,
    /// Slots of addresses.
    pub addresses: Vec<u32>,
    /// Slots of extents that must be multiples of `lanes`.
    pub extents: Vec<u32>,
    /// Minimum number of iterations for which it pays off.
    pub least_iterations: u64,
    /// Minimum number of of them along the last axis, at least `lanes`.
    pub least_row: u64,
}

impl WideForm {
    const MOST_OF_AXIS: u64 = 1 << 30;
}

impl ParallelMeta {
    /// The coarsened variant, if it is valid for a launch with these argument slots and the iteration count is known.
    pub fn wide_form(&self, args: &[u64]) -> Option<&WideForm> {
        let form = self.wide.as_ref()?;
        let whole = |n: u64, of: u32| n & (u64::from(of) - 1) == 0;
        let fits = form.addresses.iter().all(|s| args.get(*s as usize).is_some_and(|a| whole(*a, form.alignment)))
            && form.extents.iter().all(|s| args.get(*s as usize).is_some_and(|n| whole(*n, form.lanes)));
        if !fits {
            return None;
        }
        let (mut iterations, mut row) = (1u64, 0);
        for (begin, end) in &self.axes {
            row = end.value(args)?.saturating_sub(begin.value(args)?).max(0) as u64;
            if row >= WideForm::MOST_OF_AXIS {
                return None;
            }
            iterations = iterations.saturating_mul(row);
        }
        (row >= form.least_row && iterations >= form.least_iterations).then_some(form)
    }

    /// The number of iterations of a launch with these argument slots, if known without running code.
    pub fn iterations(&self, args: &[u64]) -> Option<u64> {
        self.count.or_else(|| iterations(&self.axes, args))
    }
}

/// The number of indices between the bounds of axes, in a launch with these argument slots; `None` if it is unknown.
pub fn iterations(axes: &[(Bound, Bound)], args: &[u64]) -> Option<u64> {
    axes.iter().try_fold(1u64, |count, (begin, end)| {
        let extent = end.value(args)?.saturating_sub(begin.value(args)?).max(0);
        count.checked_mul(extent as u64)
    })
}

/// A place in the user's program that prints or asserts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The event at the site.
    pub kind: SiteKind,
    /// The text, in pieces.
    pub parts: Vec<SitePart>,
    /// `path:line`.
    pub location: String,
}

/// The event at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SiteKind {
    /// The text is written to standard output.
    Print,
    /// The text is written to standard output once for each launch that reaches the site.
    Report,
    /// The text is the message of an error, reported once.
    Assert,
    /// The same, for a loop that a faulty device has left too early. The program itself does not assert anything.
    LeftEarly,
    /// Two accesses are unordered. The parts are the buffer's name, optionally a remedy, optionally the kind of groups
    /// that access it (`block` or `section`; otherwise iterations), for each access a choice among texts (`read`,
    /// `write` or `update`, and `path:line`), and the indices.
    Race,
}

/// A piece of a site's text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SitePart {
    /// Literal text.
    Text(String),
    /// The next scalars among the values passed by the code: one for a scalar, more for a tensor (its shape is given).
    Value {
        /// Kind of each scalar.
        kind: ScalarKind,
        /// `[]`, `[n]` or `[n, m]`.
        shape: Vec<u32>,
        /// Format specification, as the user wrote it.
        format: Option<String>,
    },
    /// The text with the number that the next i32 is.
    Choice(Vec<String>),
}

/// Error of [`Artifact::from_bytes`] and [`Trace::from_bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupted;

impl Artifact {
    /// Serializes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The types above hold nothing that the format cannot express.
        postcard::to_stdvec(self).expect("compiler bug: artifact cannot be serialized")
    }

    /// Reads back what [`Artifact::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Artifact, Corrupted> {
        postcard::from_bytes(bytes).map_err(|_| Corrupted)
    }
}

/// The target of code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CodeTarget {
    /// The machine that this process runs on; entry points are [`HostTask`]s.
    Host,
    /// A device, in LLVM's words. Entry points take a [`DeviceContext`] and the argument slots, by value.
    Device {
        /// Target triple.
        triple: String,
        /// Processor.
        cpu: String,
        /// Features, as LLVM writes them.
        features: String,
    },
}

/// The only parameter of device code, passed by value. The launch's argument slots follow it at
/// [`DeviceContext::BYTES`]. Shared by the device code generators and drivers; `repr(C)`, addressed by position.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceContext {
    /// 0: address of the launch's frame.
    pub frame: u64,
    /// 8: address of the result slots, in memory that host and device reach.
    pub result: u64,
    /// 16: address of a [`DeviceChannel`]; zero for a kernel that neither prints nor asserts.
    pub channel: u64,
    /// 24: seed of the program's random numbers.
    pub seed: u64,
    /// 32: number of the launch.
    pub launch: u64,
    /// 40: number of the kernel, as in its records in the channel.
    pub kernel: u64,
    /// 48: number of the task in its kernel.
    pub task: u64,
    /// 56: an address, or zero. For a task that draws random numbers, that of the number of iterations that the loop
    /// around it has completed in this launch, if the device counts them. For a task in guarded iterations, that of the
    /// guard, if it has one (see [`GuardedIterations`]). For a [`PersistentLoop`], that of two words of 32 bits, which
    /// are zero before the first launch with that address.
    pub of_loop: u64,
}

impl DeviceContext {
    /// Size; offset of the argument slots.
    pub const BYTES: u64 = 64;
    /// The number of a launch has as many bits. For random numbers those above it count rounds.
    pub const LAUNCH_BITS: u32 = 40;
    /// Maximum number of bytes of argument slots that follow it. More are in memory of the device, and their address is
    /// in the place of the first slot.
    pub const MOST_ARGUMENT_BYTES: u64 = 4000;
    /// Bytes before each frame that are zero when it is allocated: the words of persistent loops, by their number.
    pub const BEFORE_FRAME: u64 = 64;
    /// Bytes of a persistent loop's words.
    pub const LOOP_BYTES: u64 = 8;
}

/// Messages of running device code to the host: printed values and a failed assertion, in memory that both can access.
/// The words of records follow it at [`DeviceChannel::BYTES`]. A record is the number of its kernel plus one in the
/// high half of a word and the site in the low half, then the site's values, a word each. Code reserves a record's
/// words by adding to `next`; a record that does not fit is counted in `lost` and dropped. The first assertion that
/// fails swaps `failed` from 0 to a number that is unique to its task in this launch, and writes its record to
/// `failure`, truncated to [`DeviceChannel::FAILURE_WORDS`] words. Tasks that may assert do nothing while `failed`
/// contains another task's number.
#[repr(C)]
#[derive(Debug)]
pub struct DeviceChannel {
    /// 0: words reserved so far; may exceed the capacity.
    pub next: u32,
    /// 4: nonzero if an assertion has failed.
    pub failed: u32,
    /// 8: number of words; set by the host.
    pub capacity: u32,
    /// 12: number of records that did not fit.
    pub lost: u32,
    /// 16: the first failure.
    pub failure: [u64; DeviceChannel::FAILURE_WORDS],
}

impl DeviceChannel {
    /// Words kept of the first failure.
    pub const FAILURE_WORDS: usize = 30;
    /// Size; offset of the records.
    pub const BYTES: u64 = 256;
}

const _: () = assert!(size_of::<DeviceContext>() as u64 == DeviceContext::BYTES);
const _: () = assert!(size_of::<DeviceChannel>() as u64 == DeviceChannel::BYTES);

/// The first argument of host code. Shared by the CPU code generator and the host driver; `repr(C)`, the code generator
/// addresses the fields by position.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct HostContext {
    /// 0: the launch's argument slots.
    pub args: *const u64,
    /// 8: the launch's frame.
    pub frame: *mut u8,
    /// 16: result slots.
    pub result: *mut u64,
    /// 24: called at a `Print` site: (context, site, values).
    pub print: unsafe extern "C" fn(*const HostContext, u32, *const u64),
    /// 32: called at an `Assert` site whose condition is false: (context, site, values).
    pub fail: unsafe extern "C" fn(*const HostContext, u32, *const u64),
    /// 40: seed of the program's random numbers.
    pub seed: u64,
    /// 48: number of the launch.
    pub launch: u64,
    /// 56: for the driver's own use.
    pub owner: *const core::ffi::c_void,
    /// 64: the address of a zeroed private copy of the memory that the task scatters to, for this call; null without
    /// copies. Either all calls of a launch have copies, or none. For code that merges copies: the address of a list of
    /// their addresses.
    pub copies: *const core::ffi::c_void,
    /// 72: the number of copies to merge.
    pub copy_count: u64,
    /// 80: bytes of a copy before the region that is added.
    pub copy_offset: u64,
    /// 88: called by long loops now and then: (context). Need not return. On x86-64 it keeps all registers, and the
    /// stack need not be aligned.
    pub poll: unsafe extern "C" fn(*const HostContext),
}

/// Code of a task: runs iterations `begin..end` of the flattened index space (a serial task ignores them).
/// Returns 0, or 1 when an assertion failed in it.
pub type HostTask = unsafe extern "C" fn(*const HostContext, begin: i64, end: i64) -> u32;

/// Number of iterations of a parallel task.
pub type HostCount = unsafe extern "C" fn(*const HostContext) -> i64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_follow_from_the_argument_slots() {
        let mut meta = ParallelMeta {
            axes: vec![
                (Bound::Known(2), Bound::Slot(0, ScalarKind::I64, 0)),
                (Bound::Slot(1, ScalarKind::I32, -1), Bound::Known(3)),
            ],
            cost_per_iteration: 1.0,
            ..ParallelMeta::default()
        };
        assert_eq!(meta.iterations(&[7, u64::from((-1i32) as u32)]), Some(5 * 5));
        assert_eq!(meta.iterations(&[1, 0]), Some(0));
        meta.axes[0].0 = Bound::Computed;
        assert_eq!(meta.iterations(&[7, 0]), None);
        meta.count = Some(9);
        assert_eq!(meta.iterations(&[]), Some(9));
    }

    #[test]
    fn bounds_are_read_with_the_types_of_their_slots() {
        use ScalarKind::*;
        let value = |bits: u64, kind, more| Bound::Slot(0, kind, more).value(&[bits]);
        // The other bytes of a slot are ignored.
        let noise = 0x5555_5555_5555_5500;
        for (kind, bits, expected) in [
            (U1, 1, 1),
            (U8, 0xfe, 0xfe),
            (I8, 0xfe, -2),
            (U16, 0xfffe, 0xfffe),
            (I16, 0xfffe, -2),
            (U32, 0xffff_fffe, 0xffff_fffe),
            (I32, 0xffff_fffe, -2),
        ] {
            let unused = u64::MAX << (8 * kind.bytes());
            assert_eq!(value(bits | noise & unused, kind, 0), Some(expected), "{kind:?}");
        }
        assert_eq!(value(i64::MAX as u64, I64, 1), Some(i64::MIN));
        assert_eq!(value(i32::MAX as u64, I32, 1), Some(i32::MIN.into()));
        assert_eq!(value(0, F32, 0), None);
    }

    #[test]
    fn s14_an_artifact_lists_the_groups_of_its_tasks() {
        let task =
            TaskMeta { name: "t".into(), symbol: "t".into(), reads: vec![0], writes: vec![1], ..TaskMeta::default() };
        let with = |groups: [Option<u32>; 2]| Artifact {
            kernel: "k".into(),
            modules: vec![vec![1], vec![2, 3]],
            arg_slots: 2,
            frame_bytes: 64,
            tasks: vec![task.clone(), task.clone()],
            graph: graph_of_groups(&groups),
            ..Artifact::default()
        };
        let all = [[None, None], [Some(0), Some(1)]].map(with);
        let bytes = all.each_ref().map(Artifact::to_bytes);
        for (a, b) in all.iter().zip(&bytes) {
            assert_eq!(Artifact::from_bytes(b).as_ref(), Ok(a));
        }
        assert!(bytes[0] != bytes[1]);
        let in_order = [[None, None], [Some(0), Some(0)], [Some(0), None]].map(|g| graph_of_groups(&g));
        assert_eq!(in_order, [vec![], vec![], vec![]]);
    }
}
