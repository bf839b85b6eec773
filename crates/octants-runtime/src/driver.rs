//! [`Driver`]: the interface that a back end provides to the runtime.
//!
//! The trait is written for asynchronous devices: every call that touches memory or runs code names a stream, is
//! ordered on it, and may return before the work is done. A driver whose calls return only when the work is done
//! declares this with [`Driver::is_immediate`].

use std::sync::Arc;
use std::time::Duration;

use octants_artifact::{Artifact, CodeTarget};

use crate::conductor::Conductor;
use crate::error::{ErrorKind, Result};
use crate::kernel_meta::KernelMeta;
use crate::pattern::Pattern;
use crate::poll::poll;
use crate::report::{Failures, Printer};
use crate::sections::Section;

/// A device as others of its kind know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The name of what drives it: devices of the same library know one another.
    pub library: &'static str,
    /// The device, in the library's terms.
    pub device: i32,
    /// Its context, in the library's terms.
    pub context: u64,
}

/// An address in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevicePtr(pub u64);

/// A driver's stream. Zero is the device's default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamHandle(pub u64);

/// A driver's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventHandle(pub u64);

/// A driver's loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleHandle(pub u64);

/// One task of a loaded module, ready to launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskHandle(pub u64);

/// A driver's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphHandle(pub u64);

/// A part of a graph.
pub struct GraphPart<'a> {
    /// Places of the parts that it comes after, all before its own.
    pub behind: &'a [usize],
    /// What it does.
    pub work: PartWork<'a>,
}

/// What a part of a graph does.
pub enum PartWork<'a> {
    /// The tasks of a module, which follow one another as the sections say; without sections they are in order.
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
        /// What repeats.
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

/// What new memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeroes.
    Zeroed,
    /// Zeroes that will mostly remain untouched. If the device supports it, only touched pages take memory.
    Sparse,
    /// Uninitialized: the caller writes it before reading.
    Any,
}

/// The thread that launches.
pub trait Caller {
    /// Called before the thread waits or works for long (tens of microseconds), so that it can release what other
    /// threads need. May be called more than once in a launch; never called while the caller could re-enter the
    /// launcher.
    fn will_block(&self);

    /// `path:line` in the program of the call that it serves, where that is known.
    fn call_site(&self) -> Option<String> {
        None
    }

    /// Whether it may ever be interrupted.
    fn can_be_interrupted(&self) -> bool {
        false
    }

    /// True once the user has interrupted the thread: it leaves what it works at or waits for. Asked every now and then
    /// after [`Caller::will_block`], where the caller's own code may run.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Who runs the tasks of a kernel on split arrays.
    fn conductor(&self) -> Option<&dyn Conductor> {
        None
    }
}

/// A caller that others do not wait for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patient;

impl Caller for Patient {
    fn will_block(&self) {}
}

/// What is common to the tasks of one launch. A driver that returns before the work is done takes copies: nothing here
/// may be looked at after [`Driver::launch`] has returned.
pub struct Launch<'a> {
    /// What is launched.
    pub kernel: &'a Arc<KernelMeta>,
    /// Argument slots. They travel by value unless `args_at` says where they are.
    pub args: &'a [u64],
    /// A copy of the argument slots in the device's memory, where they take more bytes than
    /// [`Driver::max_argument_bytes`]: the code then reads them there. Written on the stream, ahead of the tasks.
    pub args_at: Option<DevicePtr>,
    /// The stream's frame, at least as large as the kernel asks for; its contents are unspecified at the start.
    pub frame: DevicePtr,
    /// Result slots, in memory both host and device can reach.
    pub result: DevicePtr,
    /// Address of the stream's `DeviceChannel`; zero where the kernel has nothing to say, and for host code, which
    /// calls back.
    pub channel: DevicePtr,
    /// Number of the kernel among those that write to the channel.
    pub speaker: u64,
    /// Seed of the program's random numbers.
    pub seed: u64,
    /// Number of the launch in the program.
    pub number: u64,
    /// Where a device that decides about loops counts the rounds of each, in the frame: a word for each loop. Null
    /// where no one asks for their number.
    pub rounds: DevicePtr,
    /// Where a device that decides about checkpoints writes at which of them the launch ends.
    pub end: EndWords,
    /// Launched from within a running task: must not wait for other tasks.
    pub nested: bool,
    /// Where assertion failures of the stream go. A driver whose code cannot call back records them here by the time
    /// that a call which waits for the work returns.
    pub failures: &'a Arc<Failures>,
    /// Where printed text goes.
    pub printer: &'a Arc<Printer>,
    /// Who launches.
    pub caller: &'a dyn Caller,
}

/// Two words of 64 bits, for the number, counted from 1, of the checkpoint where a launch ends. The device sets them to
/// zero first, and leaves them so where the launch does not end at one. Null where the kernel has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndWords {
    /// In the frame.
    pub in_frame: DevicePtr,
    /// In memory that the host can reach too.
    pub for_host: DevicePtr,
}

impl EndWords {
    /// No words.
    pub const NONE: EndWords = EndWords { in_frame: DevicePtr(0), for_host: DevicePtr(0) };
}

impl Launch<'_> {
    /// Where the rounds of the loop of this number are counted; zero for nowhere.
    pub fn rounds_at(&self, number: u32) -> u64 {
        if self.rounds.0 == 0 { 0 } else { self.rounds.0 + 8 * u64::from(number) }
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

/// What a direct solver factorizes a matrix into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    /// `L L^T`, for symmetric, positive definite matrices. Reads the lower triangle.
    Llt,
    /// `L D L^T`, for symmetric matrices. Reads the lower triangle.
    Ldlt,
    /// `L U`.
    Lu,
}

/// A matrix by rows, in a device's memory: entries of a row follow one another, by increasing columns. Offsets and
/// column numbers have 32 bits, and count from zero.
#[derive(Debug, Clone, Copy)]
pub struct MatrixRows {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Number of entries.
    pub entries: u64,
    /// Where each row's entries begin and the last one's end.
    pub starts: DevicePtr,
    /// The column of each entry.
    pub column_numbers: DevicePtr,
    /// The value of each entry.
    pub values: DevicePtr,
    /// The type of the values.
    pub real: RealType,
}

/// Calls of a library that was told of a matrix. Memory that is given to them lives until the work is done.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait ProductCalls: Send {
    /// Workspace size of the products, in bytes.
    fn workspace_bytes(&self) -> u64;

    /// Queues `y = A x`.
    unsafe fn multiply(&mut self, stream: StreamHandle, workspace: DevicePtr, x: DevicePtr, y: DevicePtr)
    -> Result<()>;
}

/// Calls of a library that was told of a system's matrix. Memory that is given to them lives until the work is done.
#[allow(clippy::missing_safety_doc)] // As above.
pub trait SolverCalls: Send {
    /// Orders the unknowns and finds where the factors have entries.
    unsafe fn analyze(&mut self, stream: StreamHandle) -> Result<()>;

    /// Computes the factors of a matrix of the same pattern with these values. A sentence says why there are none.
    unsafe fn factorize(&mut self, stream: StreamHandle, values: DevicePtr) -> Result<Option<String>>;

    /// Queues the solution for a right side.
    unsafe fn solve(&mut self, stream: StreamHandle, right: DevicePtr, solution: DevicePtr) -> Result<()>;
}

/// A back end. Handles and addresses given to it come from the same driver and are alive: the safe types of this crate
/// ensure that, which is why calls that take them are `unsafe`.
#[allow(clippy::missing_safety_doc)] // One contract for all, above.
pub trait Driver: Send + Sync + 'static {
    /// Name of the device, for messages.
    fn name(&self) -> &str;

    /// What drives the device: a name, and its version as its maker writes it; `None` where nothing does but this
    /// program.
    fn software(&self) -> Option<(&'static str, i32)> {
        None
    }

    /// Nominal rate of the clock that code reads, in hertz; `None` where it has none or is not known.
    fn clock_hz(&self) -> Option<f64> {
        None
    }

    /// True when every call returns only after its work is done.
    fn is_immediate(&self) -> bool;

    /// What the code that it loads is made for.
    fn code_target(&self) -> CodeTarget {
        CodeTarget::Host
    }

    /// True when the host reads and writes the device's memory by its address, and the device the host's. Otherwise
    /// arrays of the host are staged: copied to memory of the device's own ahead of a launch, and back after it.
    fn is_host_addressable(&self) -> bool {
        true
    }

    /// False where the driver knows that the device cannot use this address: launches with it are refused. Asked only
    /// where the host cannot address the device's memory.
    fn reaches(&self, _address: DevicePtr) -> bool {
        true
    }

    /// The device as DLPack names it: its kind and its number among those of the kind.
    fn dlpack_device(&self) -> (i32, i32) {
        (1, 0)
    }

    /// Name of the attribute by which Python objects show arrays in this device's memory, where there is such a
    /// protocol.
    fn array_protocol(&self) -> Option<&'static str> {
        None
    }

    /// The stream that other libraries use where they name none, by the handle that DLPack has for it.
    fn unnamed_stream(&self) -> Option<StreamHandle> {
        None
    }

    /// Waits for all work of the device, that of other libraries too.
    fn synchronize_device(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes of memory of the device, where known.
    fn memory_bytes(&self) -> Option<u64>;

    /// Most bytes of arguments that travel by value. A kernel with more finds them in memory ([`Launch::args_at`]).
    fn max_argument_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Memory of `bytes` bytes at an address that is a multiple of 64. With a stream it is for work queued there from
    /// now on, and for what events order after that; with `None` it is ready for every stream when the call returns,
    /// without waiting for work queued on any.
    unsafe fn allocate(&self, stream: Option<StreamHandle>, bytes: u64, contents: Contents) -> Result<DevicePtr>;

    /// A new in-order queue. Work on it is ordered with that of other streams by events only. Streams of a higher
    /// priority come first where the device has a choice. Never called on a driver that is immediate.
    fn create_stream(&self, priority: i32) -> Result<StreamHandle>;

    /// Gives a stream back that [`Driver::create_stream`] made; all its work is done.
    unsafe fn destroy_stream(&self, stream: StreamHandle);

    /// Takes over the handle of a stream that someone else made and keeps alive.
    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle>;

    /// A new event, not recorded yet. Only one with `timing` can be asked for the time.
    fn create_event(&self, timing: bool) -> Result<EventHandle>;

    /// Gives an event back; work that waits for it still may.
    unsafe fn destroy_event(&self, event: EventHandle);

    /// Lets the event stand for the work queued on `stream` until now.
    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Makes what is queued on `stream` from now on wait for what the events stand for now; nothing, where not
    /// recorded.
    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()>;

    /// Waits, on this thread, for what the event stands for.
    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()>;

    /// True when all work queued on `stream` is done.
    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool>;

    /// True when what the event stands for is done.
    unsafe fn query_event(&self, event: EventHandle) -> Result<bool>;

    /// Milliseconds from one event to another, both with timing and recorded; waits for both.
    unsafe fn elapsed_ms(&self, earlier: EventHandle, later: EventHandle) -> Result<f64>;

    /// Gives memory back once all work queued on `stream` until now is done.
    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, bytes: u64);

    /// Zeroed memory that both host and device reach, at the same address, and that copies to and from the device need
    /// not be held up by: results, and the staging of host memory.
    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr>;

    /// Gives back what [`Driver::allocate_pinned`] made; no work uses it any more.
    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64);

    /// Queues a copy from host memory, which must stay as it is until the copy is done. From pinned memory the call
    /// returns at once; from other memory it may wait for the stream.
    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()>;

    /// Queues a copy to host memory, which must stay alive until the copy is done. As with [`Driver::copy_to_device`],
    /// only pinned memory keeps the call from waiting.
    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()>;

    /// Queues a copy within the device; the ranges do not overlap.
    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()>;

    /// What other devices of the same kind must know to copy from this one's memory; `None` where they cannot.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// Lets another device of the same library access this one's memory directly, where the devices can.
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

    /// Queues that a range becomes copies of a pattern; its address and its size are multiples of the pattern's. False,
    /// with nothing queued, where the device has no call for it.
    unsafe fn fill(&self, _stream: StreamHandle, _at: DevicePtr, _pattern: Pattern, _bytes: u64) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`Driver::fill`] has a call for every pattern.
    fn fills(&self) -> bool {
        false
    }

    /// Machine code for the device from an artifact's text, so that it can be kept; `None` where text is what is
    /// loaded, or there is none.
    fn assemble(&self, _code: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// How many threads the device runs at once of a loaded task, where there is a limit to their number.
    ///
    /// # Safety
    /// The task's module is loaded.
    unsafe fn threads_at_once(&self, _task: TaskHandle) -> Option<u64> {
        None
    }

    /// Loads code. The second part of the result has a handle for each of the artifact's tasks.
    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)>;

    /// Unloads code once the work queued until now is done.
    unsafe fn unload(&self, module: ModuleHandle);

    /// Queues a task. `launch.args` has the artifact's number of slots.
    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()>;

    /// Queues all tasks of a module as one piece of work, made for this launch and those to come. They follow one
    /// another as `sections` says; without sections they are in order. False, with nothing queued, where the caller has
    /// to launch them one by one.
    unsafe fn launch_as_one(
        &self,
        _stream: StreamHandle,
        _module: ModuleHandle,
        _sections: &[Section],
        _launch: &Launch<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Adds all tasks of a module, as its `sections` say, to the graph that another library makes of the stream's work,
    /// after what that has so far. What comes later on the stream comes after them. The module stays loaded as long
    /// as that graph. False, with nothing added, where the device cannot decide about them.
    unsafe fn launch_into_capture(
        &self,
        _stream: StreamHandle,
        _module: ModuleHandle,
        _sections: &[Section],
        _launch: &Launch<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Makes one piece of work of parts that may be launched repeatedly; `None` where the device has no such
    /// thing, or not for these. Modules stay loaded, and memory stays, until [`Driver::destroy_graph`].
    unsafe fn make_graph(&self, _parts: &[GraphPart<'_>]) -> Result<Option<GraphHandle>> {
        Ok(None)
    }

    /// Queues a graph. Of its launches those at the places `changed` differ from the time before in more than their
    /// number; `launch_of` tells what a launch is. False, with nothing queued, where these launches cannot be the
    /// graph's: it is then to be made again.
    unsafe fn launch_graph<'a>(
        &self,
        _stream: StreamHandle,
        _graph: GraphHandle,
        _changed: &[usize],
        _launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Gives a graph back; what is queued of it still runs.
    unsafe fn destroy_graph(&self, _graph: GraphHandle) {}

    /// Makes a graph ready that another library has described, as it is now.
    unsafe fn ready_foreign_graph(&self, _graph: u64) -> Result<GraphHandle> {
        let message = format!("graphs of other libraries are not supported on {}", self.name());
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Queues such a graph. It does not run beside itself.
    unsafe fn launch_foreign_graph(&self, _stream: StreamHandle, _graph: GraphHandle) -> Result<()> {
        Err(ErrorKind::CompilerBug("a graph of another library on a device that has none".into()).into())
    }

    /// Gives such a graph back; what is queued of it still runs.
    unsafe fn destroy_foreign_graph(&self, _graph: GraphHandle) {}

    /// Why there is no library of the vendor's for this work with sparse matrices: a sentence that says what to
    /// install. `None` where there is one.
    fn missing_sparse_library(&self, _work: SparseWork) -> Option<String> {
        Some(format!("there is no sparse matrix library for {}", self.name()))
    }

    /// Tells the vendor's library of a matrix, for products. The matrix's memory lives as long as the result.
    unsafe fn sparse_product(&self, _matrix: &MatrixRows) -> Result<Box<dyn ProductCalls>> {
        let message = self.missing_sparse_library(SparseWork::Products).unwrap_or_default();
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Tells the vendor's library of the matrix of a system. The matrix's memory lives as long as the result.
    unsafe fn sparse_solver(&self, _matrix: &MatrixRows, _factors: Factors) -> Result<Box<dyn SolverCalls>> {
        let message = self.missing_sparse_library(SparseWork::Solvers).unwrap_or_default();
        Err(ErrorKind::Misuse { message }.into())
    }

    /// True while what is queued on `stream` is captured into a graph instead of being run. Nothing may then wait for
    /// the stream, and memory of the stream's own must not be exchanged.
    unsafe fn is_capturing(&self, _stream: StreamHandle) -> Result<bool> {
        Ok(false)
    }

    /// Waits until all work queued on `stream` is done.
    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()>;

    /// As [`Driver::synchronize`], but for some time only; whether the work is done.
    unsafe fn synchronize_for(&self, stream: StreamHandle, time: Duration) -> Result<bool> {
        // SAFETY: the trait's contract.
        poll(time, || unsafe { self.query_stream(stream) })
    }

    /// Work that is queued or runs can be made to end early.
    fn cancels(&self) -> bool {
        false
    }

    /// What is queued now ends as soon as it can: on `stream`, with what this waits for, or on all streams permanently.
    /// For drivers that cancel.
    unsafe fn cancel(&self, _stream: Option<StreamHandle>) {}

    /// For a driver that is immediate, in a process that a fork has made: its own threads are not here, nor are those
    /// that were calling it.
    ///
    /// # Safety
    /// This is the only thread of the process, and runs no task.
    unsafe fn renew_after_fork(&self) {}

    /// What the driver makes of code may be kept for later processes: the device and the software that it is for.
    /// `None` where nothing is kept.
    fn cache_name(&self) -> Option<String> {
        None
    }

    /// Takes what an earlier process has kept under this name, as [`Driver::cache_contents`] gave it.
    fn load_cache(&self, _contents: &[u8]) {}

    /// What a later process should find; `None` where it would find the same already.
    fn cache_contents(&self) -> Option<Vec<u8>> {
        None
    }

    /// The program has ended: nothing is launched any more, while memory and modules may still be given back. Lets go
    /// of what only launches need.
    fn close(&self);
}
