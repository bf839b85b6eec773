//! [`Channel`]: messages from device code, in memory that the device writes and the host reads.
//!
//! Host code calls back when it prints or fails an assertion. Device code cannot: it writes records to its stream's
//! channel, and the host drains them after it has waited for the stream. Records name kernels by their index in the
//! channel's list. Entries of the list are never removed, because work captured into a graph may write records at any
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use octants_artifact::DeviceChannel;

use crate::driver::{DevicePtr, Driver};
use crate::error::Result;
use crate::kernel_meta::KernelMeta;
use crate::report::{Failures, Printer};
use crate::site_messages::{fail_at_site, print_site};

/// Bytes of a channel.
const BYTES: u64 = 1 << 20;
/// Words of records.
const CAPACITY: u32 = ((BYTES - DeviceChannel::BYTES) / 8) as u32;

/// A kernel, and its step if it is one of a captured graph.
type Sender = (Arc<KernelMeta>, Option<u32>);

/// A stream's channel.
#[derive(Debug)]
pub(crate) struct Channel {
    memory: DevicePtr,
    /// Kernels, and the steps of a captured graph that they are.
    kernels: Vec<Sender>,
    /// The index in `kernels` of each kernel, by address, and step.
    known: HashMap<(usize, Option<u32>), u64>,
    /// Words taken out since the channel was empty.
    taken: u32,
    /// So is the failure.
    failure_taken: bool,
}

impl Channel {
    pub(crate) fn new(driver: &dyn Driver) -> Result<Channel> {
        // SAFETY: the size is not zero.
        let memory = unsafe { driver.allocate_pinned(BYTES) }?;
        // SAFETY: the memory is the host's to write, and zeroed.
        unsafe { (*(memory.0 as *mut DeviceChannel)).capacity = CAPACITY }
        Ok(Channel { memory, kernels: Vec::new(), known: HashMap::new(), taken: 0, failure_taken: false })
    }

    /// Its address for code.
    pub(crate) fn memory(&self) -> DevicePtr {
        self.memory
    }

    /// The number by which the records of a kernel, in a step of a captured graph if it is one, name it.
    #[inline]
    pub(crate) fn kernel_id(&mut self, kernel: &Arc<KernelMeta>, step: Option<u32>) -> u64 {
        // Usually the one that wrote most recently.
        if let Some((last, known)) = self.kernels.last()
            && Arc::ptr_eq(last, kernel)
            && *known == step
        {
            return self.kernels.len() as u64 - 1;
        }
        let next = self.kernels.len() as u64;
        let id = *self.known.entry((Arc::as_ptr(kernel) as usize, step)).or_insert(next);
        if id == next {
            self.kernels.push((kernel.clone(), step));
        }
        id
    }

    /// Whether to drain the channel before the next launch.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        // SAFETY: the channel lives as long as `self`.
        unsafe { word(self.memory, NEXT) }.load(Ordering::Relaxed) > CAPACITY / 2
    }

    /// Whether the channel at `memory` holds no messages.
    ///
    /// # Safety
    /// `memory` is the memory of a live channel.
    #[inline]
    pub(crate) unsafe fn is_empty(memory: DevicePtr) -> bool {
        // SAFETY: the contract above.
        let (next, failed) = unsafe { (word(memory, NEXT), word(memory, FAILED)) };
        next.load(Ordering::Acquire) == 0 && failed.load(Ordering::Acquire) == 0
    }

    /// Drains the channel. When the stream is `idle`, the channel is empty afterwards; otherwise work may still be
    /// writing, and only the complete messages before the first incomplete one are taken.
    pub(crate) fn take(&mut self, idle: bool, printer: &Printer, failures: &Failures) {
        // SAFETY: the channel lives as long as `self`; words that the device may be writing are read one by one.
        let (next, failed, lost) =
            unsafe { (word(self.memory, NEXT), word(self.memory, FAILED), word(self.memory, LOST)) };
        let end = next.load(Ordering::Acquire).min(CAPACITY);
        let mut values = Vec::new();
        while self.taken < end {
            let at = DeviceChannel::BYTES + 8 * u64::from(self.taken);
            // Words that are reserved but not written yet, or that found no space, are zero.
            let Some(((kernel, _), site)) = self.read(at, end - self.taken, &mut values) else { break };
            print_site(&kernel, printer, site, &values);
            self.taken += 1 + values.len() as u32;
        }
        if !self.failure_taken
            && failed.load(Ordering::Acquire) != 0
            && let Some(((kernel, step), site)) = self.read(FAILURE, DeviceChannel::FAILURE_WORDS as u32, &mut values)
        {
            fail_at_site((&kernel, step), failures, site, &values);
            self.failure_taken = true;
        }
        // A host write may be lost if the device concurrently changes the same word, because not every bus supports
        // atomic access by both.
        if !idle {
            return;
        }
        if failed.load(Ordering::Relaxed) != 0 {
            self.write(FAILURE, 0);
            failed.store(0, Ordering::Release);
            self.failure_taken = false;
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            n => printer.print(&format!(
                "({n} more lines were lost: kernels can print at most {} KiB between two host synchronizations)\n",
                BYTES >> 10
            )),
        }
        (0..end).for_each(|n| self.write(DeviceChannel::BYTES + 8 * u64::from(n), 0));
        self.taken = 0;
        next.store(0, Ordering::Release);
    }

    /// The record at this offset, of at most this many words; `None` if there is none.
    fn read(&self, offset: u64, most: u32, values: &mut Vec<u64>) -> Option<(Sender, u32)> {
        // SAFETY: the offset is within the channel, as are the words that follow it.
        let load = |n: u64| unsafe { ((self.memory.0 + offset) as *const u64).add(n as usize).read_volatile() };
        let header = load(0);
        let kernel = self.kernels.get(((header >> 32) as usize).checked_sub(1)?)?.clone();
        let site = header as u32;
        let count = kernel.0.site_values(site).min(most as usize - 1) as u64;
        values.clear();
        values.extend((1..=count).map(load));
        Some((kernel, site))
    }

    fn write(&self, offset: u64, value: u64) {
        // SAFETY: the offset is within the channel.
        unsafe { ((self.memory.0 + offset) as *mut u64).write_volatile(value) }
    }

    /// Gives the memory back. The stream's work is done.
    pub(crate) fn free(self, driver: &dyn Driver) {
        // SAFETY: allocated above; nothing uses it any more.
        unsafe { driver.free_pinned(self.memory, BYTES) }
    }
}

const NEXT: usize = std::mem::offset_of!(DeviceChannel, next);
const FAILED: usize = std::mem::offset_of!(DeviceChannel, failed);
const LOST: usize = std::mem::offset_of!(DeviceChannel, lost);
const FAILURE: u64 = std::mem::offset_of!(DeviceChannel, failure) as u64;

/// A counter that both sides write.
///
/// # Safety
/// The channel outlives the result.
unsafe fn word<'a>(memory: DevicePtr, offset: usize) -> &'a AtomicU32 {
    // SAFETY: the contract above; the offset is one of a field of that size.
    unsafe { AtomicU32::from_ptr((memory.0 as *mut u8).add(offset).cast()) }
}
