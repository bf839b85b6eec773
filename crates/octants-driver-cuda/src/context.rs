//! [`Context`]: a device with its primary context, and the thread's way into it.
//!
//! The primary context is the one that libraries of CUDA's runtime use, so that memory, streams and events of all are good for all. It
//! is retained for good: making it anew takes a fifth of a second, which a program that is started again would pay each time, and
//! other libraries may have put their state into it.

use octants_runtime::Result;

use crate::calls::Calls;
use crate::symbols::{CuContext, CuDevice, number};

/// A device's context with its checked calls.
#[derive(Debug)]
pub struct Context {
    calls: Calls,
    handle: CuContext,
    /// The device, counted as CUDA counts them.
    pub ordinal: u32,
    /// Its handle.
    pub device: CuDevice,
    /// Name for messages: the maker's name of the device.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// The CUDA version of the driver, as [`Calls::driver_version`].
    pub driver: i32,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
}

// SAFETY: a context may be used from any thread; handles are values.
unsafe impl Send for Context {}
// SAFETY: as above. The library locks what needs a lock.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of a device.
    pub fn new(calls: Calls, ordinal: u32, driver: i32) -> Result<Context> {
        let device = calls.device(ordinal)?;
        let attribute = |a| calls.device_attribute(device, a);
        let major = attribute(number::DEVICE_CAPABILITY_MAJOR)? as u32;
        let minor = attribute(number::DEVICE_CAPABILITY_MINOR)? as u32;
        let multiprocessors = attribute(number::DEVICE_MULTIPROCESSOR_COUNT)?.max(1) as u32;
        let (name, memory) = (calls.device_name(device)?, calls.device_memory(device)?);
        let handle = calls.retain_primary(device)?;
        Ok(Context {
            calls,
            handle,
            ordinal,
            device,
            name,
            capability: (major, minor),
            driver,
            memory,
            multiprocessors,
        })
    }

    /// The calls, with the context made the thread's own for as long as the value lives.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'_>> {
        // The library keeps the current context in a thread-local variable: asking costs some nanoseconds, and is right whatever other
        // libraries do to the thread in between.
        let current = self.calls.current()?;
        let restore = current != self.handle && self.switch(current)?;
        Ok(Entered { context: self, restore, mode: None })
    }

    /// As [`Context::enter`], for calls that have nothing to do with a capture of a stream that another library may be making: CUDA
    /// forbids many calls to the whole process while one is made, and ends the capture if they come, unless the thread says
    /// that it knows what it does.
    #[inline]
    pub fn enter_aside(&self) -> Result<Entered<'_>> {
        let mut entered = self.enter()?;
        entered.mode = Some(self.calls.exchange_capture_mode(number::CAPTURE_MODE_RELAXED)?);
        Ok(entered)
    }

    /// As [`Context::enter_aside`] for what gives things back: `None` where CUDA has ended already (at the end of the process), which has
    /// given back everything.
    pub fn enter_to_free(&self) -> Option<Entered<'_>> {
        self.enter_aside().ok()
    }

    /// Makes the context current; true when another has to be put back.
    #[cold]
    fn switch(&self, current: CuContext) -> Result<bool> {
        // SAFETY: the context is retained.
        unsafe {
            if current.is_null() {
                self.calls.set_current(self.handle)?;
                return Ok(false);
            }
            // Another device's: its library would find itself on this one if it stayed so.
            self.calls.push_current(self.handle)?;
            Ok(true)
        }
    }

    /// The calls that need no context.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }
}

/// The calls of a context that is the thread's own.
#[derive(Debug)]
pub struct Entered<'a> {
    context: &'a Context,
    restore: bool,
    /// What captures forbid to the thread otherwise.
    mode: Option<i32>,
}

impl std::ops::Deref for Entered<'_> {
    type Target = Calls;

    #[inline]
    fn deref(&self) -> &Calls {
        &self.context.calls
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // There is no one to tell of an error, nor below.
            let _ = self.context.calls.exchange_capture_mode(mode);
        }
        if self.restore {
            // SAFETY: pushed by `switch`.
            let _ = unsafe { self.context.calls.pop_current() };
        }
    }
}
