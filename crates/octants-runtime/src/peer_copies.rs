//! Copies from the memory of one device to that of another, made by the devices.
//!
//! Two events order a copy: it runs after earlier work of the source's device that uses the source, and before later
//! such work. Each device tracks only its own streams, so the source's default stream waits for the copy and is
//! recorded as its user. The host does not wait for a copy on a stream that the user names. On the source's device, the
//! default stream, the streams that use the source, and new streams are ordered after the copy.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::cores::DeviceCore;
use crate::device::Device;
use crate::driver::EventHandle;
use crate::error::{ErrorKind, Result};
use crate::foreign::Once;
use crate::nesting::refuse_while_capturing;
use crate::stream::Stream;

/// A range of bytes in two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedRange {
    /// Offset in the destination buffer.
    pub to: u64,
    /// Offset in the source buffer.
    pub from: u64,
    /// Length.
    pub bytes: u64,
}

impl Device {
    /// Queues copies from another device's buffer to one of this device: on a stream of this device, or, without one,
    /// like a host operation: after all work that uses the memory and before later launches. Returns false, with
    /// nothing queued, if the devices do not support it.
    ///
    /// # Errors
    /// The drivers'; a range outside its buffer; buffers or a stream of other devices.
    pub fn copy_between(
        &self,
        (to, stream): (&Buffer, Option<&Stream>),
        (source, from): (&Device, &Buffer),
        ranges: &[CopiedRange],
        caller: &dyn Caller,
    ) -> Result<bool> {
        refuse_while_capturing("a copy between devices cannot be recorded")?;
        let (here, there) = (self.core(), source.core());
        if !to.is_of(here) || !from.is_of(there) {
            return Err(ErrorKind::ForeignDevice { what: "array" }.into());
        }
        if stream.is_some_and(|stream| !self.owns(stream)) {
            return Err(ErrorKind::ForeignDevice { what: "stream" }.into());
        }
        let (Some(own), Some(peer)) = (here.driver.peer(), there.driver.peer()) else { return Ok(false) };
        if !here.shares_events_with(there) {
            return Ok(false);
        }
        here.driver.share_with(peer)?;
        there.driver.share_with(own)?;
        let (_to_pinned, _from_pinned) = (to.pin()?, from.pin()?);
        let places: Vec<_> = ranges
            .iter()
            .map(|r| Ok((to.at(r.to, r.bytes)?, from.at(r.from, r.bytes)?, r.bytes)))
            .collect::<Result<_>>()?;
        let on = match stream {
            Some(stream) => stream.clone(),
            None => self.default_stream_after(&[to])?,
        };
        let reader = source.default_stream_after(&[from])?;
        for &(to, from, bytes) in &places {
            on.core().check_ranges("a copy", &[(to, bytes, true)], caller)?;
            reader.core().check_ranges("a copy", &[(from, bytes, false)], caller)?;
        }
        let (ready, copied) = (Once::new(there)?, Once::new(here)?);
        order((&reader, ready.event()), &on, caller)?;
        let end = on.core().in_order(caller, || {
            to.note_use(on.core(), true);
            let copy = |&(to, from, bytes): &(_, _, u64)| match bytes {
                0 => Ok(()),
                // SAFETY: the ranges are checked and pinned; frees are queued after this copy.
                _ => unsafe { here.driver.copy_from_peer(on.core().handle, to, peer, from, bytes) },
            };
            let end = places.iter().try_for_each(copy);
            on.core().mark_work().and(end)
        });
        from.note_use(reader.core(), false);
        let ordered = order((&on, copied.event()), &reader, caller);
        if ordered.is_err() {
            // Nothing else keeps the source as it is.
            // SAFETY: the stream is alive.
            unsafe { here.driver.synchronize(on.core().handle)? };
        }
        end.and(ordered)?;
        if stream.is_none() || !order_users(from, &reader, (here, copied.event()), caller)? {
            source.end_host_work(caller)?;
        } else {
            source.mark_host_work()?;
        }
        if stream.is_none() {
            self.end_host_work(caller)?;
        }
        Ok(true)
    }
}

/// Makes the streams that use the source, except its device's default stream, wait for the copy. Returns false if one
/// of them belongs to another library, so that the host must wait.
fn order_users(
    from: &Buffer,
    reader: &Stream,
    (of, copied): (&DeviceCore, EventHandle),
    caller: &dyn Caller,
) -> Result<bool> {
    let users: Vec<_> = from.users().into_iter().filter(|user| !Arc::ptr_eq(user, reader.core())).collect();
    if users.iter().any(|user| user.last.is_some()) {
        return Ok(false);
    }
    // SAFETY: the event is the caller's.
    users.iter().try_for_each(|user| unsafe { user.wait_for_peer(of, copied, caller) })?;
    Ok(true)
}

/// Makes later work on a stream of one device wait for the work queued on a stream of another, by an event of the
/// latter.
fn order((earlier, event): (&Stream, EventHandle), later: &Stream, caller: &dyn Caller) -> Result<()> {
    let earlier = earlier.core();
    // SAFETY: the streams are held, and the event is the caller's.
    unsafe {
        earlier.after_lanes(|| earlier.device.driver.record_event(earlier.handle, event))?;
        if let Some(watch) = earlier.device.watch.get() {
            watch.record(earlier, event);
        }
        later.core().wait_for_peer(&earlier.device, event, caller)
    }
}
