//! Memory of the CPU as a device: zeroed, and aligned to cache lines.
//!
//! Large blocks come from the operating system as untouched zero pages, in huge pages if they fit. Smaller ones share
//! huge pages ([`Arena`]).
//!
//! Every block has a margin on both sides. Some programs read or write slightly out of bounds, such as the row before
//! the first in a stencil at the border. They run elsewhere because their fields are parts of one large block. Without
//! bounds checks they also run here, and neither crash nor corrupt the allocator.

use crate::arena::Arena;
use crate::map_pages::{ALIGNMENT, HUGE_PAGE, MARGIN, map, map_sparse, unmap};

/// Blocks from this size on are mapped by themselves.
const MAPPED_FROM: usize = HUGE_PAGE;
/// Minimum and maximum bytes on either side of a smaller block.
const SLACK: (usize, usize) = (256, MARGIN);

/// Gives out blocks.
#[derive(Default)]
pub struct HostMemory {
    arena: Arena,
}

impl HostMemory {
    /// Zeroed memory; `None` if there is none left. `bytes` is not zero.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        let bytes = usize::try_from(bytes).ok()?;
        if bytes >= MAPPED_FROM {
            return map(bytes).map(|address| address as u64);
        }
        let (all, slack) = small(bytes);
        Some((self.arena.allocate(all)? + slack) as u64)
    }

    /// A block of at least [`HUGE_PAGE`] bytes. Only touched pages take memory.
    pub fn allocate_sparse(&self, bytes: u64) -> Option<u64> {
        map_sparse(usize::try_from(bytes).ok()?).map(|address| address as u64)
    }

    /// Takes back what [`HostMemory::allocate`] or [`HostMemory::allocate_sparse`] made.
    ///
    /// # Safety
    /// `address` came from `allocate(bytes)` of this value and is not used afterwards.
    pub unsafe fn free(&self, address: u64, bytes: u64) {
        let (address, bytes) = (address as usize, bytes as usize);
        // SAFETY: the same size decides the same way as in `allocate`; sparse blocks are large ones.
        unsafe {
            if bytes >= MAPPED_FROM {
                unmap(address, bytes);
            } else {
                let (all, slack) = small(bytes);
                self.arena.free(address - slack, all);
            }
        }
    }

    /// In a child process: a thread of the parent may have held a lock.
    ///
    /// # Safety
    /// This is the only thread of the process.
    pub unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe { self.arena.renew_after_fork() }
    }
}

/// Size of a small block with its margins, and size of the leading margin. A margin holds a row of a table of eight
/// rows or more.
fn small(bytes: usize) -> (usize, usize) {
    let slack = (bytes / 8).clamp(SLACK.0, SLACK.1).next_multiple_of(ALIGNMENT);
    (bytes.next_multiple_of(ALIGNMENT) + 2 * slack, slack)
}

/// Bytes of memory that the process may use: the machine's, or less if a control group limits it.
pub fn usable_bytes() -> Option<u64> {
    // SAFETY: plain queries.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)?;
    let limit = |path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    Some(limits.into_iter().filter_map(limit).fold(machine, u64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_aligned_and_reusable() {
        let memory = HostMemory::default();
        for bytes in [1, 63, 64, 4096, MAPPED_FROM as u64 - 1, MAPPED_FROM as u64, (5 << 20) + 17, 33 << 20] {
            for _ in 0..3 {
                let block = memory.allocate(bytes).unwrap();
                assert_eq!(block % ALIGNMENT as u64, 0);
                // SAFETY: just allocated with this size.
                let contents = unsafe { std::slice::from_raw_parts_mut(block as *mut u8, bytes as usize) };
                assert!(contents.iter().all(|&b| b == 0), "{bytes}");
                contents.fill(0xff);
                // SAFETY: as above, not used again.
                unsafe { memory.free(block, bytes) }
            }
        }
    }

    #[test]
    fn a_block_has_unused_margins_on_both_sides() {
        let memory = HostMemory::default();
        let sizes = [8, 2048, 100 << 10, 300 << 10, MAPPED_FROM, (5 << 20) + 17];
        let blocks: Vec<(usize, u64)> =
            sizes.iter().map(|&bytes| (bytes, memory.allocate(bytes as u64).unwrap())).collect();
        for &(bytes, block) in &blocks {
            let reach = if bytes < MAPPED_FROM { small(bytes).1 } else { MARGIN };
            assert!(reach >= 256 && reach >= (bytes / 8).min(MARGIN));
            // SAFETY: the margins are part of the block's memory.
            unsafe {
                std::ptr::write_bytes((block as usize - reach) as *mut u8, 0xff, reach);
                std::ptr::write_bytes((block as usize + bytes) as *mut u8, 0xff, reach);
            }
        }
        for &(bytes, block) in &blocks {
            // SAFETY: allocated with this size above.
            let contents = unsafe { std::slice::from_raw_parts(block as *const u8, bytes) };
            assert!(contents.iter().all(|&b| b == 0), "{bytes}");
        }
        // SAFETY: as above, not used again.
        blocks.into_iter().for_each(|(bytes, block)| unsafe { memory.free(block, bytes as u64) });
    }

    #[test]
    fn untouched_margins_use_no_memory_and_are_released() {
        let memory = HostMemory::default();
        // Bytes mapped and bytes resident.
        let taken = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: Vec<usize> = pages.split_whitespace().map(|n| n.parse().unwrap()).collect();
            (pages[0] * 4096, pages[1] * 4096)
        };
        // Much more than other tests map.
        const COUNT: usize = 16_000;
        let before = taken();
        for _ in 0..COUNT {
            let block = memory.allocate(5 << 20).unwrap();
            // SAFETY: just allocated, not used again.
            unsafe { memory.free(block, 5 << 20) }
        }
        let blocks: Vec<u64> = (0..COUNT / 4).map(|_| memory.allocate(MAPPED_FROM as u64).unwrap()).collect();
        let during = taken();
        // SAFETY: as above.
        blocks.into_iter().for_each(|block| unsafe { memory.free(block, MAPPED_FROM as u64) });
        let after = taken();
        // Half of the margins' total: other tests may run concurrently.
        assert!(during.1 < before.1 + COUNT / 4 * MARGIN, "{before:?} {during:?}");
        assert!(after.0 < before.0 + COUNT * MARGIN, "{before:?} {after:?}");
    }

    #[test]
    fn an_oversized_allocation_is_refused() {
        let memory = HostMemory::default();
        assert_eq!(memory.allocate(1 << 60), None);
        assert_eq!(memory.allocate(u64::MAX), None);
    }
}
