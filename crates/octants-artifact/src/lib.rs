//! Compiled code and what a launch needs to know of it: the only serialised types of the system.
//!
//! An artifact holds no address of a host or device. The order of its argument slots is fixed by
//! `octants_ir::ArgLayout`; here only the count is kept.

use serde::{Deserialize, Serialize};

/// The scalar kinds of results and printed values; same order and names as the IR's scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Compiled code of one specialisation of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The user's name of the kernel.
    pub kernel: String,
    /// Target triple, CPU and features the code was made for.
    pub target: String,
    /// A relocatable object file for the host; for a device its own binary or text.
    pub code: Vec<u8>,
    /// Launch argument slots of 8 bytes each.
    pub arg_slots: u32,
    /// Bytes of frame that the tasks of a launch share; slots are 8-byte aligned.
    pub frame_bytes: u64,
    /// Scalars of the result's leaves, one 8-byte slot each.
    pub result: Vec<ScalarKind>,
    /// In launch order.
    pub tasks: Vec<TaskMeta>,
    /// Places that print or assert, named by index in the code.
    pub sites: Vec<Site>,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMeta {
    /// Name for profiles.
    pub name: String,
    /// Symbol of the task's code.
    pub symbol: String,
    /// Symbol of a variant for a launch on one thread (no atomics), where it differs.
    pub single_thread_symbol: Option<String>,
    /// Set for parallel tasks.
    pub parallel: Option<ParallelMeta>,
    /// Index of the `stream_parallel` block.
    pub group: Option<u32>,
    /// Indices of the kernel's buffers it reads.
    pub reads: Vec<u32>,
    /// Indices of the kernel's buffers it writes.
    pub writes: Vec<u32>,
}

/// How a parallel task is cut up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelMeta {
    /// Symbol of the function that computes the number of iterations.
    pub count_symbol: String,
    /// The number of iterations, where it is known at compile time.
    pub count: Option<u64>,
    /// Run in order on one thread.
    pub serialize: bool,
    /// Iterations per chunk (CPU), threads per block (GPU).
    pub block_dim: Option<u32>,
    /// Most threads on the CPU.
    pub num_threads: Option<u32>,
    /// Extent of the fastest axis where known: chunks are best cut at its multiples.
    pub inner_extent: Option<u64>,
    /// Each call pays for private copies of what it scatters to: threads get one chunk each.
    pub chunk_per_thread: bool,
    /// Rough cost of one iteration in nanoseconds, to decide whether threads pay.
    pub cost_per_iteration: f32,
}

/// A place in the user's program that prints or asserts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// What happens there.
    pub kind: SiteKind,
    /// The text, in pieces.
    pub parts: Vec<SitePart>,
    /// `path:line`.
    pub location: String,
}

/// What happens at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    /// The text is written to standard output.
    Print,
    /// The text is the message of an error, reported once.
    Assert,
}

/// A piece of a site's text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

/// Error of [`Artifact::from_bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupted;

impl Artifact {
    /// Serialises.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The types above hold nothing that the format cannot express.
        postcard::to_stdvec(self).expect("compiler bug: artifact cannot be serialised")
    }

    /// Reads back what [`Artifact::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Artifact, Corrupted> {
        postcard::from_bytes(bytes).map_err(|_| Corrupted)
    }
}

/// What host code gets as its first argument. Shared by the CPU code generator and the host driver; `repr(C)`, the code
/// generator addresses the fields by position.
#[repr(C)]
#[derive(Debug)]
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
}

/// Code of a task: runs iterations `begin..end` of the flattened index space (a serial task ignores them).
/// Returns 0, or 1 when an assertion failed in it.
pub type HostTask = unsafe extern "C" fn(*const HostContext, begin: i64, end: i64) -> u32;

/// Number of iterations of a parallel task.
pub type HostCount = unsafe extern "C" fn(*const HostContext) -> i64;
