//! [`Stream`]: its resources, its turns, waits, and the reporting of failures of its work.
//!
//! Work on a stream runs in order. A stream owns what a launch needs besides its arguments: a frame and result slots,
//! reused from launch to launch and grown when a kernel needs more.
//!
//! Reading order: `launch` (the launcher), `walk`, `branches`, `copied_condition`, `replay` (graphs), `results`,
//! `copies`, `raw_memory`, `sparse`.

mod branches;
mod copied_condition;
mod copies;
mod launch;
mod raw_memory;
mod replay;
mod results;
mod sparse;
mod walk;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};

pub use results::Results;

use crate::buffer::Version;
use crate::caller::{Caller, Uninterruptible};
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::{EventHandle, StreamHandle};
use crate::error::{ErrorKind, Result, is_interrupt};
use crate::interruptible_wait::{LOOK, abandon_if_interrupted};
use crate::nesting::{self, refuse_while_capturing};
use crate::poll::poll;
use crate::renewable::Renewable;
use crate::report::{Failure, Failures, lock};
use crate::scratch::Scratch;

impl StreamCore {
    /// Waits until no other thread uses the stream. The default stream is then after all concurrent launches.
    #[inline]
    pub(crate) fn wait_turn(&self, caller: &dyn Caller) -> MutexGuard<'_, Scratch> {
        if self.number == 0 {
            self.device.submit_held(caller);
        }
        let turn = self.try_turn().unwrap_or_else(|| {
            caller.will_block();
            self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
        });
        if self.number == 0
            && let Some(launches) = self.device.launches_elsewhere.get()
        {
            launches.settle(self);
        }
        turn
    }

    /// The turn, if it is free.
    #[inline]
    fn try_turn(&self) -> Option<MutexGuard<'_, Scratch>> {
        // The scratch is valid at every point where a panic may occur.
        match self.scratch.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until no other thread is inside a launch, or until the caller is interrupted.
    fn wait_until_unused(&self, caller: &dyn Caller) -> Result<()> {
        if self.device.immediate || nesting::inside() || !caller.can_be_interrupted() {
            return Ok(());
        }
        caller.will_block();
        abandon_if_interrupted(caller, &self.device.wait_was_abandoned, || poll(LOOK, || Ok(self.try_turn().is_some())))
    }
}

impl StreamCore {
    /// In a child process: resets the state that an interrupted launch of a parent's thread has left, and its failures.
    ///
    /// # Safety
    /// As [`Renewable::renew_if_held`].
    pub(crate) unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe {
            if self.scratch.renew_if_held() {
                self.failures.renew_after_fork();
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
        let _ = self.wait_for_own_work(&Uninterruptible);
        device.ended_streams.fetch_add(1, Ordering::Release);
        let mut scratch = std::mem::take(self.scratch.get_mut().get_mut().unwrap_or_else(PoisonError::into_inner));
        self.drain_log(&mut scratch);
        if let Some(failure) = self.take_failure() {
            device.orphans.record(|| failure);
        }
        // A foreign stream may no longer exist; the work is done in any case.
        scratch.free(&*device.driver, if self.last.is_some() { StreamHandle(0) } else { handle });
        if let Some(last) = self.last {
            // SAFETY: the stream's own, and not used afterwards.
            unsafe { device.driver.destroy_event(last) }
        }
        device.profile.forget_stream(handle.0);
        if self.owned {
            // SAFETY: its work is done, and no one else has it.
            unsafe { device.driver.destroy_stream(handle) }
        }
    }
}

/// An in-order queue of work on a device. Clones share the stream, which is drained and returned with the last one.
#[derive(Clone)]
pub struct Stream(Arc<StreamCore>);

impl Stream {
    pub(crate) fn over(device: Arc<DeviceCore>, handle: StreamHandle, owned: bool) -> Stream {
        Stream::new(device, handle, owned, None)
    }

    /// Wraps a foreign stream, with an event of this program.
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
            queueing: AtomicU32::new(0),
            failures: Arc::new(Failures::default()),
            channel_at: AtomicU64::new(0),
            scratch: Renewable::default(),
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

    /// The driver's handle; zero for the default stream, and for all streams of a device without native streams.
    pub fn handle(&self) -> u64 {
        self.0.handle.0
    }

    /// The vendor's handle, also of the default stream: for libraries that queue work on it. With the handle zero they
    /// would use their own default stream, which the device orders before and after ours.
    pub fn native_handle(&self) -> u64 {
        self.0.device.driver.native_stream(self.0.handle)
    }

    /// Its number in the program, zero for the default stream. Messages and profiles name streams so.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Whether two streams belong to one device. Waiting for another device's stream may take time.
    pub fn is_of_device_of(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.0.device, &other.0.device)
    }

    /// False once the program it belongs to has ended.
    pub fn alive(&self) -> bool {
        !self.0.device.is_closed()
    }

    /// The version of the buffer that contains this address, for later work on this stream. Equal versions imply equal
    /// contents. `None` if unknown: the memory does not belong to this device, others may write to it, another stream
    /// may still write to it, or writes are not counted.
    pub fn version_at(&self, address: u64) -> Option<Version> {
        self.0.device.version_at(&self.0, address)
    }

    /// True when all work queued until now is done.
    pub fn query(&self) -> Result<bool> {
        self.0.device.check_open("stream")?;
        refuse_while_capturing("the host cannot query a stream")?;
        // SAFETY: the stream is alive.
        let done = self.0.after_lanes(|| unsafe { self.0.device.driver.query_stream(self.0.handle) })?;
        if done {
            self.0.note_host_wait();
        }
        Ok(done)
    }

    /// Waits until all work of this stream is done, and writes its printed text. Reports an unreported failure.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        refuse_while_capturing("the host cannot wait for a stream")?;
        let core = &*self.0;
        if core.device.immediate {
            return self.drain(caller, || ());
        }
        core.settle(caller);
        if core.last.is_some() && !nesting::inside() {
            // Others' work on it counts as well; the caller that names a stream keeps it alive.
            core.device.check_open("stream")?;
            // SAFETY: as above.
            unsafe { core.wait_or_abandon(caller)? };
        }
        core.wait_for_host(caller)
    }

    /// Waits until the work of this stream is done. Failures are left for the next call that reports them.
    pub fn finish(&self, caller: &dyn Caller) -> Result<()> {
        if self.0.device.immediate {
            return Ok(());
        }
        self.0.settle(caller);
        self.0.wait_quietly(caller)
    }

    /// Cancels queued work, and the work on other streams that it waits for. Returns false if the device does not
    /// support this.
    pub fn cancel(&self) -> bool {
        let core = &*self.0;
        let cancels = core.owned && core.device.driver.cancels();
        if cancels {
            // SAFETY: the stream is alive.
            unsafe { core.device.driver.cancel(Some(core.handle)) }
        }
        cancels
    }

    /// Releases the stream without waiting: it is given back once its work is done and another is made.
    pub fn release(self) {
        if self.alive() && !self.query().unwrap_or(true) {
            lock(&self.0.device.unnamed).push(self.0.clone());
        }
    }

    /// As [`Stream::synchronize`]; calls `then` before another launch may start.
    pub(crate) fn drain(&self, caller: &dyn Caller, then: impl FnOnce()) -> Result<()> {
        let core = &*self.0;
        core.wait_until_unused(caller)?;
        let waited = core.in_order(caller, || {
            let waited = core.wait_for_own_work(caller);
            then();
            waited
        });
        core.drain_log_after_wait(caller);
        core.device.printer.flush();
        waited?;
        core.report_pending()
    }
}

impl StreamCore {
    /// Waits for the stream's work inside a launch, and reports an unreported failure.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn wait_in_turn(&self, scratch: &mut Scratch, caller: &dyn Caller) -> Result<()> {
        // SAFETY: the contract above.
        let waited = unsafe { self.wait_or_cancel(caller) };
        self.drain_log(scratch);
        waited?;
        self.report_pending()
    }

    /// Waits for the stream's work, which uses memory that the caller wants back. If the caller is interrupted, the
    /// work is canceled if the device supports it.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn wait_or_cancel(&self, caller: &dyn Caller) -> Result<()> {
        let driver = &*self.device.driver;
        if !driver.cancels() || !caller.can_be_interrupted() {
            // SAFETY: the contract above.
            return unsafe { self.wait(caller) };
        }
        caller.will_block();
        let mut canceled = false;
        // SAFETY: the contract above.
        while !unsafe { driver.synchronize_for(self.handle, LOOK)? } {
            if !canceled && caller.is_interrupted() {
                canceled = true;
                // SAFETY: the contract above.
                unsafe { driver.cancel(Some(self.handle)) }
            }
        }
        self.note_host_wait();
        if canceled { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// True while another library captures the work that is queued on its stream.
    pub(crate) fn is_captured(&self) -> Result<bool> {
        // The runtime never begins a capture, so its own streams are never captured. SAFETY: the stream is alive.
        Ok(!self.owned && self.handle.0 != 0 && unsafe { self.device.driver.is_capturing(self.handle)? })
    }

    /// Rejects operations that are impossible on a foreign stream while its owner captures it.
    pub(crate) fn check_not_capturing(&self, doing: &str) -> Result<()> {
        if !self.is_captured()? {
            return Ok(());
        }
        let message =
            format!("a stream that is being captured into a graph cannot {doing}: do this before the capture begins");
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Waits for the stream's work, unless this thread is part of it.
    pub(crate) fn wait_quietly(&self, caller: &dyn Caller) -> Result<()> {
        self.device.check_open("stream")?;
        if nesting::inside() {
            return Ok(());
        }
        let waited = self.wait_for_own_work(caller);
        if !is_interrupt(&waited) {
            self.drain_log_after_wait(caller);
        }
        waited
    }

    /// Waits for the stream's work, writes its printed text, and reports an unreported failure.
    pub(crate) fn wait_for_host(&self, caller: &dyn Caller) -> Result<()> {
        let waited = self.wait_quietly(caller);
        self.device.printer.flush();
        waited?;
        self.report_pending()
    }

    /// Waits until no launch is being made and all work is done.
    pub(crate) fn drain(&self, caller: &dyn Caller) -> Result<()> {
        self.wait_until_unused(caller)?;
        let waited = self.in_order(caller, || self.wait_for_own_work(caller));
        self.drain_log_after_wait(caller);
        waited
    }

    /// Reports an unreported failure.
    #[inline]
    pub(crate) fn report_pending(&self) -> Result<()> {
        if self.failures.any() { self.report() } else { Ok(()) }
    }

    fn take_failure(&self) -> Option<Failure> {
        self.failures.take().map(|f| Failure { stream: self.number, ..f })
    }

    /// Orders the default stream after all concurrent launches.
    fn settle(&self, caller: &dyn Caller) {
        if self.waits_for_others() {
            self.in_order(caller, || ());
        }
    }

    /// Does `work`, which takes no turn otherwise, on the default stream after all concurrent launches.
    pub(crate) fn after_lanes<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.waits_for_others() { self.in_order(&Uninterruptible, work) } else { work() }
    }

    /// Launches that are this stream's may be elsewhere.
    #[inline]
    fn waits_for_others(&self) -> bool {
        self.number == 0 && self.device.launches_elsewhere.get().is_some()
    }

    /// Does `work` while no other thread uses the stream.
    pub(crate) fn in_order<T>(&self, caller: &dyn Caller, work: impl FnOnce() -> T) -> T {
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
            self.check_not_capturing("be waited for, nor launch kernels that return a value or write to host memory")?;
            caller.will_block();
        }
        // SAFETY: the contract above.
        unsafe { self.device.driver.synchronize(self.handle) }?;
        self.note_host_wait();
        Ok(())
    }

    /// The host knows that all work of the stream is done.
    #[inline]
    fn note_host_wait(&self) {
        if let Some(watch) = self.device.watch.get()
            && !nesting::is_unnoticed()
        {
            watch.host_waited(self.number);
        }
    }

    /// Like [`StreamCore::wait`], but an interrupted caller abandons the wait.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn wait_or_abandon(&self, caller: &dyn Caller) -> Result<()> {
        if self.device.immediate || !caller.can_be_interrupted() {
            // SAFETY: the contract above.
            return unsafe { self.wait(caller) };
        }
        self.check_not_capturing("be waited for")?;
        caller.will_block();
        // SAFETY: the contract above.
        let wait = || unsafe { self.device.driver.synchronize_for(self.handle, LOOK) };
        abandon_if_interrupted(caller, &self.device.wait_was_abandoned, wait)?;
        self.note_host_wait();
        Ok(())
    }

    #[cold]
    fn report(&self) -> Result<()> {
        match self.take_failure() {
            Some(failure) => self.device.races.report_failure(failure),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("handle", &self.0.handle.0).finish()
    }
}
