//! Whether elements of a strided array share memory.

use smallvec::SmallVec;

/// Steps of the search after which an array is taken to overlap.
const MOST_STEPS: u32 = 4096;

/// An axis: the distance between neighbors in bytes, and the extent.
type Axis = (i64, i64);

/// Whether two elements of `elem` bytes share a byte. Also true for an array that takes too long to check.
pub fn may_overlap_itself(extents: &[u64], strides: &[i64], elem: u64) -> bool {
    if extents.contains(&0) {
        return false;
    }
    let long = extents.iter().zip(strides).filter(|(n, _)| **n > 1);
    let mut axes: SmallVec<[Axis; 8]> = long.map(|(&n, &s)| (s.saturating_abs(), n as i64)).collect();
    if axes.iter().any(|axis| axis.0 == 0) {
        return true;
    }
    axes.sort_unstable_by_key(|axis| std::cmp::Reverse(axis.0));
    // Common case: the axes nest. The stride of each is at least the range that the inner axes cover.
    let mut covered = elem as i64;
    let nest = axes.iter().rev().all(|(stride, extent)| {
        let is_beyond = *stride >= covered;
        covered = covered.saturating_add(stride.saturating_mul(extent - 1));
        is_beyond
    });
    !nest && Search { elem: elem as i64, steps: MOST_STEPS }.meets(&axes, 0, false)
}

struct Search {
    elem: i64,
    steps: u32,
}

impl Search {
    /// Whether two elements `offset` bytes apart, of indices that differ if `apart`, can meet by steps along `axes`.
    fn meets(&mut self, axes: &[Axis], offset: i64, apart: bool) -> bool {
        let Some((&(stride, extent), inner)) = axes.split_first() else { return apart && offset.abs() < self.elem };
        let covered = inner.iter().map(|(s, n)| s.saturating_mul(n - 1)).fold(self.elem, i64::saturating_add);
        let reach = covered - 1;
        // The offset that the inner axes can still compensate. The first difference is positive, by symmetry.
        let first = -(reach.saturating_add(offset)).div_euclid(stride);
        let last = reach.saturating_sub(offset).div_euclid(stride);
        let least = if apart { 1 - extent } else { 0 };
        for steps in first.max(least)..=last.min(extent - 1) {
            if self.steps == 0 {
                return true;
            }
            self.steps -= 1;
            if self.meets(inner, offset.saturating_add(steps.saturating_mul(stride)), apart || steps != 0) {
                return true;
            }
        }
        false
    }
}
