//! Waits of one device's streams for the work of another device.
//!
//! Devices of the same driver library can wait for each other's events: the later stream waits, and the host continues.
//! Otherwise the host waits for the event before anything is queued. It waits only for that event, so that no other
//! stream of either device is delayed.

use crate::caller::Caller;
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::EventHandle;
use crate::error::Result;
use crate::nesting::refuse_while_capturing;

/// The operation that a capture rejects.
pub(crate) const OTHER_DEVICE: &str = "a wait for another device's work cannot be recorded";

impl DeviceCore {
    /// Streams of this device can wait for the other one's events, and the other way round.
    pub(crate) fn shares_events_with(&self, other: &DeviceCore) -> bool {
        match (self.driver.peer(), other.driver.peer()) {
            (Some(own), Some(peer)) => own.library == peer.library,
            _ => false,
        }
    }
}

impl StreamCore {
    /// Makes later work of this stream wait for an event of another device.
    ///
    /// # Safety
    /// The event is that device's, and alive.
    pub(crate) unsafe fn wait_for_peer(&self, of: &DeviceCore, event: EventHandle, caller: &dyn Caller) -> Result<()> {
        refuse_while_capturing(OTHER_DEVICE)?;
        let here = &*self.device;
        if here.shares_events_with(of) {
            // SAFETY: the contract above; the stream is held.
            self.after_lanes(|| unsafe { here.driver.wait_events(self.handle, &[event]) })?;
        } else {
            // SAFETY: as above.
            unsafe { of.wait_for_event(event, caller)? };
            if let Some(watch) = of.watch.get() {
                watch.host_waited_for_event(event);
            }
        }
        if let Some(watch) = of.watch.get() {
            watch.wait_elsewhere(self, event);
        }
        Ok(())
    }
}
