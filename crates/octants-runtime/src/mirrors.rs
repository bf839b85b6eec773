//! [`Mirrors`]: copies of a device's memory on the other devices of a launch on all of them.
//!
//! Users and other launches see the memory of the first device. A launch on all devices uses copies of it on the
//! others. A copy is made on first use, and renewed when the memory may have changed. If writes to the memory are
//! counted ([`Version`]), unchanged memory is not copied again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::buffer::{Buffer, HostAccess, Version};
use crate::caller::Caller;
use crate::cores::BufferCore;
use crate::device::Device;
use crate::error::Result;
use crate::peer_copies::CopiedRange;
use crate::report::lock;
use crate::stream::Stream;

/// The copies on one other device of the first device's memory.
pub struct Mirrors {
    first: Device,
    other: Device,
    /// By the number of the buffer.
    known: Mutex<HashMap<u64, Mirror>>,
}

struct Mirror {
    of: Weak<BufferCore>,
    copy: Buffer,
    /// The contents that it holds, if known.
    holds: Option<Version>,
}

impl Mirrors {
    /// No copies yet.
    pub fn new(first: &Device, other: &Device) -> Mirrors {
        Mirrors { first: first.clone(), other: other.clone(), known: Mutex::default() }
    }

    /// For a launch on the other device, the address of the copy of this memory of the first device. `None` if there is
    /// no memory of the first device. If the host executes the launches of both immediately, memory that the launch
    /// only reads is not copied.
    ///
    /// # Errors
    /// The drivers'.
    pub fn address(&self, address: u64, written: bool, stream: &Stream, caller: &dyn Caller) -> Result<Option<u64>> {
        let is_shared = self.first.is_immediate() && self.other.is_immediate();
        if is_shared && !written && self.first.is_host_addressable() {
            return Ok(Some(address));
        }
        let Some(buffer) = self.first.core().find_buffer(address) else { return Ok(None) };
        let buffer = Buffer::of(buffer);
        let version = self.first.default_stream().version_at(address);
        let mut known = lock(&self.known);
        if !known.contains_key(&buffer.number()) {
            known.retain(|_, mirror| mirror.of.strong_count() > 0);
            let copy = self.other.allocate(buffer.bytes())?;
            known.insert(buffer.number(), Mirror { of: buffer.downgrade(), copy, holds: None });
        }
        let mirror = known.get_mut(&buffer.number()).expect("compiler bug: the mirror was inserted above");
        if version.is_none() || mirror.holds != version {
            mirror.holds = None;
            self.copy(&buffer, &mirror.copy, stream, caller)?;
            mirror.holds = version;
        }
        Ok(Some(mirror.copy.address().0 + (address - buffer.address().0)))
    }

    /// Records that a launch on all devices has written equally to the memory at this address and to its copy.
    pub fn note_written(&self, address: u64) {
        let version = self.first.default_stream().version_at(address);
        let Some(buffer) = self.first.core().find_buffer(address) else { return };
        if let Some(mirror) = lock(&self.known).get_mut(&buffer.id) {
            mirror.holds = version;
        }
    }

    fn copy(&self, from: &Buffer, to: &Buffer, stream: &Stream, caller: &dyn Caller) -> Result<()> {
        let whole = [CopiedRange { to: 0, from: 0, bytes: from.bytes() }];
        let on = (!self.other.is_immediate()).then_some(stream);
        if self.other.copy_between((to, on), (&self.first, from), &whole, caller)? {
            return Ok(());
        }
        from.wait(HostAccess::Read, caller)?;
        let mut bytes = vec![0; from.bytes() as usize];
        from.read(0, &mut bytes, caller)?;
        to.write(0, &bytes, caller)
    }
}

impl Buffer {
    fn downgrade(&self) -> Weak<BufferCore> {
        Arc::downgrade(self.core())
    }
}

impl Device {
    /// The buffer that holds this address.
    pub fn buffer_at(&self, address: u64) -> Option<Buffer> {
        self.core().find_buffer(address).map(Buffer::of)
    }
}

impl Stream {
    /// Notes that work on this stream uses and changes memory that no argument of a launch addresses.
    pub fn note_use(&self, buffer: &Buffer) {
        if !self.core().device.immediate {
            buffer.note_use(self.core(), true);
        }
    }
}
