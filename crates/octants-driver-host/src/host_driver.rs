//! [`HostDriver`]: the CPU behind the runtime's `Driver` trait.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use octants_artifact::{Artifact, HostCount, HostTask};
use octants_runtime::{
    Contents, DeviceError, DevicePtr, Driver, ErrorKind, EventHandle, Launch, ModuleHandle, Peer, Result, StreamHandle,
    TaskHandle,
};

use crate::enter::{Entry, EntryForm};
use crate::linker::Linker;
use crate::memory::{self, HostMemory};
use crate::pool::Pool;
use crate::queues::{Point, Queue, Queues, Work};
use crate::run_task::{Code, Concurrency, Count, LoadedTask};
use crate::separate_memory::SeparateMemory;

/// Settings of the CPU as a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostConfig {
    /// Maximum number of threads that run tasks, including the caller; `None` for as many as the process may use.
    pub max_threads: Option<u32>,
    /// Streams are concurrent queues, and launches are asynchronous. Otherwise every call completes its work before it
    /// returns.
    pub streams: bool,
    /// The seed of a test schedule, which replaces the threads that serve the queues.
    pub schedule: Option<u64>,
    /// For tests: emulates a device with separate memory, so that all data must be copied between host and device.
    /// Implies real streams.
    pub separate_memory: bool,
}

/// The CPU.
pub struct HostDriver {
    pool: Arc<Pool>,
    streams: Option<Streams>,
    separate: Option<SeparateMemory>,
    memory: Arc<HostMemory>,
    memory_bytes: OnceLock<Option<u64>>,
    /// Started by the first load.
    linker: OnceLock<std::result::Result<Arc<Linker>, String>>,
}

/// The state of real streams.
struct Streams {
    queues: Queues,
    default: Arc<Queue>,
}

impl Streams {
    /// # Safety
    /// The handle is that of a stream that lives.
    unsafe fn queue(&self, stream: StreamHandle) -> Arc<Queue> {
        if stream.0 == 0 {
            return self.default.clone();
        }
        // SAFETY: `create_stream` gave the handle out with a reference, which stays where it is.
        let kept = ManuallyDrop::new(unsafe { Arc::from_raw(stream.0 as *const Queue) });
        Arc::clone(&kept)
    }

    /// # Safety
    /// As [`Streams::queue`].
    unsafe fn push(&self, stream: StreamHandle, work: Work) {
        if stream.0 == 0 {
            return self.queues.push(&self.default, work);
        }
        // SAFETY: as above.
        self.queues.push(&unsafe { self.queue(stream) }, work);
    }
}

/// The target of an event handle.
struct Event {
    /// Whether it notes times.
    timing: bool,
    /// The work at its last recording.
    recorded: Mutex<Option<Recorded>>,
}

#[derive(Clone)]
enum Recorded {
    /// The time of recording. Without streams the work was done by then.
    Done(Instant),
    /// A point, and the time at which it was reached if the event notes times.
    Point(Point, Option<Arc<OnceLock<Instant>>>),
}

impl Event {
    /// # Safety
    /// The handle is that of an event that lives.
    unsafe fn of<'a>(handle: EventHandle) -> &'a Event {
        // SAFETY: `create_event` gave the handle out.
        unsafe { &*(handle.0 as *const Event) }
    }

    fn recorded(&self) -> Option<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, recorded: Recorded) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorded);
    }
}

/// Blocks from this size on are checked against the machine's memory.
const LARGE: u64 = 64 << 20;

/// Sparse blocks above this share (1/n) of the machine's memory use small pages, and take memory only for pages that
/// are touched. Smaller blocks use huge pages: faster for cells close together, but an isolated cell zeroes a whole
/// page.
const SPARSE_SHARE: u64 = 32;

/// Linked code and its tasks, which launches name by address.
struct Module {
    tasks: Box<[Arc<LoadedTask>]>,
}

impl HostDriver {
    /// The CPU with the given settings. Neither threads nor the linker are started yet.
    pub fn new(config: HostConfig) -> HostDriver {
        let usable = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let pool = Arc::new(Pool::new(config.max_threads.unwrap_or(usable)));
        let streams = (config.streams || config.separate_memory).then(|| {
            // At least two, so that a long task on one stream leaves room for another even on one processor.
            let queues = Queues::new(pool.clone(), pool.threads().clamp(2, 16), config.schedule);
            Streams { default: queues.queue(0), queues }
        });
        let separate = config.separate_memory.then(SeparateMemory::default);
        let (memory, memory_bytes) = (Arc::default(), OnceLock::new());
        HostDriver { pool, streams, separate, memory, memory_bytes, linker: OnceLock::new() }
    }

    /// Maximum number of threads that run tasks.
    pub fn threads(&self) -> u32 {
        self.pool.threads()
    }

    /// Starts the linker early, in parallel with the first compilation.
    pub fn prepare(&self) {
        self.linker.get_or_init(|| Linker::new().map(Arc::new));
    }

    fn linker(&self) -> std::result::Result<&Arc<Linker>, &String> {
        self.linker.get_or_init(|| Linker::new().map(Arc::new)).as_ref()
    }

    fn link(&self, artifact: &Artifact) -> std::result::Result<Module, String> {
        let linker = self.linker().map_err(String::clone)?;
        let mut symbols = Vec::new();
        for task in &artifact.tasks {
            symbols.push(task.symbol.as_str());
            symbols.push(task.single_thread_symbol.as_deref().unwrap_or(&task.symbol));
            let count = task.parallel.as_ref().and_then(|p| p.count_symbol.as_ref());
            symbols.push(count.unwrap_or(&task.symbol).as_str());
            symbols.extend(copied_regions(task).iter().map(|r| r.merge_symbol.as_str()));
        }
        let linked = linker.link(&artifact.modules, &symbols)?;
        if linked.addresses.contains(&0) {
            linker.unload(linked);
            return Err("a task's symbol has no address".into());
        }
        let addresses = linked.addresses.clone();
        let code = Arc::new(Code::new(linker.clone(), linked));
        let threads = self.pool.threads();
        let mut rest = addresses.as_slice();
        let load = |task: &octants_artifact::TaskMeta| {
            let (at, others) = rest.split_at(3 + copied_regions(task).len());
            rest = others;
            // SAFETY: the artifact's symbols are functions of these types; the addresses are not zero.
            let code_at = |address: u64| unsafe { std::mem::transmute::<usize, HostTask>(address as usize) };
            // SAFETY: as above.
            let count = unsafe { std::mem::transmute::<usize, HostCount>(at[2] as usize) };
            let form = EntryForm { flushes: task.flushes_denormals, polls: task.polls };
            let entry = |address: &u64| Entry::new(code_at(*address), form);
            let (shared, alone) = (entry(&at[0]), entry(&at[1]));
            Arc::new(match &task.parallel {
                None => LoadedTask::serial(code.clone(), alone),
                Some(meta) => {
                    let count = match (meta.count, &meta.count_symbol) {
                        (Some(n), _) => Count::Known(n),
                        (None, Some(_)) => Count::Computed(count),
                        (None, None) => Count::OfSlots(meta.axes.clone()),
                    };
                    let merges = at[3..].iter().map(entry).collect();
                    LoadedTask::parallel(code.clone(), (shared, alone, merges), count, meta, threads)
                }
            })
        };
        let tasks = artifact.tasks.iter().map(load).collect();
        Ok(Module { tasks })
    }

    /// # Safety
    /// The ranges are good until the copy is done; they may overlap.
    unsafe fn copy(&self, stream: StreamHandle, to: u64, from: u64, bytes: u64) {
        let bytes = bytes as usize;
        match &self.streams {
            // SAFETY: the contract above.
            None => unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) },
            // SAFETY: as above.
            Some(s) => unsafe { s.push(stream, Work::Copy { to, from, bytes }) },
        }
    }

    fn out_of_memory(&self, requested: u64) -> DeviceError {
        let device = self.name().to_string();
        ErrorKind::OutOfMemory { device, requested, in_use: 0, free: None, capacity: self.memory_bytes() }.into()
    }
}

impl Driver for HostDriver {
    fn name(&self) -> &str {
        "the CPU"
    }

    fn is_immediate(&self) -> bool {
        self.streams.is_none()
    }

    fn memory_bytes(&self) -> Option<u64> {
        *self.memory_bytes.get_or_init(memory::usable_bytes)
    }

    fn is_host_addressable(&self) -> bool {
        self.separate.is_none()
    }

    fn array_protocol(&self) -> Option<&'static str> {
        self.separate.as_ref().map(|_| "__octants_array_interface__")
    }

    fn reaches(&self, address: DevicePtr) -> bool {
        self.separate.as_ref().is_none_or(|s| s.holds(address.0))
    }

    unsafe fn allocate(&self, _stream: Option<StreamHandle>, bytes: u64, contents: Contents) -> Result<DevicePtr> {
        let most = || self.memory_bytes().unwrap_or(u64::MAX);
        let block = if bytes < LARGE {
            self.memory.allocate(bytes.max(1))
        } else if contents == Contents::Sparse && bytes > most() / SPARSE_SHARE {
            self.memory.allocate_sparse(bytes)
        } else {
            // The system overcommits: it would grant more than exists, and kill the process when it is used.
            (bytes <= most()).then(|| self.memory.allocate(bytes)).flatten()
        };
        let block = block.ok_or_else(|| self.out_of_memory(bytes))?;
        if let Some(separate) = &self.separate {
            separate.add(block, bytes.max(1));
        }
        Ok(DevicePtr(block))
    }

    fn create_stream(&self, priority: i32) -> Result<StreamHandle> {
        let Some(streams) = &self.streams else {
            return Err(ErrorKind::CompilerBug("a stream is made on a device without streams".into()).into());
        };
        Ok(StreamHandle(Arc::into_raw(streams.queues.queue(priority)) as u64))
    }

    unsafe fn destroy_stream(&self, stream: StreamHandle) {
        // SAFETY: made by `create_stream` and given back once.
        drop(unsafe { Arc::from_raw(stream.0 as *const Queue) });
    }

    fn adopt_stream(&self, handle: u64) -> Result<StreamHandle> {
        let message =
            format!("no stream of this program has the handle {handle}: the CPU does not support other streams");
        Err(ErrorKind::Misuse { message }.into())
    }

    fn create_event(&self, timing: bool) -> Result<EventHandle> {
        Ok(EventHandle(Box::into_raw(Box::new(Event { timing, recorded: Mutex::default() })) as u64))
    }

    unsafe fn destroy_event(&self, event: EventHandle) {
        // SAFETY: made by `create_event` and given back once; queued work holds points, not events.
        drop(unsafe { Box::from_raw(event.0 as *mut Event) });
    }

    unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        let event = unsafe { Event::of(event) };
        match &self.streams {
            None => event.record(Recorded::Done(Instant::now())),
            Some(streams) => {
                // SAFETY: the trait's contract.
                let queue = unsafe { streams.queue(stream) };
                let time = event.timing.then(Arc::<OnceLock<Instant>>::default);
                if let Some(time) = &time {
                    streams.queues.push(&queue, Work::Time(time.clone()));
                }
                event.record(Recorded::Point(queue.end(), time));
            }
        }
        Ok(())
    }

    unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        let Some(streams) = &self.streams else { return Ok(()) };
        for &event in events {
            // SAFETY: the trait's contract.
            if let Some(Recorded::Point(point, _)) = unsafe { Event::of(event) }.recorded()
                && !point.is_reached()
            {
                // SAFETY: the trait's contract.
                unsafe { streams.push(stream, Work::Await(point)) }
            }
        }
        Ok(())
    }

    unsafe fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        // SAFETY: the trait's contract.
        if let (Some(streams), Some(Recorded::Point(point, _))) =
            (&self.streams, unsafe { Event::of(event) }.recorded())
        {
            streams.queues.wait_point(&point);
        }
        Ok(())
    }

    unsafe fn query_stream(&self, stream: StreamHandle) -> Result<bool> {
        let Some(streams) = &self.streams else { return Ok(true) };
        // SAFETY: the trait's contract.
        let queue = unsafe { streams.queue(stream) };
        Ok(streams.queues.query(&queue))
    }

    unsafe fn query_event(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the trait's contract.
        Ok(match (&self.streams, unsafe { Event::of(event) }.recorded()) {
            (Some(streams), Some(Recorded::Point(point, _))) => streams.queues.query_point(&point),
            _ => true,
        })
    }

    unsafe fn elapsed_ms(&self, earlier: EventHandle, later: EventHandle) -> Result<f64> {
        let time = |event| -> Result<Instant> {
            // SAFETY: the trait's contract.
            let recorded = unsafe {
                self.synchronize_event(event)?;
                Event::of(event).recorded()
            };
            let at = match recorded {
                Some(Recorded::Done(at)) => Some(at),
                Some(Recorded::Point(_, at)) => at.and_then(|at| at.get().copied()),
                None => None,
            };
            at.ok_or_else(|| ErrorKind::CompilerBug("the time of an event that was not recorded".into()).into())
        };
        let (from, to) = (time(earlier)?, time(later)?);
        let milliseconds = |d: Duration| d.as_secs_f64() * 1e3;
        Ok(if to >= from { milliseconds(to - from) } else { -milliseconds(from - to) })
    }

    unsafe fn free(&self, stream: StreamHandle, memory: DevicePtr, bytes: u64) {
        if let Some(separate) = &self.separate {
            separate.remove(memory.0);
        }
        match &self.streams {
            // SAFETY: the trait's contract.
            None => unsafe { self.memory.free(memory.0, bytes.max(1)) },
            // SAFETY: as above.
            Some(s) => unsafe {
                let of = Arc::clone(&self.memory);
                s.push(stream, Work::Free { address: memory.0, bytes: bytes.max(1), of });
            },
        }
    }

    unsafe fn allocate_pinned(&self, bytes: u64) -> Result<DevicePtr> {
        // SAFETY: no stream is named.
        unsafe { self.allocate(None, bytes, Contents::Zeroed) }
    }

    unsafe fn free_pinned(&self, memory: DevicePtr, bytes: u64) {
        if let Some(separate) = &self.separate {
            separate.remove(memory.0);
        }
        // SAFETY: the trait's contract.
        unsafe { self.memory.free(memory.0, bytes.max(1)) }
    }

    unsafe fn copy_to_device(&self, stream: StreamHandle, to: DevicePtr, from: *const u8, bytes: u64) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.copy(stream, to.0, from as u64, bytes) }
        Ok(())
    }

    unsafe fn copy_to_host(&self, stream: StreamHandle, to: *mut u8, from: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.copy(stream, to as u64, from.0, bytes) }
        Ok(())
    }

    unsafe fn copy_on_device(&self, stream: StreamHandle, to: DevicePtr, from: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.copy(stream, to.0, from.0, bytes) }
        Ok(())
    }

    fn peer(&self) -> Option<Peer> {
        // Points and addresses are those of the process.
        self.streams.as_ref().map(|_| Peer { library: "the CPU", device: 0, context: 0 })
    }

    unsafe fn copy_from_peer(
        &self,
        stream: StreamHandle,
        to: DevicePtr,
        _peer: Peer,
        from: DevicePtr,
        bytes: u64,
    ) -> Result<()> {
        // SAFETY: the trait's contract.
        unsafe { self.copy(stream, to.0, from.0, bytes) }
        Ok(())
    }

    fn load(&self, artifact: &Artifact) -> Result<(ModuleHandle, Vec<TaskHandle>)> {
        let module =
            self.link(artifact).map_err(|message| ErrorKind::Load { kernel: artifact.kernel.clone(), message })?;
        let tasks = module.tasks.iter().map(|t| TaskHandle(Arc::as_ptr(t) as u64)).collect();
        Ok((ModuleHandle(Box::into_raw(Box::new(module)) as u64), tasks))
    }

    unsafe fn unload(&self, module: ModuleHandle) {
        // SAFETY: the handle is `load`'s box, given back once. Queued tasks hold their code.
        drop(unsafe { Box::from_raw(module.0 as *mut Module) });
    }

    #[inline]
    unsafe fn launch(&self, stream: StreamHandle, task: TaskHandle, launch: &Launch<'_>) -> Result<()> {
        let task = task.0 as *const LoadedTask;
        match &self.streams {
            // SAFETY: the handle is the address of a task of a module that the trait's contract keeps loaded.
            None => unsafe { (*task).run(&self.pool, launch, Concurrency::None) },
            // SAFETY: as above.
            Some(_) if launch.nested => unsafe { (*task).run(&self.pool, launch, Concurrency::Streams) },
            // SAFETY: as above; the module holds the task in an `Arc`.
            Some(streams) => unsafe {
                Arc::increment_strong_count(task);
                let task = Arc::from_raw(task);
                match stream.0 {
                    0 => streams.queues.push_task(&streams.default, task, launch),
                    _ => streams.queues.push_task(&streams.queue(stream), task, launch),
                }
                Ok(())
            },
        }
    }

    unsafe fn synchronize(&self, stream: StreamHandle) -> Result<()> {
        if let Some(s) = &self.streams {
            // SAFETY: the trait's contract.
            let queue = unsafe { s.queue(stream) };
            s.queues.wait(&queue);
        }
        Ok(())
    }

    fn cancels(&self) -> bool {
        self.streams.is_some()
    }

    unsafe fn cancel(&self, stream: Option<StreamHandle>) {
        match (&self.streams, stream) {
            // SAFETY: the trait's contract.
            (Some(s), Some(stream)) => s.queues.cancel(&*unsafe { s.queue(stream) }),
            (Some(s), None) => s.queues.cancel_all(),
            (None, _) => {}
        }
    }

    unsafe fn renew_after_fork(&self) {
        // SAFETY: the trait's contract.
        unsafe {
            self.memory.renew_after_fork();
            self.pool.renew_after_fork();
        }
    }

    unsafe fn synchronize_for(&self, stream: StreamHandle, time: Duration) -> Result<bool> {
        let Some(s) = &self.streams else { return Ok(true) };
        // SAFETY: the trait's contract.
        let queue = unsafe { s.queue(stream) };
        Ok(s.queues.wait_for(&queue, time))
    }

    fn close(&self) {
        if let Some(streams) = &self.streams {
            streams.queues.end();
        }
        self.pool.end();
    }
}

/// The layout of a private copy of the memory that a task scatters to.
fn copied_regions(task: &octants_artifact::TaskMeta) -> &[octants_artifact::CopiedRegion] {
    task.parallel.as_ref().and_then(|p| p.scatter.as_ref()).map_or(&[], |s| &s.regions)
}
