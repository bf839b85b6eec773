//! [`Foreign`]: the interface through which libraries such as torch use the same physical device, with which memory is
//! shared.
//!
//! Memory crosses in one direction only: it is allocated here and imported there. A chunk is imported whole, when the
//! first allocation in it is shared, and released with the chunk.

use std::sync::{Arc, OnceLock, PoisonError};

use octants_driver_gpu::importer::{FindImporter, Importer};
use octants_runtime::{DevicePtr, EventHandle, ForeignApi, Result, StreamHandle};

use crate::event::Event;
use crate::gpu::Gpu;
use crate::memory::Memory;
use crate::sharing::Sharing;
use crate::stream::Stream;

/// See the file's text.
pub struct Foreign {
    gpu: Arc<Gpu>,
    importer: Arc<dyn Importer>,
    memory: Arc<Memory>,
    default: Arc<Stream>,
    /// Set up when memory is first shared.
    sharing: OnceLock<Arc<Sharing>>,
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Foreign({:?})", self.importer)
    }
}

impl Foreign {
    /// The interface to this device that one of these functions finds. `None` without one, or if the device's memory
    /// cannot be exported.
    pub(crate) fn find(
        finders: &[FindImporter],
        gpu: &Arc<Gpu>,
        memory: &Arc<Memory>,
        default: &Arc<Stream>,
    ) -> Option<Foreign> {
        let uuid = gpu.exports.as_ref()?.uuid;
        let importer = finders.iter().find_map(|find| find(&uuid))?.into();
        let (gpu, memory, default) = (gpu.clone(), memory.clone(), default.clone());
        Some(Foreign { gpu, importer, memory, default, sharing: OnceLock::new() })
    }

    fn sharing(&self) -> Result<&Arc<Sharing>> {
        if let Some(known) = self.sharing.get() {
            return Ok(known);
        }
        let _one = self.gpu.linking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sharing.get().is_none() {
            let made = Arc::new(Sharing::new(&self.gpu, &self.importer)?);
            self.default.share(made.clone());
            let _ = self.sharing.set(made);
        }
        Ok(self.sharing.get().expect("compiler bug: no link"))
    }

    /// Waits for the work there, if it may use shared memory.
    pub(crate) fn synchronize(&self) -> Result<()> {
        match self.sharing.get() {
            Some(_) => self.importer.synchronize(),
            None => Ok(()),
        }
    }
}

impl ForeignApi for Foreign {
    fn dlpack_device(&self) -> (i32, i32) {
        self.importer.dlpack_device()
    }

    fn unnamed_stream(&self) -> u64 {
        self.importer.unnamed_stream()
    }

    unsafe fn share(&self, memory: DevicePtr) -> Result<u64> {
        self.sharing()?;
        let address = self.memory.share(memory.0, &self.importer)?;
        // Work that was recorded before is not ordered with that of the other interface: it is submitted now.
        self.default.flush()?;
        Ok(address)
    }

    fn own_address(&self, address: u64) -> Option<DevicePtr> {
        self.memory.own_address(address).map(DevicePtr)
    }

    unsafe fn hand_over(&self, stream: u64, events: &[EventHandle]) -> Result<()> {
        let sharing = self.sharing()?;
        // SAFETY: the trait's contract.
        let points = events.iter().filter_map(|e| unsafe { Event::of(*e) }.stands_for()).collect();
        self.default.hand_over(sharing, points, stream)
    }

    unsafe fn wait_for(&self, stream: StreamHandle, foreign: u64) -> Result<()> {
        let point = self.sharing()?.after(foreign)?;
        // SAFETY: the trait's contract.
        unsafe { Stream::of(&self.default, stream) }.wait_for(point.into_iter().collect())
    }
}
