//! [`Pinned`]: host memory that the device can access at the same address.
//!
//! The system's calls are slow and may wait for the device. Freed blocks are therefore kept for reuse, up to a limit.
//! Small blocks are parts of large ones, which are kept until the device is closed.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use octants_runtime::{DevicePtr, Result};

use crate::context::Context;
use crate::memory::explain;

/// Maximum cached bytes.
const MOST_KEPT: u64 = 32 << 20;
/// Smallest block.
const LEAST: u64 = 64;
/// Blocks up to this size are cut from slabs.
const MOST_CUT: u64 = 256 << 10;
/// Bytes of a slab.
const SLAB: u64 = 4 << 20;
/// Blocks above this size are multiples of it, those below are powers of two.
const COARSE: u64 = 1 << 20;

/// Cached blocks.
#[derive(Debug, Default)]
pub struct Pinned(Mutex<FreeList>);

#[derive(Debug, Default)]
struct FreeList {
    /// Sizes and addresses, last in first out.
    blocks: Vec<(u64, u64)>,
    /// Bytes of cached blocks that are not cut from a slab.
    bytes: u64,
    slabs: Vec<u64>,
    /// The free part of the last slab.
    rest: u64,
    closed: bool,
}

impl FreeList {
    fn take(&mut self, size: u64) -> Option<u64> {
        let at = self.blocks.iter().rposition(|(s, _)| *s == size)?;
        if size > MOST_CUT {
            self.bytes -= size;
        }
        Some(self.blocks.remove(at).1)
    }

    /// A block of the last slab.
    fn cut(&mut self, size: u64) -> Option<u64> {
        let slab = *self.slabs.last().filter(|_| size <= MOST_CUT && size <= self.rest)?;
        self.rest -= size;
        Some(slab + self.rest)
    }

    /// False if there is no space.
    fn put(&mut self, size: u64, address: u64) -> bool {
        if size <= MOST_CUT {
            self.blocks.push((size, address));
            return true;
        }
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
    fn free_list(&self) -> std::sync::MutexGuard<'_, FreeList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`octants_runtime::Driver::allocate_pinned`].
    pub fn allocate(&self, context: &Context, bytes: u64) -> Result<DevicePtr> {
        let size = size_of_block(bytes);
        let known = {
            let mut free_list = self.free_list();
            free_list.take(size).or_else(|| free_list.cut(size))
        };
        let make = |size| {
            let calls = context.enter_aside()?;
            // SAFETY: the context is entered.
            let made = unsafe { calls.allocate_pinned(size) };
            made.map(|at| at as u64).map_err(|e| explain(&calls, context, bytes, e))
        };
        let at = match known {
            Some(at) => at,
            None if size > MOST_CUT => make(size)?,
            None => {
                let slab = make(SLAB)?;
                let mut free_list = self.free_list();
                free_list.slabs.push(slab);
                free_list.rest = SLAB - size;
                slab + free_list.rest
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
        if self.free_list().put(size_of_block(bytes), memory.0) {
            return;
        }
        if let Some(calls) = context.enter_to_free() {
            // SAFETY: the contract above. An error leaves the memory to the end of the process.
            let _ = unsafe { calls.free_pinned(memory.0 as *mut c_void) };
        }
    }

    /// Frees cached blocks, and caches none from now on.
    pub fn close(&self, context: &Context) {
        let blocks = {
            let mut free_list = self.free_list();
            free_list.closed = true;
            free_list.bytes = 0;
            let whole = |(size, _): &mut (u64, u64)| *size > MOST_CUT;
            free_list.blocks.extract_if(.., whole).collect::<Vec<_>>()
        };
        let Some(calls) = context.enter_to_free() else { return };
        for (_, at) in blocks {
            // SAFETY: the block was given back.
            let _ = unsafe { calls.free_pinned(at as *mut c_void) };
        }
    }
}

impl Pinned {
    /// Gives the slabs back. Nothing uses a block any more.
    pub fn end(&self, context: &Context) {
        let slabs = std::mem::take(&mut self.free_list().slabs);
        let Some(calls) = context.enter_to_free() else { return };
        for at in slabs {
            // SAFETY: made above; the owner calls this once, at its own end.
            let _ = unsafe { calls.free_pinned(at as *mut c_void) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_are_reused_within_a_limit() {
        let mut free_list = FreeList::default();
        assert_eq!(free_list.take(64), None);
        assert!(free_list.put(64, 0x1000) && free_list.put(64, 0x2000) && free_list.put(COARSE, 0x3000));
        assert_eq!(free_list.take(64), Some(0x2000), "the one used last");
        assert_eq!(free_list.take(256), None);
        assert!(!free_list.put(MOST_KEPT, 0x4000));
        free_list.closed = true;
        assert!(!free_list.put(2 * MOST_CUT, 0x5000) && free_list.put(64, 0x6000), "what is cut goes with its slab");
    }

    #[test]
    fn small_blocks_come_from_a_slab() {
        let mut free_list = FreeList::default();
        assert_eq!(free_list.cut(64), None);
        free_list.slabs.push(0x10000);
        free_list.rest = 256;
        assert_eq!((free_list.cut(64), free_list.cut(128)), (Some(0x10000 + 192), Some(0x10000 + 64)));
        assert_eq!((free_list.cut(128), free_list.cut(2 * MOST_CUT)), (None, None));
    }

    #[test]
    fn sizes_are_rounded() {
        assert_eq!([1, 64, 65, 4096, COARSE].map(size_of_block), [64, 64, 128, 4096, COARSE]);
        assert_eq!(size_of_block(COARSE + 1), 2 * COARSE);
    }
}
