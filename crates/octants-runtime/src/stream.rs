//! [`Stream`] and the launcher.
//!
//! Work on a stream runs in order. A stream owns what a launch needs besides its arguments: a frame and result slots,
//! reused from launch to launch and grown when a kernel asks for more. On a device that works asynchronously a launch returns
//! when its tasks are queued; the groups of a kernel are forked to worker streams and joined by events, so that only what the
//! stream does later waits for them.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::buffer::{Buffer, PinnedBuffer};
use crate::device::DeviceCore;
use crate::driver::{Caller, DevicePtr, EventHandle, Launch, Patient, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::event::Event;
use crate::fork::Fork;
use crate::kernel::{LoadedKernel, Section};
use crate::measure::Measured;
use crate::nesting::{self, Inside};
use crate::report::{Failure, Failures};
use crate::scratch::Scratch;
use crate::stage_arguments::{HostArray, stage};
use crate::staging::{Block, MOST_BUSY};

/// Bytes of a fill that the host makes.
const FILLED_BY_HOST: u64 = 64 << 10;

/// Result slots kept without an allocation.
const INLINE_RESULTS: usize = 4;

/// Scalars that a launch returned, one 8-byte slot each, in the order of [`crate::KernelMeta::result`]; the value is in
/// the low bytes, the rest is unspecified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    len: usize,
    inline: [u64; INLINE_RESULTS],
    spilled: Vec<u64>,
}

impl Results {
    /// # Safety
    /// `from` points to `len` slots.
    unsafe fn read(from: DevicePtr, len: usize) -> Results {
        // SAFETY: by the contract above.
        let slots = unsafe { std::slice::from_raw_parts(from.0 as *const u64, len) };
        let mut results = Results { len, inline: [0; INLINE_RESULTS], spilled: Vec::new() };
        match results.inline.get_mut(..len) {
            Some(inline) => inline.copy_from_slice(slots),
            None => results.spilled = slots.to_vec(),
        }
        results
    }

    /// The slots.
    pub fn slots(&self) -> &[u64] {
        self.inline.get(..self.len).unwrap_or(&self.spilled)
    }
}

pub(crate) struct StreamCore {
    pub(crate) device: Arc<DeviceCore>,
    pub(crate) handle: StreamHandle,
    /// Zero for the default stream.
    number: u32,
    /// The driver made the stream for us.
    owned: bool,
    /// Of a stream that someone else made: stands for the work that this program has queued there last.
    pub(crate) last: Option<EventHandle>,
    /// Someone has captured work of ours on it into a graph.
    pub(crate) was_captured: AtomicBool,
    pub(crate) failures: Arc<Failures>,
    /// Where the channel of what the stream's work says lies, from the first launch on that may say something; it stays.
    pub(crate) channel_at: AtomicU64,
    /// Held for the time of a launch: it is what keeps the launches of several threads in order.
    scratch: Mutex<Scratch>,
}

impl StreamCore {
    /// Waits until no other thread uses the stream.
    #[inline]
    pub(crate) fn wait_turn(&self, caller: &dyn Caller) -> MutexGuard<'_, Scratch> {
        // The scratch is valid at every point where a panic could leave it.
        match self.scratch.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => {
                caller.will_block();
                self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        if self.device.is_abandoned() {
            return;
        }
        let (device, handle) = (self.device.clone(), self.handle);
        // An error of the call concerns no one any more.
        let _ = self.wait_for_own_work(&Patient);
        let mut scratch = std::mem::take(self.scratch.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.hear(&mut scratch);
        if let Some(failure) = self.take_failure() {
            device.orphans.record(|| failure);
        }
        // Someone else's stream may be gone; the work is done in any case.
        scratch.free(&device, if self.last.is_some() { StreamHandle(0) } else { handle });
        if let Some(last) = self.last {
            // SAFETY: the stream's own, and used no more.
            unsafe { device.driver.destroy_event(last) }
        }
        device.profile.forget_stream(handle.0);
        if self.owned {
            // SAFETY: its work is done, and no one else has it.
            unsafe { device.driver.destroy_stream(handle) }
        }
    }
}

/// An in-order queue of work on a device. Clones are the same stream, which is drained and given back with the last.
#[derive(Clone)]
pub struct Stream(Arc<StreamCore>);

impl Stream {
    pub(crate) fn over(device: Arc<DeviceCore>, handle: StreamHandle, owned: bool) -> Stream {
        Stream::new(device, handle, owned, None)
    }

    /// Over someone else's stream, with an event of its own.
    pub(crate) fn adopted(device: Arc<DeviceCore>, handle: StreamHandle, last: EventHandle) -> Stream {
        Stream::new(device, handle, false, Some(last))
    }

    fn new(device: Arc<DeviceCore>, handle: StreamHandle, owned: bool, last: Option<EventHandle>) -> Stream {
        let core = Arc::new(StreamCore {
            number: device.new_stream_number(),
            device,
            handle,
            owned,
            last,
            was_captured: AtomicBool::new(false),
            failures: Arc::new(Failures::default()),
            channel_at: AtomicU64::new(0),
            scratch: Mutex::default(),
        });
        core.device.register_stream(&core);
        Stream(core)
    }

    pub(crate) fn of(core: Arc<StreamCore>) -> Stream {
        Stream(core)
    }

    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.0
    }

    /// The driver's handle; zero for the default stream, and for all streams of a device that has none of its own.
    pub fn handle(&self) -> u64 {
        self.0.handle.0
    }

    /// Its number in the program, zero for the default stream. Messages and profiles name streams so.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// False once the program it belongs to has ended.
    pub fn alive(&self) -> bool {
        !self.0.device.is_closed()
    }

    /// True when all work queued until now is done.
    pub fn query(&self) -> Result<bool> {
        self.0.device.check_open("stream")?;
        // SAFETY: the stream is alive.
        unsafe { self.0.device.driver.query_stream(self.0.handle) }
    }

    /// Makes what is queued here from now on wait for what is queued on `other` now.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        if Arc::ptr_eq(&self.0, &other.0) {
            return self.0.device.check_open("stream");
        }
        let event = Event::new(&other.0.device, false)?;
        event.record(other)?;
        event.wait(self)
    }

    /// Runs a kernel's tasks in order on this stream. Returns its result, if it has one, after waiting for it.
    ///
    /// `caller` is told before this thread waits or works for long. A failed assertion is the error of the launch itself
    /// where the driver is immediate, else of the next call that waits for this stream.
    ///
    /// # Safety
    /// `args` holds what the kernel's code expects: addresses of live memory of this device (of buffers that stay alive for
    /// the call), extents that do not exceed it, values of the parameters.
    #[inline]
    pub unsafe fn launch(&self, kernel: &LoadedKernel, args: &[u64], caller: &dyn Caller) -> Result<Option<Results>> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_with(kernel, args, &[], caller) }
    }

    /// As [`Stream::launch`], where some slots hold addresses in the host's memory. Without written ones among `arrays` the call
    /// returns before the work is done all the same, as if the work had been done at once: later changes of the arrays do not reach it. With
    /// one, it waits for this stream.
    ///
    /// # Safety
    /// As [`Stream::launch`]; `arrays` are alive for the call, and their slots hold addresses within them.
    #[inline]
    pub unsafe fn launch_with(
        &self,
        kernel: &LoadedKernel,
        args: &[u64],
        arrays: &[HostArray],
        caller: &dyn Caller,
    ) -> Result<Option<Results>> {
        let core = &self.0;
        if nesting::inside() {
            // SAFETY: the caller's contract.
            return unsafe { core.launch_nested(kernel, args) };
        }
        let mut scratch = core.wait_turn(caller);
        let inside = Inside::enter();
        // SAFETY: the caller's contract.
        let end = unsafe { core.run(kernel, (args, arrays), &mut scratch, caller, false) };
        // Also where a launch has failed half way.
        let end = core.mark_work().and(end);
        drop(inside);
        drop(scratch);
        if core.device.immediate {
            core.device.printer.flush();
        }
        end
    }

    /// Waits until all work of this stream is done and writes out what it printed. Reports a failure that was not reported
    /// yet.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        if core.device.immediate {
            return self.drain(caller, || ());
        }
        if core.last.is_some() && !nesting::inside() {
            // Others' work on it counts as well; whoever names a stream keeps it alive.
            core.device.check_open("stream")?;
            // SAFETY: as above.
            unsafe { core.wait(caller)? };
        }
        core.wait_for_host(caller)
    }

    /// As [`Stream::synchronize`]; calls `then` before another launch may start.
    pub(crate) fn drain(&self, caller: &dyn Caller, then: impl FnOnce()) -> Result<()> {
        let core = &*self.0;
        let waited = core.in_order(caller, || {
            let waited = core.wait_for_own_work(caller);
            then();
            waited
        });
        core.listen(caller);
        core.device.printer.flush();
        waited?;
        core.report_pending()
    }

    /// Copies host memory into a buffer, after the work queued so far, and waits until that is done.
    pub fn write(&self, to: &Buffer, offset: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = from.len() as u64;
        let (_pinned, to) = core.range(to, offset, bytes)?;
        core.in_order(caller, || {
            // SAFETY: the range is checked and pinned, and `from` outlives the wait.
            unsafe { core.device.driver.copy_to_device(core.handle, to, from.as_ptr(), bytes)? };
            // SAFETY: the stream is alive.
            unsafe { core.wait(caller) }
        })
    }

    /// Copies from a buffer to host memory, after the work queued so far, and waits until that is done.
    pub fn read(&self, from: &Buffer, offset: u64, to: &mut [u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = to.len() as u64;
        let (_pinned, from) = core.range(from, offset, bytes)?;
        core.in_order(caller, || {
            // SAFETY: the range is checked and pinned, and `to` outlives the wait.
            unsafe { core.device.driver.copy_to_host(core.handle, to.as_mut_ptr(), from, bytes)? };
            // SAFETY: the stream is alive.
            unsafe { core.wait(caller) }
        })
    }

    /// Copies host memory into a buffer, after the work queued so far. Returns at once, with the memory read; a large copy waits.
    pub fn upload(&self, to: &Buffer, offset: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = from.len() as u64;
        if core.device.immediate || nesting::inside() || bytes == 0 || bytes > MOST_BUSY {
            return self.write(to, offset, from, caller);
        }
        self.device_open()?;
        let (_pinned, to_address) = core.range(to, offset, bytes)?;
        self.with_block(to, bytes, caller, |block| {
            // SAFETY: the block has room and is ours; it stays as it is until its event.
            unsafe {
                block.write(0, from.as_ptr(), bytes);
                core.device.driver.copy_to_device(core.handle, to_address, block.memory.0 as *const u8, bytes)
            }
        })
    }

    /// Sets a range of a buffer to copies of an element, after the work queued so far. Returns when that is queued.
    pub fn fill(&self, to: &Buffer, offset: u64, element: &[u8], count: u64, caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        self.device_open()?;
        let size = element.len() as u64;
        let bytes = size.saturating_mul(count);
        let (_pinned, start) = core.range(to, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // The host makes the first copies, and the device the rest by doubling them.
        let first = size * (FILLED_BY_HOST / size).clamp(1, count);
        let double = || {
            let mut done = first;
            while done < bytes {
                let next = done.min(bytes - done);
                // SAFETY: both lie in the checked range, one behind the other.
                unsafe { core.device.driver.copy_on_device(core.handle, DevicePtr(start.0 + done), start, next)? };
                done += next;
            }
            Ok(())
        };
        if core.device.immediate || nesting::inside() {
            self.write(to, offset, &element.repeat((first / size) as usize), caller)?;
            return core.in_order(caller, double);
        }
        self.with_block(to, first, caller, |block| {
            // SAFETY: the block has room and is ours; it stays as it is until its event.
            unsafe {
                (0..first / size).for_each(|n| block.write(n * size, element.as_ptr(), size));
                core.device.driver.copy_to_device(core.handle, start, block.memory.0 as *const u8, first)?;
            }
            double()
        })
    }

    fn device_open(&self) -> Result<()> {
        self.0.device.check_open("stream")
    }

    /// Queues work that reads a pinned block and writes to `to`.
    fn with_block(
        &self,
        to: &Buffer,
        bytes: u64,
        caller: &dyn Caller,
        work: impl FnOnce(&Block) -> Result<()>,
    ) -> Result<()> {
        let core = &self.0;
        core.check_not_capturing("take a copy of the host's memory")?;
        let mut scratch = core.wait_turn(caller);
        let block = scratch.staging.take(&core.device, bytes, caller)?;
        to.note_use(core, true);
        let end = work(&block);
        let end = end.and(scratch.staging.give_back(&core.device, core.handle, block));
        core.mark_work().and(end)
    }

    /// Queues a copy from one buffer to another.
    pub fn copy(
        &self,
        to: &Buffer,
        to_offset: u64,
        from: &Buffer,
        from_offset: u64,
        bytes: u64,
        caller: &dyn Caller,
    ) -> Result<()> {
        let core = &*self.0;
        let (_to_pinned, to_address) = core.range(to, to_offset, bytes)?;
        let (_from_pinned, from_address) = core.range(from, from_offset, bytes)?;
        if !core.device.immediate {
            to.note_use(&self.0, true);
            from.note_use(&self.0, false);
        }
        core.in_order(caller, || {
            // SAFETY: the ranges are checked; frees are queued behind this copy.
            let end = unsafe { core.device.driver.copy_on_device(core.handle, to_address, from_address, bytes) };
            core.mark_work().and(end)
        })
    }
}

/// # Safety
/// `slots` has room for the kernel's results, and the work that writes them is done.
#[inline]
unsafe fn results(kernel: &LoadedKernel, slots: DevicePtr) -> Option<Results> {
    let count = kernel.meta.result.len();
    // SAFETY: the contract above.
    (count > 0).then(|| unsafe { Results::read(slots, count) })
}

impl StreamCore {
    /// # Safety
    /// As [`Stream::launch_with`]; `scratch` is used by no other work.
    #[inline]
    unsafe fn run(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        scratch: &mut Scratch,
        caller: &dyn Caller,
        nested: bool,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        let mode = device.mode();
        if mode.is_closed() || !Arc::ptr_eq(&self.device, &kernel.core) || args.len() != kernel.meta.arg_slots as usize
        {
            return Err(self.refuse(kernel, args));
        }
        if !scratch.fits(kernel) {
            let graphs = self.was_captured.load(Ordering::Relaxed) || self.is_captured()?;
            scratch.grow(device, self.handle, kernel, graphs)?;
        }
        if !(device.immediate || nested) {
            scratch.voice = if kernel.speaks { self.find_voice(kernel, scratch, caller)? } else { (DevicePtr(0), 0) };
            // SAFETY: the contract above.
            return unsafe { self.queue(kernel, (args, arrays), scratch, caller) };
        }
        let launch = self.describe(kernel, args, None, scratch, caller, nested);
        if !device.host_addressable {
            device.check_addresses(kernel, args)?;
        }
        if mode.is_measured() && !nested {
            self.run_measured(kernel, &launch)?;
            // SAFETY: as below.
            return Ok(unsafe { results(kernel, launch.result) });
        }
        for &task in &kernel.tasks {
            // SAFETY: the task is one of a kernel of this device, which the borrow keeps loaded; `args` by the contract.
            unsafe { device.driver.launch(self.handle, task, &launch)? };
            if self.failures.any() {
                self.report()?;
            }
        }
        // SAFETY: there is room for the result, and the work that writes it is done.
        Ok(unsafe { results(kernel, launch.result) })
    }

    #[inline]
    fn describe<'a>(
        &'a self,
        kernel: &'a LoadedKernel,
        args: &'a [u64],
        args_at: Option<DevicePtr>,
        scratch: &Scratch,
        caller: &'a dyn Caller,
        nested: bool,
    ) -> Launch<'a> {
        let device = &*self.device;
        Launch {
            kernel: &kernel.meta,
            args,
            args_at,
            frame: scratch.frame,
            result: scratch.result,
            channel: scratch.voice.0,
            speaker: scratch.voice.1,
            seed: device.seed.load(Ordering::Relaxed),
            number: device.launches.fetch_add(1, Ordering::Relaxed),
            nested,
            failures: &self.failures,
            printer: &device.printer,
            caller,
        }
    }

    /// Queues a kernel's tasks. Waits for them where there is a result, or where they write to the host's memory.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    #[inline(never)]
    unsafe fn queue(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        scratch: &mut Scratch,
        caller: &dyn Caller,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        let foreign = device.note_uses(self, &kernel.pointers, args, arrays);
        if arrays.is_empty() && kernel.spilled_at.is_none() {
            let launch = self.describe(kernel, args, None, scratch, caller, false);
            self.queue_tasks(kernel, &launch)?;
            // SAFETY: as in `run`.
            return unsafe { self.finish(kernel, &launch, foreign, scratch) };
        }
        // SAFETY: the contract above. `finish` below queues what gives the staged memory back, whatever comes between.
        unsafe {
            self.check_not_capturing("take copies of host arrays, or of more arguments than travel by value")?;
            let staged = stage(device, self.handle, kernel, (args, arrays), scratch, caller);
            // As below: copies may have been queued.
            let mut staged = staged.inspect_err(|_| drop(self.wait(caller)))?;
            let slots = std::mem::take(&mut scratch.slots);
            let launch = self.describe(kernel, &slots, staged.args_at, scratch, caller, false);
            let queued = self.queue_tasks(kernel, &launch);
            let finished = staged.finish(device, self.handle, arrays, scratch);
            let end = queued.and(finished);
            // The work may use the host's arrays, so that even an error waits for what was queued.
            let end = if staged.waits {
                let waited = self.wait(caller);
                self.hear(scratch);
                staged.bring_back(device, self.handle, waited.is_ok(), arrays, scratch);
                end.and(waited).and_then(|()| self.report_pending())
            } else {
                end
            };
            let end = end.and_then(|()| self.finish(kernel, &launch, foreign, scratch));
            scratch.slots = slots;
            end
        }
    }

    fn queue_tasks(&self, kernel: &LoadedKernel, launch: &Launch<'_>) -> Result<()> {
        let device = &*self.device;
        if !device.host_addressable {
            device.check_addresses(kernel, launch.args)?;
        }
        if device.is_measured() && !self.is_captured()? {
            return self.queue_measured(kernel, launch);
        }
        self.queue_sections(kernel, |stream, task| {
            // SAFETY: as in `run`.
            unsafe { device.driver.launch(stream, kernel.tasks[task], launch) }
        })
    }

    /// Queues a kernel's tasks by `queue`, each on its stream.
    #[inline]
    fn queue_sections(
        &self,
        kernel: &LoadedKernel,
        mut queue: impl FnMut(StreamHandle, usize) -> Result<()>,
    ) -> Result<()> {
        let mut queue_all = |stream, tasks: Range<usize>| tasks.into_iter().try_for_each(|task| queue(stream, task));
        if kernel.sections.is_empty() {
            return queue_all(self.handle, 0..kernel.tasks.len());
        }
        for section in &kernel.sections {
            match section {
                Section::InOrder(tasks) => queue_all(self.handle, tasks.clone())?,
                Section::Groups(groups) => {
                    let fork = Fork::new(&self.device, self.handle, groups.len() - 1)?;
                    for (i, tasks) in groups.iter().enumerate() {
                        queue_all(fork.stream(i), tasks.clone())?;
                    }
                    fork.join()?;
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn queue_measured(&self, kernel: &LoadedKernel, launch: &Launch<'_>) -> Result<()> {
        let device = &*self.device;
        let mut measured = Measured::new(device, &kernel.meta, launch.number);
        let queued = self.queue_sections(kernel, |stream, task| {
            let number = (stream == self.handle).then_some(self.number);
            // SAFETY: as in `run`; the worker streams are held by their fork.
            unsafe { measured.queue(stream, number, task, || device.driver.launch(stream, kernel.tasks[task], launch)) }
        });
        drop(measured);
        // SAFETY: the stream is alive.
        queued.and_then(|()| unsafe { device.bound_pending(self.handle, launch.caller) })
    }

    #[cold]
    fn run_measured(&self, kernel: &LoadedKernel, launch: &Launch<'_>) -> Result<()> {
        let mut measured = Measured::new(&self.device, &kernel.meta, launch.number);
        for (i, &task) in kernel.tasks.iter().enumerate() {
            // SAFETY: as in `run`.
            measured.run(i, || unsafe { self.device.driver.launch(self.handle, task, launch) })?;
            if self.failures.any() {
                self.report()?;
            }
        }
        Ok(())
    }

    /// The result of a launch whose tasks are queued.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    unsafe fn finish(
        &self,
        kernel: &LoadedKernel,
        launch: &Launch<'_>,
        foreign: bool,
        scratch: &mut Scratch,
    ) -> Result<Option<Results>> {
        if foreign || !kernel.meta.result.is_empty() {
            // SAFETY: the stream is alive.
            unsafe { self.wait_in_turn(scratch, launch.caller)? };
        }
        // SAFETY: as in `run`.
        Ok(unsafe { results(kernel, launch.result) })
    }

    /// Waits for the stream's work in the midst of a launch, and reports a failure that was not reported yet.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn wait_in_turn(&self, scratch: &mut Scratch, caller: &dyn Caller) -> Result<()> {
        // SAFETY: the contract above.
        let waited = unsafe { self.wait(caller) };
        self.hear(scratch);
        waited?;
        self.report_pending()
    }

    /// True while someone else captures what is queued on a stream of theirs.
    pub(crate) fn is_captured(&self) -> Result<bool> {
        // Nothing here begins a capture, so streams of our own are never captured.
        // SAFETY: the stream is alive.
        Ok(!self.owned && self.handle.0 != 0 && unsafe { self.device.driver.is_capturing(self.handle)? })
    }

    /// Refuses what a stream of someone else cannot do while they capture it.
    pub(crate) fn check_not_capturing(&self, doing: &str) -> Result<()> {
        if !self.is_captured()? {
            return Ok(());
        }
        let message =
            format!("a stream that is being captured into a graph cannot {doing}: do so before the capture begins");
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Waits for the stream's work, unless this thread is part of it.
    pub(crate) fn wait_quietly(&self, caller: &dyn Caller) -> Result<()> {
        self.device.check_open("stream")?;
        if nesting::inside() {
            return Ok(());
        }
        let waited = self.wait_for_own_work(caller);
        self.listen(caller);
        waited
    }

    /// Waits for the stream's work, writes out what it printed, and reports a failure that was not reported yet.
    pub(crate) fn wait_for_host(&self, caller: &dyn Caller) -> Result<()> {
        let waited = self.wait_quietly(caller);
        self.device.printer.flush();
        waited?;
        self.report_pending()
    }

    /// Waits until no launch is being made and all work is done.
    pub(crate) fn drain(&self, caller: &dyn Caller) -> Result<()> {
        let waited = self.in_order(caller, || self.wait_for_own_work(caller));
        self.listen(caller);
        waited
    }

    /// Reports a failure that was not reported yet.
    #[inline]
    pub(crate) fn report_pending(&self) -> Result<()> {
        if self.failures.any() { self.report() } else { Ok(()) }
    }

    fn take_failure(&self) -> Option<Failure> {
        self.failures.take().map(|f| Failure { stream: self.number, ..f })
    }

    /// Does `work` while no other thread uses the stream.
    fn in_order<T>(&self, caller: &dyn Caller, work: impl FnOnce() -> T) -> T {
        // A thread inside a launch has its turn, or works for one that has.
        let turn = if nesting::inside() { None } else { Some(self.wait_turn(caller)) };
        let end = work();
        drop(turn);
        end
    }

    /// Waits for the stream's work.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn wait(&self, caller: &dyn Caller) -> Result<()> {
        if !self.device.immediate {
            self.check_not_capturing("be waited for, nor launch what returns a value or writes to the host's memory")?;
            caller.will_block();
        }
        // SAFETY: the contract above.
        unsafe { self.device.driver.synchronize(self.handle) }
    }

    fn range(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(PinnedBuffer, DevicePtr)> {
        if !buffer.is_of(&self.device) && buffer.alive() {
            return Err(ErrorKind::ForeignDevice { what: "array" }.into());
        }
        Ok((buffer.pin()?, buffer.at(offset, bytes)?))
    }

    /// # Safety
    /// As [`Stream::launch`].
    #[cold]
    unsafe fn launch_nested(self: &Arc<Self>, kernel: &LoadedKernel, args: &[u64]) -> Result<Option<Results>> {
        let mut scratch = Scratch::default();
        // SAFETY: the caller's contract; the scratch is new.
        let end = unsafe { self.run(kernel, (args, &[]), &mut scratch, &Patient, true) };
        scratch.free(&self.device, self.handle);
        end
    }

    #[cold]
    fn refuse(&self, kernel: &LoadedKernel, args: &[u64]) -> crate::error::DeviceError {
        if !Arc::ptr_eq(&self.device, &kernel.core) {
            return if !kernel.alive() {
                ErrorKind::ProgramGone { what: "kernel" }
            } else if self.device.is_closed() {
                ErrorKind::ProgramGone { what: "stream" }
            } else {
                ErrorKind::ForeignDevice { what: "kernel" }
            }
            .into();
        }
        if self.device.is_closed() {
            return ErrorKind::ProgramGone { what: "stream" }.into();
        }
        let (name, want, got) = (&kernel.meta.name, kernel.meta.arg_slots, args.len());
        ErrorKind::CompilerBug(format!("kernel `{name}` takes {want} argument slots and was given {got}")).into()
    }

    #[cold]
    fn report(&self) -> Result<()> {
        match self.take_failure() {
            Some(failure) => Err(ErrorKind::Assertion(failure).into()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("handle", &self.0.handle.0).finish()
    }
}
