//! Memory for blocks smaller than a huge page, packed into huge pages.
//!
//! A program with many fields of a few hundred kilobytes walks all of them in one loop. With pages of the usual size,
//! they would need more address translations than a processor caches.
//!
//! Free blocks are recorded outside of the memory, so a program that writes slightly out of bounds does not corrupt
//! the allocator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use octants_runtime::renewable::Renewable;

use crate::map_pages::{ALIGNMENT, map, unmap};

/// Bytes of a chunk. Only touched pages take memory.
const CHUNK: usize = 32 << 20;

/// Memory from the operating system, cut into blocks.
struct Chunk {
    start: usize,
    free: FreeRanges,
    /// High-water mark, as an offset: all memory beyond it is still zero.
    touched: usize,
}

/// Free ranges of a chunk, as offsets.
struct FreeRanges {
    /// Length by start. No two of them touch.
    by_start: BTreeMap<usize, usize>,
    /// Length and start.
    by_length: BTreeSet<(usize, usize)>,
}

impl FreeRanges {
    fn new() -> FreeRanges {
        FreeRanges { by_start: BTreeMap::from([(0, CHUNK)]), by_length: BTreeSet::from([(CHUNK, 0)]) }
    }

    /// Best fit: the start of `bytes` bytes in the smallest range that is large enough.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let &(length, start) = self.by_length.range((bytes, 0)..).next()?;
        self.remove(start, length);
        if length > bytes {
            self.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Takes a range back and merges it with adjacent free ranges.
    fn free(&mut self, mut start: usize, mut length: usize) {
        let before = self.by_start.range(..start).next_back().map(|(&s, &l)| (s, l));
        if let Some((s, l)) = before.filter(|(s, l)| s + l == start) {
            self.remove(s, l);
            (start, length) = (s, l + length);
        }
        if let Some(&l) = self.by_start.get(&(start + length)) {
            self.remove(start + length, l);
            length += l;
        }
        self.insert(start, length);
    }

    fn insert(&mut self, start: usize, length: usize) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    fn is_all(&self) -> bool {
        self.by_start.get(&0) == Some(&CHUNK)
    }
}

/// Chunks, and the blocks in them.
#[derive(Default)]
pub(crate) struct Arena {
    /// By address of the chunk. Empty in a child process whose parent held the lock: free memory there is lost.
    chunks: Renewable<BTreeMap<usize, Chunk>>,
}

impl Arena {
    fn chunks(&self) -> MutexGuard<'_, BTreeMap<usize, Chunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of `bytes` zeroed bytes, a multiple of [`ALIGNMENT`] and at most [`CHUNK`]; `None` if there is none
    /// left.
    pub fn allocate(&self, bytes: usize) -> Option<usize> {
        debug_assert!(bytes > 0 && bytes <= CHUNK && bytes.is_multiple_of(ALIGNMENT));
        let mut chunks = self.chunks();
        let found = chunks.values_mut().find_map(|c| Some((c.free.take(bytes)?, c)));
        let (offset, chunk) = match found {
            Some(found) => found,
            None => {
                let start = map(CHUNK)?;
                let chunk = chunks.entry(start).or_insert(Chunk { start, free: FreeRanges::new(), touched: 0 });
                (chunk.free.take(bytes)?, chunk)
            }
        };
        let used_before = bytes.min(chunk.touched.saturating_sub(offset));
        chunk.touched = chunk.touched.max(offset + bytes);
        let address = chunk.start + offset;
        drop(chunks);
        // SAFETY: the range is the caller's from now on.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, used_before) };
        Some(address)
    }

    /// Frees a block. Empty chunks return to the system, except one: a program may allocate and free one block
    /// repeatedly.
    ///
    /// # Safety
    /// `address` came from `allocate(bytes)` of this arena and is not used afterwards.
    pub unsafe fn free(&self, address: usize, bytes: usize) {
        let mut chunks = self.chunks();
        let around = chunks.range_mut(..=address).next_back().map(|(_, c)| c);
        // In a child process, the block may belong to a chunk that is unknown there.
        let Some(chunk) = around.filter(|c| address < c.start + CHUNK) else { return };
        let start = chunk.start;
        chunk.free.free(address - start, bytes);
        if chunk.free.is_all() && chunks.values().filter(|c| c.free.is_all()).count() > 1 {
            chunks.remove(&start);
            // SAFETY: mapped with this size; its blocks are not used afterwards.
            unsafe { unmap(start, CHUNK) };
        }
    }

    /// In a child process: a thread of the parent may have held the lock.
    ///
    /// # Safety
    /// This is the only thread of the process.
    pub unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe { self.chunks.renew_if_held() };
    }
}

/// Unmaps the chunks without blocks.
impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks().values().filter(|c| c.free.is_all()) {
            // SAFETY: mapped with this size, and without blocks.
            unsafe { unmap(chunk.start, CHUNK) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same in each run.
    fn numbers() -> impl FnMut(usize) -> usize {
        let mut state = 7_u64;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        }
    }

    #[test]
    fn reused_blocks_are_zeroed_and_disjoint() {
        let (arena, mut number) = (Arena::default(), numbers());
        let mut blocks: Vec<(usize, usize, u8)> = Vec::new();
        for round in 0..4000 {
            if blocks.len() > 60 || (!blocks.is_empty() && number(3) == 0) {
                let (address, bytes, mark) = blocks.swap_remove(number(blocks.len()));
                // SAFETY: allocated with this size below.
                let memory = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
                assert!(memory.iter().all(|&b| b == mark), "round {round}: another block's bytes");
                // SAFETY: as above, not used again.
                unsafe { arena.free(address, bytes) }
                continue;
            }
            let most = 1 << number(16);
            let bytes = (1 + number(most)) * ALIGNMENT;
            let address = arena.allocate(bytes).unwrap();
            // SAFETY: just allocated with this size.
            let memory = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) };
            assert!(memory.iter().all(|&b| b == 0), "round {round}: not zero");
            let mark = 1 + (round % 255) as u8;
            memory.fill(mark);
            blocks.push((address, bytes, mark));
        }
        // SAFETY: as above.
        blocks.into_iter().for_each(|(address, bytes, _)| unsafe { arena.free(address, bytes) });
    }

    #[test]
    fn adjacent_free_ranges_are_merged() {
        let mut free = FreeRanges::new();
        let starts: Vec<usize> = (0..8).map(|_| free.take(CHUNK / 8).unwrap()).collect();
        assert_eq!(free.take(ALIGNMENT), None);
        for i in [1, 5, 3, 0, 7, 2, 6] {
            free.free(starts[i], CHUNK / 8);
            assert!(!free.is_all());
        }
        // The smallest range that is large enough is the one after the remaining block.
        assert_eq!(free.take(CHUNK / 4), Some(starts[5]));
        free.free(starts[5], CHUNK / 4);
        free.free(starts[4], CHUNK / 8);
        assert!(free.is_all());
        assert_eq!(free.take(CHUNK), Some(0));
    }

    #[test]
    fn all_empty_chunks_but_one_are_returned_to_the_system() {
        let arena = Arena::default();
        // Each gets its own chunk.
        let blocks: Vec<usize> = (0..6).map(|_| arena.allocate(CHUNK).unwrap()).collect();
        assert_eq!(arena.chunks().len(), 6);
        for (i, &block) in blocks.iter().enumerate() {
            // SAFETY: allocated with this size above, not used again.
            unsafe { arena.free(block, CHUNK) }
            assert_eq!(arena.chunks().len(), 6 - i.clamp(0, 5));
        }
        let again = arena.allocate(ALIGNMENT).unwrap();
        assert_eq!((again, arena.chunks().len()), (blocks[0], 1));
        // SAFETY: as above.
        unsafe { arena.free(again, ALIGNMENT) }
    }
}
