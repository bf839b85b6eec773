//! Whether elements of a strided array share memory.

use smallvec::SmallVec;

/// Steps of the search after which an array is taken to overlap. Axes of common arrays nest, and take one step each.
const MOST_STEPS: u32 = 4096;

/// An axis: the distance between neighbors in bytes, and the extent.
type Axis = (i128, i128);

/// Whether two elements of `elem` bytes share a byte. Yes, too, for an array that takes too long to tell.
pub fn may_overlap_itself(extents: &[u64], strides: &[i64], elem: u64) -> bool {
    if extents.contains(&0) {
        return false;
    }
    let long = extents.iter().zip(strides).filter(|(n, _)| **n > 1);
    let mut axes: SmallVec<[Axis; 8]> = long.map(|(&n, &s)| (i128::from(s).abs(), i128::from(n))).collect();
    if axes.iter().any(|axis| axis.0 == 0) {
        return true;
    }
    axes.sort_unstable_by_key(|axis| std::cmp::Reverse(axis.0));
    let mut search = Search { elem: i128::from(elem), steps: MOST_STEPS };
    search.meets(&axes, 0, false)
}

struct Search {
    elem: i128,
    steps: u32,
}

impl Search {
    /// Whether two elements `offset` bytes apart, of indices that differ if `apart`, can meet by steps along `axes`.
    fn meets(&mut self, axes: &[Axis], offset: i128, apart: bool) -> bool {
        let Some((&(stride, extent), inner)) = axes.split_first() else { return apart && offset.abs() < self.elem };
        let reach: i128 = inner.iter().map(|(s, n)| s * (n - 1)).sum::<i128>() + self.elem - 1;
        // The offset that the inner axes can still compensate. The first difference is positive, by symmetry.
        let first = (-(reach + offset)).div_euclid(stride) + i128::from((-(reach + offset)).rem_euclid(stride) != 0);
        let last = (reach - offset).div_euclid(stride);
        let least = if apart { 1 - extent } else { 0 };
        for steps in first.max(least)..=last.min(extent - 1) {
            if self.steps == 0 {
                return true;
            }
            self.steps -= 1;
            if self.meets(inner, offset + steps * stride, apart || steps != 0) {
                return true;
            }
        }
        false
    }
}
