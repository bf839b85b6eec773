//! The row indices of split arrays in a loop's code: the index of an axis plus a constant, optionally modulo the number
//! of rows, or a row between bounds that a launch compares with the rows of its rank.

use std::collections::BTreeMap;

use octants_analysis::Sums;
use octants_ir::{Affine, BinaryOp, Body, BufferId, Op, Range, Scalar, Term, Type, ValueId};

/// A number known at launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowBound {
    /// A constant.
    Constant(i64),
    /// A parameter, i32.
    Param(u32),
}

/// The last row of an array, as the code computes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRow {
    /// A constant, which a launch compares with the array.
    Constant(i64),
    /// That of a split array, which has to have as many rows as the others.
    Of(BufferId),
}

/// The index of an access along the split axis of an array, by the loop's axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub axis: u32,
    /// Distance from the index of the axis, if it is not clamped.
    pub distance: i64,
    /// It is at least zero: `max(i - 1, 0)`.
    pub clamped_below: bool,
    /// It is at most the last row: `min(i + 1, n - 1)`.
    pub clamped_above: Option<LastRow>,
    /// It is modulo the number of rows: `(i + 1) % n`.
    pub modulus: Option<RowCount>,
}

/// The number of rows of an array, as code has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowCount {
    /// A constant, which a launch compares with the array.
    Constant(i64),
    /// That of a split array, which has to have as many rows as the others.
    Of(BufferId),
}

impl Row {
    /// Whether it is the index plus the distance in all iterations.
    pub fn is_exact(self) -> bool {
        !self.clamped_below && self.clamped_above.is_none() && self.modulus.is_none()
    }

    /// The least and the largest distance. A row that is clamped is the last or the first one, which is on this side of
    /// the row at distance `owned` or is that row.
    pub fn span(self, owned: i64) -> (i64, i64) {
        let least = if self.clamped_above.is_some() { self.distance.min(owned) } else { self.distance };
        let most = if self.clamped_below { self.distance.max(owned) } else { self.distance };
        (least, most)
    }
}

/// The source of a loop's rows.
pub(crate) struct Rows<'a> {
    pub sums: Sums<'a>,
    pub body: &'a Body,
    /// The loop.
    pub at: ValueId,
    pub split: &'a BTreeMap<BufferId, u32>,
}

impl Rows<'_> {
    /// The row of an index, if it follows an axis of the loop.
    pub fn find(&mut self, index: ValueId) -> Option<Row> {
        let index = self.sums.source(index);
        if let Some(sum) = self.sums.of(index) {
            return self.of_sum(&sum);
        }
        match self.body.inst(index).op {
            Op::Cast(a) => self.find(a),
            Op::Binary(BinaryOp::Mod, a, n) => self.wrapped(a, n),
            // `max(i - 1, 0)` is a row from i - 1 to i.
            Op::Binary(BinaryOp::Max, a, b) => {
                let (row, bound) = self.clamped(a, b)?;
                (self.sums.of(bound)?.as_constant() == Some(0)).then_some(Row { clamped_below: true, ..row })
            }
            // `min(i + 1, n - 1)` is a row from i to i + 1, if n is the number of rows.
            Op::Binary(BinaryOp::Min, a, b) => {
                let (row, bound) = self.clamped(a, b)?;
                let bound = self.sums.of(bound)?;
                let mut terms = bound.terms.iter();
                let last = match (terms.next(), terms.next()) {
                    (None, _) => LastRow::Constant(bound.constant),
                    (Some((Term::Extent(b, axis), 1)), None)
                        if bound.constant == -1 && self.split.get(b) == Some(axis) =>
                    {
                        LastRow::Of(*b)
                    }
                    _ => return None,
                };
                row.clamped_above.is_none().then_some(Row { clamped_above: Some(last), ..row })
            }
            _ => None,
        }
    }

    fn of_sum(&self, sum: &Affine) -> Option<Row> {
        let mut terms = sum.terms.iter();
        match (terms.next(), terms.next()) {
            (Some((Term::Index(of, axis), 1)), None) if *of == self.at => Some(Row {
                axis: *axis,
                distance: sum.constant,
                clamped_below: false,
                clamped_above: None,
                modulus: None,
            }),
            _ => None,
        }
    }

    /// `(i + 1) % n` or `(i - 1 + n) % n`, where n is the number of rows.
    fn wrapped(&mut self, a: ValueId, n: ValueId) -> Option<Row> {
        let (mut sum, n) = (self.sums.of(a)?, self.sums.of(n)?);
        let count = match (n.as_constant(), n.as_term()) {
            (Some(count), _) if count > 0 => {
                let half = count / 2;
                sum.constant = (sum.constant + half).rem_euclid(count) - half;
                RowCount::Constant(count)
            }
            (_, Some(Term::Extent(b, axis))) if self.split.get(&b) == Some(&axis) => {
                sum.terms.remove(&Term::Extent(b, axis));
                RowCount::Of(b)
            }
            _ => return None,
        };
        Some(Row { modulus: Some(count), ..self.of_sum(&sum)? })
    }

    /// Whether all indices of an axis are rows once `shift` is added: `Some` if they are, with the end of these rows if
    /// it is a constant, which a launch compares with the array.
    pub fn stays_inside(&mut self, of: Range, shift: i64) -> Option<Option<i64>> {
        if !self.is_at_least(of.begin, -shift) {
            return None;
        }
        self.end_of_rows(of.end, shift)
    }

    fn is_at_least(&mut self, v: ValueId, least: i64) -> bool {
        let v = self.sums.source(v);
        match self.body.inst(v).op {
            Op::Binary(BinaryOp::Max, a, b) => self.is_at_least(a, least) || self.is_at_least(b, least),
            _ => self.sums.of(v).and_then(|sum| sum.as_constant()).is_some_and(|c| c >= least),
        }
    }

    fn end_of_rows(&mut self, v: ValueId, shift: i64) -> Option<Option<i64>> {
        let v = self.sums.source(v);
        if let Op::Binary(BinaryOp::Min, a, b) = self.body.inst(v).op {
            return self.end_of_rows(a, shift).or_else(|| self.end_of_rows(b, shift));
        }
        let mut sum = self.sums.of(v)?;
        if let Some(end) = sum.as_constant() {
            return Some(Some(end + shift));
        }
        let beyond = sum.constant + shift;
        sum.constant = 0;
        let extent = matches!(sum.as_term(), Some(Term::Extent(b, axis)) if self.split.get(&b) == Some(&axis));
        (extent && beyond <= 0).then_some(None)
    }

    /// The row of one of two values; the other one.
    fn clamped(&mut self, a: ValueId, b: ValueId) -> Option<(Row, ValueId)> {
        let row = self.find(a).map(|row| (row, b));
        row.or_else(|| self.find(b).map(|row| (row, a)))
    }

    /// The bounds of `max(min(row, high), low)`, both of them among its values.
    pub fn bounds(&self, index: ValueId) -> Option<(RowBound, RowBound)> {
        let index = self.sums.source(index);
        let (a, b) = match self.body.inst(index).op {
            Op::Cast(a) => return self.bounds(a),
            Op::Binary(BinaryOp::Max, a, b) => (a, b),
            _ => return None,
        };
        let ends = |low: ValueId, inner: ValueId| Some((self.bound(low)?, self.upper_bound(inner)?));
        ends(a, b).or_else(|| ends(b, a))
    }

    fn upper_bound(&self, v: ValueId) -> Option<RowBound> {
        match self.body.inst(self.sums.source(v)).op {
            Op::Binary(BinaryOp::Min, a, b) => self.bound(a).or_else(|| self.bound(b)),
            _ => None,
        }
    }

    fn bound(&self, v: ValueId) -> Option<RowBound> {
        let v = self.sums.source(v);
        let inst = self.body.inst(v);
        match &inst.op {
            Op::Const(octants_ir::Const::Int(c)) => Some(RowBound::Constant(*c)),
            Op::Param(p) if inst.ty == Type::I32 => Some(RowBound::Param(*p)),
            Op::Cast(a) if matches!(inst.ty.scalar(), Some(Scalar::I32 | Scalar::I64)) => self.bound(*a),
            _ => None,
        }
    }
}
