//! [`Device`]: a driver, its default stream, and what the two share with every object made from them.

mod order;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use octants_artifact::{Artifact, CodeTarget};

use crate::assemble::assemble;
use crate::buffer::Buffer;
use crate::caller::{Caller, Uninterruptible};
use crate::capture::Capture;
use crate::captured_graph::CapturedGraph;
use crate::concurrency::{Decision, Fusion, Lanes};
use crate::cores::DeviceCore;
use crate::driver::{Contents, Driver, StreamHandle};
use crate::error::{ErrorKind, Result, is_interrupt};
use crate::event::Event;
use crate::fusion::Fuser;
use crate::interruptible_wait::Until;
use crate::kernel::{LoadedCode, LoadedKernel};
use crate::kernel_meta::KernelMeta;
use crate::nesting::{self, refuse_while_capturing};
use crate::races::Races;
use crate::report::{TextSink, lock};
use crate::sections::{checkpoint_labels, decides, draws_again, loops_of, sections};
use crate::stage_arguments::HostArray;
use crate::stream::{Results, Stream};
use crate::watch_launches::{DeviceWatch, Watch};
use crate::worker_pool::PoolStats;

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

struct Inner {
    core: Arc<DeviceCore>,
    default: Stream,
    /// Where concurrent launches of the default stream go.
    lanes: OnceLock<Arc<Lanes>>,
    /// The known order of the work of this device and of the other devices of the process.
    watch: Arc<DeviceWatch>,
}

/// A device and the program that uses it. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl Device {
    /// Takes over a driver.
    pub fn new(driver: impl Driver, config: DeviceConfig) -> Device {
        Device::over(Box::new(driver), config)
    }

    /// Creates a device from any driver.
    pub fn over(driver: Box<dyn Driver>, config: DeviceConfig) -> Device {
        Device::watched_with(&Arc::default(), driver, config)
    }

    /// The same for another device of a program: streams of the two may wait for each other.
    pub fn beside(&self, driver: Box<dyn Driver>, config: DeviceConfig) -> Device {
        Device::watched_with(self.0.watch.all(), driver, config)
    }

    fn watched_with(all: &Arc<Watch>, driver: Box<dyn Driver>, config: DeviceConfig) -> Device {
        let core = Arc::new(DeviceCore::new(driver, config.seed, config.sink));
        let default = Stream::over(core.clone(), StreamHandle(0), false);
        let watch = DeviceWatch::new(all, &core);
        Device(Arc::new(Inner { core, default, lanes: OnceLock::new(), watch }))
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.0.core
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        self.0.core.driver.name()
    }

    /// Gives the device the name that users know it by, for messages about several devices. The first name stays.
    pub fn set_label(&self, label: &str) {
        let _ = self.0.core.label.set(label.into());
    }

    /// The device's driver or interface, and its version as the vendor writes it.
    pub fn software(&self) -> Option<(&'static str, i32)> {
        self.0.core.driver.software()
    }

    /// Nominal rate of the clock that code reads, in hertz, if known.
    pub fn clock_hz(&self) -> Option<f64> {
        self.0.core.driver.clock_hz()
    }

    /// See [`Driver::cache_name`].
    pub fn cache_name(&self) -> Option<String> {
        self.0.core.driver.cache_name()
    }

    /// See [`Driver::load_cache`].
    pub fn load_cache(&self, contents: &[u8]) {
        self.0.core.driver.load_cache(contents);
    }

    /// See [`Driver::cache_contents`].
    pub fn cache_contents(&self) -> Option<Vec<u8>> {
        self.0.core.driver.cache_contents()
    }

    /// The stream that launches use unless told otherwise.
    pub fn default_stream(&self) -> &Stream {
        &self.0.default
    }

    /// Whether a stream is one of this device's.
    #[inline]
    pub fn owns(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&stream.core().device, &self.0.core)
    }

    /// A new stream; on a synchronous device, an alias of the default stream.
    pub fn create_stream(&self, priority: i32) -> Result<Stream> {
        let core = &self.0.core;
        core.check_open("device")?;
        if core.immediate {
            return Ok(self.0.default.clone());
        }
        self.admit_another()?;
        let done: Vec<_> =
            lock(&core.unnamed).extract_if(.., |s| Stream::of(s.clone()).query().unwrap_or(true)).collect();
        drop(done);
        let stream = Stream::over(core.clone(), core.driver.create_stream(priority)?, true);
        core.order_after_host_work(stream.core())?;
        Ok(stream)
    }

    /// The stream with this handle: the default stream for zero, a stream of this device, or a stream of another
    /// library, which also destroys it.
    pub fn stream_from_handle(&self, handle: u64) -> Result<Stream> {
        let core = &self.0.core;
        core.check_open("device")?;
        if core.immediate || handle == 0 {
            return Ok(self.0.default.clone());
        }
        match core.live_streams().into_iter().find(|s| s.handle.0 == handle) {
            Some(known) => known.readopt().map(|()| Stream::of(known)),
            None => self.leave_order().and_then(|()| core.adopt(handle)),
        }
    }

    /// A new event; only events with `timing` can measure the time between them.
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
        self.0.core.dlpack_device()
    }

    /// The address of memory that another library names by `address`: the same one, unless that library uses another
    /// interface to the device. Then `None` for memory that is not this program's.
    pub fn own_address(&self, address: u64) -> Option<u64> {
        match self.0.core.driver.foreign_api() {
            Some(api) => api.own_address(address).map(|at| at.0),
            None => Some(address),
        }
    }

    /// Whether other libraries use another interface to the device, with other addresses.
    pub fn has_foreign_addresses(&self) -> bool {
        self.0.core.driver.foreign_api().is_some()
    }

    /// Name of the attribute by which Python objects show arrays in the device's memory, if there is such a protocol.
    pub fn array_protocol(&self) -> Option<&'static str> {
        self.0.core.driver.array_protocol()
    }

    /// The receiver of the program's races.
    pub fn races(&self) -> &Races {
        &self.0.core.races
    }

    /// Starts race checks of unordered launches on different streams that touch the same elements. With `is_exact`,
    /// elements that values in memory decide are checked, too. No effect on a synchronous device.
    pub fn watch_launches(&self, is_exact: bool) {
        self.0.watch.begin(is_exact);
    }

    /// Must be called before a launch by the program.
    ///
    /// # Errors
    /// [`ErrorKind::Races`] if a race with another launch is proved, unless races are collected.
    #[inline]
    pub fn check_launch(
        &self,
        stream: &Stream,
        kernel: &LoadedKernel,
        args: &[u64],
        caller: &dyn Caller,
    ) -> Result<()> {
        if self.0.watch.checks() { self.0.watch.launch(stream.core(), kernel, args, caller) } else { Ok(()) }
    }

    /// As [`Device::check_launch`] for an access of the host to ranges of addresses: the begin and the end of each, and
    /// whether it is written. With `default_is_done`, launches on the default stream have waited for their work.
    ///
    /// # Errors
    /// Those of [`Device::check_launch`].
    pub fn check_host_access(
        &self,
        (ranges, default_is_done): (&[(u64, u64, bool)], bool),
        caller: &dyn Caller,
    ) -> Result<()> {
        if !self.0.watch.checks() {
            return Ok(());
        }
        self.0.watch.host_access((ranges, default_is_done), caller)
    }

    /// As [`Device::check_launch`] for a graph: its launches race with one another, or with other work.
    ///
    /// # Errors
    /// Those of [`Device::check_launch`].
    pub fn check_graph(&self, stream: &Stream, graph: &CapturedGraph, caller: &dyn Caller) -> Result<()> {
        if !self.0.watch.checks() {
            return Ok(());
        }
        self.0.watch.graph(stream.core(), (&graph.steps_now(), graph.last_stream().as_deref()), caller)
    }

    /// Makes launches on the default stream run concurrently if their accesses do not conflict: see
    /// [`crate::concurrency`]. No effect on a synchronous device.
    pub fn infer_concurrency(&self, caller: &dyn Caller) {
        self.prepare_concurrency(caller);
        self.0.core.set_concurrent();
    }

    /// Must be called before a thread enables concurrent launches ([`nesting::set_concurrency`]).
    pub fn prepare_concurrency(&self, caller: &dyn Caller) {
        let (core, default) = (&self.0.core, self.0.default.core());
        if core.immediate || self.0.lanes.get().is_some() {
            return;
        }
        // The turn keeps another thread's work from being queued without looking for launches elsewhere.
        let _turn = default.wait_turn(caller);
        let lanes = self.0.lanes.get_or_init(|| Arc::new(Lanes::of(default)));
        core.set_unordered();
        let _ = core.launches_elsewhere.set(lanes.clone());
    }

    /// As [`Stream::launch_with`] on one of this device's streams. Launches on the default stream may run concurrently
    /// if this thread or the program has enabled it. `fuser` may fuse repeated launches.
    ///
    /// # Safety
    /// As [`Stream::launch_with`].
    #[inline]
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        (caller, fuser): (&dyn Caller, Option<&dyn Fuser>),
    ) -> Result<Option<Results>> {
        if let Some(lanes) = self.0.lanes.get()
            && arrays.is_empty()
            && caller.dispatcher().is_none()
            && lanes.take(stream)
        {
            // SAFETY: the caller's contract.
            if let Some(results) = unsafe { lanes.launch(stream.core(), kernel, args, (caller, fuser))? } {
                return Ok(results);
            }
        }
        // SAFETY: the caller's contract.
        unsafe { stream.launch_with(kernel, args, arrays, caller) }
    }

    /// The streams of launches on the default stream since the last call, at most the latest few thousand; and which
    /// launches were fused.
    pub fn take_decisions(&self) -> (Vec<Decision>, Vec<Fusion>) {
        self.0.lanes.get().map(|lanes| lanes.take_decisions()).unwrap_or_default()
    }

    /// How often launches that a program repeats were launched as one graph.
    pub fn replays(&self) -> u64 {
        self.0.lanes.get().map_or(0, |lanes| lanes.replays())
    }

    /// Counts of the pool of worker streams.
    pub fn stream_pool_stats(&self) -> PoolStats {
        self.0.core.workers.stats()
    }

    /// Destroys the idle streams of the pool.
    pub fn trim_stream_pool(&self) {
        self.0.core.workers.trim(&*self.0.core.driver);
    }

    /// Zeroed memory of `bytes` bytes, which may be zero.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes, Contents::Zeroed)
    }

    /// Zeroed memory that will mostly remain untouched. If the device supports it, only touched pages take memory.
    pub fn allocate_sparse(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes, Contents::Sparse)
    }

    /// Notes launches of this device instead of making them: see [`Capture::begin_here`].
    pub fn capture(&self) -> Result<Arc<Capture>> {
        self.0.core.check_open("device")?;
        Ok(Capture::new(&self.0.core))
    }

    /// Memory with anything in it.
    pub fn allocate_unset(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes, Contents::Any)
    }

    /// The artifact with machine code instead of text if the driver provides an assembler; assembled on up to `threads`
    /// threads.
    pub fn assemble(&self, artifact: &Artifact, threads: usize) -> Option<Artifact> {
        assemble(&*self.0.core.driver, artifact, threads)
    }

    /// Loads compiled code.
    pub fn load(&self, artifact: &Artifact) -> Result<LoadedKernel> {
        let core = &self.0.core;
        core.check_open("device")?;
        let sections = sections(artifact, !core.immediate)?;
        let (module, tasks) = core.driver.load(artifact)?;
        let (own_frame, args) = (artifact.frame_bytes.next_multiple_of(8), 8 * u64::from(artifact.arg_slots));
        let spilled_at = (args > core.driver.max_argument_bytes()).then_some(own_frame);
        let spilled_end = spilled_at.map_or(artifact.frame_bytes, |at| at + args);
        let rounds_at = draws_again(artifact, &sections).then_some(spilled_end.next_multiple_of(8));
        let rounds_end = rounds_at.map_or(spilled_end, |at| at + 8 * loops_of(&sections));
        // On other devices, the host reads the conditions.
        let may_end = !core.host_addressable && !checkpoint_labels(&sections).is_empty();
        let end_at = may_end.then_some(rounds_end.next_multiple_of(8));
        let meta = Arc::new(KernelMeta::of(artifact));
        let stays_in_order = meta.has_messages()
            || meta.tasks.iter().any(|task| task.draws_random)
            || !meta.result.is_empty()
            || spilled_at.is_some()
            || decides(&sections);
        let code = LoadedCode {
            core: core.clone(),
            result_bytes: LoadedKernel::result_bytes(core, &meta, &sections),
            meta,
            module,
            in_graph: AtomicBool::new(false),
            tasks: tasks.into_boxed_slice(),
            assumes_order: artifact.assumes_order,
            logs: !artifact.sites.is_empty() && core.driver.code_target() != CodeTarget::Host,
            frame_bytes: end_at.map_or(rounds_end, |at| at + 8),
            stays_in_order,
            spilled_at,
            rounds_at,
            end_at,
            sections,
        };
        if code.tasks.len() != artifact.tasks.len() {
            let what = format!("the driver returned {} of {} tasks", code.tasks.len(), artifact.tasks.len());
            return Err(ErrorKind::CompilerBug(what).into());
        }
        Ok(LoadedKernel::new(code))
    }

    /// Waits for all work of this program, on every stream, and writes out what it printed. Reports one unreported
    /// failure. Failures of other streams are left for the next such call.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        refuse_while_capturing("the host cannot wait for the device")?;
        let core = &self.0.core;
        if core.immediate {
            return self.0.default.synchronize(caller);
        }
        core.submit_held(caller);
        let streams = core.live_streams();
        let mut waited = Ok(());
        for stream in &streams {
            waited = waited.and(stream.wait_quietly(caller));
        }
        core.printer.flush();
        waited?;
        core.wait_was_abandoned.store(false, Ordering::Relaxed);
        if let Some(failure) = core.orphans.take() {
            core.races.report_failure(failure)?;
        }
        streams.iter().try_for_each(|s| s.report_pending())
    }

    /// Must be called in the child after a fork. The child has the parent's memory but none of its other threads,
    /// neither those that serve streams nor those that were launching. Returns false if the device has streams: every
    /// use of the program's objects is an error from now on, and nothing is freed. A device without streams remains
    /// usable; locks and pools of missing threads are recreated.
    ///
    /// # Safety
    /// The process has just been made by a fork, and this is its only thread.
    pub unsafe fn resume_after_fork(&self) -> bool {
        let core = &self.0.core;
        // A launch in progress on the calling thread also continues.
        if core.immediate && !nesting::inside() {
            // SAFETY: the contract above; a thread that is in no launch holds none of these locks.
            unsafe {
                core.renew_after_fork();
                core.live_streams().iter().for_each(|s| s.renew_after_fork());
                core.driver.renew_after_fork();
            }
        }
        if core.immediate {
            return true;
        }
        core.abandon();
        // Another thread may have held the lock, and does not exist here to release it. Skipped buffers are refused
        // when they are used with the device.
        if let Ok(buffers) = core.buffers.try_lock() {
            buffers.values().filter_map(Weak::upgrade).for_each(|b| b.close());
        }
        // The driver stays permanently: its end would wait for its threads.
        std::mem::forget(core.clone());
        false
    }

    /// Sets the seed of random numbers of launches from now on and starts their sequence again.
    pub fn set_seed(&self, seed: u64) {
        self.0.core.submit_held(&Uninterruptible);
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

    /// Bytes of device memory, if known.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.0.core.driver.memory_bytes()
    }

    /// All work, including work that is queued later, is canceled if the device supports it: for a program that is
    /// about to be closed. If it does not, [`Device::close`] waits only briefly.
    pub fn cancel(&self) {
        let core = &self.0.core;
        core.is_given_up.store(true, Ordering::Relaxed);
        if core.driver.cancels() {
            // SAFETY: no stream is named.
            unsafe { core.driver.cancel(None) }
        }
    }

    /// The user has interrupted a wait, and nothing has waited for that work since.
    pub fn wait_was_abandoned(&self) -> bool {
        self.0.core.wait_was_abandoned.load(Ordering::Relaxed)
    }

    /// Whether the device was abandoned with work that does not end. Its memory stays allocated until the process ends.
    pub fn is_abandoned(&self) -> bool {
        self.0.core.is_abandoned()
    }

    /// False after [`Device::close`].
    pub fn alive(&self) -> bool {
        !self.0.core.is_closed()
    }

    /// Ends the program: waits for its work, after which every use of its objects is an error. Memory is freed
    /// immediately, that of pinned buffers with the last pin; threads end. Closing twice is allowed. A returned error
    /// is a failure of work that was not waited for before; the program has ended nevertheless.
    ///
    /// Interrupted work is canceled if the device supports it: when the caller is interrupted, now or in the last wait
    /// before. If it cannot cancel the work, an interrupted caller, or a canceled program ([`Device::cancel`]), waits
    /// only briefly. Then the device is abandoned: the driver is not called again, and the program's resources are
    /// leaked until the process ends.
    pub fn close(&self, caller: &dyn Caller) -> Result<()> {
        let core = &self.0.core;
        if core.is_abandoned() {
            return Ok(());
        }
        if core.driver.cancels() && self.wait_was_abandoned() {
            self.cancel();
        }
        let is_given_up = core.is_given_up.load(Ordering::Relaxed) && !core.driver.cancels();
        if let Some(launches) = core.launches_elsewhere.get()
            && !is_given_up
        {
            launches.give_up(caller);
        }
        let mut end = if is_given_up { self.drain(&Until::grace()) } else { self.drain(caller) };
        if !core.immediate {
            if is_interrupt(&end) {
                self.cancel();
                end = match core.driver.cancels() {
                    true => self.drain(&Uninterruptible),
                    false if is_given_up => end,
                    false => self.drain(&Until::grace()),
                };
            }
            if is_interrupt(&end) {
                self.abandon();
                return end;
            }
            lock(&core.unnamed).clear();
            core.printer.flush();
            if let Some(launches) = core.launches_elsewhere.get() {
                launches.end(&*core.driver);
            }
            core.forget_adopted();
            core.workers.trim(&*core.driver);
            core.end_reclaim();
            if let Some(failure) = core.orphans.take() {
                end = end.and(core.races.report_failure(failure));
            }
        }
        core.transfers.trim(&*core.driver);
        core.forget_host_work();
        core.profile.end(&*core.driver);
        let buffers: Vec<_> = lock(&core.buffers).drain().filter_map(|(_, b)| b.upgrade()).collect();
        buffers.iter().for_each(|b| b.close());
        for module in std::mem::take(&mut *lock(&core.in_graphs)) {
            // SAFETY: nothing else refers to it; graphs of its launches have ended with the program.
            unsafe { core.driver.unload(module) }
        }
        core.driver.close();
        end
    }
}

impl Device {
    /// Refuses launches from now on and waits for the work of all streams, until the caller is interrupted. A launch
    /// that began before has ended once its turn is over.
    fn drain(&self, caller: &dyn Caller) -> Result<()> {
        let core = &self.0.core;
        let mut end = self.0.default.drain(caller, || core.set_closed());
        if core.immediate {
            return end;
        }
        for stream in core.live_streams() {
            if is_interrupt(&end) {
                return end;
            }
            let drained = stream.drain(caller);
            end = match is_interrupt(&drained) {
                true => drained,
                false => end.and(drained.and_then(|()| stream.report_pending())),
            };
        }
        end
    }

    /// Abandons a device whose work does not end: releasing its resources would wait forever.
    fn abandon(&self) {
        let core = &self.0.core;
        core.abandon();
        let buffers: Vec<_> = lock(&core.buffers).values().filter_map(Weak::upgrade).collect();
        buffers.iter().for_each(|b| b.close());
        core.printer.flush();
        // The driver stays permanently.
        std::mem::forget(core.clone());
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).field("alive", &self.alive()).finish()
    }
}
