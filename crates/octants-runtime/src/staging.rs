//! [`Staging`]: a stream's pinned memory, through which the host passes data without waiting.
//!
//! The host fills a block, work on the stream reads it, and an event after that work marks the block as free. Blocks
//! become free in the order of their use, as the stream works in order. A small block also keeps device memory for its
//! contents, which saves an allocation and a free per launch.

use std::collections::VecDeque;

use crate::caller::Caller;
use crate::driver::{Contents, DevicePtr, Driver, EventHandle, StreamHandle};
use crate::error::Result;

/// Maximum number of bytes that queued work may hold. A caller that needs more waits for the oldest work.
pub(crate) const MOST_BUSY: u64 = 256 << 20;
/// Bytes kept for later while nothing uses them.
const MOST_IDLE: u64 = 64 << 20;
/// Blocks up to this size keep memory of the device.
const MOST_DEVICE_COPY: u64 = 256 << 10;
/// Smallest block.
const LEAST: u64 = 4 << 10;
/// Blocks above this size are multiples of it, those below are powers of two.
const COARSE: u64 = 1 << 20;

/// Pinned memory with its own event.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) memory: DevicePtr,
    bytes: u64,
    event: EventHandle,
    /// Device memory for its contents, allocated when first needed.
    device_copy: Option<DevicePtr>,
}

impl Block {
    fn new(driver: &dyn Driver, bytes: u64) -> Result<Block> {
        let bytes = if bytes > COARSE { bytes.next_multiple_of(COARSE) } else { bytes.next_power_of_two().max(LEAST) };
        let event = driver.create_event(false)?;
        // SAFETY: the size is not zero; the event was made above and is not used.
        let memory = unsafe { driver.allocate_pinned(bytes).inspect_err(|_| driver.destroy_event(event))? };
        Ok(Block { memory, bytes, event, device_copy: None })
    }

    /// Device memory for its contents, valid while the caller holds the block; `None` for a large one.
    pub(crate) fn device_copy(&mut self, driver: &dyn Driver, stream: StreamHandle) -> Result<Option<DevicePtr>> {
        if self.device_copy.is_none() && self.bytes <= MOST_DEVICE_COPY {
            // SAFETY: the stream is alive; the block is used by work of that stream only.
            self.device_copy = Some(unsafe { driver.allocate(Some(stream), self.bytes, Contents::Any)? });
        }
        Ok(self.device_copy)
    }

    fn destroy(self, driver: &dyn Driver) {
        // SAFETY: made by this driver; no work uses it any more.
        unsafe {
            if let Some(device_copy) = self.device_copy {
                driver.free(StreamHandle(0), device_copy, self.bytes);
            }
            driver.free_pinned(self.memory, self.bytes);
            driver.destroy_event(self.event);
        }
    }

    /// # Safety
    /// `from` has `bytes` bytes, which fit the block from `offset` on, and no work uses the block.
    pub(crate) unsafe fn write(&self, offset: u64, from: *const u8, bytes: u64) {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: the contract above; pinned memory is the host's to write.
        unsafe { std::ptr::copy_nonoverlapping(from, (self.memory.0 + offset) as *mut u8, bytes as usize) }
    }
}

impl Block {
    /// # Safety
    /// `to` has room for `bytes` bytes, which the block has from `offset` on, and no work uses the block.
    pub(crate) unsafe fn read(&self, offset: u64, to: *mut u8, bytes: u64) {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: the contract above; pinned memory is the host's to read.
        unsafe { std::ptr::copy_nonoverlapping((self.memory.0 + offset) as *const u8, to, bytes as usize) }
    }
}

/// A stream's blocks.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    idle: Vec<Block>,
    /// Read by queued work, the oldest first.
    busy: VecDeque<Block>,
    busy_bytes: u64,
}

impl Staging {
    /// A block of at least `bytes` bytes that the host may write now. Waits if queued work uses too much memory.
    pub(crate) fn take(&mut self, driver: &dyn Driver, bytes: u64, caller: &dyn Caller) -> Result<Block> {
        self.collect(driver)?;
        while self.busy_bytes + bytes > MOST_BUSY
            && let Some(first) = self.busy.front()
        {
            caller.will_block();
            // SAFETY: the event is the block's.
            unsafe { driver.synchronize_event(first.event)? };
            self.take_back();
        }
        let fits = |b: &&Block| b.bytes >= bytes && b.bytes <= 4 * bytes.max(LEAST);
        let best = self.idle.iter().filter(fits).map(|b| b.bytes).min();
        if let Some(at) = self.idle.iter().position(|b| Some(b.bytes) == best) {
            return Ok(self.idle.swap_remove(at));
        }
        let idle: u64 = self.idle.iter().map(|b| b.bytes).sum();
        if idle + bytes > MOST_IDLE {
            self.idle.drain(..).for_each(|b| b.destroy(driver));
        }
        Block::new(driver, bytes)
    }

    /// Takes a block back once the work queued on `stream` until now is done. An error means that this was waited for.
    pub(crate) fn release(&mut self, driver: &dyn Driver, stream: StreamHandle, block: Block) -> Result<()> {
        // SAFETY: the stream is alive, the event is the block's.
        let recorded = unsafe { driver.record_event(stream, block.event) };
        if recorded.is_ok() {
            self.busy_bytes += block.bytes;
            self.busy.push_back(block);
        } else {
            // SAFETY: as above. An error of the wait leaves nothing that could use the memory.
            let _ = unsafe { driver.synchronize(stream) };
            self.idle.push(block);
        }
        recorded
    }

    /// Takes a block back that no work uses.
    pub(crate) fn put_idle(&mut self, block: Block) {
        self.idle.push(block);
    }

    /// Moves blocks whose work is done to the idle ones.
    fn collect(&mut self, driver: &dyn Driver) -> Result<()> {
        while let Some(first) = self.busy.front() {
            // SAFETY: the event is the block's.
            if !unsafe { driver.query_event(first.event)? } {
                break;
            }
            self.take_back();
        }
        Ok(())
    }

    fn take_back(&mut self) {
        if let Some(block) = self.busy.pop_front() {
            self.busy_bytes -= block.bytes;
            self.idle.push(block);
        }
    }

    /// Gives all back. The stream's work is done.
    pub(crate) fn free(&mut self, driver: &dyn Driver) {
        self.idle.drain(..).chain(self.busy.drain(..)).for_each(|b| b.destroy(driver));
        self.busy_bytes = 0;
    }
}
