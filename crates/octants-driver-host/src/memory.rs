//! Memory of the CPU as a device: zeroed, aligned to cache lines, large blocks to pages.
//!
//! Large blocks come from the operating system as untouched zero pages, huge ones where they fit.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Alignment of every block.
pub const ALIGNMENT: usize = 64;
/// Blocks from this size on are mapped.
const MAPPED_FROM: usize = 128 << 10;
/// Bytes behind a small block that belong to no one: a kernel that runs without bounds checks and writes a little past the
/// end of an array spoils these, not the bookkeeping of the process's allocator.
const SLACK: usize = 256;
/// Size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory; `None` where there is none left. `bytes` is not zero.
pub fn allocate(bytes: u64) -> Option<u64> {
    let bytes = usize::try_from(bytes).ok()?;
    if bytes >= MAPPED_FROM {
        return map(bytes);
    }
    let layout = Layout::from_size_align(bytes + SLACK, ALIGNMENT).ok()?;
    // SAFETY: the size is not zero.
    let block = unsafe { alloc_zeroed(layout) };
    (!block.is_null()).then_some(block as u64)
}

/// Gives back what [`allocate`] made.
///
/// # Safety
/// `address` came from `allocate(bytes)` and is used no more.
pub unsafe fn free(address: u64, bytes: u64) {
    let bytes = bytes as usize;
    // SAFETY: the same size decides the same way as in `allocate`, with the same layout.
    unsafe {
        if bytes >= MAPPED_FROM {
            libc::munmap(address as *mut _, bytes);
        } else if let Ok(layout) = Layout::from_size_align(bytes + SLACK, ALIGNMENT) {
            dealloc(address as *mut u8, layout);
        }
    }
}

fn map(bytes: usize) -> Option<u64> {
    // A block that holds huge pages starts on one: map more and cut off both ends.
    let spare = if bytes >= 2 * HUGE_PAGE { HUGE_PAGE } else { 0 };
    let all = bytes.checked_add(spare)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping; what is unmapped lies inside it and is used by no one.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start as usize;
        if spare == 0 {
            return Some(start as u64);
        }
        let block = start.next_multiple_of(HUGE_PAGE);
        let page = libc::sysconf(libc::_SC_PAGESIZE).max(4096) as usize;
        let end = (block + bytes).next_multiple_of(page);
        if block > start {
            libc::munmap(start as *mut _, block - start);
        }
        if start + all > end {
            libc::munmap(end as *mut _, start + all - end);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(block as *mut _, bytes, libc::MADV_HUGEPAGE);
        Some(block as u64)
    }
}

/// Bytes of memory that the process may use: the machine's, or less where a control group limits it.
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
        for bytes in [1, 63, 64, 4096, MAPPED_FROM as u64 - 1, MAPPED_FROM as u64, (5 << 20) + 17, 33 << 20] {
            for _ in 0..3 {
                let block = allocate(bytes).unwrap();
                assert_eq!(block % ALIGNMENT as u64, 0);
                // SAFETY: just allocated with this size.
                let memory = unsafe { std::slice::from_raw_parts_mut(block as *mut u8, bytes as usize) };
                assert!(memory.iter().all(|&b| b == 0), "{bytes}");
                memory.fill(0xff);
                // SAFETY: as above, not used again.
                unsafe { free(block, bytes) }
            }
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert_eq!(allocate(1 << 60), None);
        assert_eq!(allocate(u64::MAX), None);
    }
}
