//! [`SeparateMemory`]: the addresses that belong to the device, for tests in which the CPU emulates a device with
//! separate memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Allocated blocks: first address and size.
#[derive(Debug, Default)]
pub struct SeparateMemory(Mutex<BTreeMap<u64, u64>>);

impl SeparateMemory {
    /// Records an allocation.
    pub fn add(&self, address: u64, bytes: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address, bytes);
    }

    /// Records a free: work queued from now on must not use the block.
    pub fn remove(&self, address: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// True when the address is in a block, or right after one: views of no elements start there.
    pub fn holds(&self, address: u64) -> bool {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.range(..=address).next_back().is_some_and(|(start, bytes)| address - start <= *bytes)
    }
}
