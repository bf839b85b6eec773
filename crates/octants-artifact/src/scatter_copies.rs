//! Copies of shared memory that calls of a task scatter sums to, and when they pay.

use serde::{Deserialize, Serialize};

use crate::{Bound, iterations};

/// Shared memory that a task scatters sums to. On the CPU each thread adds into a copy of its own where that pays, and
/// all together add the copies to the shared memory in the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScatterCopies {
    /// Bytes of fields.
    pub bytes: u64,
    /// Of each array the bytes of an element, and the bounds of its axes.
    pub arrays: Vec<(u64, Vec<(Bound, Bound)>)>,
    /// Scalars to which an iteration adds, roughly.
    pub updates: u64,
    /// Runs of equal scalars that a copy consists of.
    pub regions: u32,
    /// Symbol of the code, a task's, that adds parts of copies, numbered like iterations, to the shared memory and
    /// clears them.
    pub sum_symbol: String,
}

impl ScatterCopies {
    /// Larger copies would not stay in a core's cache.
    pub const MOST_BYTES: u64 = 4 << 20;
    /// An atomic sum takes about as long as so many bytes of a copy.
    pub const BYTES_PER_UPDATE: u64 = 32;
    /// Bytes to a multiple of which each region is filled up in a copy.
    const FILL: u64 = 128;

    /// Bytes of a call's copies in a launch with these argument slots; `None` where there are none.
    pub fn bytes(&self, args: &[u64]) -> Option<u64> {
        let of_array = |(element, axes): &(u64, Vec<_>)| iterations(axes, args)?.checked_mul(*element);
        let bytes = self.arrays.iter().try_fold(self.bytes, |sum, array| sum.checked_add(of_array(array)?))?;
        (bytes <= ScatterCopies::MOST_BYTES).then_some(bytes)
    }

    /// Bytes of a private copy, given the bytes of the memory that it stands for.
    pub fn room(&self, bytes: u64) -> u64 {
        bytes + ScatterCopies::FILL * u64::from(self.regions)
    }

    /// Fewest iterations for which a call takes copies of so many bytes.
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
        let copies = ScatterCopies {
            bytes: 100,
            arrays: vec![(8, vec![axis(0), axis(1)]), (4, vec![axis(1)])],
            updates: 3,
            ..ScatterCopies::default()
        };
        assert_eq!(copies.bytes(&[5, 6]), Some(100 + 8 * 30 + 4 * 6));
        assert_eq!(copies.bytes(&[1 << 20, 6]), None);
        assert_eq!(copies.bytes(&[u64::MAX >> 1, 6]), None);
        assert_eq!((copies.least_iterations(960), copies.least_iterations(961)), (10, 11));
    }
}
