//! Private copies of memory that threads scatter sums to: a set for each concurrent launch that uses them, with one
//! copy for each lane of a job.
//!
//! Copies are zero whenever no launch uses them, because the code that merges them clears what was written. They need
//! not be cleared as a whole before each launch, and untouched parts stay in the caches of all readers. A lane's copy
//! is written by the lane's thread, in most jobs the same one, and its pages are allocated on that thread's node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use octants_runtime::Renewable;

use crate::apart::Apart;
use crate::memory::HostMemory;

/// Sets that no launch uses.
#[derive(Default)]
pub(crate) struct Copies {
    memory: Arc<HostMemory>,
    free: Renewable<Vec<Set>>,
}

impl Copies {
    /// A set with one copy of at least `bytes` bytes for each lane; `None` when the allocation fails.
    pub fn take(&self, lanes: usize, bytes: u64) -> Option<Set> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut set = free.unwrap_or_default();
        let enough = set.reserve(&self.memory, lanes, bytes);
        if enough {
            return Some(set);
        }
        self.release(set);
        None
    }

    /// In a child process: a thread of the parent may have held the lock.
    ///
    /// # Safety
    /// This is the only thread of the process.
    pub unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe {
            self.memory.renew_after_fork();
            self.free.renew_if_held();
        }
    }

    /// Takes back a set whose copies are zero.
    pub fn release(&self, set: Set) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(set);
    }
}

/// Copies of one launch. Drop them if they may not be zero.
#[derive(Default)]
pub(crate) struct Set {
    lanes: Vec<Apart<Copy>>,
    /// Room for [`Set::used`].
    listed: Vec<u64>,
}

/// The copy of a lane: the address of its own memory.
#[derive(Default)]
struct Copy {
    address: u64,
    bytes: u64,
    used: AtomicBool,
    /// The allocator of the copy's memory, if allocated.
    memory: Option<Arc<HostMemory>>,
}

impl Set {
    fn reserve(&mut self, memory: &Arc<HostMemory>, lanes: usize, bytes: u64) -> bool {
        if self.lanes.len() < lanes {
            self.lanes.resize_with(lanes, || Apart(Copy::default()));
        }
        let small = self.lanes[..lanes].iter_mut().filter(|c| c.0.bytes < bytes);
        small.into_iter().all(|copy| {
            copy.0 = Copy::default();
            memory.allocate(bytes).is_some_and(|address| {
                copy.0 = Copy { address, bytes, used: AtomicBool::new(false), memory: Some(Arc::clone(memory)) };
                true
            })
        })
    }

    /// The address of a lane's copy, which is written from now on.
    pub fn of_lane(&self, lane: usize) -> u64 {
        let copy = &self.lanes[lane].0;
        copy.used.store(true, Ordering::Relaxed);
        copy.address
    }

    /// The addresses of the copies that were written.
    pub fn used(&mut self) -> &[u64] {
        self.listed.clear();
        let used = self.lanes.iter_mut().map(|c| &mut c.0).filter_map(|c| {
            let used = c.used.get_mut();
            std::mem::take(used).then_some(c.address)
        });
        self.listed.extend(used);
        &self.listed
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            // SAFETY: allocated with this size; its user is done.
            unsafe { memory.free(self.address, self.bytes) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_private_copies_are_reused_and_grow() {
        let copies = Copies::default();
        let mut set = copies.take(3, 1000).unwrap();
        let (first, third) = (set.of_lane(0), set.of_lane(2));
        assert_eq!((set.used(), first % 64, third % 64), (&[first, third][..], 0, 0));
        assert!(set.used().is_empty());
        let other = copies.take(1, 1000).unwrap();
        assert_ne!(other.of_lane(0), first);
        copies.release(set);
        let set = copies.take(2, 500).unwrap();
        assert_eq!(set.of_lane(0), first);
        copies.release(set);
        let set = copies.take(2, 300 << 10).unwrap();
        // SAFETY: just allocated with this size.
        let memory = unsafe { std::slice::from_raw_parts(set.of_lane(1) as *const u8, 300 << 10) };
        assert!(memory.iter().all(|b| *b == 0));
        assert!(copies.take(1, 1 << 60).is_none());
    }
}
