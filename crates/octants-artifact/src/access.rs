//! [`Access`]: the elements that a task touches, in a form that a launch evaluates for its arguments.
//!
//! At compile time this is an index range per axis of a buffer, in terms of argument slots. [`Access::ranges`]
//! computes the indices of a launch, without allocation and with a few additions per axis.

use serde::{Deserialize, Serialize};

use crate::ScalarKind;

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AccessKind {
    /// Reads.
    Read,
    /// Non-atomic writes.
    Write,
    /// Atomic updates.
    Update(UpdateOp),
}

/// The operation of an atomic update. Updates with the same operation commute, except for exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum UpdateOp {
    Add,
    Sub,
    Mul,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
}

/// Elements of a buffer, and the kind of access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Index of the kernel's buffer.
    pub buffer: u32,
    /// The kind of access.
    pub kind: AccessKind,
    /// The indices along each axis of the buffer.
    pub axes: Vec<AccessAxis>,
    /// Congruences of the indices.
    pub colors: Vec<AccessColor>,
    /// The parts of an element.
    pub parts: Vec<AccessPart>,
    /// Bytes of an element; zero for a field, whose parts are placed one by one.
    pub element: u64,
}

/// A congruence of indices: the sum of each index times its coefficient, and a number of the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessColor {
    /// One for each axis.
    pub coefficients: Vec<i64>,
    /// The modulus, at least 1.
    pub modulus: i64,
    /// What the sum is congruent to.
    pub phase: SlotSum,
}

/// A part of an element: bytes of the element of an array, or a component of a field, which is identified by the bytes
/// of its first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessPart {
    /// The argument slot with the address of the memory.
    pub slot: u32,
    /// The first byte.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
}

/// The indices of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessAxis {
    /// The extent of the axis.
    pub extent: SlotSum,
    /// From one sum up to another, exclusive; all if unknown.
    pub range: Option<(SlotSum, SlotSum)>,
    /// From one index to the next; at least 1.
    pub step: u64,
}

/// `constant + coefficient * slot + ..`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotSum {
    /// The constant term.
    pub constant: i64,
    /// Argument slots, each with the kind of integer in its low bytes and its coefficient.
    pub terms: Vec<(u32, ScalarKind, i64)>,
}

/// Indices of an axis in a launch: from `begin` to before `end`, each `step`th of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indices {
    /// The first.
    pub begin: i64,
    /// One past the last.
    pub end: i64,
    /// From one to the next; at least 1.
    pub step: u64,
}

impl Access {
    /// The indices of each axis in a launch with these argument slots. A range that starts or ends outside its axis, or
    /// ends before it starts, is widened to the whole axis: what the program computes may have wrapped.
    pub fn ranges<'a>(&'a self, slots: &'a [u64]) -> impl Iterator<Item = Indices> + 'a {
        self.axes.iter().map(|axis| axis.indices(slots))
    }
}

impl AccessAxis {
    fn indices(&self, slots: &[u64]) -> Indices {
        let extent = self.extent.value(slots).unwrap_or(i64::MAX);
        let known = self.range.as_ref().and_then(|(begin, end)| Some((begin.value(slots)?, end.value(slots)?)));
        match known.filter(|(begin, end)| 0 <= *begin && begin <= end && *end <= extent) {
            Some((begin, end)) => Indices { begin, end, step: self.step },
            None => Indices { begin: 0, end: extent, step: 1 },
        }
    }
}

impl SlotSum {
    /// A number that does not come from an argument.
    pub fn constant(constant: i64) -> SlotSum {
        SlotSum { constant, terms: Vec::new() }
    }

    /// The number in a launch with these argument slots; `None` if it does not fit.
    pub fn value(&self, slots: &[u64]) -> Option<i64> {
        self.terms.iter().try_fold(self.constant, |sum, (slot, kind, coefficient)| {
            let number = kind.integer(*slots.get(*slot as usize)?)?;
            sum.checked_add(number.checked_mul(*coefficient)?)
        })
    }
}

impl ScalarKind {
    /// The integer of this kind in the low bytes of a slot; `None` for floats, and for what an i64 does not hold.
    pub fn integer(self, slot: u64) -> Option<i64> {
        match self {
            ScalarKind::U1 => Some((slot & 1) as i64),
            ScalarKind::I8 => Some((slot as i8).into()),
            ScalarKind::I16 => Some((slot as i16).into()),
            ScalarKind::I32 => Some((slot as i32).into()),
            ScalarKind::I64 => Some(slot as i64),
            ScalarKind::U8 => Some((slot as u8).into()),
            ScalarKind::U16 => Some((slot as u16).into()),
            ScalarKind::U32 => Some((slot as u32).into()),
            ScalarKind::U64 => i64::try_from(slot).ok(),
            ScalarKind::F16 | ScalarKind::F32 | ScalarKind::F64 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x[n - 1 : 2 * n : 3]` of an axis whose extent is in slot 1, `n` an i32 in slot 0.
    fn access() -> Access {
        let n = |constant, coefficient| SlotSum { constant, terms: vec![(0, ScalarKind::I32, coefficient)] };
        let extent = SlotSum { constant: 0, terms: vec![(1, ScalarKind::I64, 1)] };
        let axis = AccessAxis { extent, range: Some((n(-1, 1), n(0, 2))), step: 3 };
        Access { buffer: 0, kind: AccessKind::Read, axes: vec![axis], colors: vec![], parts: vec![], element: 4 }
    }

    fn only(slots: [u64; 2]) -> Indices {
        let found: Vec<Indices> = access().ranges(&slots).collect();
        assert_eq!(found.len(), 1);
        found[0]
    }

    #[test]
    fn ranges_follow_the_arguments() {
        assert_eq!(only([5, 100]), Indices { begin: 4, end: 10, step: 3 });
        // Only the low bytes of a slot belong to an i32.
        assert_eq!(only([0xffff_0000_0000 | 7, 100]), Indices { begin: 6, end: 14, step: 3 });
    }

    #[test]
    fn indices_out_of_range_cover_the_whole_axis() {
        assert_eq!(only([51, 100]), Indices { begin: 0, end: 100, step: 1 });
        assert_eq!(only([0, 100]), Indices { begin: 0, end: 100, step: 1 });
        assert_eq!(only([-3i32 as u32 as u64, 100]), Indices { begin: 0, end: 100, step: 1 });
        let unknown = Access { axes: vec![AccessAxis { range: None, ..access().axes[0].clone() }], ..access() };
        assert_eq!(unknown.ranges(&[5, 9]).next(), Some(Indices { begin: 0, end: 9, step: 1 }));
    }

    #[test]
    fn a_sum_that_overflows_has_no_value() {
        let far = SlotSum { constant: i64::MAX, terms: vec![(1, ScalarKind::I64, 1)] };
        assert_eq!(far.value(&[0, 1]), None);
        assert_eq!(SlotSum { constant: 0, terms: vec![(0, ScalarKind::F32, 1)] }.value(&[0]), None);
        assert_eq!(SlotSum { constant: 0, terms: vec![(0, ScalarKind::U64, 1)] }.value(&[u64::MAX]), None);
        assert_eq!(SlotSum { constant: 0, terms: vec![(4, ScalarKind::I64, 1)] }.value(&[0]), None);
    }
}
