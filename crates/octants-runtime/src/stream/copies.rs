//! Copies and fills of buffers, in stream order.

use super::Stream;
use crate::buffer::{Buffer, PinnedBuffer};
use crate::caller::Caller;
use crate::capture;
use crate::cores::StreamCore;
use crate::driver::DevicePtr;
use crate::error::{ErrorKind, Result};
use crate::nesting::{self, refuse_while_capturing};
use crate::pattern::Pattern;
use crate::staging::{Block, MOST_BUSY};

/// Bytes of a fill that the host makes.
const FILLED_BY_HOST: u64 = 64 << 10;

impl Stream {
    /// Copies host memory into a buffer, after the work queued so far, and waits until that is done.
    pub fn write(&self, to: &Buffer, offset: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = from.len() as u64;
        let (_pinned, address) = core.range(to, offset, bytes)?;
        core.check_ranges("a copy from the host", &[(address, bytes, true)], caller)?;
        if let Some(capture) = capture::current() {
            core.note_site(caller);
            return capture.note_upload(&self.0, (to, address), from);
        }
        core.in_order(caller, || {
            if !core.device.immediate {
                to.note_use(&self.0, true);
            }
            // SAFETY: the range is checked and pinned, and `from` outlives the wait.
            unsafe { core.device.driver.copy_to_device(core.handle, address, from.as_ptr(), bytes)? };
            // SAFETY: the stream is alive.
            unsafe { core.wait(caller) }
        })
    }

    /// Copies from a buffer to host memory, after the work queued so far, and waits until that is done.
    pub fn read(&self, from: &Buffer, offset: u64, to: &mut [u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = to.len() as u64;
        let (_pinned, from) = core.range(from, offset, bytes)?;
        refuse_while_capturing("the host cannot read an array")?;
        core.in_order(caller, || {
            // SAFETY: the range is checked and pinned, and `to` outlives the wait.
            unsafe { core.device.driver.copy_to_host(core.handle, to.as_mut_ptr(), from, bytes)? };
            // SAFETY: the stream is alive.
            unsafe { core.wait(caller) }
        })
    }

    /// Copies host memory into a buffer, after the work queued so far. Returns immediately, with the memory read; a
    /// large copy waits.
    pub fn upload(&self, to: &Buffer, offset: u64, from: &[u8], caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        let bytes = from.len() as u64;
        if core.device.immediate || !nesting::is_plain() || bytes == 0 || bytes > MOST_BUSY {
            return self.write(to, offset, from, caller);
        }
        self.device_open()?;
        let (_pinned, to_address) = core.range(to, offset, bytes)?;
        core.check_ranges("a copy from the host", &[(to_address, bytes, true)], caller)?;
        self.with_block(to, bytes, caller, |block| {
            // SAFETY: the block has room and is ours; it stays as it is until its event.
            unsafe {
                block.write(0, from.as_ptr(), bytes);
                core.device.driver.copy_to_device(core.handle, to_address, block.memory.0 as *const u8, bytes)
            }
        })
    }

    /// Sets a range of a buffer to copies of an element, after the work queued so far. Returns when that is queued.
    pub fn fill(&self, to: &Buffer, offset: u64, element: &[u8], count: u64, caller: &dyn Caller) -> Result<()> {
        let core = &*self.0;
        self.device_open()?;
        let size = element.len() as u64;
        let bytes = size.saturating_mul(count);
        let (_pinned, start) = core.range(to, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        if let Some(capture) = capture::current() {
            core.note_site(caller);
            return capture.note_fill(&self.0, (to, start), element, count);
        }
        core.check_ranges("a fill", &[(start, bytes, true)], caller)?;
        let pattern = Pattern::of(element).filter(|p| start.0.is_multiple_of(p.bytes()));
        if let Some(pattern) = pattern.filter(|_| !core.device.immediate) {
            let filled = core.in_order(caller, || {
                to.note_use(&self.0, true);
                // SAFETY: the range is checked and pinned; frees are queued after this.
                let filled = unsafe { core.device.driver.fill(core.handle, start, pattern, bytes) };
                core.mark_work().and(filled)
            });
            if filled? {
                return Ok(());
            }
        }
        // The host writes the first repetitions, and the device doubles them.
        let first = size * (FILLED_BY_HOST / size).clamp(1, count);
        let double = || {
            let mut done = first;
            while done < bytes {
                let next = done.min(bytes - done);
                // SAFETY: both are adjacent parts of the checked range.
                unsafe { core.device.driver.copy_on_device(core.handle, DevicePtr(start.0 + done), start, next)? };
                done += next;
            }
            Ok(())
        };
        if core.device.immediate || nesting::inside() {
            self.write(to, offset, &element.repeat((first / size) as usize), caller)?;
            return core.in_order(caller, || {
                let end = double();
                if !core.device.immediate {
                    to.note_use(&self.0, true);
                }
                end
            });
        }
        self.with_block(to, first, caller, |block| {
            // SAFETY: the block has room and is ours; it stays as it is until its event.
            unsafe {
                (0..first / size).for_each(|n| block.write(n * size, element.as_ptr(), size));
                core.device.driver.copy_to_device(core.handle, start, block.memory.0 as *const u8, first)?;
            }
            double()
        })
    }

    fn device_open(&self) -> Result<()> {
        self.0.device.check_open("stream")
    }

    /// Queues work that reads a pinned block and writes to `to`.
    fn with_block(
        &self,
        to: &Buffer,
        bytes: u64,
        caller: &dyn Caller,
        work: impl FnOnce(&Block) -> Result<()>,
    ) -> Result<()> {
        let core = &self.0;
        core.check_not_capturing("take a copy of the host's memory")?;
        let mut scratch = core.wait_turn(caller);
        let block = scratch.staging.take(&*core.device.driver, bytes, caller).map_err(|e| core.device.explain(e))?;
        to.note_use(core, true);
        let end = work(&block);
        let end = end.and(scratch.staging.release(&*core.device.driver, core.handle, block));
        core.mark_work().and(end)
    }

    /// Queues a copy from one buffer to another.
    pub fn copy(
        &self,
        to: &Buffer,
        to_offset: u64,
        from: &Buffer,
        from_offset: u64,
        bytes: u64,
        caller: &dyn Caller,
    ) -> Result<()> {
        let core = &*self.0;
        let (_to_pinned, to_address) = core.range(to, to_offset, bytes)?;
        let (_from_pinned, from_address) = core.range(from, from_offset, bytes)?;
        if let Some(capture) = capture::current() {
            core.note_site(caller);
            return capture.note_copy(&self.0, (to, to_address), (from, from_address), bytes);
        }
        core.check_ranges("a copy", &[(from_address, bytes, false), (to_address, bytes, true)], caller)?;
        core.in_order(caller, || {
            if !core.device.immediate {
                to.note_use(&self.0, true);
                from.note_use(&self.0, false);
            }
            // SAFETY: the ranges are checked; frees are queued after this copy.
            let end = unsafe { core.device.driver.copy_on_device(core.handle, to_address, from_address, bytes) };
            core.mark_work().and(end)
        })
    }
}

impl StreamCore {
    /// With race checks on, refuses work that races with another stream. `ranges` holds address, size in bytes, and
    /// whether the work writes.
    pub(crate) fn check_ranges(
        &self,
        what: &'static str,
        ranges: &[(DevicePtr, u64, bool)],
        caller: &dyn Caller,
    ) -> Result<()> {
        let Some(watch) = self.device.watch.get() else { return Ok(()) };
        let ranges: Vec<_> = ranges.iter().map(|(at, bytes, written)| (at.0, at.0 + bytes, *written)).collect();
        watch.check_ranges(self, what, &ranges, caller)
    }

    /// With race checks on, sets the program location of the work that a capture records next.
    fn note_site(&self, caller: &dyn Caller) {
        if self.device.watch.get().is_some() {
            capture::set_site(caller.call_site());
        }
    }

    pub(super) fn range(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(PinnedBuffer, DevicePtr)> {
        if !buffer.is_of(&self.device) && buffer.alive() {
            return Err(ErrorKind::ForeignDevice { what: "array" }.into());
        }
        Ok((buffer.pin()?, buffer.at(offset, bytes)?))
    }
}
