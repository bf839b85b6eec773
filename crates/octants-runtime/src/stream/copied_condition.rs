//! [`CopiedCondition`]: an integer on the device that the host waits for in its own memory.
//!
//! The stream copies the integer to a pinned word, after all work queued before. The host polls the word and sees the
//! copy without a driver call: a wait for the stream returns later, and in many drivers puts the thread to sleep. The
//! word holds a marker until then. If the integer equals the marker, the host learns of the copy from the driver.

use std::time::{Duration, Instant};

use crate::driver::{DevicePtr, Driver, StreamHandle};
use crate::error::Result;

/// An unlikely value of a condition, in each of its sizes.
const MARK: u64 = 0x5bd1_e995_a5c3_965a;
/// The word is watched for this long.
const WATCHED: Duration = Duration::from_micros(200);

/// A copy under way.
pub(super) struct CopiedCondition {
    word: *const u64,
    /// The bits of the word that are the integer.
    mask: u64,
}

impl CopiedCondition {
    /// Queues a copy of an integer, at this address and of this length.
    ///
    /// # Safety
    /// The stream is alive. The word is pinned, aligned, and used by nothing else until the copy has arrived.
    pub(super) unsafe fn queue(
        driver: &dyn Driver,
        on: StreamHandle,
        word: DevicePtr,
        (address, bytes): (u64, usize),
    ) -> Result<CopiedCondition> {
        let at = word.0 as *mut u64;
        // SAFETY: the contract above.
        unsafe {
            at.write_volatile(MARK);
            driver.copy_to_host(on, at.cast(), DevicePtr(address), bytes as u64)?;
        }
        let mask = if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        Ok(CopiedCondition { word: at, mask })
    }

    /// The integer; the marker until the copy has arrived.
    pub(super) fn value(&self) -> u64 {
        // SAFETY: the word lives as long as the copy. The device writes it concurrently.
        u64::from_le(unsafe { self.word.read_volatile() }) & self.mask
    }

    /// The copy has arrived. False if unknown.
    pub(super) fn is_there(&self) -> bool {
        let is_there = self.value() != MARK & self.mask;
        if is_there {
            // Makes the stream's writes before the copy visible too.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        }
        is_there
    }

    /// Watches for the copy for a short time; whether it has arrived.
    pub(super) fn watch(&self) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.is_there() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= WATCHED {
                return false;
            }
            std::thread::yield_now();
        }
    }
}
