//! Fills and copies that a device performs for the host, on the default stream, when the user names no stream.
//!
//! To the user they behave like host operations: they run after all work that uses the memory, and before all later
//! launches on any stream. The host waits only if there are streams that are not ordered with the default one.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::capture;
use crate::cores::{DeviceCore, StreamCore};
use crate::device::Device;
use crate::error::Result;
use crate::foreign::Once;
use crate::report::lock;
use crate::stream::Stream;

impl DeviceCore {
    /// Makes an adopted stream wait for the last such work.
    pub(crate) fn order_after_host_work(&self, stream: &StreamCore) -> Result<()> {
        let Some(mark) = *lock(&self.host_work) else { return Ok(()) };
        // SAFETY: the stream is alive; the event is kept until the program ends.
        unsafe { self.wait_events(stream.handle, &[mark])? };
        if let Some(watch) = self.watch.get() {
            watch.wait(stream, mark);
        }
        Ok(())
    }

    /// The program has ended.
    pub(crate) fn forget_host_work(&self) {
        if let Some(mark) = lock(&self.host_work).take() {
            // SAFETY: made below, and no one else has it.
            unsafe { self.driver.destroy_event(mark) }
        }
    }
}

impl Device {
    /// The default stream, ordered after all work that uses these buffers.
    pub fn default_stream_after(&self, buffers: &[&Buffer]) -> Result<Stream> {
        let stream = self.default_stream();
        if let Some(capture) = capture::current() {
            capture.fence();
            return Ok(stream.clone());
        }
        for buffer in buffers {
            for user in buffer.users().iter().filter(|u| !std::ptr::eq(Arc::as_ptr(u), Arc::as_ptr(stream.core()))) {
                let once = Once::new(self.core())?;
                // SAFETY: the default stream lives as long as the device.
                unsafe { user.order_before(stream.core().handle, once.event())? };
                if let Some(watch) = self.core().watch.get() {
                    watch.record(user, once.event());
                    watch.wait(stream.core(), once.event());
                }
            }
        }
        Ok(stream.clone())
    }

    /// To be called once such work is queued on the default stream.
    pub fn end_host_work(&self, caller: &dyn Caller) -> Result<()> {
        let (core, stream) = (self.core(), self.default_stream());
        if let Some(capture) = capture::current() {
            capture.fence();
            return Ok(());
        }
        if core.immediate {
            return Ok(());
        }
        if core.live_streams().len() > 1 {
            return stream.synchronize(caller);
        }
        self.mark_host_work()
    }

    /// Makes new streams wait for the work queued on the default stream.
    pub(crate) fn mark_host_work(&self) -> Result<()> {
        let (core, stream) = (self.core(), self.default_stream());
        let mut mark = lock(&core.host_work);
        let event = match *mark {
            Some(mark) => mark,
            None => *mark.insert(core.driver.create_event(false)?),
        };
        // SAFETY: the default stream lives as long as the device.
        unsafe { core.record_event(stream.core().handle, event)? };
        if let Some(watch) = core.watch.get() {
            watch.record(stream.core(), event);
        }
        Ok(())
    }
}
