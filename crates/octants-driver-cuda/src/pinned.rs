//! [`Pinned`]: memory of the host that the device reaches at the same address.
//!
//! The system's calls take long and may wait for the device, so that blocks that come back are kept, up to a limit, for the next who
//! asks.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use octants_runtime::{DevicePtr, Result};

use crate::context::Context;
use crate::memory::explain;

/// Bytes kept at most.
const MOST_KEPT: u64 = 32 << 20;
/// Smallest block.
const LEAST: u64 = 64;
/// Blocks above this size are multiples of it, those below are powers of two.
const COARSE: u64 = 1 << 20;

/// The blocks that wait to be used again.
#[derive(Debug, Default)]
pub struct Pinned(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// Sizes and addresses; the last come back first.
    blocks: Vec<(u64, u64)>,
    bytes: u64,
    closed: bool,
}

impl Shelf {
    fn take(&mut self, size: u64) -> Option<u64> {
        let at = self.blocks.iter().rposition(|(s, _)| *s == size)?;
        self.bytes -= size;
        Some(self.blocks.remove(at).1)
    }

    /// False where there is no room.
    fn put(&mut self, size: u64, address: u64) -> bool {
        let fits = !self.closed && self.bytes + size <= MOST_KEPT;
        if fits {
            self.bytes += size;
            self.blocks.push((size, address));
        }
        fits
    }
}

/// The size of the block that serves `bytes`.
fn size_of_block(bytes: u64) -> u64 {
    if bytes > COARSE { bytes.next_multiple_of(COARSE) } else { bytes.next_power_of_two().max(LEAST) }
}

impl Pinned {
    fn shelf(&self) -> std::sync::MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`octants_runtime::Driver::allocate_pinned`].
    pub fn allocate(&self, context: &Context, bytes: u64) -> Result<DevicePtr> {
        let size = size_of_block(bytes);
        let known = self.shelf().take(size);
        let at = match known {
            Some(at) => at,
            None => {
                let calls = context.enter_aside()?;
                // SAFETY: the context is entered.
                let made = unsafe { calls.allocate_pinned(size) };
                made.map_err(|e| explain(&calls, context, bytes, e))? as u64
            }
        };
        // SAFETY: the block is ours and has that size.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, size as usize) };
        Ok(DevicePtr(at))
    }

    /// As [`octants_runtime::Driver::free_pinned`].
    ///
    /// # Safety
    /// The memory came from [`Pinned::allocate`] with as many bytes, and nothing uses it.
    pub unsafe fn free(&self, context: &Context, memory: DevicePtr, bytes: u64) {
        if self.shelf().put(size_of_block(bytes), memory.0) {
            return;
        }
        if let Some(calls) = context.enter_to_free() {
            // SAFETY: the contract above. An error leaves the memory to the end of the process.
            let _ = unsafe { calls.free_pinned(memory.0 as *mut c_void) };
        }
    }

    /// Gives back what is kept, and keeps nothing from now on.
    pub fn close(&self, context: &Context) {
        let blocks = {
            let mut shelf = self.shelf();
            shelf.closed = true;
            shelf.bytes = 0;
            std::mem::take(&mut shelf.blocks)
        };
        let Some(calls) = context.enter_to_free() else { return };
        for (_, at) in blocks {
            // SAFETY: the block was given back.
            let _ = unsafe { calls.free_pinned(at as *mut c_void) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_size_come_back_and_a_limit_holds() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.take(64), None);
        assert!(shelf.put(64, 0x1000) && shelf.put(64, 0x2000) && shelf.put(128, 0x3000));
        assert_eq!(shelf.take(64), Some(0x2000), "the one used last");
        assert_eq!(shelf.take(256), None);
        assert!(!shelf.put(MOST_KEPT, 0x4000));
        shelf.closed = true;
        assert!(!shelf.put(64, 0x5000));
    }

    #[test]
    fn sizes_are_rounded() {
        assert_eq!([1, 64, 65, 4096, COARSE].map(size_of_block), [64, 64, 128, 4096, COARSE]);
        assert_eq!(size_of_block(COARSE + 1), 2 * COARSE);
    }
}
