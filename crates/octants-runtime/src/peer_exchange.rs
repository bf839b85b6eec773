//! [`PeerExchange`]: repeated copies between the devices of a process, between the tasks of a launch on all of them.
//!
//! Each receiving device has a separate stream for the copies, so they overlap with independent work. Events order a
//! copy after the work that is queued on the streams of both devices when the exchange begins, and before work that is
//! queued after the exchange ends. If the host can address all of the memory, the host copies immediately.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::caller::Caller;
use crate::cores::DeviceCore;
use crate::device::Device;
use crate::driver::{DevicePtr, EventHandle, Peer};
use crate::error::{ErrorKind, Result};
use crate::nesting::refuse_while_capturing;
use crate::stream::Stream;

/// A range of bytes on one of the devices.
#[derive(Debug, Clone)]
pub struct PeerRange {
    /// The device, by its position.
    pub device: usize,
    /// The memory.
    pub buffer: Buffer,
    /// The first byte.
    pub offset: u64,
}

/// A copy of bytes from one device to another, or within a device.
#[derive(Debug, Clone)]
pub struct PeerCopy {
    /// Where to.
    pub to: PeerRange,
    /// Where from.
    pub from: PeerRange,
    /// How many bytes.
    pub bytes: u64,
}

/// An event that is recorded at each exchange.
struct Mark {
    device: Arc<DeviceCore>,
    event: EventHandle,
}

impl Mark {
    fn new(device: &Arc<DeviceCore>) -> Result<Mark> {
        Ok(Mark { device: device.clone(), event: device.driver.create_event(false)? })
    }

    fn record(&self, stream: &Stream) -> Result<()> {
        let core = stream.core();
        // SAFETY: the stream is held, and the event is this value's.
        unsafe { self.device.driver.record_event(core.handle, self.event)? };
        if let Some(watch) = self.device.watch.get() {
            watch.record(core, self.event);
        }
        Ok(())
    }

    /// Makes later work on a stream of any of the devices wait.
    fn order_before(&self, stream: &Stream, caller: &dyn Caller) -> Result<()> {
        let core = stream.core();
        if !Arc::ptr_eq(&core.device, &self.device) {
            // SAFETY: the event is alive.
            return unsafe { core.wait_for_peer(&self.device, self.event, caller) };
        }
        // SAFETY: as above; the stream is held.
        unsafe { self.device.driver.wait_events(core.handle, &[self.event])? };
        if let Some(watch) = self.device.watch.get() {
            watch.wait(core, self.event);
        }
        Ok(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if !self.device.is_abandoned() {
            // SAFETY: the event belongs to this value. Work that waits for it is not affected.
            unsafe { self.device.driver.destroy_event(self.event) }
        }
    }
}

/// A device that takes part.
struct Side {
    device: Arc<DeviceCore>,
    peer: Option<Peer>,
    /// The work before the exchange.
    ready: Mark,
    /// The stream of the copies to this device, and the end of the copies.
    receives: Option<(Stream, Mark)>,
}

/// Copies that are made at each exchange.
pub struct PeerExchange {
    /// By position; `None` for a device that takes no part, and for all if the host copies.
    sides: Vec<Option<Side>>,
    copies: Vec<PeerCopy>,
    on_host: bool,
}

impl PeerExchange {
    /// An exchange between these devices. Copies to a device are queued on its stream among `streams`, which must not
    /// be those of the launches.
    ///
    /// # Errors
    /// A range is outside its buffer or on another device; the devices cannot copy; the driver's errors.
    pub fn new(devices: &[&Device], streams: &[Stream], copies: Vec<PeerCopy>) -> Result<PeerExchange> {
        for copy in &copies {
            for range in [&copy.to, &copy.from] {
                range.buffer.at(range.offset, copy.bytes)?;
                if devices.get(range.device).is_none_or(|device| !range.buffer.is_of(device.core())) {
                    return Err(ErrorKind::ForeignDevice { what: "array" }.into());
                }
            }
        }
        let on_host = devices.iter().all(|device| device.is_host_addressable());
        let mut sides: Vec<Option<Side>> = devices.iter().map(|_| None).collect();
        if !on_host {
            for copy in &copies {
                for at in [copy.to.device, copy.from.device] {
                    if sides[at].is_none() {
                        sides[at] = Some(Side::new(devices[at])?);
                    }
                }
                let (to, from) = (devices[copy.to.device].core(), devices[copy.from.device].core());
                share(to, from)?;
                if let Some(Side { receives: receives @ None, .. }) = &mut sides[copy.to.device] {
                    *receives = Some((streams[copy.to.device].clone(), Mark::new(to)?));
                }
            }
        }
        Ok(PeerExchange { sides, copies, on_host })
    }

    /// Begins the copies, after the work queued on these streams, one for each device. If the host copies, it waits for
    /// that work, and the copies are complete on return.
    ///
    /// # Errors
    /// The drivers'; an array whose program has ended.
    pub fn begin(&self, streams: &[Stream], caller: &dyn Caller) -> Result<()> {
        refuse_while_capturing("a copy between devices cannot be recorded")?;
        if self.on_host {
            return self.copies.iter().try_for_each(copy_on_host);
        }
        for (side, stream) in self.sides.iter().zip(streams) {
            side.as_ref().map_or(Ok(()), |side| side.ready.record(stream))?;
        }
        for (at, side) in self.sides.iter().enumerate() {
            let Some(Side { receives: Some((on, arrived)), ready, .. }) = side else { continue };
            ready.order_before(on, caller)?;
            for sender in self.senders(at) {
                sender.ready.order_before(on, caller)?;
            }
            for copy in self.copies.iter().filter(|copy| copy.to.device == at) {
                self.queue(copy, on)?;
            }
            arrived.record(on)?;
        }
        Ok(())
    }

    /// Makes later work on these streams come after the copies.
    ///
    /// # Errors
    /// The drivers'.
    pub fn finish(&self, streams: &[Stream], caller: &dyn Caller) -> Result<()> {
        for (at, side) in self.sides.iter().enumerate() {
            let Some(Side { receives: Some((_, arrived)), .. }) = side else { continue };
            arrived.order_before(&streams[at], caller)?;
            for (from, stream) in streams.iter().enumerate() {
                if from != at && self.sends(from, at) {
                    arrived.order_before(stream, caller)?;
                }
            }
        }
        Ok(())
    }

    fn sends(&self, from: usize, to: usize) -> bool {
        self.copies.iter().any(|copy| copy.from.device == from && copy.to.device == to)
    }

    fn senders(&self, to: usize) -> impl Iterator<Item = &Side> {
        let sends = move |(from, _): &(usize, _)| *from != to && self.sends(*from, to);
        self.sides.iter().enumerate().filter(sends).filter_map(|(_, side)| side.as_ref())
    }

    fn queue(&self, copy: &PeerCopy, on: &Stream) -> Result<()> {
        let (PeerRange { buffer: to, .. }, PeerRange { buffer: from, .. }) = (&copy.to, &copy.from);
        let (_to_pinned, _from_pinned) = (to.pin()?, from.pin()?);
        let (at, source) = (to.at(copy.to.offset, copy.bytes)?, from.at(copy.from.offset, copy.bytes)?);
        let (driver, handle) = (&on.core().device.driver, on.core().handle);
        let peer = self.sides[copy.from.device].as_ref().and_then(|side| side.peer);
        // SAFETY: the ranges are checked and pinned. Frees come after the work of the launch's streams, which waits for
        // this copy.
        unsafe {
            match peer.filter(|_| copy.from.device != copy.to.device) {
                Some(peer) => driver.copy_from_peer(handle, at, peer, source, copy.bytes),
                None => driver.copy_on_device(handle, at, source, copy.bytes),
            }
        }
    }
}

impl Side {
    fn new(device: &Device) -> Result<Side> {
        let core = device.core();
        Ok(Side { device: core.clone(), peer: core.driver.peer(), ready: Mark::new(core)?, receives: None })
    }
}

impl std::fmt::Debug for PeerExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.sides.iter().flatten().map(|side| side.device.label()).collect();
        f.debug_struct("PeerExchange").field("between", &names).field("copies", &self.copies.len()).finish()
    }
}

/// Lets two devices access each other's memory.
fn share(here: &DeviceCore, there: &DeviceCore) -> Result<()> {
    if std::ptr::eq(here, there) {
        return Ok(());
    }
    match (here.driver.peer(), there.driver.peer()) {
        (Some(own), Some(peer)) if own.library == peer.library => {
            here.driver.share_with(peer)?;
            there.driver.share_with(own)
        }
        _ => {
            let message = format!("{} and {} cannot copy from each other", here.label(), there.label());
            Err(ErrorKind::Misuse { message }.into())
        }
    }
}

fn copy_on_host(copy: &PeerCopy) -> Result<()> {
    let (_to_pinned, _from_pinned) = (copy.to.buffer.pin()?, copy.from.buffer.pin()?);
    let DevicePtr(to) = copy.to.buffer.at(copy.to.offset, copy.bytes)?;
    let DevicePtr(from) = copy.from.buffer.at(copy.from.offset, copy.bytes)?;
    // SAFETY: the ranges are checked and pinned, the host may address them, and no work uses them meanwhile.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, copy.bytes as usize) };
    Ok(())
}
