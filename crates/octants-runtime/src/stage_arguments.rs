//! Stages launch arguments on asynchronous devices: copies of host arrays, and of the argument slots when they are too
//! many to pass by value.
//!
//! A launch that only reads host arrays does not wait. The arrays are copied at launch to the stream's pinned memory,
//! and from there on the stream if the device cannot use host memory. A launch that writes a host array waits for its
//! own stream, because nothing tells when the host will read the array. It therefore needs no host copy. Small arrays
//! still go through pinned memory in both directions, because the copy engine handles that faster than memory that
//! must be pinned first. Overlapping arrays share one copy. Of an array with gaps between its elements, only the bytes
//! that the launch changed are copied back: the gaps belong to others, and other threads may write there.

use crate::caller::Caller;
use crate::cores::DeviceCore;
use crate::driver::{Contents, DevicePtr, StreamHandle};
use crate::error::Result;
use crate::interruptible_wait::{LOOK, abandon_if_interrupted};
use crate::kernel::LoadedKernel;
use crate::scratch::Scratch;
use crate::staging::{Block, MOST_BUSY};

/// An array in the host's memory that an argument slot names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostArray {
    /// The slot, which holds an address within the array.
    pub slot: u32,
    /// The array's first byte.
    pub low: u64,
    /// The end of its last.
    pub high: u64,
    /// Some task writes to it.
    pub written: bool,
    /// There are bytes between its elements that are not its own.
    pub gaps: bool,
}

/// The bytes of a written array with gaps, before the launch and after it.
struct Apart {
    array: HostArray,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Apart {
    /// # Safety
    /// The array is alive.
    unsafe fn merge(&self) {
        const STEP: usize = 64;
        let mut at = self.array.low as *mut u8;
        for (before, after) in self.before.chunks(STEP).zip(self.after.chunks(STEP)) {
            if before != after {
                for (i, (b, a)) in before.iter().zip(after).enumerate() {
                    if b != a {
                        // SAFETY: the contract above; the byte is in the array.
                        unsafe { at.add(i).write_volatile(*a) }
                    }
                }
            }
            at = at.wrapping_add(STEP);
        }
    }
}

/// Arrays of a launch that waits go by pinned memory up to this many bytes.
const SMALL: u64 = 256 << 10;
/// Copies of arrays start at the same place within a line of this many bytes as the arrays do.
const LINE: u64 = 64;

/// A range of host memory, and the offset of its copy from the start of all copies.
struct Stretch {
    low: u64,
    high: u64,
    offset: u64,
}

/// Memory of the device.
struct Copies {
    at: DevicePtr,
    /// Bytes to be freed after the launch; `None` if the block keeps it.
    own: Option<u64>,
}

/// The staging memory of a launch's arguments.
pub(crate) struct Staged {
    /// Pinned copies, to be given back after the launch.
    block: Option<Block>,
    /// The device's copies of arrays.
    copies: Option<Copies>,
    stretches: Vec<Stretch>,
    aparts: Vec<Apart>,
    /// The block holds copies of the arrays.
    pub(crate) pinned: bool,
    /// The address of the slots, if they are not passed by value.
    pub(crate) args_at: Option<DevicePtr>,
    /// The launch must wait for its stream.
    pub(crate) waits: bool,
    /// An interrupted caller may abandon that wait: the tasks use only copies.
    pub(crate) can_be_left: bool,
}

impl Staged {
    /// Only whether the launch must wait.
    pub(crate) fn nothing(waits: bool) -> Staged {
        Staged {
            block: None,
            copies: None,
            stretches: Vec::new(),
            aparts: Vec::new(),
            pinned: false,
            args_at: None,
            waits,
            can_be_left: false,
        }
    }
}

/// Merges overlapping arrays and lays them out in sequence. Also returns the total size in bytes.
fn place(arrays: &[HostArray]) -> (Vec<Stretch>, u64) {
    let mut sorted: Vec<_> = arrays.iter().filter(|a| a.low < a.high).map(|a| (a.low, a.high)).collect();
    sorted.sort_unstable();
    let mut out: Vec<Stretch> = Vec::with_capacity(sorted.len());
    for (low, high) in sorted {
        match out.last_mut() {
            Some(last) if low < last.high => last.high = last.high.max(high),
            _ => out.push(Stretch { low, high, offset: 0 }),
        }
    }
    let mut end = 0;
    for s in &mut out {
        s.offset = end + (s.low.wrapping_sub(end)) % LINE;
        end = s.offset + (s.high - s.low);
    }
    (out, end.next_multiple_of(LINE))
}

/// Stages arguments if necessary: writes the slots to pass to `scratch.slots`, and queues the copies that the tasks
/// need.
///
/// # Safety
/// The arrays are alive for the length of the launch, and the slots of `args` are within them.
pub(crate) unsafe fn stage(
    core: &DeviceCore,
    stream: StreamHandle,
    kernel: &LoadedKernel,
    (args, arrays): (&[u64], &[HostArray]),
    scratch: &mut Scratch,
    caller: &dyn Caller,
) -> Result<Staged> {
    let (stretches, mut bytes) = place(arrays);
    let shared = core.driver.is_host_addressable();
    let must_wait = !kernel.meta.result.is_empty() || arrays.iter().any(|a| a.written) || bytes > MOST_BUSY;
    scratch.slots.clear();
    scratch.slots.extend_from_slice(args);
    if !shared {
        // Arrays without elements have no copies, and their addresses are not the device's.
        arrays.iter().filter(|a| a.low >= a.high).for_each(|a| scratch.slots[a.slot as usize] = 0);
    }
    let mut staged = Staged { stretches, ..Staged::nothing(must_wait && !arrays.is_empty()) };
    // A launch that waits leaves the host's memory as it is meanwhile: the device uses it, or copies from it, in place.
    let in_place = shared && staged.waits;
    staged.pinned = !staged.waits || bytes <= SMALL;
    staged.can_be_left = staged.waits && !shared && !core.driver.cancels() && caller.can_be_interrupted();
    if staged.can_be_left && !staged.pinned {
        // A driver that copies from pageable memory waits in its call for the stream's work, which nothing interrupts.
        caller.will_block();
        // SAFETY: the stream is alive.
        let wait = || unsafe { core.driver.synchronize_for(stream, LOOK) };
        abandon_if_interrupted(caller, &core.wait_was_abandoned, wait)?;
    }
    if in_place || staged.stretches.is_empty() {
        staged.stretches.clear();
        bytes = 0;
    }
    let spilled = kernel.spilled_at.map_or(0, |_| 8 * args.len() as u64);
    let pinned_bytes = if staged.pinned { bytes } else { 0 } + spilled;
    if pinned_bytes > 0 {
        staged.block = Some(scratch.staging.take(&*core.driver, pinned_bytes, caller).map_err(|e| core.explain(e))?);
    }
    // SAFETY: the contract above; freed and copied memory was allocated with these sizes.
    let filled = unsafe { staged.fill(core, stream, (arrays, shared), bytes, scratch) };
    let queued = filled.and_then(|()| match (kernel.spilled_at, &staged.block) {
        // SAFETY: the frame has room after the kernel's own part, the block after the arrays; the block stays as it
        // is until its event.
        (Some(at), Some(block)) => unsafe {
            let (to, offset) = (DevicePtr(scratch.frame.0 + at), pinned_bytes - spilled);
            block.write(offset, scratch.slots.as_ptr().cast(), spilled);
            staged.args_at = Some(to);
            core.driver.copy_to_device(stream, to, (block.memory.0 + offset) as *const u8, spilled)
        },
        _ => Ok(()),
    });
    if let Err(error) = queued {
        // SAFETY: the tasks of the launch are not queued.
        let _ = unsafe { staged.finish(core, stream, &[], scratch) };
        if !staged.aparts.is_empty() {
            // SAFETY: the stream is alive. Copies of the recorded ranges may be queued.
            let _ = unsafe { core.driver.synchronize(stream) };
        }
        staged.block.take().into_iter().for_each(|block| _ = scratch.staging.release(&*core.driver, stream, block));
        return Err(error);
    }
    Ok(staged)
}

impl Staged {
    /// Copies the ranges to memory that the device reads, and sets the slots to their addresses.
    ///
    /// # Safety
    /// As [`stage`]; the block, if there is one, has room for all.
    unsafe fn fill(
        &mut self,
        core: &DeviceCore,
        stream: StreamHandle,
        (arrays, shared): (&[HostArray], bool),
        bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.stretches.is_empty() {
            return Ok(());
        }
        let mut aparts: Vec<Apart> = Vec::new();
        let device_copy = match &mut self.block {
            Some(block) if self.pinned && !shared => {
                block.device_copy(&*core.driver, stream).map_err(|e| core.explain(e))?
            }
            _ => None,
        };
        let pinned = self.block.as_ref().filter(|_| self.pinned);
        if let Some(block) = pinned {
            // SAFETY: the arrays are alive, the block has room.
            self.stretches.iter().for_each(|s| unsafe { block.write(s.offset, s.low as *const u8, s.high - s.low) });
        }
        let apart = |array: &&HostArray| !shared && self.waits && array.written && array.gaps;
        for array in arrays.iter().filter(apart) {
            let Some((from, to)) = self.range(array) else { continue };
            let mut before = vec![0; (to - from) as usize];
            // SAFETY: as above.
            unsafe {
                match pinned {
                    Some(block) => block.read(from, before.as_mut_ptr(), to - from),
                    None => std::ptr::copy_nonoverlapping(array.low as *const u8, before.as_mut_ptr(), before.len()),
                }
            }
            let after = before.clone();
            aparts.push(Apart { array: *array, before, after });
        }
        self.aparts = aparts;
        let base = match pinned {
            Some(block) if shared => block.memory,
            // SAFETY: the sizes are those placed above, and the sources stay as they are: pinned until the block's
            // event, the host's own until the launch has waited.
            _ => unsafe {
                let copies = match device_copy {
                    Some(device_copy) => device_copy,
                    None => core.driver.allocate(Some(stream), bytes, Contents::Any).map_err(|e| core.explain(e))?,
                };
                self.copies = Some(Copies { at: copies, own: device_copy.is_none().then_some(bytes) });
                match pinned {
                    Some(block) => {
                        core.driver.copy_to_device(stream, copies, block.memory.0 as *const u8, bytes)?;
                    }
                    None => self.stretches.iter().try_for_each(|s| {
                        let to = DevicePtr(copies.0 + s.offset);
                        core.driver.copy_to_device(stream, to, s.low as *const u8, s.high - s.low)
                    })?,
                }
                // The bytes between keep the recorded values, even if they changed meanwhile.
                for a in self.aparts.iter().filter(|_| pinned.is_none()) {
                    let Some((from, to)) = self.range(&a.array) else { continue };
                    core.driver.copy_to_device(stream, DevicePtr(copies.0 + from), a.before.as_ptr(), to - from)?;
                }
                copies
            },
        };
        for array in arrays {
            if let Some(s) = self.stretches.iter().find(|s| s.low <= array.low && array.high <= s.high) {
                let slot = &mut scratch.slots[array.slot as usize];
                *slot = slot.wrapping_sub(s.low).wrapping_add(base.0 + s.offset);
            }
        }
        Ok(())
    }

    /// After the tasks: queues the copies back from written copies of `arrays`, and the free of the memory. If the
    /// launch waits, [`Staged::bring_back`] follows.
    ///
    /// # Safety
    /// As [`stage`]; if arrays are written, the launch waits for the stream next.
    pub(crate) unsafe fn finish(
        &mut self,
        core: &DeviceCore,
        stream: StreamHandle,
        arrays: &[HostArray],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut end = Ok(());
        if let Some(Copies { at: copies, own }) = self.copies.take() {
            if let (Some(block), true, true) = (&self.block, self.pinned, self.waits) {
                let written = || arrays.iter().filter(|a| a.written).filter_map(|a| self.range(a));
                let (from, to) = (written().map(|r| r.0).min(), written().map(|r| r.1).max());
                if let (Some(from), Some(to)) = (from, to) {
                    let at = (block.memory.0 + from) as *mut u8;
                    // SAFETY: the contract above; the block has room for all stretches.
                    end = unsafe { core.driver.copy_to_host(stream, at, DevicePtr(copies.0 + from), to - from) };
                }
            } else {
                for array in arrays.iter().filter(|a| a.written) {
                    let Some((from, until)) = self.range(array) else { continue };
                    let apart = self.aparts.iter_mut().find(|a| a.array == *array);
                    let to = apart.map_or(array.low as *mut u8, |a| a.after.as_mut_ptr());
                    // SAFETY: the contract above; the bytes noted are kept until the wait.
                    let back =
                        unsafe { core.driver.copy_to_host(stream, to, DevicePtr(copies.0 + from), until - from) };
                    end = end.and(back);
                }
            }
            if let Some(bytes) = own {
                // SAFETY: allocated by `fill` on this stream; the work that uses it is queued.
                unsafe { core.driver.free(stream, copies, bytes) };
            }
        }
        if let Some(block) = self.block.take_if(|_| !self.waits) {
            end = end.and(scratch.staging.release(&*core.driver, stream, block));
        }
        end
    }
}

impl Staged {
    /// The first byte of an array's copy and the end of its last, counted from the start of all copies.
    fn range(&self, array: &HostArray) -> Option<(u64, u64)> {
        let s = self.stretches.iter().find(|s| s.low <= array.low && array.high <= s.high)?;
        let from = s.offset + (array.low - s.low);
        Some((from, from + (array.high - array.low)))
    }

    /// After the wait of a launch: copies data that the tasks wrote to the host's arrays, and returns the block to the
    /// stream. The work is `done` unless the wait failed.
    ///
    /// # Safety
    /// As [`stage`].
    pub(crate) unsafe fn bring_back(
        &mut self,
        core: &DeviceCore,
        stream: StreamHandle,
        done: bool,
        arrays: &[HostArray],
        scratch: &mut Scratch,
    ) {
        let block = self.block.take();
        for array in arrays.iter().filter(|a| done && a.written) {
            let apart = self.aparts.iter().position(|a| a.array == *array);
            // SAFETY: the contract above.
            unsafe {
                if let (Some(block), true, Some((from, to))) = (&block, self.pinned, self.range(array)) {
                    let at = apart.map_or(array.low as *mut u8, |i| self.aparts[i].after.as_mut_ptr());
                    block.read(from, at, to - from);
                }
                if let Some(i) = apart {
                    self.aparts[i].merge();
                }
            }
        }
        match block {
            Some(block) if done => scratch.staging.put_idle(block),
            Some(block) => _ = scratch.staging.release(&*core.driver, stream, block),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(low: u64, high: u64) -> HostArray {
        HostArray { slot: 0, low, high, written: false, gaps: false }
    }

    #[test]
    fn overlapping_arrays_share_a_copy_and_keep_their_offset_in_a_cache_line() {
        let arrays =
            [array(1000, 1100), array(5, 6), array(1050, 1060), array(1099, 1200), array(1200, 1300), array(9, 9)];
        let (stretches, bytes) = place(&arrays);
        let shown: Vec<_> = stretches.iter().map(|s| (s.low, s.high)).collect();
        assert_eq!(shown, [(5, 6), (1000, 1200), (1200, 1300)]);
        let mut end = 0;
        for s in &stretches {
            assert!(s.offset >= end && s.offset % LINE == s.low % LINE);
            end = s.offset + s.high - s.low;
        }
        assert!(bytes >= end && bytes < end + LINE);
    }
}
