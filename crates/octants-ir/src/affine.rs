//! [`Affine`]: affine sums of loop indices, parameters and extents. The form of indices, bounds and access sets.
//!
//! The sums are exact. A program's arithmetic wraps, so the two agree only if the exact sum fits the program's type;
//! code that relies on a sum must check that. An index outside of its axis belongs to no element.

use std::collections::BTreeMap;
use std::fmt;

use crate::{BufferId, ValueId};

/// A number that code does not change: of an iteration or, all but the first, of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// The index of an axis of a loop.
    Index(ValueId, u32),
    /// A scalar parameter of the kernel.
    Param(u32),
    /// The extent of an axis of a buffer.
    Extent(BufferId, u32),
}

/// `constant + coefficient * term + ..`
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Affine {
    /// The constant term.
    pub constant: i64,
    /// The coefficient of each term; none is zero.
    pub terms: BTreeMap<Term, i64>,
}

impl From<i64> for Affine {
    fn from(constant: i64) -> Affine {
        Affine { constant, terms: BTreeMap::new() }
    }
}

impl From<Term> for Affine {
    fn from(term: Term) -> Affine {
        Affine { constant: 0, terms: BTreeMap::from([(term, 1)]) }
    }
}

impl Affine {
    /// The constant, if there are no other terms.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The term, if the sum consists of a single term.
    pub fn as_term(&self) -> Option<Term> {
        let mut terms = self.terms.iter();
        let (term, factor) = terms.next()?;
        (*factor == 1 && self.constant == 0 && terms.next().is_none()).then_some(*term)
    }

    /// The sum; `None` on overflow.
    pub fn plus(&self, other: &Affine) -> Option<Affine> {
        let mut sum = self.clone();
        sum.constant = sum.constant.checked_add(other.constant)?;
        for (term, coefficient) in &other.terms {
            let of = sum.terms.entry(*term).or_default();
            *of = of.checked_add(*coefficient)?;
        }
        sum.terms.retain(|_, c| *c != 0);
        Some(sum)
    }

    /// The product with a factor; `None` on overflow.
    pub fn times(&self, factor: i64) -> Option<Affine> {
        if factor == 0 {
            return Some(Affine::default());
        }
        let terms = self.terms.iter().map(|(t, c)| Some((*t, c.checked_mul(factor)?)));
        Some(Affine { constant: self.constant.checked_mul(factor)?, terms: terms.collect::<Option<_>>()? })
    }

    /// With another sum instead of a term.
    pub fn replace(&self, term: Term, by: &Affine) -> Option<Affine> {
        let mut rest = self.clone();
        match rest.terms.remove(&term) {
            Some(coefficient) => rest.plus(&by.times(coefficient)?),
            None => Some(rest),
        }
    }

    /// As text, with the names that `name` gives to terms.
    pub fn display<'a>(&'a self, name: &'a dyn Fn(Term) -> String) -> impl fmt::Display + 'a {
        Named { of: self, name }
    }
}

struct Named<'a> {
    of: &'a Affine,
    name: &'a dyn Fn(Term) -> String,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (term, coefficient) in &self.of.terms {
            match (first, *coefficient < 0) {
                (true, false) => {}
                (true, true) => write!(f, "-")?,
                (false, false) => write!(f, " + ")?,
                (false, true) => write!(f, " - ")?,
            }
            if coefficient.unsigned_abs() != 1 {
                write!(f, "{} * ", coefficient.unsigned_abs())?;
            }
            write!(f, "{}", (self.name)(*term))?;
            first = false;
        }
        match self.of.constant {
            c if first => write!(f, "{c}"),
            0 => Ok(()),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    const N: Term = Term::Param(0);

    fn text(a: &Affine) -> String {
        a.display(&|t| if t == N { "n".into() } else { "i".into() }).to_string()
    }

    #[test]
    fn nonlinear_and_overflowing_expressions_are_not_affine() {
        let large = Affine::from(i64::MAX);
        assert_eq!(large.plus(&Affine::from(1)), None);
        assert_eq!(large.times(2), None);
        assert_eq!(Affine::from(N).times(i64::MAX).unwrap().times(-2), None);
    }

    #[test]
    fn text_has_signs_and_factors_when_needed() {
        let i = Term::Index(ValueId(0), 0);
        let sum = Affine { constant: -4, terms: BTreeMap::from([(i, -2), (N, 1)]) };
        assert_eq!(text(&sum), "-2 * i + n - 4");
        assert_eq!(text(&sum.replace(i, &Affine::from(-3)).unwrap()), "n + 2");
        assert_eq!(text(&Affine::default()), "0");
    }
}
