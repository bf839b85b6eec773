//! [`TaskLaunch::conflicts_with`]: whether the order of two task launches matters, judged by the elements that they
//! touch.
//!
//! It evaluates the access sets of both for their arguments, without allocation. Two launches that do not conflict may
//! run in any order and concurrently. The test is conservative: launches reported as conflicting need not touch a
//! common element.

use crate::access::{Access, AccessColor, AccessKind, Indices, UpdateOp};

/// A launch of a task: its access set and the argument slots.
#[derive(Debug, Clone, Copy)]
pub struct TaskLaunch<'a> {
    /// The access sets of the task.
    pub access: &'a [Access],
    /// The argument slots of the launch.
    pub slots: &'a [u64],
}

/// How the memory of two buffers relates, one of each launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// They share no byte.
    None,
    /// They are the same elements under the same indices.
    Same,
    /// Some bytes are shared, at unknown indices.
    Partial,
}

impl TaskLaunch<'_> {
    /// The order of the two launches may matter. `overlap` returns how a buffer of this launch overlaps one of the
    /// other.
    pub fn conflicts_with(&self, other: &TaskLaunch<'_>, overlap: impl Fn(u32, u32) -> Overlap) -> bool {
        self.access.iter().any(|a| {
            other.access.iter().any(|b| {
                !a.kind.commutes_with(b.kind)
                    && match overlap(a.buffer, b.buffer) {
                        Overlap::None => false,
                        Overlap::Same => a.ranges(self.slots).zip(b.ranges(other.slots)).all(|(x, y)| x.meets(y)),
                        Overlap::Partial => !a.is_empty(self.slots) && !b.is_empty(other.slots),
                    }
            })
        })
    }
}

impl Access {
    /// Both may touch an element that one of them changes, in launches with these argument slots, of buffers that begin
    /// at the same address. Updates count as changes even when they commute.
    pub fn meets(&self, (other, other_slots): (&Access, &[u64]), slots: &[u64]) -> bool {
        let reads = (self.kind, other.kind) == (AccessKind::Read, AccessKind::Read);
        if reads || !self.shares_parts((other, other_slots), slots) {
            return false;
        }
        let same_extents = self.axes.len() == other.axes.len()
            && self.axes.iter().zip(&other.axes).all(|(a, b)| {
                let extents = (a.extent.value(slots), b.extent.value(other_slots));
                extents.0.is_some() && extents.0 == extents.1
            });
        !same_extents
            || self.ranges(slots).zip(other.ranges(other_slots)).all(|(x, y)| x.meets(y))
                && !self.colors.iter().any(|a| other.colors.iter().any(|b| a.is_apart((b, other_slots), slots)))
    }

    /// Both may touch the same parts of elements.
    fn shares_parts(&self, (other, other_slots): (&Access, &[u64]), slots: &[u64]) -> bool {
        self.parts.iter().any(|a| {
            other.parts.iter().any(|b| {
                slots.get(a.slot as usize) == other_slots.get(b.slot as usize)
                    && (self.element != other.element || a.begin < b.end && b.begin < a.end)
            })
        })
    }

    /// The launch touches no element by this access.
    fn is_empty(&self, slots: &[u64]) -> bool {
        self.ranges(slots).any(|indices| indices.begin >= indices.end)
    }
}

impl AccessColor {
    /// No element has both colors.
    fn is_apart(&self, (other, other_slots): (&AccessColor, &[u64]), slots: &[u64]) -> bool {
        let modulus = common_divisor(self.modulus.unsigned_abs(), other.modulus.unsigned_abs()).max(1) as i64;
        let same = |(a, b): (&i64, &i64)| a.wrapping_sub(*b) % modulus == 0;
        self.coefficients.iter().zip(&other.coefficients).all(same)
            && self.phase.value(slots).zip(other.phase.value(other_slots)).is_some_and(|(a, b)| {
                // The remainders are less than the modulus, so their difference does not overflow.
                a.rem_euclid(modulus) != b.rem_euclid(modulus)
            })
    }
}

impl AccessKind {
    /// Accesses of these kinds to one element may come in any order.
    pub fn commutes_with(self, other: AccessKind) -> bool {
        match (self, other) {
            (AccessKind::Read, AccessKind::Read) => true,
            (AccessKind::Update(a), AccessKind::Update(b)) => {
                let sums = |op| matches!(op, UpdateOp::Add | UpdateOp::Sub);
                (a == b && a != UpdateOp::Exchange) || (sums(a) && sums(b))
            }
            _ => false,
        }
    }
}

impl Indices {
    /// Some index may be in both.
    pub fn meets(self, other: Indices) -> bool {
        if self.begin.max(other.begin) >= self.end.min(other.end) {
            return false;
        }
        // Two progressions have a common member only if their common divisor divides the distance of their first ones.
        let step = common_divisor(self.step, other.step);
        step <= 1 || self.begin.abs_diff(other.begin).is_multiple_of(step)
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScalarKind;
    use crate::access::{AccessAxis, AccessPart, SlotSum};

    /// `buffer[begin : end : step]`, both plus the i64 in slot 0, of an axis of 1000.
    fn access(buffer: u32, kind: AccessKind, (begin, end, step): (i64, i64, u64)) -> Access {
        let at = |constant| SlotSum { constant, terms: vec![(0, ScalarKind::I64, 1)] };
        let axis = AccessAxis { extent: SlotSum::constant(1000), range: Some((at(begin), at(end))), step };
        let parts = vec![AccessPart { slot: 1, begin: 0, end: 4 }];
        Access { buffer, kind, axes: vec![axis], colors: Vec::new(), parts, element: 4 }
    }

    fn conflicts(a: &Access, a_slot: u64, b: &Access, b_slot: u64, overlap: Overlap) -> bool {
        let launch = |access, slots| TaskLaunch { access, slots };
        let (a_slots, b_slots) = ([a_slot], [b_slot]);
        let (first, second) = (std::slice::from_ref(a), std::slice::from_ref(b));
        let same = |x, y| if x == y { overlap } else { Overlap::None };
        launch(first, &a_slots).conflicts_with(&launch(second, &b_slots), same)
    }

    #[test]
    fn arguments_decide_whether_rows_conflict() {
        let write = access(0, AccessKind::Write, (0, 10, 1));
        let read = access(0, AccessKind::Read, (0, 10, 1));
        assert!(conflicts(&write, 0, &read, 9, Overlap::Same));
        assert!(!conflicts(&write, 0, &read, 10, Overlap::Same));
        assert!(!conflicts(&write, 20, &read, 10, Overlap::Same));
        assert!(conflicts(&write, 20, &read, 10, Overlap::Partial));
        // The range is unknown beyond the axis.
        assert!(conflicts(&write, 995, &read, 10, Overlap::Same));
        assert!(!conflicts(&write, 0, &access(1, AccessKind::Read, (0, 10, 1)), 0, Overlap::Same));
    }

    #[test]
    fn an_empty_range_conflicts_with_nothing() {
        let (write, none) = (access(0, AccessKind::Write, (0, 10, 1)), access(0, AccessKind::Read, (5, 5, 1)));
        assert!(!conflicts(&write, 0, &none, 0, Overlap::Same));
        assert!(!conflicts(&write, 0, &none, 0, Overlap::Partial));
    }

    #[test]
    fn disjoint_strided_ranges_do_not_conflict() {
        let (even, odd) = (access(0, AccessKind::Write, (0, 100, 2)), access(0, AccessKind::Write, (1, 100, 2)));
        assert!(!conflicts(&even, 0, &odd, 0, Overlap::Same));
        assert!(conflicts(&even, 0, &odd, 1, Overlap::Same));
        let third = access(0, AccessKind::Write, (1, 100, 3));
        assert!(conflicts(&even, 0, &third, 0, Overlap::Same));
    }

    #[test]
    fn reads_and_sums_commute() {
        let of = |kind| access(0, kind, (0, 10, 1));
        let add = of(AccessKind::Update(UpdateOp::Add));
        for (other, is_conflict) in [
            (of(AccessKind::Update(UpdateOp::Add)), false),
            (of(AccessKind::Update(UpdateOp::Sub)), false),
            (of(AccessKind::Update(UpdateOp::Max)), true),
            (of(AccessKind::Read), true),
            (of(AccessKind::Write), true),
        ] {
            assert_eq!(conflicts(&add, 0, &other, 0, Overlap::Same), is_conflict, "{:?}", other.kind);
        }
        let exchange = of(AccessKind::Update(UpdateOp::Exchange));
        assert!(conflicts(&exchange, 0, &exchange.clone(), 0, Overlap::Same));
        assert!(!conflicts(&of(AccessKind::Read), 0, &of(AccessKind::Read), 0, Overlap::Same));
    }

    #[test]
    fn parts_and_colors_tell_elements_apart() {
        let part = |begin| AccessPart { slot: 1, begin, end: begin + 4 };
        let color = |slot| AccessColor {
            coefficients: vec![1],
            modulus: 2,
            phase: SlotSum { constant: 0, terms: vec![(slot, ScalarKind::I64, 1)] },
        };
        let of = |begin, colors| Access {
            parts: vec![part(begin)],
            colors,
            element: 12,
            ..access(0, AccessKind::Write, (0, 10, 1))
        };
        let meets = |a: &Access, b: &Access, slots: [u64; 2]| a.meets((b, &slots), &[0, 4096]);
        assert!(meets(&of(0, vec![]), &of(0, vec![]), [0, 4096]));
        assert!(!meets(&of(0, vec![]), &of(4, vec![]), [0, 4096]));
        assert!(!meets(&of(0, vec![]), &of(0, vec![]), [0, 8192]));
        // The element has another size, so its parts are unknown.
        assert!(meets(&of(0, vec![]), &Access { element: 8, ..of(4, vec![]) }, [0, 4096]));
        assert!(meets(&of(0, vec![color(0)]), &of(0, vec![color(0)]), [2, 4096]));
        assert!(!meets(&of(0, vec![color(0)]), &of(0, vec![color(0)]), [3, 4096]));
        assert!(meets(&of(0, vec![color(0)]), &of(0, vec![]), [3, 4096]));
    }
}
