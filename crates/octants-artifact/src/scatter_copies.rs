//! Private copies of the memory that a task scatters sums to, and the cost model that decides on their use.

use serde::{Deserialize, Serialize};

use crate::{Bound, iterations};

/// Shared memory that a task scatters sums to. On the CPU, each thread adds to a private copy if that pays off, and at
/// the end all threads merge the copies into the shared memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScatterCopies {
    /// The parts of a copy, in order.
    pub regions: Vec<CopiedRegion>,
    /// Scalars to which an iteration adds, roughly.
    pub updates: u64,
}

/// A run of equal scalars.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CopiedRegion {
    /// Bytes of a part of a field, or of each element of an array.
    pub bytes: u64,
    /// The bounds of an array's axes. None for a field.
    pub axes: Vec<(Bound, Bound)>,
    /// Bytes of a group of scalars. A region occupies whole groups in a copy.
    pub group: u64,
    /// Symbol of the code, a task's, that adds groups of all copies, numbered like iterations, to the shared memory and
    /// clears them.
    pub merge_symbol: String,
}

impl CopiedRegion {
    /// Its bytes in a launch with these argument slots.
    fn bytes(&self, args: &[u64]) -> Option<u64> {
        iterations(&self.axes, args)?.checked_mul(self.bytes)
    }

    /// The number of its groups in such a launch.
    fn groups(&self, args: &[u64]) -> u64 {
        self.bytes(args).unwrap_or(0).div_ceil(self.group.max(1))
    }
}

impl ScatterCopies {
    /// Larger copies would not stay in a core's cache.
    pub const MOST_BYTES: u64 = 4 << 20;
    /// Cost of an atomic sum, in bytes of a copy.
    pub const BYTES_PER_UPDATE: u64 = 32;

    /// Bytes of the memory that a call's private copy replaces, in a launch with these argument slots; `None` without
    /// copies.
    pub fn bytes(&self, args: &[u64]) -> Option<u64> {
        let bytes = self.regions.iter().try_fold(0u64, |sum, region| sum.checked_add(region.bytes(args)?))?;
        (bytes <= ScatterCopies::MOST_BYTES).then_some(bytes)
    }

    /// Calls `add` for each region of a copy in such a launch: with its number, the number of its groups, and the bytes
    /// of a copy before it.
    pub fn for_each_region(&self, args: &[u64], mut add: impl FnMut(usize, u64, u64)) {
        let mut offset = 0;
        for (number, region) in self.regions.iter().enumerate() {
            let groups = region.groups(args);
            add(number, groups, offset);
            offset += groups * region.group;
        }
    }

    /// Bytes of a private copy, given the bytes of the memory that it replaces.
    pub fn room(&self, bytes: u64) -> u64 {
        bytes + self.regions.iter().map(|r| r.group).sum::<u64>()
    }

    /// The minimum number of iterations for which a call uses copies of this many bytes.
    pub fn least_iterations(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.updates.max(1).saturating_mul(ScatterCopies::BYTES_PER_UPDATE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScalarKind;

    #[test]
    fn bytes_follow_from_the_argument_slots() {
        let axis = |slot| (Bound::Known(0), Bound::Slot(slot, ScalarKind::I64, 0));
        let region = |bytes, axes| CopiedRegion { bytes, axes, group: 64, ..CopiedRegion::default() };
        let regions = vec![region(100, vec![]), region(8, vec![axis(0), axis(1)]), region(4, vec![axis(1)])];
        let copies = ScatterCopies { regions, updates: 3 };
        assert_eq!(copies.bytes(&[5, 6]), Some(100 + 8 * 30 + 4 * 6));
        assert_eq!(copies.room(364), 364 + 3 * 64);
        let mut regions = Vec::new();
        copies.for_each_region(&[5, 6], |number, groups, offset| regions.push((number, groups, offset)));
        assert_eq!(regions, [(0, 2, 0), (1, 4, 128), (2, 1, 384)]);
        assert_eq!(copies.bytes(&[1 << 20, 6]), None);
        assert_eq!(copies.bytes(&[u64::MAX >> 1, 6]), None);
        assert_eq!((copies.least_iterations(960), copies.least_iterations(961)), (10, 11));
    }
}
