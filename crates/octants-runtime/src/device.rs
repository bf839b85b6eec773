//! [`Device`]: a driver, its default stream, and what the two share with every object made from them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use octants_artifact::{Artifact, CodeTarget};

use crate::assemble::assemble;
use crate::buffer::{Buffer, BufferCore, Version};
use crate::driver::{Caller, Contents, DevicePtr, Driver, EventHandle, ModuleHandle, Patient, StreamHandle};
use crate::error::{DeviceError, ErrorKind, Result};
use crate::event::Event;
use crate::fork::{PoolStats, WorkerPool};
use crate::host_work::Mark;
use crate::kernel::{KernelMeta, LoadedKernel, sections};
use crate::nesting;
use crate::profile::Profile;
use crate::renewable::Renewable;
use crate::report::{Failures, Printer, TextSink, lock};
use crate::stage_arguments::HostArray;
use crate::stream::{Stream, StreamCore};
use crate::transfer::Transfers;

/// Settings of a program that the launcher needs.
#[derive(Clone)]
pub struct DeviceConfig {
    /// Seed of the program's random numbers.
    pub seed: u64,
    /// Where printed text goes.
    pub sink: TextSink,
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// What streams, buffers and kernels hold of their device.
pub(crate) struct DeviceCore {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) immediate: bool,
    /// The host reads and writes the device's memory by address.
    pub(crate) host_addressable: bool,
    pub(crate) seed: AtomicU64,
    pub(crate) printer: Arc<Printer>,
    /// Launches so far; numbers are given in the order of submission, so that they do not depend on the schedule.
    pub(crate) launches: AtomicU64,
    /// Bytes that buffers hold.
    pub(crate) in_use: AtomicU64,
    /// Whether the program has ended and whether launches are measured, in one place: a launch looks there once.
    mode: AtomicU8,
    /// The process is a copy of the device's own, without the threads and the connections of the driver.
    abandoned: AtomicBool,
    buffers: Renewable<HashMap<u64, Weak<BufferCore>>>,
    next_buffer: AtomicU64,
    /// The buffers by address, kept where launches return before their work is done.
    by_address: RwLock<BTreeMap<u64, Weak<BufferCore>>>,
    streams: Renewable<Vec<Weak<StreamCore>>>,
    /// Streams of others, kept until the program ends or they are forgotten.
    pub(crate) adopted: Mutex<Vec<Arc<StreamCore>>>,
    next_stream: AtomicU32,
    /// Streams that are gone, and whose work is done.
    pub(crate) ended_streams: AtomicU64,
    pub(crate) workers: WorkerPool,
    pub(crate) profile: Profile,
    pub(crate) transfers: Transfers,
    pub(crate) host_work: Mutex<Option<Mark>>,
    /// Code that is used no more, but for graphs that others have made of its launches.
    in_graphs: Mutex<Vec<ModuleHandle>>,
    reclaim: Mutex<Option<Reclaim>>,
    /// Failures of streams that were dropped before anyone asked.
    pub(crate) orphans: Failures,
}

/// What a launch must know of its device.
#[derive(Clone, Copy)]
pub(crate) struct Mode(u8);

impl Mode {
    const CLOSED: u8 = 1;
    const MEASURED: u8 = 2;

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
}

/// A stream on which nothing happens but frees, each behind the last use of its memory on other streams.
struct Reclaim {
    stream: StreamHandle,
    event: EventHandle,
}

impl DeviceCore {
    /// Unloads code when the program ends: graphs may run it until then.
    pub(crate) fn unload_at_end(&self, module: ModuleHandle) {
        let mut in_graphs = lock(&self.in_graphs);
        if !self.is_closed() {
            return in_graphs.push(module);
        }
        drop(in_graphs);
        // SAFETY: the caller has it from this driver, and lets go of it.
        unsafe { self.driver.unload(module) }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.mode().is_closed()
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        Mode(self.mode.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.mode().is_measured()
    }

    fn set_closed(&self) {
        self.mode.fetch_or(Mode::CLOSED, Ordering::Release);
    }

    pub(crate) fn set_measured(&self, measured: bool) {
        if measured {
            self.mode.fetch_or(Mode::MEASURED, Ordering::Release);
        } else {
            self.mode.fetch_and(!Mode::MEASURED, Ordering::Release);
        }
    }

    /// True when the driver must not be called any more, not even to give something back.
    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self, what: &'static str) -> Result<()> {
        if self.is_closed() { Err(ErrorKind::ProgramGone { what }.into()) } else { Ok(()) }
    }

    /// Adds what the driver cannot know to its out-of-memory error.
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

    /// The buffer that holds this address.
    fn buffer_at(&self, address: u64) -> Option<Arc<BufferCore>> {
        // The lock is given back before the buffer is: what is found may be a neighbour that another thread has just dropped, and
        // the last reference takes the lock to leave the map.
        let buffer = {
            let map = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
            map.range(..=address).next_back().and_then(|(_, b)| b.upgrade())
        };
        buffer.filter(|b| address - b.address() < b.len())
    }

    /// Refuses a launch with an address that the driver knows not to be the device's: a mistake of whoever filled the slots.
    pub(crate) fn check_addresses(&self, kernel: &LoadedKernel, args: &[u64]) -> Result<()> {
        for p in &kernel.pointers {
            let address = args[p.slot as usize];
            if address != 0 && !self.driver.reaches(DevicePtr(address)) {
                let (name, slot, device) = (&kernel.meta.name, p.slot, self.driver.name());
                let what = format!("kernel `{name}`, argument slot {slot}: {address:#x} is no address of {device}");
                return Err(ErrorKind::CompilerBug(what).into());
            }
        }
        Ok(())
    }

    pub(crate) fn register(&self, buffer: &Arc<BufferCore>) {
        lock(&self.buffers).insert(buffer.id, Arc::downgrade(buffer));
        if !self.immediate && buffer.len() > 0 {
            let mut map = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
            map.insert(buffer.address(), Arc::downgrade(buffer));
        }
    }

    pub(crate) fn forget(&self, buffer: &BufferCore) {
        lock(&self.buffers).remove(&buffer.id);
        if !self.immediate && buffer.len() > 0 {
            self.by_address.write().unwrap_or_else(PoisonError::into_inner).remove(&buffer.address());
        }
    }

    /// Notes that a launch on `stream` uses the memory its arguments name, that of `arrays` aside. True when some of it is the host's
    /// and not among them: the launch must then wait for its work, since nothing else knows who uses that memory. A device that
    /// cannot use the host's memory was given someone else's memory of its own, whose owner orders its uses.
    pub(crate) fn note_uses(
        &self,
        stream: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
    ) -> bool {
        let mut foreign = false;
        for p in &kernel.pointers {
            let address = args[p.slot as usize];
            if address == 0 || arrays.iter().any(|a| a.slot == p.slot) {
                continue;
            }
            match self.buffer_at(address) {
                Some(buffer) => {
                    buffer.note_use(stream, p.written);
                    if kernel.tells_addresses {
                        buffer.expose();
                    }
                }
                None => foreign = true,
            }
        }
        foreign && self.driver.is_host_addressable()
    }

    /// The contents of the buffer at an address, for work that is queued on `stream` from now on: see [`BufferCore::version`]. `None`
    /// where there is no buffer of this device, or where nobody tells when it is written to: because launches do not, or because the
    /// host does so by address.
    pub(crate) fn version_at(&self, stream: &Arc<StreamCore>, address: u64) -> Option<Version> {
        if self.immediate || self.host_addressable {
            return None;
        }
        self.buffer_at(address)?.version(stream)
    }

    /// Gives memory back once these streams have done what is queued on them.
    ///
    /// # Safety
    /// The memory came from `allocate` with this size and is given back once.
    pub(crate) unsafe fn free_behind(&self, users: &[Arc<StreamCore>], memory: DevicePtr, bytes: u64) {
        if self.immediate || users.is_empty() {
            // SAFETY: the contract above; no queued work uses the memory.
            return unsafe { self.driver.free(StreamHandle(0), memory, bytes) };
        }
        // SAFETY: the users' streams are alive while their cores are; the memory by the contract.
        if unsafe { self.free_on_reclaim(users, memory, bytes) }.is_err() {
            for user in users {
                // Without events, and while the program ends, the host waits; an error leaves nothing that could use the memory.
                let _ = user.wait_for_own_work(&Patient);
            }
            // SAFETY: as above.
            unsafe { self.driver.free(StreamHandle(0), memory, bytes) }
        }
    }

    /// # Safety
    /// As [`DeviceCore::free_behind`]. After an error the memory is as it was.
    unsafe fn free_on_reclaim(&self, users: &[Arc<StreamCore>], memory: DevicePtr, bytes: u64) -> Result<()> {
        let mut reclaim = lock(&self.reclaim);
        // Asked under the lock, which the program's end takes: the stream goes with it.
        self.check_open("device")?;
        let (stream, event) = match &*reclaim {
            Some(r) => (r.stream, r.event),
            None => {
                let stream = self.driver.create_stream(0)?;
                // SAFETY: made above and not used.
                let destroy = |_: &DeviceError| unsafe { self.driver.destroy_stream(stream) };
                let event = self.driver.create_event(false).inspect_err(destroy)?;
                *reclaim = Some(Reclaim { stream, event });
                (stream, event)
            }
        };
        // SAFETY: the users' streams are alive while their cores are; the memory by the contract.
        unsafe {
            for user in users {
                user.order_before(stream, event)?;
            }
            self.driver.free(stream, memory, bytes);
        }
        Ok(())
    }

    pub(crate) fn new_stream_number(&self) -> u32 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn register_stream(&self, stream: &Arc<StreamCore>) {
        let mut streams = lock(&self.streams);
        streams.retain(|s| s.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    pub(crate) fn live_streams(&self) -> Vec<Arc<StreamCore>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn new_buffer_id(&self) -> u64 {
        self.next_buffer.fetch_add(1, Ordering::Relaxed)
    }
}

struct Inner {
    core: Arc<DeviceCore>,
    default: Stream,
}

/// A device and the program that uses it. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl Device {
    /// Takes over a driver.
    pub fn new(driver: impl Driver, config: DeviceConfig) -> Device {
        Device::over(Box::new(driver), config)
    }

    /// Takes over a driver of a kind that the caller does not know.
    pub fn over(driver: Box<dyn Driver>, config: DeviceConfig) -> Device {
        let core = Arc::new(DeviceCore {
            immediate: driver.is_immediate(),
            host_addressable: driver.is_host_addressable(),
            driver,
            seed: AtomicU64::new(config.seed),
            printer: Arc::new(Printer::new(config.sink)),
            launches: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            mode: AtomicU8::new(0),
            profile: Profile::default(),
            abandoned: AtomicBool::new(false),
            buffers: Renewable::default(),
            next_buffer: AtomicU64::new(0),
            by_address: RwLock::default(),
            streams: Renewable::default(),
            adopted: Mutex::default(),
            next_stream: AtomicU32::new(0),
            ended_streams: AtomicU64::new(0),
            workers: WorkerPool::default(),
            transfers: Transfers::default(),
            host_work: Mutex::default(),
            in_graphs: Mutex::default(),
            reclaim: Mutex::default(),
            orphans: Failures::default(),
        });
        let default = Stream::over(core.clone(), StreamHandle(0), false);
        Device(Arc::new(Inner { core, default }))
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.0.core
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        self.0.core.driver.name()
    }

    /// What drives the device, and its version as its maker writes it.
    pub fn software(&self) -> Option<(&'static str, i32)> {
        self.0.core.driver.software()
    }

    /// The stream that launches use unless told otherwise.
    pub fn default_stream(&self) -> &Stream {
        &self.0.default
    }

    /// A new stream; on a device that does everything at once, the default stream under another name.
    pub fn create_stream(&self, priority: i32) -> Result<Stream> {
        let core = &self.0.core;
        core.check_open("device")?;
        if core.immediate {
            return Ok(self.0.default.clone());
        }
        let stream = Stream::over(core.clone(), core.driver.create_stream(priority)?, true);
        core.begin_behind_host_work(stream.core().handle)?;
        Ok(stream)
    }

    /// The stream with this handle: the default stream for zero, one of this device's own, or one made by someone else, who
    /// also destroys it.
    pub fn stream_from_handle(&self, handle: u64) -> Result<Stream> {
        let core = &self.0.core;
        core.check_open("device")?;
        if core.immediate || handle == 0 {
            return Ok(self.0.default.clone());
        }
        match core.live_streams().into_iter().find(|s| s.handle.0 == handle) {
            Some(known) => known.name_again().map(|()| Stream::of(known)),
            None => core.adopt(handle),
        }
    }

    /// A new event; only one with `timing` can tell the time between two.
    pub fn create_event(&self, timing: bool) -> Result<Event> {
        Event::new(&self.0.core, timing)
    }

    /// True when every call returns after its work is done, so that streams make no difference.
    pub fn is_immediate(&self) -> bool {
        self.0.core.immediate
    }

    /// True when the host reads and writes the device's memory by its address; otherwise by [`Buffer::read`] and
    /// [`Buffer::write`].
    pub fn is_host_addressable(&self) -> bool {
        self.0.core.host_addressable
    }

    /// The device as DLPack names it: its kind and its number.
    pub fn dlpack_device(&self) -> (i32, i32) {
        self.0.core.driver.dlpack_device()
    }

    /// Name of the attribute by which Python objects show arrays in the device's memory, if there is such a protocol.
    pub fn array_protocol(&self) -> Option<&'static str> {
        self.0.core.driver.array_protocol()
    }

    /// Counts of the pool of worker streams.
    pub fn stream_pool_stats(&self) -> PoolStats {
        self.0.core.workers.stats()
    }

    /// Destroys the idle streams of the pool.
    pub fn trim_stream_pool(&self) {
        self.0.core.workers.trim(&*self.0.core.driver);
    }

    /// Memory of `bytes` bytes, zeroed. No bytes are fine.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes, Contents::Zeroed)
    }

    /// Memory with anything in it.
    pub fn allocate_unset(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes, Contents::Any)
    }

    /// The artifact with machine code in the place of text, where the device has an assembler to call, made on up to `threads` threads.
    pub fn assemble(&self, artifact: &Artifact, threads: usize) -> Option<Artifact> {
        assemble(&*self.0.core.driver, artifact, threads)
    }

    /// Loads compiled code.
    pub fn load(&self, artifact: &Artifact) -> Result<LoadedKernel> {
        let core = &self.0.core;
        core.check_open("device")?;
        let (module, tasks) = core.driver.load(artifact)?;
        let (own_frame, args) = (artifact.frame_bytes.next_multiple_of(8), 8 * u64::from(artifact.arg_slots));
        let spilled_at = (args > core.driver.max_argument_bytes()).then_some(own_frame);
        let kernel = LoadedKernel {
            core: core.clone(),
            meta: Arc::new(KernelMeta::of(artifact)),
            module,
            in_graph: AtomicBool::new(false),
            tasks: tasks.into_boxed_slice(),
            pointers: Box::default(),
            tells_addresses: false,
            speaks: !artifact.sites.is_empty() && core.driver.code_target() != CodeTarget::Host,
            frame_bytes: spilled_at.map_or(artifact.frame_bytes, |at| at + args),
            spilled_at,
            sections: if core.immediate { Box::default() } else { sections(&artifact.tasks) },
        };
        if kernel.tasks.len() != artifact.tasks.len() {
            let what = format!("the driver gave {} of {} tasks", kernel.tasks.len(), artifact.tasks.len());
            return Err(ErrorKind::CompilerBug(what).into());
        }
        Ok(kernel)
    }

    /// Waits for all work of this program, on every stream, and writes out what it printed. Reports a failure that was not
    /// reported yet; of several streams' the others are left for the next such call.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        let core = &self.0.core;
        if core.immediate {
            return self.0.default.synchronize(caller);
        }
        let streams = core.live_streams();
        let mut waited = Ok(());
        for stream in &streams {
            waited = waited.and(stream.wait_quietly(caller));
        }
        core.printer.flush();
        waited?;
        if let Some(failure) = core.orphans.take() {
            return Err(ErrorKind::Assertion(failure).into());
        }
        streams.iter().try_for_each(|s| s.report_pending())
    }

    /// To be called in a process that a fork has made, which has the memory of its parent but none of its other
    /// threads: neither those that serve streams, nor those that were launching. False where the device has streams:
    /// every use of the program's objects is an error from now on, and nothing is given back. A device without streams
    /// goes on; what threads were using that are not here begins anew.
    ///
    /// # Safety
    /// The process has just been made by a fork, and this is its only thread.
    pub unsafe fn go_on_after_fork(&self) -> bool {
        let core = &self.0.core;
        // A launch that this very thread is in the midst of goes on as well.
        if core.immediate && !nesting::inside() {
            // SAFETY: the contract above; a thread that is in no launch holds none of these locks.
            unsafe {
                core.buffers.renew_if_held();
                core.streams.renew_if_held();
                core.printer.renew_after_fork();
                core.profile.renew_after_fork();
                core.live_streams().iter().for_each(|s| s.renew_after_fork());
                core.driver.renew_after_fork();
            }
        }
        if core.immediate {
            return true;
        }
        core.set_closed();
        core.abandoned.store(true, Ordering::Release);
        // Another thread may have held the lock, and is not there to give it back. What is missed is refused when it meets the device.
        if let Ok(buffers) = core.buffers.try_lock() {
            buffers.values().filter_map(Weak::upgrade).for_each(|b| b.close());
        }
        // The driver stays for good: its end would wait for its threads.
        std::mem::forget(core.clone());
        false
    }

    /// Sets the seed of random numbers of launches from now on and starts their sequence anew.
    pub fn set_seed(&self, seed: u64) {
        self.0.core.seed.store(seed, Ordering::Relaxed);
        self.0.core.launches.store(0, Ordering::Relaxed);
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        self.0.core.launches.load(Ordering::Relaxed)
    }

    /// Bytes that buffers hold.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.core.in_use.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the device has, where known.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.0.core.driver.memory_bytes()
    }

    /// False after [`Device::close`].
    pub fn alive(&self) -> bool {
        !self.0.core.is_closed()
    }

    /// Ends the program: waits for its work, after which every use of its objects is an error. Memory is given back at
    /// once, that of pinned buffers when the last pin goes; threads end. Closing twice is fine. An error is of work that was
    /// not waited for before; the program has ended all the same.
    pub fn close(&self, caller: &dyn Caller) -> Result<()> {
        let core = &self.0.core;
        let mut end = self.0.default.drain(caller, || core.set_closed());
        if !core.immediate {
            for stream in core.live_streams() {
                // A launch that began before has ended once its turn is over; later ones are refused.
                let drained = stream.drain(caller).and_then(|()| stream.report_pending());
                end = end.and(drained);
            }
            core.forget_adopted();
            core.workers.trim(&*core.driver);
            if let Some(r) = lock(&core.reclaim).take() {
                // SAFETY: made by this driver; the frees queued on it are waited for.
                unsafe {
                    let _ = core.driver.synchronize(r.stream);
                    core.driver.destroy_event(r.event);
                    core.driver.destroy_stream(r.stream);
                }
            }
            if let Some(failure) = core.orphans.take() {
                end = end.and(Err(ErrorKind::Assertion(failure).into()));
            }
        }
        core.transfers.trim(&*core.driver);
        core.forget_host_work();
        core.profile.end(core);
        let buffers: Vec<_> = lock(&core.buffers).drain().filter_map(|(_, b)| b.upgrade()).collect();
        buffers.iter().for_each(|b| b.close());
        for module in std::mem::take(&mut *lock(&core.in_graphs)) {
            // SAFETY: nobody else has it; graphs of its launches have ended with the program.
            unsafe { core.driver.unload(module) }
        }
        core.driver.close();
        end
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).field("alive", &self.alive()).finish()
    }
}
