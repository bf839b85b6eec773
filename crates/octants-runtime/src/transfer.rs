//! [`Transfers`]: host reads and writes of memory that the host cannot address.
//!
//! Transfers have their own stream, so a copy is not queued after unrelated work. They use two halves of pinned
//! memory: the device copies through one half while the host uses the other. The caller has already waited for
//! conflicting work, and waits here until the copy is done.

use std::sync::Mutex;

use crate::driver::{DevicePtr, Driver, EventHandle, StreamHandle};
use crate::error::Result;
use crate::report::lock;

/// Bytes of a half.
const HALF: u64 = 1 << 20;
/// Transfers kept for later; this many threads may copy at the same time without creating new ones.
const MOST_IDLE: usize = 4;

/// A device's transfers.
#[derive(Default)]
pub(crate) struct Transfers(Mutex<Vec<Transfer>>);

struct Transfer {
    /// Its own, or the default stream of a device that has only that one.
    stream: StreamHandle,
    owned: bool,
    halves: Vec<Half>,
}

struct Half {
    memory: DevicePtr,
    event: EventHandle,
}

impl Transfers {
    /// Copies from the device and waits for the copy.
    ///
    /// # Safety
    /// `from` is memory of this driver of at least `to`'s length, and no queued work writes to it.
    pub(crate) unsafe fn read(&self, driver: &dyn Driver, from: DevicePtr, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the contract above.
        self.with(driver, |t| unsafe { t.read(driver, from, to) })
    }

    /// Copies to the device and waits for the copy.
    ///
    /// # Safety
    /// `to` is memory of this driver of at least `from`'s length, and no queued work uses it.
    pub(crate) unsafe fn write(&self, driver: &dyn Driver, to: DevicePtr, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the contract above.
        self.with(driver, |t| unsafe { t.write(driver, to, from) })
    }

    /// Releases all idle transfers.
    pub(crate) fn trim(&self, driver: &dyn Driver) {
        let idle = std::mem::take(&mut *lock(&self.0));
        idle.into_iter().for_each(|t| t.destroy(driver));
    }

    fn with(&self, driver: &dyn Driver, copy: impl FnOnce(&Transfer) -> Result<()>) -> Result<()> {
        let idle = lock(&self.0).pop();
        let transfer = match idle {
            Some(transfer) => transfer,
            None => Transfer::new(driver)?,
        };
        let end = copy(&transfer);
        if end.is_ok() {
            let mut idle = lock(&self.0);
            if idle.len() < MOST_IDLE {
                idle.push(transfer);
                return end;
            }
        }
        transfer.destroy(driver);
        end
    }
}

impl Transfer {
    fn new(driver: &dyn Driver) -> Result<Transfer> {
        let owned = !driver.is_immediate();
        let stream = if owned { driver.create_stream(0)? } else { StreamHandle(0) };
        let mut made = Transfer { stream, owned, halves: Vec::with_capacity(2) };
        for _ in 0..2 {
            match Half::new(driver) {
                Ok(half) => made.halves.push(half),
                Err(e) => {
                    made.destroy(driver);
                    return Err(e);
                }
            }
        }
        Ok(made)
    }

    fn destroy(self, driver: &dyn Driver) {
        // SAFETY: made by this driver; its work is waited for. An error of the wait leaves nothing that could use the
        // memory.
        unsafe {
            let _ = driver.synchronize(self.stream);
            for half in self.halves {
                driver.destroy_event(half.event);
                driver.free_pinned(half.memory, HALF);
            }
            if self.owned {
                driver.destroy_stream(self.stream);
            }
        }
    }

    /// # Safety
    /// As [`Transfers::read`].
    unsafe fn read(&self, driver: &dyn Driver, from: DevicePtr, to: &mut [u8]) -> Result<()> {
        if to.len() as u64 <= HALF {
            let memory = self.halves[0].memory;
            // SAFETY: the bytes are in both, and the copy is waited for.
            unsafe {
                driver.copy_to_host(self.stream, memory.0 as *mut u8, from, to.len() as u64)?;
                driver.synchronize(self.stream)?;
                std::ptr::copy_nonoverlapping(memory.0 as *const u8, to.as_mut_ptr(), to.len());
            }
            return Ok(());
        }
        let mut before: Option<(&Half, &mut [u8])> = None;
        let mut at = from.0;
        for (part, half) in to.chunks_mut(HALF as usize).zip(self.halves.iter().cycle()) {
            let bytes = part.len() as u64;
            // SAFETY: the part is in both; the half was emptied two parts ago.
            unsafe {
                driver.copy_to_host(self.stream, half.memory.0 as *mut u8, DevicePtr(at), bytes)?;
                driver.record_event(self.stream, half.event)?;
            }
            at += bytes;
            if let Some((half, part)) = before.replace((half, part)) {
                // SAFETY: the copy into this half was queued one part ago.
                unsafe { half.empty(driver, part)? }
            }
        }
        // SAFETY: as above.
        before.map_or(Ok(()), |(half, part)| unsafe { half.empty(driver, part) })
    }

    /// # Safety
    /// As [`Transfers::write`].
    unsafe fn write(&self, driver: &dyn Driver, to: DevicePtr, from: &[u8]) -> Result<()> {
        let mut at = to.0;
        for (i, (part, half)) in from.chunks(HALF as usize).zip(self.halves.iter().cycle()).enumerate() {
            let bytes = part.len() as u64;
            // SAFETY: the range is in both; the copy of the half's previous contents has been waited for.
            unsafe {
                if i >= self.halves.len() {
                    driver.synchronize_event(half.event)?;
                }
                std::ptr::copy_nonoverlapping(part.as_ptr(), half.memory.0 as *mut u8, part.len());
                driver.copy_to_device(self.stream, DevicePtr(at), half.memory.0 as *const u8, bytes)?;
                if from.len() as u64 > HALF {
                    driver.record_event(self.stream, half.event)?;
                }
            }
            at += bytes;
        }
        // SAFETY: the stream is alive.
        unsafe { driver.synchronize(self.stream) }
    }
}

impl Half {
    fn new(driver: &dyn Driver) -> Result<Half> {
        let event = driver.create_event(false)?;
        // SAFETY: made above and not used.
        let memory = unsafe { driver.allocate_pinned(HALF).inspect_err(|_| driver.destroy_event(event))? };
        Ok(Half { memory, event })
    }

    /// # Safety
    /// The copy into this half is before its event and has `to`'s length.
    unsafe fn empty(&self, driver: &dyn Driver, to: &mut [u8]) -> Result<()> {
        // SAFETY: the contract above.
        unsafe {
            driver.synchronize_event(self.event)?;
            std::ptr::copy_nonoverlapping(self.memory.0 as *const u8, to.as_mut_ptr(), to.len());
        }
        Ok(())
    }
}
