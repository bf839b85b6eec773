//! [`Placement`]: the position of a component in a buffer, and conversions between indices and byte offsets.

use std::ops::Range;

use crate::index_digit::IndexDigit;

/// One level of a layout along an axis: `extent` cells, `stride` bytes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digit {
    /// Cells at this level.
    pub extent: u64,
    /// Bytes from one cell to the next.
    pub stride: u64,
}

impl Digit {
    /// Bytes from the first cell to the last.
    fn reach(&self) -> u64 {
        self.extent.saturating_sub(1).saturating_mul(self.stride)
    }
}

/// The position of a scalar component in a buffer.
///
/// The byte offset of index `(i0, i1, ..)` is `base` plus, for each axis, the sum over the axis's digits: the index is
/// written in the mixed radix of the digits' extents, outermost first, and each digit counts `stride` bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Placement {
    /// Byte offset of index zero.
    pub base: u64,
    /// For each axis its digits, outermost first.
    pub axes: Vec<Vec<Digit>>,
}

impl Placement {
    /// An array with one digit per axis: row-major without gaps, elements of `element_bytes`. Saturates.
    pub fn row_major(base: u64, extents: &[u64], element_bytes: u64) -> Placement {
        let order: Vec<usize> = (0..extents.len()).collect();
        Placement::in_order(base, extents, &order, element_bytes)
    }

    /// As [`Placement::row_major`], with the axes in the memory order `order`, outermost first.
    pub fn in_order(base: u64, extents: &[u64], order: &[usize], element_bytes: u64) -> Placement {
        let mut axes = vec![Vec::new(); extents.len()];
        let mut stride = element_bytes;
        for &axis in order.iter().rev() {
            axes[axis] = vec![Digit { extent: extents[axis], stride }];
            stride = stride.saturating_mul(extents[axis]);
        }
        Placement { base, axes }
    }

    /// Extent of each axis.
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|digits| digits.iter().map(|d| d.extent).product()).collect()
    }

    /// The digits of an axis, outermost first, each with its stride.
    pub fn index_digits(&self, axis: usize) -> Vec<(IndexDigit, u64)> {
        let mut weight = 1u64;
        let mut found: Vec<_> = self.axes[axis]
            .iter()
            .rev()
            .map(|d| {
                let digit = IndexDigit { axis, extent: d.extent, weight };
                weight = weight.saturating_mul(d.extent);
                (digit, d.stride)
            })
            .collect();
        found.reverse();
        found
    }

    /// The values of all digits of an index that counts from zero, axis by axis, outermost first.
    pub fn digits_of(&self, index: &[u64]) -> Vec<u64> {
        let mut found = Vec::with_capacity(index.len());
        for (axis, &value) in index.iter().enumerate() {
            let first = found.len();
            let mut rest = value;
            for digit in self.axes[axis].iter().rev() {
                found.push(rest % digit.extent.max(1));
                rest /= digit.extent.max(1);
            }
            found[first..].reverse();
        }
        found
    }

    /// The byte offset of an element; indices count from zero.
    pub fn offset_of(&self, index: &[u64]) -> u64 {
        let mut at = self.base;
        for (digits, &value) in self.axes.iter().zip(index) {
            let mut rest = value;
            for digit in digits.iter().rev() {
                at += rest % digit.extent.max(1) * digit.stride;
                rest /= digit.extent.max(1);
            }
        }
        at
    }

    /// The byte after the last scalar, of `scalar_bytes` each. Saturates.
    pub fn end(&self, scalar_bytes: u64) -> u64 {
        self.last().saturating_add(scalar_bytes)
    }

    /// The byte offset of the last element. Saturates.
    pub fn last(&self) -> u64 {
        self.axes.iter().flatten().map(Digit::reach).fold(self.base, u64::saturating_add)
    }

    /// The bytes of all elements, when they fill a range without gaps. `components` says how many components of
    /// `scalar_bytes` an element has, and how far apart they are.
    pub fn gapless_range(&self, scalar_bytes: u64, components: Digit) -> Option<Range<u64>> {
        let mut digits: Vec<Digit> = self.axes.iter().flatten().copied().chain([components]).collect();
        digits.sort_by_key(|d| d.stride);
        let mut expected = scalar_bytes;
        for digit in digits.iter().filter(|d| d.extent != 1) {
            if digit.stride != expected {
                return None;
            }
            expected *= digit.extent;
        }
        Some(self.base..self.base + expected)
    }
}

/// The distance in bytes from each component of an element to the next, when all have the same; zero for one component.
pub fn common_step<'a>(mut placements: impl Iterator<Item = &'a Placement>) -> Option<i64> {
    let mut before = placements.next()?;
    let mut step = None;
    for after in placements {
        let distance = after.base.wrapping_sub(before.base) as i64;
        if after.axes != before.axes || step.is_some_and(|step| step != distance) {
            return None;
        }
        step = Some(distance);
        before = after;
    }
    Some(step.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit(extent: u64, stride: u64) -> Digit {
        Digit { extent, stride }
    }

    fn blocks() -> Placement {
        // Blocks of 2 x 3 cells of four bytes, 2 x 2 of them.
        Placement { base: 16, axes: vec![vec![digit(2, 48), digit(2, 12)], vec![digit(2, 24), digit(3, 4)]] }
    }

    #[test]
    fn offsets_are_sums_over_digits() {
        let place = blocks();
        assert_eq!(place.shape(), [4, 6]);
        assert_eq!(place.offset_of(&[0, 0]), 16);
        assert_eq!(place.offset_of(&[1, 2]), 16 + 12 + 8);
        assert_eq!(place.offset_of(&[3, 4]), 16 + 48 + 12 + 24 + 4);
        assert_eq!(place.digits_of(&[3, 4]), [1, 1, 1, 1]);
        assert_eq!(place.last(), place.offset_of(&[3, 5]));
        assert_eq!(place.end(4), 16 + 96);
    }

    #[test]
    fn the_weight_of_a_digit_is_the_product_of_the_inner_digits() {
        let digits = blocks().index_digits(1);
        assert_eq!(
            digits,
            [(IndexDigit { axis: 1, extent: 2, weight: 3 }, 24), (IndexDigit { axis: 1, extent: 3, weight: 1 }, 4)]
        );
        let place = blocks();
        for index in [[0, 0], [1, 5], [2, 3], [3, 2]] {
            let sum: u64 =
                (0..2).flat_map(|axis| place.index_digits(axis)).map(|(d, stride)| d.of(&index) * stride).sum();
            assert_eq!(place.base + sum, place.offset_of(&index));
        }
    }

    #[test]
    fn arrays_in_row_major_and_other_orders() {
        assert_eq!(Placement::row_major(8, &[3, 5], 4).axes, [[digit(3, 20)], [digit(5, 4)]]);
        assert_eq!(Placement::in_order(8, &[3, 5], &[1, 0], 4).axes, [[digit(3, 4)], [digit(5, 12)]]);
        assert_eq!(Placement::row_major(8, &[], 4), Placement { base: 8, axes: Vec::new() });
    }

    #[test]
    fn ranges_without_gaps() {
        assert_eq!(blocks().gapless_range(4, digit(1, 0)), Some(16..16 + 96));
        // Two components in each cell: one of them leaves gaps, both fill the range.
        let pair = Placement::row_major(0, &[5], 8);
        assert_eq!(pair.gapless_range(4, digit(1, 0)), None);
        assert_eq!(pair.gapless_range(4, digit(2, 4)), Some(0..40));
        // An axis of extent one never leaves a gap.
        assert_eq!(Placement::row_major(0, &[1, 3], 4).gapless_range(4, digit(1, 0)), Some(0..12));
    }

    #[test]
    fn steps_between_components() {
        let at = |base| Placement { base, ..blocks() };
        assert_eq!(common_step([&at(3)].into_iter()), Some(0));
        assert_eq!(common_step([&at(0), &at(4), &at(8)].into_iter()), Some(4));
        assert_eq!(common_step([&at(8), &at(4), &at(0)].into_iter()), Some(-4));
        assert_eq!(common_step([&at(0), &at(4), &at(12)].into_iter()), None);
        assert_eq!(common_step([&at(0), &Placement::row_major(4, &[4, 6], 4)].into_iter()), None);
        assert_eq!(common_step([].into_iter()), None);
    }

    #[test]
    fn the_end_of_a_huge_array_saturates() {
        let place = Placement::row_major(0, &[1 << 40, 1 << 40], 4);
        assert_eq!(place.last(), u64::MAX);
        assert_eq!(place.end(4), u64::MAX);
    }
}
