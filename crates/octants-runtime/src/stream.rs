//! [`Stream`] and the launcher.
//!
//! Work on a stream runs in order. A stream owns what a launch needs besides its arguments: a frame and result slots,
//! reused from launch to launch and grown when a kernel asks for more.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::buffer::{Buffer, PinnedBuffer};
use crate::device::DeviceCore;
use crate::driver::{Caller, DevicePtr, Launch, Patient, StreamHandle};
use crate::error::{ErrorKind, Result};
use crate::kernel::LoadedKernel;
use crate::nesting::{self, Inside};
use crate::report::Failures;

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
                let frame = core.driver.allocate(stream, bytes).map_err(|e| core.explain(e))?;
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

struct StreamCore {
    device: Arc<DeviceCore>,
    handle: StreamHandle,
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
        // SAFETY: the stream is alive until here. An error has been reported before or concerns no one any more.
        let _ = unsafe { device.driver.synchronize(handle) };
        self.wait_turn(&Patient).free(&device, handle);
    }
}

/// An in-order queue of work on a device. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<StreamCore>);

impl Stream {
    pub(crate) fn over(device: Arc<DeviceCore>, handle: StreamHandle) -> Stream {
        Stream(Arc::new(StreamCore {
            device,
            handle,
            failures: Arc::new(Failures::default()),
            scratch: Mutex::new(Scratch::EMPTY),
        }))
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
        let core = &*self.0;
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
        self.drain(caller, || ())
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
        if core.failures.any() { core.report() } else { Ok(()) }
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

impl StreamCore {
    /// # Safety
    /// As [`Stream::launch`]; `scratch` is used by no other work.
    #[inline]
    unsafe fn run(
        &self,
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
            frame: scratch.frame,
            result: scratch.result,
            seed: device.seed.load(Ordering::Relaxed),
            number: device.launches.fetch_add(1, Ordering::Relaxed),
            nested,
            failures: &self.failures,
            printer: &device.printer,
            caller,
        };
        for &task in &kernel.tasks {
            // SAFETY: the task is one of a kernel of this device, which the borrow keeps loaded; `args` by the contract.
            unsafe { device.driver.launch(self.handle, task, &launch)? };
            if device.immediate && self.failures.any() {
                self.report()?;
            }
        }
        if kernel.meta.result.is_empty() {
            return Ok(None);
        }
        if !device.immediate {
            // SAFETY: the stream is alive.
            unsafe { self.wait(caller)? };
            self.report()?;
        }
        // SAFETY: `reserve` made room for the result, and the work that writes it is done.
        Ok(Some(unsafe { Results::read(scratch.result, kernel.meta.result.len()) }))
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
    unsafe fn launch_nested(&self, kernel: &LoadedKernel, args: &[u64]) -> Result<Option<Results>> {
        let mut scratch = Scratch::EMPTY;
        // SAFETY: the caller's contract; the scratch is new.
        let end = unsafe { self.run(kernel, args, &mut scratch, &Patient, true) };
        scratch.free(&self.device, self.handle);
        end
    }

    #[cold]
    fn refuse(&self, kernel: &LoadedKernel, args: &[u64]) -> crate::error::DeviceError {
        if !Arc::ptr_eq(&self.device, &kernel.core) {
            let gone = !kernel.alive();
            return if gone {
                ErrorKind::ProgramGone { what: "kernel" }
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
        match self.failures.take() {
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
