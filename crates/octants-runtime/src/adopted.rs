//! Streams created by another library. A call names such a stream by its handle; afterwards its owner may destroy it.
//!
//! After queuing work on such a stream, this program records an event of its own. Anything that later depends on that
//! work (a host read, a free, the end of the program) waits for the event and does not touch the stream. A call
//! therefore need not wait for its work just because the stream's owner may go away, and no destroyed stream is ever
//! used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::caller::Caller;
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::{EventHandle, StreamHandle};
use crate::error::Result;
use crate::report::lock;
use crate::stream::Stream;

/// Number of adopted streams from which completed ones are searched for and released.
const MANY: usize = 32;

impl DeviceCore {
    /// The adopted stream of this handle.
    pub(crate) fn adopt(self: &Arc<Self>, handle: u64) -> Result<Stream> {
        let stream = self.driver.adopt_stream(handle)?;
        let last = self.driver.create_event(false)?;
        let stream = Stream::adopted(self.clone(), stream, last);
        if !stream.core().is_captured()? {
            self.order_after_host_work(stream.core())?;
        }
        // Dropped outside the lock: the end of a stream takes other locks.
        let gone: Vec<_> = {
            let mut adopted = lock(&self.adopted);
            let gone =
                if adopted.len() < MANY { vec![] } else { adopted.extract_if(.., |s| s.is_forgotten()).collect() };
            adopted.push(stream.core().clone());
            gone
        };
        drop(gone);
        Ok(stream)
    }

    /// Releases all adopted streams.
    pub(crate) fn forget_adopted(&self) {
        let adopted = std::mem::take(&mut *lock(&self.adopted));
        drop(adopted);
    }
}

impl StreamCore {
    /// Whether only the device still refers to the stream, its work is done, and no graph uses its memory.
    fn is_forgotten(self: &Arc<Self>) -> bool {
        let Some(last) = self.last else { return false };
        // SAFETY: the event is the stream's.
        let done = || unsafe { self.device.driver.query_event(last) }.unwrap_or(false);
        Arc::strong_count(self) == 1 && !self.was_captured.load(Ordering::Relaxed) && done()
    }

    /// A call passes this handle again, possibly for a new stream: the stream waits for work that this program queued
    /// earlier under the handle.
    pub(crate) fn readopt(&self) -> Result<()> {
        match self.last {
            // SAFETY: the caller names the stream, so that it lives; the event is the stream's own.
            Some(last) if !self.is_captured()? => unsafe { self.device.driver.wait_events(self.handle, &[last]) },
            _ => Ok(()),
        }
    }

    /// Whether its owner may capture what this program queues on it into a graph. The runtime never captures its own
    /// streams.
    #[inline]
    pub(crate) fn may_be_captured(&self) -> bool {
        self.last.is_some()
    }

    /// Must be called after work was queued, while the stream is known to be alive.
    #[inline]
    pub(crate) fn mark_work(&self) -> Result<()> {
        match self.last {
            None => Ok(()),
            Some(last) => self.mark_foreign(last),
        }
    }

    fn mark_foreign(&self, last: EventHandle) -> Result<()> {
        if self.is_captured()? {
            // The owner of the graph decides when and how often the work runs.
            self.was_captured.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // SAFETY: the stream is alive by the contract, the event is its own. Without it the work is waited for here.
        unsafe {
            let marked = self.device.driver.record_event(self.handle, last);
            marked.inspect_err(|_| drop(self.device.driver.synchronize(self.handle)))
        }
    }

    /// Waits for the work that this program has queued.
    pub(crate) fn wait_for_own_work(&self, caller: &dyn Caller) -> Result<()> {
        let Some(last) = self.last else {
            // SAFETY: a stream that this program created lives as long as `self`.
            return unsafe { self.wait_or_abandon(caller) };
        };
        // SAFETY: the event is the stream's.
        unsafe { self.device.wait_for_event(last, caller) }
    }

    /// Makes `later` wait for the work that this program has queued here; if this program created the stream, it
    /// records `event` for this.
    ///
    /// # Safety
    /// `later` and `event` are alive.
    pub(crate) unsafe fn order_before(&self, later: StreamHandle, event: EventHandle) -> Result<()> {
        let driver = &*self.device.driver;
        // SAFETY: the contract above; a stream that this program created lives as long as `self`.
        unsafe {
            if self.last.is_none() {
                driver.record_event(self.handle, event)?;
            }
            driver.wait_events(later, &[self.last.unwrap_or(event)])
        }
    }
}
