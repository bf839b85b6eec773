//! Ordering between this program's streams and those of other libraries. Foreign streams are known by the driver's
//! handle only; no state is kept for them.

use std::sync::Arc;

use crate::buffer::{Buffer, HostAccess};
use crate::caller::Caller;
use crate::capture;
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::{EventHandle, StreamHandle};
use crate::error::Result;
use crate::foreign_api::ForeignApi;
use crate::nesting::refuse_while_capturing;
use crate::stream::Stream;

/// An event for one use.
pub(crate) struct Once<'a> {
    device: &'a DeviceCore,
    event: EventHandle,
}

impl<'a> Once<'a> {
    pub(crate) fn new(device: &'a DeviceCore) -> Result<Once<'a>> {
        Ok(Once { device, event: device.driver.create_event(false)? })
    }

    /// The event.
    pub(crate) fn event(&self) -> EventHandle {
        self.event
    }

    /// Makes `later` wait for the work queued on `earlier`.
    ///
    /// # Safety
    /// Both streams live.
    unsafe fn order(&self, earlier: StreamHandle, later: StreamHandle) -> Result<()> {
        // SAFETY: the contract above; the event is this value's.
        unsafe {
            self.device.record_event(earlier, self.event)?;
            self.device.wait_events(later, &[self.event])
        }
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if self.device.is_measured() {
            self.device.profile.forget_event(self.event.0);
        }
        // SAFETY: created above. Work that waits for it is not affected.
        unsafe { self.device.driver.destroy_event(self.event) }
    }
}

impl DeviceCore {
    /// The stream with a handle that another library gave: one of this program's own, or theirs.
    fn stream_of_handle(&self, handle: u64) -> Result<StreamHandle> {
        if self.is_own(handle) { Ok(StreamHandle(handle)) } else { self.driver.adopt_stream(handle) }
    }

    fn is_own(&self, handle: u64) -> bool {
        self.live_streams().iter().any(|s| s.handle.0 == handle)
    }

    /// The device as DLPack names it.
    pub(crate) fn dlpack_device(&self) -> (i32, i32) {
        self.driver.foreign_api().map_or_else(|| self.driver.dlpack_device(), ForeignApi::dlpack_device)
    }
}

impl Buffer {
    /// Before the memory is handed to another library: makes the stream on which that uses it wait for all work of this
    /// program that uses it. The stream is the one with handle `to`; for `None`, the default stream of other libraries;
    /// if the driver has no such stream, the host waits. Returns the handle of the stream that waits.
    pub fn hand_over(&self, to: Option<u64>, caller: &dyn Caller) -> Result<Option<u64>> {
        let device = self.device();
        device.check_open("array")?;
        refuse_while_capturing("an array cannot be handed to another library")?;
        if let Some(api) = device.driver.foreign_api() {
            return self.hand_over_to(api, to.unwrap_or_else(|| api.unnamed_stream())).map(Some);
        }
        let later = match to {
            Some(handle) => Some(device.stream_of_handle(handle)?),
            None => device.driver.unnamed_stream(),
        };
        let Some(later) = later else {
            self.wait(HostAccess::Write, caller)?;
            return Ok(None);
        };
        let users: Vec<Arc<StreamCore>> = self.users();
        let earlier: Vec<_> = users.iter().filter(|s| s.handle != later).collect();
        if !earlier.is_empty() {
            let once = Once::new(device)?;
            for stream in earlier {
                // SAFETY: the users are held; the other is the caller's to keep.
                unsafe { stream.order_before(later, once.event)? };
            }
        }
        Ok(Some(later.0))
    }

    /// As [`Buffer::hand_over`], to a stream of another interface to the device.
    fn hand_over_to(&self, api: &dyn ForeignApi, to: u64) -> Result<u64> {
        let device = self.device();
        let mut events = Vec::new();
        for stream in self.users() {
            let once = Once::new(device)?;
            // SAFETY: the users are held; the event is new.
            unsafe { device.record_event(stream.handle, once.event)? };
            events.push(once);
        }
        let handles: Vec<EventHandle> = events.iter().map(Once::event).collect();
        // SAFETY: the events are alive; the stream is the caller's to keep.
        unsafe { api.hand_over(to, &handles)? };
        Ok(to)
    }

    /// The address by which other libraries know the memory. It is shared with them until it is freed.
    pub fn shared_address(&self) -> Result<u64> {
        let device = self.device();
        device.check_open("array")?;
        match device.driver.foreign_api() {
            // SAFETY: the memory is this buffer's.
            Some(api) if self.bytes() > 0 => unsafe { api.share(self.address()) },
            _ => Ok(self.address().0),
        }
    }

    /// From now on another library may use the memory: it is given back only once all work of the device is done.
    pub fn note_foreign_use(&self) {
        self.share();
    }
}

impl Stream {
    /// Makes later work of this stream wait for the work queued on the stream with this handle, which another library
    /// created and keeps alive.
    pub fn wait_for_handle(&self, handle: u64) -> Result<()> {
        let core = self.core();
        core.device.check_open("stream")?;
        if core.device.immediate {
            return Ok(());
        }
        if let Some(capture) = capture::current() {
            capture.note_handle(handle);
            return Ok(());
        }
        if let Some(api) = core.device.driver.foreign_api()
            && !core.device.is_own(handle)
        {
            // SAFETY: this stream is held; the other is the caller's to keep.
            return unsafe { api.wait_for(core.handle, handle) };
        }
        let earlier = core.device.stream_of_handle(handle)?;
        if earlier == core.handle {
            return Ok(());
        }
        // SAFETY: this stream is held; the other is the caller's to keep.
        unsafe { Once::new(&core.device)?.order(earlier, core.handle) }
    }
}
