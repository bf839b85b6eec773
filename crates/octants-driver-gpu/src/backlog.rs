//! [`Backlogs`]: estimates how far the host is ahead of the streams.
//!
//! A graph of one kernel is the cheapest launch for the host. On the device, however, consecutive graphs have a gap of
//! about a microsecond more than kernels that overlap ([`crate::vendor::Vendor::launch_early`]). When work piles up on
//! a stream, the host's time does not matter, and the gaps do.

use std::sync::{Mutex, PoisonError};

use crate::context::Entered;
use crate::symbols::RawEvent;
use crate::symbols::RawStream;

/// Every this many launches, an event marks the position on the stream. A backlog is deep if the previous mark has not
/// been reached.
const EVERY: u32 = 16;
/// Streams with an estimate, hashed.
const PLACES: usize = 16;

#[derive(Debug, Default)]
struct Backlog {
    /// The stream's handle.
    stream: usize,
    launches: u32,
    /// Belongs to the device; recorded if `is_marked`.
    mark: Option<usize>,
    is_marked: bool,
    is_deep: bool,
}

/// The backlogs of a device's streams.
#[derive(Debug, Default)]
pub struct Backlogs([Mutex<Backlog>; PLACES]);

impl Backlogs {
    fn of(&self, stream: RawStream) -> &Mutex<Backlog> {
        // Handles are addresses, whose low bits are equal.
        &self.0[((stream as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize]
    }

    /// Counts a launch. Returns whether the device is known to be many launches behind.
    ///
    /// # Safety
    /// The stream is alive.
    pub unsafe fn count(&self, calls: &Entered<'_>, stream: RawStream) -> bool {
        // Another thread launches on a stream of the same place.
        let Ok(mut backlog) = self.of(stream).try_lock() else { return false };
        if backlog.stream != stream as usize {
            *backlog = Backlog { stream: stream as usize, mark: backlog.mark, ..Backlog::default() };
        }
        backlog.launches = backlog.launches.wrapping_add(1);
        if backlog.launches.is_multiple_of(EVERY) {
            // SAFETY: the contract above. An error is one of the device, which the launch reports.
            unsafe { backlog.advance(calls).unwrap_or_default() }
        }
        backlog.is_deep
    }

    /// To be called when a stream's work is done.
    pub fn clear(&self, stream: RawStream) {
        if let Ok(mut backlog) = self.of(stream).try_lock()
            && backlog.stream == stream as usize
        {
            (backlog.is_deep, backlog.is_marked) = (false, false);
        }
    }

    /// Destroys the marks.
    ///
    /// # Safety
    /// No launch is being made.
    pub unsafe fn end(&self, calls: &Entered<'_>) {
        for place in &self.0 {
            let mark = place.lock().unwrap_or_else(PoisonError::into_inner).mark.take();
            if let Some(mark) = mark {
                // SAFETY: made here, and used nowhere else.
                let _ = unsafe { calls.destroy_event(mark as RawEvent) };
            }
        }
    }
}

impl Backlog {
    /// # Safety
    /// The stream is alive.
    unsafe fn advance(&mut self, calls: &Entered<'_>) -> octants_runtime::Result<()> {
        // SAFETY: the contract above.
        unsafe {
            let mark = match self.mark {
                Some(mark) => mark as RawEvent,
                None => calls.create_event(false)?,
            };
            self.mark = Some(mark as usize);
            self.is_deep = self.is_marked && !calls.query_event(mark)?;
            self.is_marked = false;
            calls.record_event(mark, self.stream as RawStream)?;
            self.is_marked = true;
        }
        Ok(())
    }
}
