//! [`Streams`]: streams and events.
//!
//! Handle 0 is this program's default stream. It is a separate stream, so nothing uses the vendor's null stream, which
//! orders every other stream after it. It is, however, a blocking stream, which the null stream orders. Libraries that
//! use the null stream (PyTorch, unless configured otherwise) are therefore ordered with the default stream in both
//! directions, and handle 0 describes our stream correctly to them. Streams that a program creates are independent of
//! both: only events order them.

use octants_runtime::{ErrorKind, EventHandle, Result, StreamHandle};

use crate::context::Context;
use crate::symbols::{RawEvent, RawStream, number};

/// The explicit handle of the null stream.
const LEGACY: u64 = 1;
/// The handle of the per-thread default stream.
const PER_THREAD: u64 = 2;

/// The streams of a context.
#[derive(Debug)]
pub struct Streams {
    default: RawStream,
    /// The null stream.
    null: RawStream,
    /// The lowest and the highest priority; higher ones are smaller numbers.
    priorities: (i32, i32),
}

// SAFETY: handles are values; the library may be called from any thread.
unsafe impl Send for Streams {}
// SAFETY: as above.
unsafe impl Sync for Streams {}

/// The vendor's priority for one of ours, where higher numbers come first.
fn clamp_priority(priority: i32, (least, greatest): (i32, i32)) -> i32 {
    priority.saturating_neg().clamp(greatest.min(least), least)
}

impl Streams {
    /// Makes the default stream.
    pub fn new(context: &Context) -> Result<Streams> {
        let calls = context.enter_aside()?;
        // SAFETY: the context is entered.
        unsafe {
            let priorities = calls.priorities()?;
            let null = context.facts().null_stream as RawStream;
            Ok(Streams { default: calls.create_stream(number::STREAM_DEFAULT, 0)?, null, priorities })
        }
    }

    /// The vendor's handle.
    #[inline]
    pub fn resolve(&self, stream: StreamHandle) -> RawStream {
        match stream.0 {
            0 => self.default,
            LEGACY => self.null,
            handle => handle as RawStream,
        }
    }

    /// A new stream.
    pub fn create(&self, context: &Context, priority: i32) -> Result<StreamHandle> {
        let calls = context.enter_aside()?;
        let priority = clamp_priority(priority, self.priorities);
        // SAFETY: the context is entered.
        let stream = unsafe { calls.create_stream(number::STREAM_NON_BLOCKING, priority)? };
        Ok(StreamHandle(stream as u64))
    }

    /// Wraps an external stream.
    pub fn adopt(&self, context: &Context, handle: u64) -> Result<StreamHandle> {
        let calls = context.enter_aside()?;
        // A handle is an address that the driver dereferences. No call detects every wrong one, but small numbers are
        // never valid.
        if handle > PER_THREAD && handle < 4096 {
            let message = format!("{handle} is not the handle of a {} stream", context.facts().api);
            return Err(ErrorKind::Misuse { message }.into());
        }
        // SAFETY: the caller guarantees that the handle belongs to a stream.
        unsafe { calls.is_capturing(self.resolve(StreamHandle(handle)))? };
        Ok(StreamHandle(handle))
    }

    /// # Safety
    /// Made by [`Streams::create`]; its work is done.
    pub unsafe fn destroy(&self, context: &Context, stream: StreamHandle) {
        if let Some(calls) = context.enter_to_free() {
            // SAFETY: the contract above. At process exit, the stream may be destroyed already.
            let _ = unsafe { calls.destroy_stream(stream.0 as RawStream) };
        }
    }

    /// Waits for a stream's work.
    ///
    /// # Safety
    /// The stream is alive.
    pub unsafe fn synchronize(&self, context: &Context, stream: StreamHandle) -> Result<()> {
        let calls = context.enter_aside()?;
        // SAFETY: the contract above.
        unsafe {
            match stream.0 {
                // Per-thread stream: the waiting thread may differ from the launching one, so wait for all streams.
                PER_THREAD => calls.synchronize_all(),
                _ => calls.synchronize_stream(self.resolve(stream)),
            }
        }
    }

    /// A new event.
    pub fn create_event(&self, context: &Context, timing: bool) -> Result<EventHandle> {
        // SAFETY: the context is entered.
        unsafe { context.enter_aside()?.create_event(timing).map(|e| EventHandle(e as u64)) }
    }

    /// # Safety
    /// Made by [`Streams::create_event`]. The library keeps it while work waits for it.
    pub unsafe fn destroy_event(&self, context: &Context, event: EventHandle) {
        if let Some(calls) = context.enter_to_free() {
            // SAFETY: the contract above.
            let _ = unsafe { calls.destroy_event(event.0 as RawEvent) };
        }
    }

    /// Gives the default stream back.
    pub fn end(&self, context: &Context) {
        // SAFETY: the owner calls this once, at its own end.
        unsafe { self.destroy(context, StreamHandle(self.default as u64)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_clamped_to_the_range_of_the_device() {
        let range = (0, -5);
        assert_eq!([0, 1, 5, 9, -3].map(|p| clamp_priority(p, range)), [0, -1, -5, -5, 0]);
        assert_eq!(clamp_priority(i32::MIN, range), 0);
        assert_eq!(clamp_priority(3, (0, 0)), 0);
    }
}
