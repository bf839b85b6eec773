//! Huge pages from the operating system, each mapping with a margin on both sides.

/// Alignment of every block of memory.
pub const ALIGNMENT: usize = 64;
/// Bytes of the margin on either side of a mapped block. Untouched margins take no memory. A multiple of all usual page
/// sizes.
pub(crate) const MARGIN: usize = 64 << 10;
/// Size of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory in huge pages, between two margins: at least [`HUGE_PAGE`] bytes.
pub(crate) fn map(bytes: usize) -> Option<usize> {
    let block = map_plain(bytes, 0)?;
    // SAFETY: the block was just mapped.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::madvise(block as *mut _, bytes, libc::MADV_HUGEPAGE);
    }
    Some(block)
}

/// The same in small pages. Only touched pages take memory, so the block may be larger than the machine's memory.
pub(crate) fn map_sparse(bytes: usize) -> Option<usize> {
    map_plain(bytes, libc::MAP_NORESERVE)
}

fn map_plain(bytes: usize, more_flags: i32) -> Option<usize> {
    // The block starts on a huge page: map more and cut off both ends.
    let all = bytes.checked_add(HUGE_PAGE + 2 * MARGIN)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping; what is unmapped is inside it and is used by no one.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more_flags;
        let start = libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start as usize;
        let block = (start + MARGIN).next_multiple_of(HUGE_PAGE);
        let page = libc::sysconf(libc::_SC_PAGESIZE).max(4096) as usize;
        let end = (block + bytes).next_multiple_of(page) + MARGIN;
        if block - MARGIN > start {
            libc::munmap(start as *mut _, block - MARGIN - start);
        }
        if start + all > end {
            libc::munmap(end as *mut _, start + all - end);
        }
        Some(block)
    }
}

/// Gives memory back to the system.
///
/// # Safety
/// `address` came from `map(bytes)` and is not used afterwards.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the margins are the mapping's.
    unsafe { libc::munmap((address - MARGIN) as *mut _, bytes + 2 * MARGIN) };
}
