//! [`DeviceCore`], [`StreamCore`] and [`BufferCore`]: the state behind devices, streams and buffers.
//!
//! The three refer to each other: a stream and a buffer keep their device alive, the device lists its streams and
//! buffers, and a buffer lists the streams that use it. Their types are therefore in one module, below the modules of
//! their operations: `device`, `stream`, `buffer`, `track_uses`, `free_after`, `adopted`, `drain_log`, `measure`.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use crate::caller::Caller;
use crate::driver::{DevicePtr, Driver, EventHandle, ModuleHandle, StreamHandle};
use crate::error::{DeviceError, ErrorKind, Result};
use crate::profile::Profile;
use crate::races::Races;
use crate::renewable::Renewable;
use crate::report::{Failures, Printer, TextSink, lock};
use crate::scratch::Scratch;
use crate::transfer::Transfers;
use crate::worker_pool::WorkerPool;

/// The part of a device that its streams, buffers and kernels keep alive.
pub(crate) struct DeviceCore {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) immediate: bool,
    /// Whether the host can address the device's memory.
    pub(crate) host_addressable: bool,
    pub(crate) seed: AtomicU64,
    pub(crate) printer: Arc<Printer>,
    /// Number of launches so far. Numbers follow the order of submission, so they do not depend on the schedule.
    pub(crate) launches: AtomicU64,
    /// Bytes allocated by buffers.
    pub(crate) in_use: AtomicU64,
    /// Whether the program has ended and whether launches are measured, in one word that a launch reads once.
    mode: AtomicU8,
    /// Whether code that assumes the order of launches was launched.
    pub(crate) assumed_order: AtomicBool,
    /// There are, or were, streams besides the default one.
    pub(crate) has_streams: AtomicBool,
    pub(crate) updates: Mutex<Updates>,
    /// Whether this is a forked child process, without the driver's threads and connections.
    abandoned: AtomicBool,
    pub(crate) buffers: Renewable<HashMap<u64, Weak<BufferCore>>>,
    next_buffer: AtomicU64,
    /// The buffers by address, if launches are asynchronous.
    pub(crate) by_address: RwLock<BTreeMap<u64, Weak<BufferCore>>>,
    streams: Renewable<Vec<Weak<StreamCore>>>,
    /// Adopted streams, kept until the program ends or they are forgotten.
    pub(crate) adopted: Mutex<Vec<Arc<StreamCore>>>,
    next_stream: AtomicU32,
    /// Number of destroyed streams whose work is done.
    pub(crate) ended_streams: AtomicU64,
    pub(crate) workers: WorkerPool,
    /// Launches of the default stream that run on other streams, if any: see `concurrency`.
    pub(crate) launches_elsewhere: OnceLock<Arc<dyn LaunchesElsewhere>>,
    pub(crate) profile: Profile,
    pub(crate) races: Races,
    /// The device as users name it, if they do.
    pub(crate) label: OnceLock<String>,
    /// Whether some buffer was retired, so that graphs check theirs.
    pub(crate) has_retired: AtomicBool,
    /// Detects unordered launches, if enabled.
    pub(crate) watch: OnceLock<Arc<dyn OrderWatch>>,
    pub(crate) transfers: Transfers,
    /// Represents the last work that the device did in place of the host.
    pub(crate) host_work: Mutex<Option<EventHandle>>,
    /// Code that only graphs captured by others still use.
    pub(crate) in_graphs: Mutex<Vec<ModuleHandle>>,
    pub(crate) reclaim: Mutex<Option<Reclaim>>,
    /// Unreported failures of dropped streams.
    pub(crate) orphans: Failures,
    /// Whether the user has interrupted a wait for work that nothing has waited for since.
    pub(crate) wait_was_abandoned: AtomicBool,
    /// Whether the end of the program waits only briefly for its work.
    pub(crate) is_given_up: AtomicBool,
    /// Dropped streams whose work is not done.
    pub(crate) unnamed: Mutex<Vec<Arc<StreamCore>>>,
}

/// Launches of the default stream that are deferred, or run on other streams. All other operations of the default
/// stream run after them.
pub(crate) trait LaunchesElsewhere: Send + Sync {
    /// Submits deferred launches.
    fn cut(&self, caller: &dyn Caller);

    /// Like [`LaunchesElsewhere::cut`], and releases memory kept for later launches.
    fn give_up(&self, caller: &dyn Caller);

    /// Orders the default stream, which has its turn, after all of them.
    fn settle(&self, home: &StreamCore);

    /// Releases everything; all work is done.
    fn end(&self, driver: &dyn Driver);
}

/// Receives the events that order the work of streams, and work other than launches.
pub(crate) trait OrderWatch: Send + Sync {
    /// An event was recorded on a stream.
    fn record(&self, stream: &StreamCore, event: EventHandle);

    /// A stream waits for an event.
    fn wait(&self, stream: &StreamCore, event: EventHandle);

    /// Another device's stream waits for an event of this device.
    fn wait_elsewhere(&self, stream: &StreamCore, event: EventHandle);

    /// The device's number among those that are watched together.
    fn number(&self) -> u32;

    /// The host has waited for an event.
    fn host_waited_for_event(&self, event: EventHandle);

    /// The host has waited for a stream.
    fn host_waited(&self, stream: u32);

    /// Must be called before work that reads or writes half-open address ranges. Returns an error if it races with
    /// other work.
    fn check_ranges(
        &self,
        stream: &StreamCore,
        what: &'static str,
        ranges: &[(u64, u64, bool)],
        caller: &dyn Caller,
    ) -> Result<()>;
}

/// The state of its device that a launch needs.
#[derive(Clone, Copy)]
pub(crate) struct Mode(u8);

impl Mode {
    const CLOSED: u8 = 1;
    const MEASURED: u8 = 2;
    const CONCURRENT: u8 = 4;
    const UNORDERED: u8 = 8;

    /// The program has ended.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & Mode::CLOSED != 0
    }

    /// The profiler is on.
    #[inline]
    pub(crate) fn is_measured(self) -> bool {
        self.0 & Mode::MEASURED != 0
    }

    /// Launches may run concurrently: the program has streams besides the default one, or infers concurrency.
    #[inline]
    pub(crate) fn is_unordered(self) -> bool {
        self.0 & Mode::UNORDERED != 0
    }

    /// Whether launches on the default stream run concurrently if possible, unless their thread disables it.
    #[inline]
    pub(crate) fn is_concurrent(self) -> bool {
        self.0 & Mode::CONCURRENT != 0
    }
}

/// A stream that only frees memory, each block after its last use on other streams.
pub(crate) struct Reclaim {
    pub(crate) stream: StreamHandle,
    pub(crate) event: EventHandle,
}

/// The shared state of a stream's handles.
pub(crate) struct StreamCore {
    pub(crate) device: Arc<DeviceCore>,
    pub(crate) handle: StreamHandle,
    /// Zero for the default stream.
    pub(crate) number: u32,
    /// Whether this program created the stream.
    pub(crate) owned: bool,
    /// For an adopted stream: represents the last work that this program has queued there.
    pub(crate) last: Option<EventHandle>,
    /// Whether another library has captured work of this program on it.
    pub(crate) was_captured: AtomicBool,
    pub(crate) failures: Arc<Failures>,
    /// Address of the stream's channel, from the first launch that may send messages. Never changes afterwards.
    pub(crate) channel_at: AtomicU64,
    /// Number of launches that are being queued without a turn among the device's updates.
    pub(crate) queueing: AtomicU32,
    /// Locked during a launch, which orders the launches of several threads.
    pub(crate) scratch: Renewable<Scratch>,
}

/// Set in `BufferCore::state` once the program has ended; the rest counts pins.
pub(crate) const CLOSED: u64 = 1 << 63;

/// The shared state of a buffer's handles.
pub(crate) struct BufferCore {
    pub(crate) device: Arc<DeviceCore>,
    pub(crate) id: u64,
    pub(crate) ptr: DevicePtr,
    pub(crate) bytes: u64,
    /// [`CLOSED`] once the program has ended; the rest counts pins.
    pub(crate) state: AtomicU64,
    /// Set by the thread that frees the memory.
    pub(crate) freed: AtomicBool,
    /// Other libraries may use the memory.
    pub(crate) shared: AtomicBool,
    /// Set when the memory may no longer be used, although the program goes on.
    pub(crate) retired: AtomicBool,
    pub(crate) uses: Mutex<Uses>,
}

/// The users of a buffer's memory.
#[derive(Default)]
pub(crate) struct Uses {
    /// Streams that may have work queued.
    pub(crate) streams: Vec<Use>,
    pub(crate) writes: Writes,
    /// Launches that had to wait for the updates of another stream.
    pub(crate) waits: u32,
}

/// The write count of memory, if all writes are tracked. Writes are: launches, no matter how their tasks are queued
/// (one by one, as one graph, measured, in groups on worker streams, inside another launch); stream operations in place
/// of a kernel (fills, copies, uploads and writes), before the stream's turn ends; and host writes
/// ([`crate::Buffer::write`]).
#[derive(Clone, Copy)]
pub(crate) enum Writes {
    /// The number of writes.
    Seen(u64),
    /// Writes may go unnoticed: others have the address, or work that writes there may have been captured into a graph,
    /// which its owner may launch at any time.
    Unseen,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes::Seen(0)
    }
}

impl Writes {
    pub(crate) fn add(&mut self) {
        if let Writes::Seen(count) = self {
            *count += 1;
        }
    }
}

/// How work updates memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Update {
    /// Not at all, or it is done.
    #[default]
    None,
    /// With atomics, as far as is known.
    Atomic,
    /// Without them.
    Plain,
}

/// The streams for which a launch must wait.
pub(crate) type Awaited = Vec<Arc<StreamCore>>;

/// What the launches of a device share that update memory.
#[derive(Default)]
pub(crate) struct Updates {
    /// The users of memory that is not this program's, all of it together.
    pub(crate) foreign: Vec<Use>,
    /// Launches that had to wait for the updates of another one.
    pub(crate) waits: u32,
}

/// A stream that received the address, and whether its work writes.
pub(crate) struct Use {
    pub(crate) stream: Weak<StreamCore>,
    pub(crate) writes: bool,
    /// How launches on it update the memory, unless they are known to be done or waited for.
    pub(crate) update: Update,
}

impl Use {
    pub(crate) fn of(stream: &Arc<StreamCore>, writes: bool) -> Use {
        Use { stream: Arc::downgrade(stream), writes, update: Update::None }
    }

    /// It is this stream's.
    pub(crate) fn is_of(&self, stream: &Arc<StreamCore>) -> bool {
        std::ptr::eq(self.stream.as_ptr(), Arc::as_ptr(stream))
    }
}

impl DeviceCore {
    pub(crate) fn new(driver: Box<dyn Driver>, seed: u64, sink: TextSink) -> DeviceCore {
        DeviceCore {
            immediate: driver.is_immediate(),
            host_addressable: driver.is_host_addressable(),
            seed: AtomicU64::new(seed),
            printer: Arc::new(Printer::new(sink)),
            launches: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            mode: AtomicU8::new(0),
            profile: Profile::default(),
            races: Races::default(),
            label: OnceLock::new(),
            has_retired: AtomicBool::new(false),
            watch: OnceLock::new(),
            abandoned: AtomicBool::new(false),
            buffers: Renewable::default(),
            next_buffer: AtomicU64::new(0),
            by_address: RwLock::default(),
            streams: Renewable::default(),
            adopted: Mutex::default(),
            next_stream: AtomicU32::new(0),
            ended_streams: AtomicU64::new(0),
            workers: WorkerPool::default(),
            launches_elsewhere: OnceLock::new(),
            assumed_order: AtomicBool::new(false),
            has_streams: AtomicBool::new(false),
            updates: Mutex::default(),
            transfers: Transfers::default(),
            host_work: Mutex::default(),
            in_graphs: Mutex::default(),
            reclaim: Mutex::default(),
            orphans: Failures::default(),
            wait_was_abandoned: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            unnamed: Mutex::default(),
            driver,
        }
    }

    /// The program has ended.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.mode().is_closed()
    }

    /// The device as users name it.
    pub(crate) fn label(&self) -> &str {
        self.label.get().map_or_else(|| self.driver.name(), String::as_str)
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        Mode(self.mode.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.mode().is_measured()
    }

    pub(crate) fn set_closed(&self) {
        self.mode.fetch_or(Mode::CLOSED, Ordering::Release);
    }

    pub(crate) fn set_measured(&self, measured: bool) {
        if measured {
            self.mode.fetch_or(Mode::MEASURED, Ordering::Release);
        } else {
            self.mode.fetch_and(!Mode::MEASURED, Ordering::Release);
        }
    }

    pub(crate) fn set_unordered(&self) {
        self.mode.fetch_or(Mode::UNORDERED, Ordering::Release);
    }

    pub(crate) fn set_concurrent(&self) {
        self.mode.fetch_or(Mode::CONCURRENT, Ordering::Release);
    }

    /// Submits the deferred launches of the default stream, because an operation must come after them.
    #[inline]
    pub(crate) fn submit_held(&self, caller: &dyn Caller) {
        if let Some(launches) = self.launches_elsewhere.get() {
            launches.cut(caller);
        }
    }

    /// Whether the driver must not be called any more, not even to free something.
    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self, what: &'static str) -> Result<()> {
        if self.is_closed() { Err(ErrorKind::ProgramGone { what }.into()) } else { Ok(()) }
    }

    /// Adds the state of this program to the driver's out-of-memory error.
    pub(crate) fn explain(&self, error: DeviceError) -> DeviceError {
        match error.kind() {
            ErrorKind::OutOfMemory { device, requested, free, capacity, .. } => ErrorKind::OutOfMemory {
                device: device.clone(),
                requested: *requested,
                in_use: self.in_use.load(Ordering::Relaxed),
                free: *free,
                capacity: *capacity,
            }
            .into(),
            _ => error,
        }
    }

    /// Stops all calls of the driver: this is a forked child process, or the device runs work that does not end.
    pub(crate) fn abandon(&self) {
        self.set_closed();
        self.abandoned.store(true, Ordering::Release);
    }

    /// Recreates the locks of the buffer and stream lists that threads of the parent process held.
    ///
    /// # Safety
    /// As [`Renewable::renew_if_held`].
    pub(crate) unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe {
            self.buffers.renew_if_held();
            self.streams.renew_if_held();
            self.printer.renew_after_fork();
            self.profile.renew_after_fork();
        }
    }

    pub(crate) fn new_stream_number(&self) -> u32 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn register_stream(&self, stream: &Arc<StreamCore>) {
        let mut streams = lock(&self.streams);
        streams.retain(|s| s.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// The number of a launch. The caller holds the turn of the launch's stream, unless the launch is nested.
    #[inline]
    pub(crate) fn next_launch_number(&self, nested: bool) -> u64 {
        if self.immediate && !nested {
            // An immediate device has one stream. An atomic addition would cost some nanoseconds.
            let number = self.launches.load(Ordering::Relaxed);
            self.launches.store(number + 1, Ordering::Relaxed);
            return number;
        }
        self.launches.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn live_streams(&self) -> Vec<Arc<StreamCore>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn new_buffer_id(&self) -> u64 {
        self.next_buffer.fetch_add(1, Ordering::Relaxed)
    }

    /// Unloads code when the program ends: graphs may run it until then.
    pub(crate) fn unload_at_end(&self, module: ModuleHandle) {
        let mut in_graphs = lock(&self.in_graphs);
        if !self.is_closed() {
            return in_graphs.push(module);
        }
        drop(in_graphs);
        // SAFETY: the caller has it from this driver, and releases it.
        unsafe { self.driver.unload(module) }
    }
}
