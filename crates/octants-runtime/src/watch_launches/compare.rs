//! Whether two pieces of work touch the same element.

use std::sync::Arc;

use super::{AccessedRange, Doing, Work};
use crate::concurrency::elements::Elements;
use crate::kernel::{LoadedKernel, Pointer};
use crate::race::{Race, RaceAccess, RaceKind, Touch};
use crate::witness::{Touched, ends, meet};

/// Indices near which elements are looked for.
const MOST_NEAR: usize = 16;

/// Two pieces of work may conflict in a buffer, according to their access sets.
pub(super) fn may_meet((a, of_a): (&Doing, Option<Pointer>), (b, of_b): (&Doing, Option<Pointer>)) -> bool {
    let (Doing::Launch(a, a_args), Doing::Launch(b, b_args), Some(of_a), Some(of_b)) = (a, b, of_a, of_b) else {
        return true;
    };
    Elements { kernel: &a.meta, args: a_args, of: of_a }.meet(&Elements { kernel: &b.meta, args: b_args, of: of_b })
}

fn touches(kernel: &LoadedKernel, args: &[u64], near: &[i64]) -> Vec<Touched> {
    kernel.witness.as_ref().map(|w| w.touches(args, near)).unwrap_or_default()
}

/// How many elements of launches are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// Those of some iterations.
    Some,
    /// If these do not conflict, those of all iterations.
    All,
}

/// An element in which two launches certainly conflict, and both accesses.
fn find_between(earlier: &Work, later: &Work, search: Search) -> Option<(Touched, Touched)> {
    let (Doing::Launch(a, a_args), Doing::Launch(b, b_args)) = (&earlier.doing, &later.doing) else { return None };
    let cloned = |(x, y): (&Touched, &Touched)| (x.clone(), y.clone());
    let mut in_a = touches(a, a_args, &[]);
    let mut in_b = touches(b, b_args, &ends(&in_a));
    if meet(&in_a, &in_b).is_none() {
        in_a = touches(a, a_args, &ends(&in_b));
        in_b = touches(b, b_args, &ends(&in_a));
    }
    if let Some(found) = meet(&in_a, &in_b).map(cloned) {
        return Some(found);
    }
    if search == Search::Some && earlier.touches.is_none() && later.touches.is_none() {
        return None;
    }
    let (in_a, in_b) = (all_touches(earlier), all_touches(later));
    meet(&in_a, &in_b).map(cloned)
}

/// All elements that a launch certainly touches.
fn all_touches(work: &Work) -> Arc<[Touched]> {
    match (&work.touches, &work.doing) {
        (Some(known), _) => known.clone(),
        (None, Doing::Launch(kernel, args)) => {
            kernel.witness.as_ref().map(|w| w.all_touches(args, false)).unwrap_or_default().into()
        }
        (None, Doing::Ranges(..)) => [].into(),
    }
}

/// The race of two unordered pieces of work, if they certainly conflict.
pub(super) fn race_of(earlier: &Work, later: &Work, search: Search) -> Option<Race> {
    let (buffer, index, [first, second]) = match (&earlier.doing, &later.doing) {
        (Doing::Launch(..), Doing::Launch(..)) => {
            let (x, y) = find_between(earlier, later, search)?;
            let sides = [side(earlier, Some(&x), x.touch), side(later, Some(&y), y.touch)];
            (x.buffer.to_string(), Some(x.index), sides)
        }
        (Doing::Launch(a, args), Doing::Ranges(_, ranges)) => {
            let (x, touch) = find_near(earlier, (a, args), ranges)?;
            let sides = [side(earlier, Some(&x), x.touch), side(later, None, touch)];
            (x.buffer.to_string(), Some(x.index), sides)
        }
        (Doing::Ranges(_, ranges), Doing::Launch(b, args)) => {
            let (y, touch) = find_near(later, (b, args), ranges)?;
            let sides = [side(earlier, None, touch), side(later, Some(&y), y.touch)];
            (y.buffer.to_string(), Some(y.index), sides)
        }
        (Doing::Ranges(_, a), Doing::Ranges(_, b)) => {
            let (x, y) = meeting(a, b)?;
            let sides = [side(earlier, None, touch_of(x.2)), side(later, None, touch_of(y.2))];
            ("an array".into(), None, sides)
        }
    };
    let (a, b) = (earlier.stream_name(), later.stream_name());
    let fix = format!(
        "{b} does not wait for {a}: between the two launches call `.wait(...)` of the stream of {} with the stream of \
         {}, or with an event that was recorded there after it, or wait on the host with `qd.sync()`",
        later.site, earlier.site
    );
    Some(Race { kind: RaceKind::Launches, buffer, index, first, second, fix })
}

/// The race of a piece of work with an access of the host at a site, if they certainly conflict.
pub(super) fn race_with_host(work: &Work, ranges: &[AccessedRange], site: String) -> Option<Race> {
    let (buffer, index, first, touch) = match &work.doing {
        Doing::Launch(kernel, args) => {
            let near = find_near(work, (kernel, args), ranges);
            let (x, touch) = near.or_else(|| find_in(&all_touches(work), ranges))?;
            (x.buffer.to_string(), Some(x.index.clone()), side(work, Some(&x), x.touch), touch)
        }
        Doing::Ranges(_, of_work) => {
            let (x, y) = meeting(of_work, ranges)?;
            ("an array".into(), None, side(work, None, touch_of(x.2)), touch_of(y.2))
        }
    };
    let stream = work.stream_name();
    let fix = format!("wait for {stream} before the access, by its `synchronize()` or by `qd.sync()`");
    let second = RaceAccess { touch, at: site, by: "the host".into(), launched_at: None };
    Some(Race { kind: RaceKind::Host, buffer, index, first, second, fix })
}

/// Two ranges that overlap, one of them being written.
fn meeting<'a>(a: &'a [AccessedRange], b: &'a [AccessedRange]) -> Option<(&'a AccessedRange, &'a AccessedRange)> {
    let meets = |x: &AccessedRange, y: &AccessedRange| x.0 < y.1 && y.0 < x.1 && (x.2 || y.2);
    a.iter().find_map(|x| b.iter().find(|y| meets(x, y)).map(|y| (x, y)))
}

/// An element of a launch that is in ranges of addresses, one of the two being written.
fn find_near(
    work: &Work,
    (kernel, args): (&LoadedKernel, &[u64]),
    ranges: &[AccessedRange],
) -> Option<(Touched, Touch)> {
    let exact = || find_in(work.touches.as_deref()?, ranges);
    find_in(&touches_near(kernel, args, ranges), ranges).or_else(exact)
}

/// Elements that a launch touches, including those at the ends of address ranges for one-dimensional arrays.
fn touches_near(kernel: &LoadedKernel, args: &[u64], ranges: &[AccessedRange]) -> Vec<Touched> {
    let found = touches(kernel, args, &[]);
    let mut near: Vec<i64> = Vec::new();
    for pair in found.windows(2) {
        let ([i], [j], Some(x), Some(y)) = (&pair[0].index[..], &pair[1].index[..], pair[0].address, pair[1].address)
        else {
            continue;
        };
        let (apart, bytes) = (j - i, y.wrapping_sub(x) as i64);
        if pair[0].memory != pair[1].memory || apart == 0 || bytes / apart <= 0 {
            continue;
        }
        let index_of = |address: u64| i + (address.wrapping_sub(x) as i64) / (bytes / apart);
        near.extend(ranges.iter().flat_map(|(begin, end, _)| [index_of(*begin), index_of(end - 1)]));
        near.sort_unstable();
        near.dedup();
        if near.len() >= MOST_NEAR {
            break;
        }
    }
    if near.is_empty() || find_in(&found, ranges).is_some() { found } else { touches(kernel, args, &near) }
}

/// An element in the intersection of two ranges, and how each is accessed, if at least one of them is written.
fn find_in(touched: &[Touched], ranges: &[AccessedRange]) -> Option<(Touched, Touch)> {
    let races = |t: &Touched, &(begin, end, written): &AccessedRange| {
        t.address.is_some_and(|at| (begin..end).contains(&at)) && (written || t.touch != Touch::Read)
    };
    touched.iter().find_map(|t| {
        let range = ranges.iter().find(|range| races(t, range))?;
        Some((t.clone(), touch_of(range.2)))
    })
}

fn touch_of(written: bool) -> Touch {
    if written { Touch::Write } else { Touch::Read }
}

fn side(work: &Work, touched: Option<&Touched>, touch: Touch) -> RaceAccess {
    let stream = work.stream_name();
    let by = match &work.doing {
        Doing::Launch(kernel, _) => format!("kernel `{}` on {stream}", kernel.name()),
        Doing::Ranges(what, _) => format!("{what} on {stream}"),
    };
    let at = touched.map_or_else(|| work.site.clone(), |t| t.at.to_string());
    RaceAccess { touch, at, by, launched_at: Some(work.site.clone()) }
}
