//! [`solve`]: which pairs of indices of a loop solve the linear equations that `dependence` derives from subscripts.

/// Whether two accesses reach the same element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conflict {
    /// Never.
    Apart,
    /// Only within one iteration.
    SameIteration,
    /// Unknown.
    Possible,
    /// In some iterations, if both accesses run in all of them. Between iterations: in two different ones.
    Certain,
}

/// A multiple of a loop's index, plus a constant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Multiple {
    pub by: i64,
    pub plus: i64,
}

/// A subscript in one iteration and one in another are the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Equation {
    pub first: Multiple,
    pub second: Multiple,
}

/// Pairs of iterations of a range that solve all equations. An unknown end is assumed to be far away.
pub(crate) fn solve(begin: Option<i64>, end: Option<i64>, equations: &[Equation]) -> Conflict {
    /// Maximum number of iterations to try.
    const MOST: i64 = 1 << 16;
    let first = begin.unwrap_or(0);
    let end = end.filter(|_| begin.is_some());
    // Equal factors: conflicting iterations have a constant distance, no matter where the loop begins.
    if equations.iter().all(|e| e.first.by == e.second.by && e.first.by != 0) {
        let apart = |e: &Equation| {
            let sum = e.second.plus.checked_sub(e.first.plus)?;
            (sum % e.first.by == 0).then(|| sum / e.first.by)
        };
        return match equations.first().and_then(apart) {
            Some(n) if equations.iter().all(|e| apart(e) == Some(n)) => match n {
                0 => Conflict::SameIteration,
                n if end.is_none_or(|end| n.abs() < end.saturating_sub(first)) => Conflict::Certain,
                _ => Conflict::Apart,
            },
            _ => Conflict::Apart,
        };
    }
    if begin.is_none() {
        return Conflict::Possible;
    }
    let tried = end.unwrap_or(i64::MAX).min(first.saturating_add(MOST));
    let at = |m: Multiple, i: i64| m.by.checked_mul(i)?.checked_add(m.plus);
    let mut found = if end == Some(tried) { Conflict::Apart } else { Conflict::Possible };
    for second in first..tried {
        let other = match equations.iter().find(|e| e.first.by != 0) {
            Some(e) => at(e.second, second).and_then(|y| y.checked_sub(e.first.plus)).map(|y| y / e.first.by),
            // The first access reaches the same element in all iterations.
            None => Some(if second == first { first + 1 } else { first }),
        };
        let solves =
            |i: &i64| equations.iter().all(|e| at(e.first, *i).is_some() && at(e.first, *i) == at(e.second, second));
        match other.filter(|i| (first..tried).contains(i) && solves(i)) {
            Some(i) if i != second => return Conflict::Certain,
            Some(_) => found = found.max(Conflict::SameIteration),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index((by, plus): (i64, i64)) -> Multiple {
        Multiple { by, plus }
    }

    fn of(range: (Option<i64>, Option<i64>), read: (i64, i64), write: (i64, i64)) -> Conflict {
        solve(range.0, range.1, &[Equation { first: index(read), second: index(write) }])
    }

    #[test]
    fn shifted_indices_meet_if_the_loop_is_longer_than_the_shift() {
        let range = (Some(0), Some(4));
        assert_eq!(of(range, (1, 0), (1, 0)), Conflict::SameIteration);
        assert_eq!(of(range, (1, 0), (1, 3)), Conflict::Certain);
        assert_eq!(of(range, (1, 0), (1, 4)), Conflict::Apart);
        assert_eq!(of((Some(2), None), (1, 0), (1, 400)), Conflict::Certain);
        assert_eq!(of((None, None), (1, 1), (1, 0)), Conflict::Certain);
    }

    #[test]
    fn multiples_meet_if_their_factors_divide_the_offset() {
        let range = (Some(0), Some(8));
        assert_eq!(of(range, (2, 1), (2, 0)), Conflict::Apart);
        assert_eq!(of(range, (2, 2), (2, 0)), Conflict::Certain);
        // 3 i = 2 j + 20 needs an i of at least 8.
        assert_eq!(of((Some(0), Some(9)), (3, 0), (2, 20)), Conflict::Certain);
        assert_eq!(of(range, (3, 0), (2, 20)), Conflict::Apart);
    }

    #[test]
    fn mirrored_and_constant_indices_meet() {
        assert_eq!(of((Some(0), Some(4)), (-1, 3), (1, 0)), Conflict::Certain);
        // The lower half reads the upper one.
        assert_eq!(of((Some(0), Some(2)), (-1, 3), (1, 0)), Conflict::Apart);
        assert_eq!(of((Some(0), Some(4)), (0, 2), (1, 0)), Conflict::Certain);
        assert_eq!(of((Some(0), Some(4)), (0, 4), (1, 0)), Conflict::Apart);
        assert_eq!(of((Some(0), Some(1)), (0, 0), (1, 0)), Conflict::Apart);
        // Its start is unknown, or it is too long to enumerate.
        assert_eq!(of((None, None), (0, 2), (1, 0)), Conflict::Possible);
        assert_eq!(of((Some(0), None), (2, 0), (-1, -1)), Conflict::Possible);
    }

    #[test]
    fn all_indices_must_meet_at_once() {
        let both = |read: [(i64, i64); 2], write: [(i64, i64); 2]| {
            let equation = |k: usize| Equation { first: index(read[k]), second: index(write[k]) };
            solve(Some(0), Some(9), &[equation(0), equation(1)])
        };
        assert_eq!(both([(1, 0), (1, 1)], [(1, 0), (1, 0)]), Conflict::Apart);
        assert_eq!(both([(1, 1), (2, 2)], [(1, 0), (2, 0)]), Conflict::Certain);
        assert_eq!(both([(1, 1), (0, 3)], [(1, 0), (1, 0)]), Conflict::Certain);
        assert_eq!(both([(1, 1), (0, 9)], [(1, 0), (1, 0)]), Conflict::Apart);
    }
}
