//! [`Stream`] and the launcher.
//!
//! Work on a stream runs in order. A stream owns what a launch needs besides its arguments: a frame and result slots,
//! reused from launch to launch and grown when a kernel asks for more. On a device that works asynchronously a launch returns
//! when its tasks are queued; the groups of a kernel are forked to worker streams and joined by events, so that only what the
//! stream does later waits for them.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::buffer::{Buffer, PinnedBuffer};
use crate::device::DeviceCore;
use crate::driver::{Caller, Contents, DevicePtr, Launch, Patient, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::event::Event;
use crate::fork::Fork;
use crate::kernel::{LoadedKernel, Section};
use crate::nesting::{self, Inside};
use crate::report::{Failure, Failures};

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

/// Memory of a stream that its launches use one after the other.
#[derive(Debug, Clone, Copy)]
struct Scratch {
    frame: DevicePtr,
    frame_bytes: u64,
    result: DevicePtr,
    result_bytes: u64,
}

impl Scratch {
    const EMPTY: Scratch = Scratch { frame: DevicePtr(0), frame_bytes: 0, result: DevicePtr(0), result_bytes: 0 };

    #[inline]
    fn reserve(&mut self, core: &DeviceCore, stream: StreamHandle, kernel: &LoadedKernel) -> Result<()> {
        let result_bytes = 8 * kernel.meta.result.len() as u64;
        if kernel.meta.frame_bytes <= self.frame_bytes && result_bytes <= self.result_bytes {
            return Ok(());
        }
        self.grow(core, stream, kernel.meta.frame_bytes, result_bytes)
    }

    #[cold]
    fn grow(&mut self, core: &DeviceCore, stream: StreamHandle, frame_bytes: u64, result_bytes: u64) -> Result<()> {
        // SAFETY: the stream is alive as its owner calls; what is freed was allocated below. Work that uses an old frame is
        // queued before its free; results are read before the next launch.
        unsafe {
            if frame_bytes > self.frame_bytes {
                let bytes = frame_bytes.next_power_of_two().max(256);
                let frame = core.driver.allocate(Some(stream), bytes, Contents::Any).map_err(|e| core.explain(e))?;
                if self.frame_bytes > 0 {
                    core.driver.free(stream, self.frame, self.frame_bytes);
                }
                (self.frame, self.frame_bytes) = (frame, bytes);
            }
            if result_bytes > self.result_bytes {
                let bytes = result_bytes.next_power_of_two().max(64);
                let result = core.driver.allocate_pinned(bytes).map_err(|e| core.explain(e))?;
                if self.result_bytes > 0 {
                    core.driver.free_pinned(self.result, self.result_bytes);
                }
                (self.result, self.result_bytes) = (result, bytes);
            }
        }
        Ok(())
    }

    fn free(&mut self, core: &DeviceCore, stream: StreamHandle) {
        // SAFETY: allocated by `grow` from the same driver; the owner has waited for the stream's work.
        unsafe {
            if self.frame_bytes > 0 {
                core.driver.free(stream, self.frame, self.frame_bytes);
            }
            if self.result_bytes > 0 {
                core.driver.free_pinned(self.result, self.result_bytes);
            }
        }
        *self = Scratch::EMPTY;
    }
}

pub(crate) struct StreamCore {
    pub(crate) device: Arc<DeviceCore>,
    pub(crate) handle: StreamHandle,
    /// Zero for the default stream.
    number: u32,
    /// The driver made the stream for us.
    owned: bool,
    failures: Arc<Failures>,
    /// Held for the time of a launch: it is what keeps the launches of several threads in order.
    scratch: Mutex<Scratch>,
}

impl StreamCore {
    /// Waits until no other thread uses the stream.
    #[inline]
    fn wait_turn(&self, caller: &dyn Caller) -> MutexGuard<'_, Scratch> {
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
        let (device, handle) = (self.device.clone(), self.handle);
        // SAFETY: the stream is alive until here. An error of the call concerns no one any more.
        let _ = unsafe { device.driver.synchronize(handle) };
        if let Some(failure) = self.take_failure() {
            device.orphans.record(|| failure);
        }
        self.wait_turn(&Patient).free(&device, handle);
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
        let core = Arc::new(StreamCore {
            number: device.new_stream_number(),
            device,
            handle,
            owned,
            failures: Arc::new(Failures::default()),
            scratch: Mutex::new(Scratch::EMPTY),
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
        let core = &self.0;
        if nesting::inside() {
            // SAFETY: the caller's contract.
            return unsafe { core.launch_nested(kernel, args) };
        }
        let mut scratch = core.wait_turn(caller);
        let inside = Inside::enter();
        // SAFETY: the caller's contract.
        let end = unsafe { core.run(kernel, args, &mut scratch, caller, false) };
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
        core.wait_for_host(caller)
    }

    /// As [`Stream::synchronize`]; calls `then` before another launch may start.
    pub(crate) fn drain(&self, caller: &dyn Caller, then: impl FnOnce()) -> Result<()> {
        let core = &*self.0;
        let waited = core.in_order(caller, || {
            // SAFETY: the stream is alive.
            let waited = unsafe { core.wait(caller) };
            then();
            waited
        });
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
        let (_to_pinned, to) = core.range(to, to_offset, bytes)?;
        let (_from_pinned, from) = core.range(from, from_offset, bytes)?;
        core.in_order(caller, || {
            // SAFETY: the ranges are checked; frees are queued behind this copy.
            unsafe { core.device.driver.copy_on_device(core.handle, to, from, bytes) }
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
    /// As [`Stream::launch`]; `scratch` is used by no other work.
    #[inline]
    unsafe fn run(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        args: &[u64],
        scratch: &mut Scratch,
        caller: &dyn Caller,
        nested: bool,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        if device.is_closed()
            || !Arc::ptr_eq(&self.device, &kernel.core)
            || args.len() != kernel.meta.arg_slots as usize
        {
            return Err(self.refuse(kernel, args));
        }
        scratch.reserve(device, self.handle, kernel)?;
        let launch = Launch {
            kernel: &kernel.meta,
            args,
            args_at: None,
            frame: scratch.frame,
            result: scratch.result,
            channel: DevicePtr(0),
            speaker: 0,
            seed: device.seed.load(Ordering::Relaxed),
            number: device.launches.fetch_add(1, Ordering::Relaxed),
            nested,
            failures: &self.failures,
            printer: &device.printer,
            caller,
        };
        if !(device.immediate || nested) {
            // SAFETY: the contract above.
            return unsafe { self.queue(kernel, args, &launch) };
        }
        for &task in &kernel.tasks {
            // SAFETY: the task is one of a kernel of this device, which the borrow keeps loaded; `args` by the contract.
            unsafe { device.driver.launch(self.handle, task, &launch)? };
            if self.failures.any() {
                self.report()?;
            }
        }
        // SAFETY: `reserve` made room for the result, and the work that writes it is done.
        Ok(unsafe { results(kernel, launch.result) })
    }

    /// Queues a kernel's tasks. Waits for them where there is a result, or where they use memory that is not the device's.
    ///
    /// # Safety
    /// As [`StreamCore::run`].
    #[inline(never)]
    unsafe fn queue(
        self: &Arc<Self>,
        kernel: &LoadedKernel,
        args: &[u64],
        launch: &Launch<'_>,
    ) -> Result<Option<Results>> {
        let device = &*self.device;
        let foreign = device.note_uses(self, &kernel.pointers, args);
        let queue = |stream, tasks: Range<usize>| {
            // SAFETY: as in `run`.
            kernel.tasks[tasks].iter().try_for_each(|&task| unsafe { device.driver.launch(stream, task, launch) })
        };
        if kernel.sections.is_empty() {
            queue(self.handle, 0..kernel.tasks.len())?;
        }
        for section in &kernel.sections {
            match section {
                Section::InOrder(tasks) => queue(self.handle, tasks.clone())?,
                Section::Groups(groups) => {
                    let fork = Fork::new(&device.workers, &*device.driver, self.handle, groups.len() - 1)?;
                    for (i, tasks) in groups.iter().enumerate() {
                        queue(fork.stream(i), tasks.clone())?;
                    }
                    fork.join()?;
                }
            }
        }
        if foreign || !kernel.meta.result.is_empty() {
            // SAFETY: the stream is alive.
            unsafe { self.wait(launch.caller)? };
            self.report_pending()?;
        }
        // SAFETY: as in `run`.
        Ok(unsafe { results(kernel, launch.result) })
    }

    /// Waits for the stream's work, unless this thread is part of it.
    pub(crate) fn wait_quietly(&self, caller: &dyn Caller) -> Result<()> {
        self.device.check_open("stream")?;
        if nesting::inside() {
            return Ok(());
        }
        // SAFETY: the stream is alive.
        unsafe { self.wait(caller) }
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
        // SAFETY: the stream is alive.
        self.in_order(caller, || unsafe { self.wait(caller) })
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
    unsafe fn wait(&self, caller: &dyn Caller) -> Result<()> {
        if !self.device.immediate {
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
        let mut scratch = Scratch::EMPTY;
        // SAFETY: the caller's contract; the scratch is new.
        let end = unsafe { self.run(kernel, args, &mut scratch, &Patient, true) };
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
