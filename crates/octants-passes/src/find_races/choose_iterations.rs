//! [`choose_iterations`]: selects the iterations of a loop to evaluate.

use std::collections::BTreeSet;

use super::observed::Observed;

/// Maximum number of iterations of a round.
const MOST: usize = 2048;
/// Number of neighbors on either side of an iteration that is chosen by its distance.
const AROUND: i64 = 2;

/// Rounds of iterations.
pub(super) const ROUNDS: u32 = 3;

/// The iterations of a round. In the first round, these are from both ends of each axis. In the second, their distances
/// from the beginning are the distances between elements that the first iterations reached. In the third, they are near
/// the given numbers of the kernel, and in the middle.
pub(super) fn choose_iterations(
    ranges: &[(i64, i64)],
    observed: &Observed,
    numbers: &[i64],
    round: u32,
) -> Vec<Vec<i64>> {
    let of_axis = ((MOST as f64).powf(1.0 / ranges.len().max(1) as f64) as i64).max(2);
    let distances = if round == 1 { distances(observed) } else { BTreeSet::new() };
    let axes: Vec<Vec<i64>> = ranges
        .iter()
        .map(|&(begin, end)| {
            let mut chosen: BTreeSet<i64> = BTreeSet::new();
            if round == 0 {
                let front = of_axis.saturating_sub(2).max(2);
                chosen.extend(begin..end.min(begin.saturating_add(front)));
                chosen.extend(end.saturating_sub(2).max(begin)..end);
            } else if round == 2 {
                let middle = [1, 2, 3].map(|part| begin.saturating_add(end.saturating_sub(begin) / 4 * part));
                let near =
                    numbers.iter().chain(&middle).flat_map(|n| n.saturating_sub(AROUND)..=n.saturating_add(AROUND));
                chosen.extend(near.filter(|i| (begin..end).contains(i)));
            } else {
                chosen.insert(begin);
                let near = distances.iter().flat_map(|d| d - AROUND..=d + AROUND);
                chosen.extend(near.filter_map(|d| begin.checked_add(d)).filter(|i| (begin..end).contains(i)));
            }
            chosen.into_iter().take(of_axis.max(2) as usize * 2).collect()
        })
        .collect();
    product(&axes)
}

/// The distances between elements of one buffer that the first iterations reached.
fn distances(observed: &Observed) -> BTreeSet<i64> {
    let firsts: Vec<_> = observed.firsts().take(64).collect();
    let mut found = BTreeSet::new();
    for (n, a) in firsts.iter().enumerate() {
        for b in &firsts[n + 1..] {
            if a.place.0 == b.place.0 {
                let apart = a.index.iter().zip(&b.index).filter_map(|(x, y)| x.checked_sub(*y)?.checked_abs());
                found.extend(apart.filter(|d| *d > 0 && *d < i64::MAX / 4));
            }
        }
    }
    for first in firsts {
        let apart = first.index.iter().flat_map(|i| observed.near().iter().filter_map(|n| n.checked_sub(*i)));
        found.extend(apart.filter(|d| (1..i64::MAX / 4).contains(d)));
    }
    found.into_iter().flat_map(|d| [d, d / 2, d / 3]).take(64).collect()
}

fn product(axes: &[Vec<i64>]) -> Vec<Vec<i64>> {
    axes.iter().fold(vec![Vec::new()], |all, axis| {
        let longer = all.iter().flat_map(|begin| {
            axis.iter().map(move |i| {
                let mut of = begin.clone();
                of.push(*i);
                of
            })
        });
        longer.take(2 * MOST).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_each_axis_are_tried() {
        let chosen = choose_iterations(&[(0, 1_000_000)], &Observed::default(), &[], 0);
        assert!(chosen.len() <= MOST && chosen.contains(&vec![0]) && chosen.contains(&vec![999_999]));
        let chosen = choose_iterations(&[(1, 3), (0, 100), (5, 6)], &Observed::default(), &[], 0);
        assert!(
            chosen.contains(&vec![1, 0, 5]) && chosen.contains(&vec![2, 99, 5]) && !chosen.contains(&vec![3, 0, 5])
        );
    }

    #[test]
    fn iterations_near_numbers_of_the_kernel_are_tried() {
        let chosen = choose_iterations(&[(0, 1_000_000)], &Observed::default(), &[70_000, -5, i64::MAX], 2);
        assert!(chosen.contains(&vec![69_999]) && chosen.contains(&vec![500_000]) && !chosen.contains(&vec![0]));
    }
}
