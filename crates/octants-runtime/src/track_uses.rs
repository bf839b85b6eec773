//! Which streams use which buffers: recorded by each launch on an asynchronous device, and queried by host accesses.

use std::sync::{Arc, PoisonError, Weak};

use crate::buffer::Version;
use crate::cores::{Awaited, BufferCore, DeviceCore, StreamCore, Update};
use crate::driver::DevicePtr;
use crate::error::{ErrorKind, Result};
use crate::kernel::LoadedKernel;
use crate::report::lock;
use crate::stage_arguments::HostArray;
use crate::update_order::Updating;

impl DeviceCore {
    /// The buffer that holds this address.
    fn buffer_at(&self, address: u64) -> Option<Arc<BufferCore>> {
        // The lock is released before the buffer: another thread may have just dropped the buffer found, and the last
        // reference takes the lock to remove it from the map.
        let buffer = {
            let map = self.by_address.read().unwrap_or_else(PoisonError::into_inner);
            map.range(..=address).next_back().and_then(|(_, b)| b.upgrade())
        };
        buffer.filter(|b| address - b.address() < b.len())
    }

    /// The buffer that holds this address, on any device; on a synchronous device, by a search of all buffers.
    pub(crate) fn find_buffer(&self, address: u64) -> Option<Arc<BufferCore>> {
        if !self.immediate {
            return self.buffer_at(address);
        }
        // As above, buffers are released outside the lock.
        let all: Vec<_> = lock(&self.buffers).values().filter_map(Weak::upgrade).collect();
        all.into_iter().find(|b| b.address() <= address && address - b.address() < b.len())
    }

    /// Refuses a launch with an address that is known not to belong to the device, which is a mistake of the code that
    /// filled the slots.
    pub(crate) fn check_addresses(&self, kernel: &LoadedKernel, args: &[u64]) -> Result<()> {
        for p in kernel.pointers.iter() {
            let address = args[p.slot as usize];
            if address != 0 && !self.driver.reaches(DevicePtr(address)) && !kernel.holds_row_zero(p) {
                let (name, slot, device) = (&kernel.meta.name, p.slot, self.driver.name());
                let what = format!("kernel `{name}`, argument slot {slot}: {address:#x} is not an address of {device}");
                return Err(ErrorKind::CompilerBug(what).into());
            }
        }
        Ok(())
    }

    pub(crate) fn register(&self, buffer: &Arc<BufferCore>) {
        lock(&self.buffers).insert(buffer.id, Arc::downgrade(buffer));
        if !self.immediate && buffer.len() > 0 {
            let mut map = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
            map.insert(buffer.address(), Arc::downgrade(buffer));
        }
    }

    pub(crate) fn forget(&self, buffer: &BufferCore) {
        lock(&self.buffers).remove(&buffer.id);
        if !self.immediate && buffer.len() > 0 {
            // Another buffer may be there, once retired memory was freed.
            let mut map = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
            if map.get(&buffer.address()).is_some_and(|known| std::ptr::eq(known.as_ptr(), buffer)) {
                map.remove(&buffer.address());
            }
        }
    }

    /// Records that a launch on `stream` uses the memory that its arguments address, except that of `arrays`. Returns
    /// true if some of it is other host memory: the launch must then wait for its work, because nothing else tracks the
    /// users of that memory. If the device cannot address host memory, the address belongs to device memory of another
    /// library, which orders its uses.
    ///
    /// Adds the streams for whose updates the launch must wait.
    pub(crate) fn note_uses(
        &self,
        stream: &Arc<StreamCore>,
        kernel: &LoadedKernel,
        (args, arrays): (&[u64], &[HostArray]),
        updating: &mut Updating<'_>,
        awaited: &mut Awaited,
    ) -> bool {
        let (mut foreign, update) = (false, Update::of(kernel));
        for p in kernel.pointers.iter() {
            let address = args[p.slot as usize];
            // Launches on split arrays record the uses of these arrays themselves.
            if address == 0 || kernel.holds_row_zero(p) || arrays.iter().any(|a| a.slot == p.slot) {
                continue;
            }
            match self.buffer_at(address) {
                Some(buffer) => {
                    buffer.note_launch(stream, p.written, update, awaited);
                    if kernel.exposes_addresses {
                        buffer.expose();
                    }
                }
                None => {
                    foreign = true;
                    if p.written {
                        updating.note_foreign(update, awaited);
                    }
                }
            }
        }
        foreign && self.driver.is_host_addressable()
    }

    /// The contents of the buffer at an address, for work that is queued on `stream` from now on: see
    /// [`BufferCore::version`]. `None` if it is not a buffer of this device, or if writes to it may go unnoticed:
    /// because launches do not, or because the host does so by address.
    pub(crate) fn version_at(&self, stream: &Arc<StreamCore>, address: u64) -> Option<Version> {
        if self.immediate || self.host_addressable {
            return None;
        }
        self.buffer_at(address)?.version(stream)
    }
}
