//! Frees device memory in stream order, after the work that uses it.

use std::sync::Arc;

use crate::caller::Uninterruptible;
use crate::cores::{DeviceCore, Reclaim, StreamCore};
use crate::driver::{DevicePtr, StreamHandle};
use crate::error::{DeviceError, Result};
use crate::report::lock;

impl DeviceCore {
    /// Frees memory once the work queued on these streams is done.
    ///
    /// # Safety
    /// The memory came from `allocate` with this size and is given back once.
    pub(crate) unsafe fn free_after(&self, users: &[Arc<StreamCore>], memory: DevicePtr, bytes: u64) {
        if self.immediate || users.is_empty() {
            // SAFETY: the contract above; no queued work uses the memory.
            return unsafe { self.driver.free(StreamHandle(0), memory, bytes) };
        }
        // SAFETY: the users' streams are alive while their cores are; the memory by the contract.
        if unsafe { self.free_on_reclaim(users, memory, bytes) }.is_err() {
            for user in users {
                // Without events, and while the program ends, the host waits; an error leaves nothing that could use
                // the memory.
                let _ = user.wait_for_own_work(&Uninterruptible);
            }
            // SAFETY: as above.
            unsafe { self.driver.free(StreamHandle(0), memory, bytes) }
        }
    }

    /// # Safety
    /// As [`DeviceCore::free_after`]. After an error the memory is as it was.
    unsafe fn free_on_reclaim(&self, users: &[Arc<StreamCore>], memory: DevicePtr, bytes: u64) -> Result<()> {
        let mut reclaim = lock(&self.reclaim);
        // Checked under the lock that the program's end takes, because the stream ends with the program.
        self.check_open("device")?;
        let (stream, event) = match &*reclaim {
            Some(r) => (r.stream, r.event),
            None => {
                let stream = self.driver.create_stream(0)?;
                // SAFETY: made above and not used.
                let destroy = |_: &DeviceError| unsafe { self.driver.destroy_stream(stream) };
                let event = self.driver.create_event(false).inspect_err(destroy)?;
                *reclaim = Some(Reclaim { stream, event });
                (stream, event)
            }
        };
        // SAFETY: the users' streams are alive while their cores are; the memory by the contract.
        unsafe {
            for user in users {
                user.order_before(stream, event)?;
            }
            self.driver.free(stream, memory, bytes);
        }
        Ok(())
    }

    /// The program has ended: waits for the frees that are queued.
    pub(crate) fn end_reclaim(&self) {
        let Some(r) = lock(&self.reclaim).take() else { return };
        // SAFETY: made by this driver; the frees queued on it are waited for.
        unsafe {
            let _ = self.driver.synchronize(r.stream);
            self.driver.destroy_event(r.event);
            self.driver.destroy_stream(r.stream);
        }
    }
}
