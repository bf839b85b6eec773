//! [`Context`]: a device with its primary context, and how a thread enters it.
//!
//! The primary context is the one that libraries of the vendor's runtime use, so memory, streams and events can be
//! shared with them. It is never released: recreating it may take a fifth of a second, which a program that starts
//! again would pay each time, and other libraries may hold state in it.

use std::marker::PhantomData;
use std::sync::OnceLock;

use octants_runtime::Result;

use crate::library::Library;
use crate::symbols::{RawDevice, RawFunction, number};
use crate::vendor::{Facts, Located, Place};

/// A device's context with its library.
#[derive(Debug)]
pub struct Context {
    library: Library,
    place: Place,
    /// The device, counted as the vendor counts them.
    pub ordinal: u32,
    /// Its handle.
    pub device: RawDevice,
    /// Name for messages: the vendor's name of the device.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp: u32,
    /// Blocks of a launch can be resident all at the same time.
    pub cooperates: bool,
    /// The function that sets the switches of graphs, loaded on first use.
    pub(crate) decider: OnceLock<Option<RawFunction>>,
}

// SAFETY: a context may be used from any thread; handles are values.
unsafe impl Send for Context {}
// SAFETY: as above. The library locks what needs a lock.
unsafe impl Sync for Context {}

impl Context {
    /// The primary context of a device.
    pub fn new(library: Library, ordinal: u32) -> Result<Context> {
        let device = library.device(ordinal)?;
        let facts = library.facts();
        let multiprocessors = library.device_attribute(device, facts.multiprocessors)?.max(1) as u32;
        let warp = library.device_attribute(device, facts.warp)?.max(1) as u32;
        let cooperates = library.device_attribute(device, facts.cooperates).is_ok_and(|answer| answer != 0)
            && library.symbols.launch_resident.is_some();
        let (name, memory) = (library.device_name(device)?, library.device_memory(device)?);
        let place = library.open(device)?;
        let decider = OnceLock::new();
        Ok(Context { library, place, ordinal, device, name, memory, multiprocessors, warp, cooperates, decider })
    }

    /// The library's functions that need no current device.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The device, for functions on two devices.
    pub(crate) fn located(&self) -> Located {
        Located { device: self.device, place: self.place }
    }

    /// The vendor's constants and words.
    pub fn facts(&self) -> &'static Facts {
        self.library.facts()
    }

    /// Makes the device current on this thread, as long as the value lives.
    #[inline]
    pub fn enter(&self) -> Result<Entered<'_>> {
        // The library keeps the current device in a thread-local variable. Querying it costs some nanoseconds, and is
        // correct even if other libraries have changed it.
        let current = self.library.current()?;
        let restore = if current == self.place { None } else { self.switch(current)? };
        Ok(Entered { context: self, restore, mode: None, here: PhantomData })
    }

    /// As [`Context::enter`], for calls unrelated to a capture that another library may be making. During a capture
    /// many calls are forbidden in the whole process and invalidate it, unless the thread has a relaxed capture mode.
    #[inline]
    pub fn enter_aside(&self) -> Result<Entered<'_>> {
        let mut entered = self.enter()?;
        entered.mode = Some(self.library.exchange_capture_mode(number::CAPTURE_MODE_RELAXED)?);
        Ok(entered)
    }

    /// As [`Context::enter_aside`], for frees. `None` if the library has shut down (at the end of the process), which
    /// has freed everything.
    pub fn enter_to_free(&self) -> Option<Entered<'_>> {
        self.enter_aside().ok()
    }

    /// Makes the device current. Returns what must be restored, if anything.
    #[cold]
    fn switch(&self, from: Place) -> Result<Option<Place>> {
        // SAFETY: the place is the opened device's.
        let undone = unsafe { self.library.switch(from, self.place)? };
        Ok(undone.then_some(from))
    }
}

/// The calls on the thread's current device: see [`crate::calls`].
#[derive(Debug)]
pub struct Entered<'a> {
    context: &'a Context,
    restore: Option<Place>,
    /// The thread's previous capture mode.
    mode: Option<i32>,
    /// Keeps the value on its thread.
    here: PhantomData<*mut ()>,
}

impl Entered<'_> {
    /// The device.
    #[inline]
    pub fn context(&self) -> &Context {
        self.context
    }

    /// The library.
    #[inline]
    pub fn library(&self) -> &Library {
        &self.context.library
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.mode {
            // Errors cannot be reported here.
            let _ = self.context.library.exchange_capture_mode(mode);
        }
        if let Some(from) = self.restore {
            // SAFETY: this value made the switch, and does not leave its thread.
            unsafe { self.context.library.vendor.switch_back(from) }
        }
    }
}
