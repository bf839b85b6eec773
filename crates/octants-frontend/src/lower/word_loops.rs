//! Loops over a `quant_array` with `qd.loop_config(bit_vectorize=True)`: an iteration is a word, and the body is
//! lowered for each element in it. Loads and stores of these elements then become loads and stores of whole words.
//!
//! Only bodies of assignments qualify. A body that jumps, loops, branches or calls functions is lowered as usual.

use octants_ir::{BinaryOp, Const, Range, ValueId};

use super::loop_box::LoopBox;
use super::{Lowerer, sparse_levels};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::syntax_facts;

/// Statements in a body that is repeated.
const MOST_STATEMENTS: usize = 16;

/// Functions that a repeated body may call: they compute a value from values.
const VALUE_FUNCTIONS: &[&str] = &[
    "cast", "select", "min", "max", "abs", "int", "bool", "u1", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64",
    "static",
];

/// The elements in a word, and the loop over them.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordElements {
    /// Index of the range in the loop's box.
    level: usize,
    /// The axis of the field.
    axis: usize,
    pub(super) count: u32,
}

impl Lowerer<'_> {
    /// Makes a loop over elements one over words, if it qualifies. The ranges of a list of active cells are in place.
    pub(super) fn loop_over_words(&mut self, bounds: &mut LoopBox, body: &[Stmt]) -> Option<WordElements> {
        if !body.iter().all(is_assignment) || body.len() > MOST_STATEMENTS {
            return None;
        }
        let (axis, count) = self.elements_of_word(bounds.elements?)?;
        let level = match &bounds.cells {
            Some(cells) => 1 + cells.innermost_along(axis)?,
            None => axis,
        };
        let range = bounds.ranges.get(level)?;
        let known = |v: ValueId| match self.b.body.as_const(v) {
            Some(Const::Int(i)) => Some(i),
            _ => None,
        };
        let (begin, end) = (known(range.begin)?, known(range.end)?);
        if begin != 0 || end % i64::from(count) != 0 {
            return None;
        }
        let s = self.b.ty(range.end).scalar()?;
        let end = self.b.int(end / i64::from(count), s);
        bounds.ranges[level] = Range { begin: range.begin, end };
        Some(WordElements { level, axis, count })
    }

    /// The index of a word's first element along its axis, from the index of the word.
    pub(super) fn first_in_word(&mut self, words: Option<WordElements>, level: usize, index: ValueId) -> ValueId {
        match words {
            Some(words) if words.level == level => {
                let s = self.b.ty(index).scalar().expect("compiler bug: an index is a number");
                let count = self.b.int(words.count.into(), s);
                self.b.binary(BinaryOp::Mul, index, count)
            }
            _ => index,
        }
    }

    /// The indices of an element of a word, from those of its first one.
    pub(super) fn element_in_word(
        &mut self,
        words: Option<WordElements>,
        first: &[ValueId],
        number: u32,
    ) -> Vec<ValueId> {
        let mut indices = first.to_vec();
        if let Some(WordElements { axis, .. }) = words.filter(|_| number > 0) {
            let s = self.b.ty(first[axis]).scalar().expect("compiler bug: an index is a number");
            let number = self.b.int(number.into(), s);
            indices[axis] = self.b.binary(BinaryOp::Add, first[axis], number);
        }
        indices
    }
}

impl sparse_levels::ActiveCells {
    /// The loop within a cell over neighbors along an axis.
    fn innermost_along(&self, axis: usize) -> Option<usize> {
        self.inner_loops().position(|digit| digit.axis == axis && digit.weight == 1)
    }
}

/// An assignment that computes values.
fn is_assignment(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Pass => true,
        StmtKind::Assign(targets, value) => targets.iter().chain([value]).all(is_value),
        StmtKind::AugAssign(target, _, value) => is_value(target) && is_value(value),
        StmtKind::AnnAssign(target, _, value) => is_value(target) && value.as_ref().is_none_or(is_value),
        _ => false,
    }
}

/// An expression without effects and branches.
fn is_value(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Name(_) | ExprKind::Bool(_) | ExprKind::Int(_) | ExprKind::Float(_) => true,
        ExprKind::Attribute(of, _) | ExprKind::Unary(_, of) => is_value(of),
        ExprKind::Binary(_, a, b) | ExprKind::Subscript(a, b) => is_value(a) && is_value(b),
        ExprKind::Compare(a, rest) => is_value(a) && rest.len() == 1 && rest.iter().all(|(_, b)| is_value(b)),
        ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().all(is_value),
        ExprKind::Call(_, arguments) => {
            syntax_facts::called_name(e).is_some_and(|name| VALUE_FUNCTIONS.contains(&name))
                && arguments.keywords.is_empty()
                && arguments.positional.iter().all(is_value)
        }
        _ => false,
    }
}
