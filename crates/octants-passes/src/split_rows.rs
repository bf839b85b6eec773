//! The rows of split arrays that a loop touches, as its code has them: the index of an axis plus a constant, or a row
//! between bounds that a launch compares with what its rank has.

use std::collections::BTreeSet;

use octants_analysis::Sums;
use octants_ir::{BinaryOp, Body, BufferId, Op, Scalar, Term, Type, ValueId};

/// A number that a launch knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowBound {
    /// A constant.
    Constant(i64),
    /// A parameter, i32.
    Param(u32),
}

/// The last row of an array, as code has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRow {
    /// A constant, which a launch compares with the array.
    Constant(i64),
    /// That of a split array, which has to have as many rows as the others.
    Of(BufferId),
}

/// The first index of an access to a split array, by the loop's axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub axis: u32,
    /// Distance from the index of the axis, where nothing clamps it.
    pub distance: i64,
    /// It is at least zero: `max(i - 1, 0)`.
    pub clamped_below: bool,
    /// It is at most the last row: `min(i + 1, n - 1)`.
    pub clamped_above: Option<LastRow>,
}

impl Row {
    /// It is another row than the index says near an end of the array.
    pub fn is_clamped(self) -> bool {
        self.clamped_below || self.clamped_above.is_some()
    }

    /// The least and the largest distance. A row that is clamped is the last or the first one, which is on this side of
    /// the row at distance `owned` or is that row.
    pub fn span(self, owned: i64) -> (i64, i64) {
        let least = if self.clamped_above.is_some() { self.distance.min(owned) } else { self.distance };
        let most = if self.clamped_below { self.distance.max(owned) } else { self.distance };
        (least, most)
    }
}

/// Where the rows of a loop come from.
pub(crate) struct Rows<'a> {
    pub sums: Sums<'a>,
    pub body: &'a Body,
    /// The loop.
    pub at: ValueId,
    pub split: &'a BTreeSet<BufferId>,
}

impl Rows<'_> {
    /// The row of an index, if it follows an axis of the loop.
    pub fn find(&mut self, index: ValueId) -> Option<Row> {
        let index = self.sums.source(index);
        if let Some(sum) = self.sums.of(index) {
            let mut terms = sum.terms.iter();
            return match (terms.next(), terms.next()) {
                (Some((Term::Index(of, axis), 1)), None) if *of == self.at => {
                    Some(Row { axis: *axis, distance: sum.constant, clamped_below: false, clamped_above: None })
                }
                _ => None,
            };
        }
        match self.body.inst(index).op {
            Op::Cast(a) => self.find(a),
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
                    (Some((Term::Extent(b, 0), 1)), None) if bound.constant == -1 && self.split.contains(b) => {
                        LastRow::Of(*b)
                    }
                    _ => return None,
                };
                row.clamped_above.is_none().then_some(Row { clamped_above: Some(last), ..row })
            }
            _ => None,
        }
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
