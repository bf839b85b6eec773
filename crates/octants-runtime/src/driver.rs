//! [`Driver`]: the interface that a back end provides to the runtime.
//!
//! The trait is written for asynchronous devices: every call that touches memory or runs code names a stream, is
//! ordered on it, and may return before the work is done. A driver whose calls return only when the work is done
//! declares this with [`Driver::is_immediate`].

use std::sync::Arc;
use std::time::Duration;

use octants_artifact::{Artifact, CodeTarget, DeviceContext};

use crate::caller::Caller;
use crate::error::{ErrorKind, Result};
use crate::foreign_api::ForeignApi;
pub use crate::handles::{DevicePtr, EventHandle, GraphHandle, ModuleHandle, StreamHandle, TaskHandle};
use crate::kernel_meta::KernelMeta;
use crate::pattern::Pattern;
use crate::poll::poll;
use crate::report::{Failures, Printer};
use crate::sections::Section;

/// A device, as identified by other devices of the same library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The name of the library: devices of the same library can refer to each other.
    pub library: &'static str,
    /// The device, in the library's terms.
    pub device: i32,
    /// Its context, in the library's terms.
    pub context: u64,
}

/// A part of a graph.
pub struct GraphPart<'a> {
    /// Indices of the parts that it depends on, all smaller than its own.
    pub depends_on: &'a [usize],
    /// Its operation.
    pub work: PartWork<'a>,
}

/// The operation of a part of a graph.
pub enum PartWork<'a> {
    /// The tasks of a module, in the order that the sections define; without sections, in sequence.
    Launch {
        /// The module.
        module: ModuleHandle,
        /// The sections.
        sections: &'a [Section],
        /// The launch.
        launch: Launch<'a>,
    },
    /// As [`Driver::fill`].
    Fill {
        /// The first byte.
        at: DevicePtr,
        /// The repeated pattern.
        pattern: Pattern,
        /// Length in bytes.
        bytes: u64,
    },
    /// As [`Driver::copy_on_device`].
    Copy {
        /// The first byte to write.
        to: DevicePtr,
        /// The first byte to read.
        from: DevicePtr,
        /// Length in bytes.
        bytes: u64,
    },
}

/// The initial contents of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeroes.
    Zeroed,
    /// Zeroes that will mostly remain untouched. If the device supports it, only touched pages take memory.
    Sparse,
    /// Uninitialized: the caller writes it before reading.
    Any,
}

/// The state shared by the tasks of one launch. An asynchronous driver must copy what it needs: nothing here may be
/// accessed after [`Driver::launch`] has returned.
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Arc<KernelMeta>,
    /// Argument slots, passed by value unless `args_at` is set.
    pub args: &'a [u64],
    /// A copy of the argument slots in device memory, which the code reads if the slots exceed
    /// [`Driver::max_argument_bytes`]. Written in stream order, before the tasks.
    pub args_at: Option<DevicePtr>,
    /// The stream's frame, at least as large as the kernel needs; uninitialized. Before it are
    /// [`DeviceContext::BEFORE_FRAME`] bytes that only persistent loops write.
    ///
    /// [`DeviceContext::BEFORE_FRAME`]: octants_artifact::DeviceContext::BEFORE_FRAME
    pub frame: DevicePtr,
    /// Result slots, in memory both host and device can reach.
    pub result: DevicePtr,
    /// Address of the stream's `DeviceChannel`. Zero if the kernel sends no messages, and for host code, which uses
    /// callbacks.
    pub channel: DevicePtr,
    /// Number of the kernel among those that write to the channel.
    pub kernel_id: u64,
    /// Seed of the program's random numbers.
    pub seed: u64,
    /// Number of the launch in the program.
    pub number: u64,
    /// Its index among the steps of a captured graph, for messages about failures.
    pub step: Option<u32>,
    /// Where a device that evaluates loop conditions counts the iterations, in the frame: a word per loop. Null if the
    /// counts are not needed.
    pub rounds: DevicePtr,
    /// The guard of this iteration's tasks; null if they run in any case.
    pub guard: DevicePtr,
    /// Where a device that evaluates checkpoints writes the one at which the launch ends.
    pub end: CheckpointWords,
    /// Whether it was launched from a running task, and so must not wait for other tasks.
    pub nested: bool,
    /// Receives assertion failures of the stream. A driver without callbacks records them here before a call that waits
    /// for the work returns.
    pub failures: &'a Arc<Failures>,
    /// Where printed text goes.
    pub printer: &'a Arc<Printer>,
    /// The launching thread.
    pub caller: &'a dyn Caller,
}

/// Two words of 64 bits, for the number, counted from 1, of the checkpoint where a launch ends. The device sets them to
/// zero first, and leaves them zero if the launch does not end at a checkpoint. Null if the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointWords {
    /// In the frame.
    pub in_frame: DevicePtr,
    /// In memory that the host can reach too.
    pub for_host: DevicePtr,
}

impl CheckpointWords {
    /// No words.
    pub const NONE: CheckpointWords = CheckpointWords { in_frame: DevicePtr(0), for_host: DevicePtr(0) };
}

impl Launch<'_> {
    /// Address of the iteration count of a loop, by number; zero if not counted.
    pub fn rounds_at(&self, number: u32) -> u64 {
        if self.rounds.0 == 0 { 0 } else { self.rounds.0 + 8 * u64::from(number) }
    }

    /// Address of the words of a persistent loop, by number.
    pub fn words_of_loop(&self, number: u32) -> u64 {
        self.frame.0 - DeviceContext::BEFORE_FRAME + DeviceContext::LOOP_BYTES * u64::from(number)
    }
}

/// The type of a matrix's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealType {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

impl RealType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            RealType::F32 => 4,
            RealType::F64 => 8,
        }
    }
}

/// Work with sparse matrices that a library may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseWork {
    /// Products with vectors.
    Products,
    /// Direct solvers.
    Solvers,
}

/// The factorization of a direct solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    /// `L L^T`, for symmetric, positive definite matrices. Reads the lower triangle.
    Llt,
    /// `L D L^T`, for symmetric matrices. Reads the lower triangle.
    Ldlt,
    /// `L U`.
    Lu,
}

/// A matrix in compressed sparse row format in device memory, with the columns of each row in ascending order. Offsets
/// and column indices are 32-bit and zero-based.
#[derive(Debug, Clone, Copy)]
pub struct MatrixRows {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Number of entries.
    pub entries: u64,
    /// Row offsets: the start of each row, and the end of the last one.
    pub starts: DevicePtr,
    /// The column of each entry.
    pub column_numbers: DevicePtr,
    /// The value of each entry.
    pub values: DevicePtr,
    /// The type of the values.
    pub real: RealType,
}

/// Products of a library with a matrix. Memory passed to the calls lives until the work is done.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait ProductCalls: Send {
    /// Workspace size of the products, in bytes.
    fn workspace_bytes(&self) -> u64;

    /// Queues `y = A x`.
    unsafe fn multiply(&mut self, stream: StreamHandle, workspace: DevicePtr, x: DevicePtr, y: DevicePtr)
    -> Result<()>;
}

/// A direct solver of a library for a matrix. Memory passed to the calls lives until the work is done.
#[allow(clippy::missing_safety_doc)] // As above.
pub trait SolverCalls: Send {
    /// Symbolic factorization: orders the unknowns and computes the sparsity pattern of the factors.
    unsafe fn analyze(&mut self, stream: StreamHandle) -> Result<()>;

    /// Numeric factorization of a matrix of the same pattern with these values. On failure, a sentence with the reason.
    unsafe fn factorize(&mut self, stream: StreamHandle, values: DevicePtr) -> Result<Option<String>>;

    /// Queues the solution for a right-hand side.
    unsafe fn solve(&mut self, stream: StreamHandle, right: DevicePtr, solution: DevicePtr) -> Result<()>;
}

/// A back end. Handles and addresses given to it come from the same driver and are alive: the safe types of this crate
/// ensure that, which is why calls that take them are `unsafe`.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait Driver: Send + Sync + 'static {
    /// Name of the device, for messages.
    fn name(&self) -> &str;

    /// The driver software: its name, and its version in the vendor's notation; `None` if there is no such software.
    fn software(&self) -> Option<(&'static str, i32)> {
        None
    }

    /// Nominal frequency in hertz of the clock that code reads, if known.
    fn clock_hz(&self) -> Option<f64> {
        None
    }

    /// Whether all calls are synchronous.
    fn is_immediate(&self) -> bool;

    /// The target of the code that it loads.
    fn code_target(&self) -> CodeTarget {
        CodeTarget::Host
    }

    /// Whether host and device can address each other's memory. Otherwise host arrays are staged: copied to device
    /// memory before a launch, and back after it.
    fn is_host_addressable(&self) -> bool {
        true
    }

    /// False if the device is known to be unable to access this address: launches with it are rejected. Called only if
    /// the host cannot address the device's memory.
    fn reaches(&self, _address: DevicePtr) -> bool {
        true
    }

    /// The device in DLPack's terms: device type and index.
    fn dlpack_device(&self) -> (i32, i32) {
        (1, 0)
    }

    /// Name of the attribute through which Python objects export arrays in this device's memory, if there is such a
    /// protocol.
    fn array_protocol(&self) -> Option<&'static str> {
        None
    }

    /// The default stream of other libraries, by its DLPack handle.
    fn unnamed_stream(&self) -> Option<StreamHandle> {
        None
    }

    /// Another interface to the same physical device, with which the driver shares memory, if there is one.
    fn foreign_api(&self) -> Option<&dyn ForeignApi> {
        None
    }

    /// Waits for all work of the device, including that of other libraries.
    fn synchronize_device(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes of device memory, if known.
    fn memory_bytes(&self) -> Option<u64>;

    /// Maximum size of arguments passed by value, in bytes. Larger ones are passed in memory ([`Launch::args_at`]).
    fn max_argument_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Allocates `bytes` bytes, aligned to 64. With a stream, the memory is for work queued there from now on, and for
    /// work that events order after it. With `None`, it is usable on every stream when the call returns, without
    /// waiting for queued work.
    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, contents: Contents) -> Result<DevicePtr>;

    /// Creates an in-order queue. Only events order its work relative to other streams. The device prefers streams of
    /// higher priority. Never called on an immediate driver.
    fn create_stream(&self, priority: i32) -> Result<StreamHandle>;

    /// Destroys a stream of [`Driver::create_stream`], whose work is done.
    unsafe fn destroy_stream(&self, stream: StreamHandle);

    /// The vendor's handle of a stream. Differs from ours for the default stream only.
    fn native_stream(&self, stream: StreamHandle) -> u64 {
        stream.0
    }

    /// Adopts the handle of a stream that its creator keeps alive.
    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle>;

    /// Creates an event, not recorded yet. Only an event with `timing` records its time.
    fn create_event(&self, timing: bool) -> Result<EventHandle>;

    /// Destroys an event; queued waits for it remain valid.
    unsafe fn destroy_event(&self, event: EventHandle);

    /// Records the event: it represents the work queued on `stream` so far.
    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Makes later work on `stream` wait for the work that the events represent. An unrecorded event has no effect.
    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()>;

    /// Blocks this thread until the work that the event represents is done.
    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()>;

    /// Whether all work queued on `stream` is done.
    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool>;

    /// Whether the work that the event represents is done.
    unsafe fn query_event(&self, event: EventHandle) -> Result<bool>;

    /// Milliseconds from one event to another, both with timing and recorded; waits for both.
    unsafe fn elapsed_ms(&self, earlier: EventHandle, later: EventHandle) -> Result<f64>;

    /// Frees memory once all work queued on `stream` so far is done.
    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, bytes: u64);

    /// Allocates zeroed pinned memory, which host and device access at the same address and which allows asynchronous
    /// copies: for results, and for staging host memory.
    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr>;

    /// Frees memory of [`Driver::allocate_pinned`] that no work uses any more.
    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64);

    /// Queues a copy from host memory, which must not change until the copy is done. Asynchronous from pinned memory;
    /// from other memory the call may wait for the stream.
    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()>;

    /// Queues a copy to host memory, which must stay alive until the copy is done. As with [`Driver::copy_to_device`],
    /// only pinned memory keeps the call from waiting.
    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()>;

    /// Queues a copy within the device; the ranges do not overlap.
    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()>;

    /// The identity of this device for copies by other devices of the same library; `None` if they cannot copy.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// Enables direct access of another device of the same library to this one's memory, if possible.
    fn share_with(&self, _peer: Peer) -> Result<()> {
        Ok(())
    }

    /// Queues a copy from the memory of another device, which the same library drives. Streams of this device may wait
    /// for that one's events, and the other way round.
    unsafe fn copy_from_peer(
        &self,
        _stream: StreamHandle,
        _to: DevicePtr,
        _peer: Peer,
        _from: DevicePtr,
        _bytes: u64,
    ) -> Result<()> {
        Err(ErrorKind::CompilerBug("this driver cannot copy from other devices".into()).into())
    }

    /// Queues a fill of a range with a pattern; address and size are multiples of the pattern's size. Returns false,
    /// with nothing queued, if the device has no call for it.
    unsafe fn fill(&self, _stream: StreamHandle, _at: DevicePtr, _pattern: Pattern, _bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`Driver::fill`] supports every pattern.
    fn fills(&self) -> bool {
        false
    }

    /// Assembles an artifact's text to machine code, so that it can be cached; `None` if the driver loads the text
    /// itself, or there is no text.
    fn assemble(&self, _code: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Maximum number of concurrent threads of a loaded task on the device, if limited.
    ///
    /// # Safety
    /// The task's module is loaded.
    unsafe fn max_resident_threads(&self, _task: TaskHandle) -> Option<u64> {
        None
    }

    /// Loads code. The second part of the result has a handle for each of the artifact's tasks.
    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)>;

    /// Unloads code once the work queued until now is done.
    unsafe fn unload(&self, module: ModuleHandle);

    /// Queues a task. `launch.args` has the artifact's number of slots.
    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()>;

    /// Queues a data-dependent loop, given by its number, as one launch. Returns false, with nothing queued, if the
    /// device cannot, or would take longer than with a launch for each task.
    unsafe fn launch_loop(
        &self,
        _stream: StreamHandle,
        _module: ModuleHandle,
        _number: u32,
        _launch: &Launch<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Queues all tasks of a module as one graph, which later launches reuse. `sections` defines their order; without
    /// sections they run in sequence. Returns false, with nothing queued, if the caller has to launch them one by one.
    unsafe fn launch_as_one(
        &self,
        _stream: StreamHandle,
        _module: ModuleHandle,
        _sections: &[Section],
        _launch: &Launch<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Adds all tasks of a module, in the order of its `sections`, to the graph that another library captures from the
    /// stream, between its earlier and later work. The module stays loaded while that graph exists. Returns false, with
    /// nothing added, if the device cannot evaluate their conditions.
    unsafe fn launch_into_capture(
        &self,
        _stream: StreamHandle,
        _module: ModuleHandle,
        _sections: &[Section],
        _launch: &Launch<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Builds a graph that can be launched repeatedly; `None` if the device does not support graphs, or not of these
    /// parts. Modules stay loaded, and memory stays alive, until [`Driver::destroy_graph`].
    unsafe fn make_graph(&self, _parts: &[GraphPart<'_>]) -> Result<Option<GraphHandle>> {
        Ok(None)
    }

    /// Queues a graph. The launches with the indices `changed` differ from last time in more than their number;
    /// `launch_of` returns a launch. Returns false, with nothing queued, if the graph cannot be updated to these
    /// launches and must be rebuilt.
    unsafe fn launch_graph<'a>(
        &self,
        _stream: StreamHandle,
        _graph: GraphHandle,
        _changed: &[usize],
        _launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Records the stream's later work, of the same thread, instead of queueing it. Returns false, with nothing begun,
    /// if the device cannot. Until [`Driver::end_recording`], only tasks without messages may be queued.
    unsafe fn begin_recording(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(false)
    }

    /// Ends a recording. Returns a graph of the work, which is used like that of [`Driver::ready_foreign_graph`].
    unsafe fn end_recording(&self, _stream: StreamHandle) -> Result<GraphHandle> {
        Err(ErrorKind::CompilerBug("nothing is recorded".into()).into())
    }

    /// Destroys a graph; queued launches of it still run.
    unsafe fn destroy_graph(&self, _graph: GraphHandle) {}

    /// Instantiates the current state of a graph that another library has described.
    unsafe fn ready_foreign_graph(&self, _graph: u64) -> Result<GraphHandle> {
        let message = format!("graphs of other libraries are not supported on {}", self.name());
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Queues such a graph. Launches of the same graph do not overlap.
    unsafe fn launch_foreign_graph(&self, _stream: StreamHandle, _graph: GraphHandle) -> Result<()> {
        Err(ErrorKind::CompilerBug("a graph of another library on a device without graphs".into()).into())
    }

    /// Destroys such a graph; queued launches of it still run.
    unsafe fn destroy_foreign_graph(&self, _graph: GraphHandle) {}

    /// Why there is no vendor library for this sparse work: a sentence that says what to install. `None` if there is
    /// one.
    fn missing_sparse_library(&self, _work: SparseWork) -> Option<String> {
        Some(format!("there is no sparse matrix library for {}", self.name()))
    }

    /// Prepares products with a matrix by the vendor's library. The matrix must outlive the result.
    unsafe fn sparse_product(&self, _matrix: &MatrixRows) -> Result<Box<dyn ProductCalls>> {
        let message = self.missing_sparse_library(SparseWork::Products).unwrap_or_default();
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Prepares a direct solver for a matrix by the vendor's library. The matrix must outlive the result.
    unsafe fn sparse_solver(&self, _matrix: &MatrixRows, _factors: Factors) -> Result<Box<dyn SolverCalls>> {
        let message = self.missing_sparse_library(SparseWork::Solvers).unwrap_or_default();
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Whether work on `stream` is being captured into a graph. Then nothing may wait for the stream, and the stream's
    /// own memory must not be replaced.
    unsafe fn is_capturing(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(false)
    }

    /// Waits until all work queued on `stream` is done.
    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()>;

    /// Like [`Driver::synchronize`], with a timeout; returns whether the work is done.
    unsafe fn synchronize_for(&self, stream: StreamHandle, time: Duration) -> Result<bool> {
        // SAFETY: the trait's contract.
        poll(time, || unsafe { self.query_stream(stream) })
    }

    /// Whether queued and running work can be canceled.
    fn cancels(&self) -> bool {
        false
    }

    /// Cancels all queued work on `stream` and the work it waits for; or on all streams, permanently. For drivers that
    /// support it.
    unsafe fn cancel(&self, _stream: Option<StreamHandle>) {}

    /// For an immediate driver in a forked child process, which has neither its threads nor those that were calling it.
    ///
    /// # Safety
    /// This is the only thread of the process, and runs no task.
    unsafe fn renew_after_fork(&self) {}

    /// The key of the cache of code that the driver has compiled: the device and the software. `None` if nothing is
    /// cached.
    fn cache_name(&self) -> Option<String> {
        None
    }

    /// Loads the cache of an earlier process with the same key, as returned by [`Driver::cache_contents`].
    fn load_cache(&self, _contents: &[u8]) {}

    /// The cache contents for later processes; `None` if unchanged.
    fn cache_contents(&self) -> Option<Vec<u8>> {
        None
    }

    /// Called when the program has ended: no more launches follow, but memory and modules may still be freed. Releases
    /// what only launches need.
    fn close(&self);
}
