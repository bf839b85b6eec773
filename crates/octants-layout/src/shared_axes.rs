//! [`SharedAxis`]: elements with several memory layouts, as arrays of the same extents with a stride for each
//! axis.

use crate::placement::{Digit, Placement};

/// An axis of arrays that hold the same elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAxis {
    /// Elements along the axis.
    pub extent: u64,
    /// For each of the arrays the bytes from one element to the next.
    pub strides: Vec<i64>,
}

impl SharedAxis {
    /// The axis of as many elements that holds all of an inner one at each of its places without gaps.
    fn joins(&self, inner: &SharedAxis) -> bool {
        let reach = |stride: &i64| i64::try_from(inner.extent).ok().and_then(|extent| stride.checked_mul(extent));
        self.strides.iter().zip(&inner.strides).all(|(outer, stride)| Some(*outer) == reach(stride))
    }
}

/// The smallest number of axes, in the memory order of the first array, that describe all elements of some placements
/// of one shape; at least one axis. `components` is an additional axis. `None` if the digits of an axis are
/// incompatible.
pub fn shared_axes(placements: &[&Placement], components: Option<SharedAxis>) -> Option<Vec<SharedAxis>> {
    let mut axes = Vec::new();
    for axis in 0..placements.first()?.axes.len() {
        axes.extend(common_digits(placements.iter().map(|p| p.axes[axis].clone()).collect())?);
    }
    axes.extend(components);
    Some(merged(axes, placements.len()))
}

/// Digits of one axis in several placements as digits of all, innermost first.
fn common_digits(mut left: Vec<Vec<Digit>>) -> Option<Vec<SharedAxis>> {
    let mut found = Vec::new();
    loop {
        // A digit with one value carries no information.
        left.iter_mut().for_each(|digits| while digits.pop_if(|d| d.extent == 1).is_some() {});
        let Some(least) = left.iter().filter_map(|digits| Some(digits.last()?.extent)).min() else {
            return Some(found);
        };
        let innermost: Vec<Digit> = left.iter_mut().map(Vec::pop).collect::<Option<_>>()?;
        let strides = innermost.iter().map(|d| i64::try_from(d.stride).ok()).collect::<Option<_>>()?;
        found.push(SharedAxis { extent: least, strides });
        for (digits, Digit { extent, stride }) in left.iter_mut().zip(innermost) {
            if extent == least {
                continue;
            }
            if least == 0 || extent % least != 0 {
                return None;
            }
            digits.push(Digit { extent: extent / least, stride: stride.checked_mul(least)? });
        }
    }
}

/// The axes in the order of memory, with neighbors that follow one another without gaps as one.
fn merged(mut axes: Vec<SharedAxis>, arrays: usize) -> Vec<SharedAxis> {
    axes.sort_by(|a, b| b.strides.cmp(&a.strides));
    let mut merged: Vec<SharedAxis> = Vec::new();
    for axis in axes.into_iter().filter(|axis| axis.extent != 1) {
        match merged.last_mut() {
            Some(outer) if outer.joins(&axis) => {
                *outer = SharedAxis { extent: outer.extent.saturating_mul(axis.extent), ..axis };
            }
            _ => merged.push(axis),
        }
    }
    if merged.is_empty() {
        merged.push(SharedAxis { extent: 1, strides: vec![0; arrays] });
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(extent: u64, strides: &[i64]) -> SharedAxis {
        SharedAxis { extent, strides: strides.to_vec() }
    }

    fn digit(extent: u64, stride: u64) -> Digit {
        Digit { extent, stride }
    }

    #[test]
    fn axes_without_gaps_are_merged() {
        let array = Placement::row_major(16, &[3, 1, 5], 4);
        assert_eq!(shared_axes(&[&array], None), Some(vec![axis(15, &[4])]));
        let pairs = Placement::row_major(0, &[3, 5], 8);
        assert_eq!(shared_axes(&[&pairs], Some(axis(2, &[4]))), Some(vec![axis(30, &[4])]));
        assert_eq!(shared_axes(&[&pairs], None), Some(vec![axis(15, &[8])]));
        let scalar = Placement::row_major(4, &[], 4);
        assert_eq!(shared_axes(&[&scalar, &scalar], None), Some(vec![axis(1, &[0, 0])]));
        assert_eq!(shared_axes(&[], None), None);
    }

    #[test]
    fn the_digits_of_one_layout_divide_those_of_another() {
        let blocks = Placement { base: 0, axes: vec![vec![digit(3, 32), digit(4, 4)]] };
        let array = Placement::row_major(0, &[12], 8);
        assert_eq!(shared_axes(&[&blocks, &array], None), Some(vec![axis(3, &[32, 32]), axis(4, &[4, 8])]));
        let others = Placement { base: 0, axes: vec![vec![digit(2, 24), digit(6, 4)]] };
        assert_eq!(shared_axes(&[&blocks, &others], None), None);
        let empty = Placement::row_major(0, &[0, 3], 4);
        assert_eq!(shared_axes(&[&empty, &empty], None), Some(vec![axis(0, &[4, 4])]));
    }

    #[test]
    fn elements_are_at_their_placements() {
        let pairs = [
            (
                Placement::in_order(8, &[4, 6], &[1, 0], 4),
                Placement { base: 0, axes: vec![vec![digit(2, 48), digit(2, 12)], vec![digit(2, 24), digit(3, 4)]] },
            ),
            (Placement::row_major(0, &[4, 6], 12), Placement::row_major(4, &[4, 6], 4)),
        ];
        for (a, b) in pairs {
            let axes = shared_axes(&[&a, &b], None).expect("the digits fit");
            let mut found: Vec<[i64; 2]> = vec![[a.base as i64, b.base as i64]];
            for axis in &axes {
                let step = |at: &[i64; 2], n: i64| [at[0] + n * axis.strides[0], at[1] + n * axis.strides[1]];
                found = found.iter().flat_map(|at| (0..axis.extent as i64).map(move |n| step(at, n))).collect();
            }
            let index = |n: u64| [n / 6, n % 6];
            let mut expected: Vec<[i64; 2]> =
                (0..24).map(|n| [a.offset_of(&index(n)) as i64, b.offset_of(&index(n)) as i64]).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
