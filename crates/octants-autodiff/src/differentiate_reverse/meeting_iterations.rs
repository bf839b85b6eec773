//! Which iterations of a parallel loop meet at an element: indices that are multiples of the loop's index plus
//! constants, and the integers that solve their equations. Other indices are left to what finds them while running.

use octants_analysis::known_int;
use octants_ir::{BinaryOp, Body, Op, UnaryOp, ValueId};

/// An index that is a multiple of a loop's along one axis and a constant, or a constant alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Multiple {
    /// The axis; `None` for a constant.
    pub axis: Option<u32>,
    by: i64,
    pub plus: i64,
}

/// An iteration's read and another one's write, of the same axis of a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Equation {
    pub read: Multiple,
    pub write: Multiple,
}

/// Which iterations, told apart by the index of one axis, lead to the same elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Meeting {
    /// None.
    Never,
    /// Only each to its own.
    InOne,
    /// Some two that differ.
    OfTwo,
}

/// The index as a multiple of that of the loop `around`.
pub(super) fn multiple(body: &Body, v: ValueId, around: ValueId) -> Option<Multiple> {
    if let Some(plus) = known_int(body, v) {
        return Some(Multiple { axis: None, by: 0, plus });
    }
    let sum = |a: Multiple, b: Multiple, sign: i64| {
        (a.axis.is_none() || b.axis.is_none() || a.axis == b.axis).then_some(())?;
        let (by, plus) = (a.by.checked_add(sign * b.by)?, a.plus.checked_add(sign * b.plus)?);
        Some(Multiple { axis: a.axis.or(b.axis).filter(|_| by != 0), by, plus })
    };
    match &body.inst(v).op {
        Op::LoopIndex(l, axis) if *l == around => Some(Multiple { axis: Some(*axis), by: 1, plus: 0 }),
        Op::Cast(x) if body.ty(*x).scalar().is_some_and(|s| !s.is_float()) => multiple(body, *x, around),
        Op::Unary(UnaryOp::Neg, x) => sum(Multiple { axis: None, by: 0, plus: 0 }, multiple(body, *x, around)?, -1),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul), x, y) => {
            let (x, y) = (multiple(body, *x, around)?, multiple(body, *y, around)?);
            match op {
                BinaryOp::Add => sum(x, y, 1),
                BinaryOp::Sub => sum(x, y, -1),
                _ => {
                    let (x, k) = if y.axis.is_none() { (x, y.plus) } else { (y, x.plus) };
                    let (by, plus) = (x.by.checked_mul(k)?, x.plus.checked_mul(k)?);
                    (x.axis.is_none() || y.axis.is_none()).then_some(Multiple {
                        axis: x.axis.filter(|_| by != 0),
                        by,
                        plus,
                    })
                }
            }
        }
        _ => None,
    }
}

/// Looks for iterations of a range that solve the equations. A bound that is not known is taken to be far away.
pub(super) fn meet(begin: Option<i64>, end: Option<i64>, equations: &[Equation]) -> Meeting {
    // Iterations are tried one after the other: more are not looked at.
    const MOST: i64 = 1 << 16;
    if equations.is_empty() {
        return Meeting::InOne;
    }
    let first = begin.unwrap_or(0);
    let end = end.filter(|_| begin.is_some());
    // The same multiples: iterations that meet are the same number apart, wherever the loop begins.
    if equations.iter().all(|e| e.read.by == e.write.by && e.read.by != 0) {
        let apart = |e: &Equation| {
            let sum = e.write.plus.checked_sub(e.read.plus)?;
            (sum % e.read.by == 0).then(|| sum / e.read.by)
        };
        return match apart(&equations[0]) {
            Some(n) if equations.iter().all(|e| apart(e) == Some(n)) => match n {
                0 => Meeting::InOne,
                n if end.is_none_or(|end| n.abs() < end.saturating_sub(first)) => Meeting::OfTwo,
                _ => Meeting::Never,
            },
            _ => Meeting::Never,
        };
    }
    if begin.is_none() {
        return Meeting::Never;
    }
    let last = end.unwrap_or(i64::MAX).min(first.saturating_add(MOST));
    let at = |m: Multiple, i: i64| m.by.checked_mul(i)?.checked_add(m.plus);
    let mut found = Meeting::Never;
    for write in first..last {
        let read = match equations.iter().find(|e| e.read.by != 0) {
            Some(e) => at(e.write, write).and_then(|y| y.checked_sub(e.read.plus)).map(|y| y / e.read.by),
            // All iterations read the same element.
            None => Some(if write == first { first + 1 } else { first }),
        };
        let solves =
            |r: &i64| equations.iter().all(|e| at(e.read, *r).is_some() && at(e.read, *r) == at(e.write, write));
        match read.filter(|r| (first..last).contains(r) && solves(r)) {
            Some(read) if read != write => return Meeting::OfTwo,
            Some(_) => found = Meeting::InOne,
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(by: i64, plus: i64) -> Multiple {
        Multiple { axis: (by != 0).then_some(0), by, plus }
    }

    fn of(range: (Option<i64>, Option<i64>), read: (i64, i64), write: (i64, i64)) -> Meeting {
        meet(range.0, range.1, &[Equation { read: index(read.0, read.1), write: index(write.0, write.1) }])
    }

    #[test]
    fn shifts_meet_where_the_loop_is_longer() {
        let range = (Some(0), Some(4));
        assert_eq!(of(range, (1, 0), (1, 0)), Meeting::InOne);
        assert_eq!(of(range, (1, 0), (1, 3)), Meeting::OfTwo);
        assert_eq!(of(range, (1, 0), (1, 4)), Meeting::Never);
        assert_eq!(of((Some(2), None), (1, 0), (1, 400)), Meeting::OfTwo);
        assert_eq!(of((None, None), (1, 1), (1, 0)), Meeting::OfTwo);
    }

    #[test]
    fn multiples_meet_where_they_divide() {
        let range = (Some(0), Some(8));
        assert_eq!(of(range, (2, 1), (2, 0)), Meeting::Never);
        assert_eq!(of(range, (2, 2), (2, 0)), Meeting::OfTwo);
        // 3 i = 2 j + 20 needs an i of at least 8.
        assert_eq!(of((Some(0), Some(9)), (3, 0), (2, 20)), Meeting::OfTwo);
        assert_eq!(of(range, (3, 0), (2, 20)), Meeting::Never);
    }

    #[test]
    fn mirrored_and_constant_indices_meet() {
        assert_eq!(of((Some(0), Some(4)), (-1, 3), (1, 0)), Meeting::OfTwo);
        // The lower half reads the upper one.
        assert_eq!(of((Some(0), Some(2)), (-1, 3), (1, 0)), Meeting::Never);
        assert_eq!(of((Some(0), Some(4)), (0, 2), (1, 0)), Meeting::OfTwo);
        assert_eq!(of((Some(0), Some(4)), (0, 4), (1, 0)), Meeting::Never);
        assert_eq!(of((Some(0), Some(1)), (0, 0), (1, 0)), Meeting::Never);
        // Where it begins is not known.
        assert_eq!(of((None, None), (0, 2), (1, 0)), Meeting::Never);
    }

    #[test]
    fn all_indices_must_meet_at_once() {
        let both = |read: [(i64, i64); 2], write: [(i64, i64); 2]| {
            let equation =
                |k: usize| Equation { read: index(read[k].0, read[k].1), write: index(write[k].0, write[k].1) };
            meet(Some(0), Some(9), &[equation(0), equation(1)])
        };
        assert_eq!(both([(1, 0), (1, 1)], [(1, 0), (1, 0)]), Meeting::Never);
        assert_eq!(both([(1, 1), (2, 2)], [(1, 0), (2, 0)]), Meeting::OfTwo);
        assert_eq!(both([(1, 1), (0, 3)], [(1, 0), (1, 0)]), Meeting::OfTwo);
        assert_eq!(both([(1, 1), (0, 9)], [(1, 0), (1, 0)]), Meeting::Never);
    }
}
