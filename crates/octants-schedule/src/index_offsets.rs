//! Decomposes integers into a value plus a constant, and finds their divisors.

use octants_ir::schedule::LocalUses;
use octants_ir::{BinaryOp, Body, Const, Op, Scalar, ValueId};

/// Operations that are compared.
const DEPTH: u32 = 8;

/// Analyzes the integers of a body.
pub(crate) struct Offsets<'a> {
    pub body: &'a Body,
    pub locals: &'a LocalUses,
}

impl Offsets<'_> {
    /// The instruction that defines an integer, seen through locals of one value and conversions between i32 and i64.
    pub fn source(&self, v: ValueId) -> ValueId {
        let v = self.locals.source(v);
        match &self.body.inst(v).op {
            Op::Cast(x) if [v, *x].iter().all(|v| is_index(self.body, *v)) => self.source(*x),
            _ => v,
        }
    }

    /// Both are computed in the same way from the same values. Follows at most `depth` operations.
    pub fn are_same(&self, a: ValueId, b: ValueId, depth: u32) -> bool {
        let [a, b] = [a, b].map(|v| self.source(v));
        if a == b {
            return true;
        }
        let ops = [a, b].map(|v| &self.body.inst(v).op);
        let is_pure = ops.iter().all(|op| op.is_pure() || matches!(op, Op::Grid(_) | Op::LoopIndex(..)));
        if depth == 0 || !is_pure || self.body.ty(a) != self.body.ty(b) {
            return false;
        }
        let operands = ops.map(|op| {
            let mut found = Vec::new();
            op.for_each_operand(|v| found.push(v));
            found
        });
        let bare = ops.map(|op| {
            let mut op = op.clone();
            op.map_operands(|_| a);
            op
        });
        let [of_a, of_b] = &operands;
        let pairs = || of_a.iter().zip(of_b);
        bare[0] == bare[1] && of_a.len() == of_b.len() && pairs().all(|(a, b)| self.are_same(*a, *b, depth - 1))
    }

    /// The same for the results of [`Offsets::split`], except their constants.
    pub fn have_same_base(&self, a: Option<ValueId>, b: Option<ValueId>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => self.are_same(a, b, DEPTH),
            (None, None) => true,
            _ => false,
        }
    }

    fn known(&self, v: ValueId) -> Option<i64> {
        match self.body.as_const(self.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        }
    }

    /// An integer as a value, if there is one, plus a constant.
    pub fn split(&self, v: ValueId) -> (Option<ValueId>, i64) {
        let v = self.source(v);
        if let Some(n) = self.known(v) {
            return (None, n);
        }
        let moved = match &self.body.inst(v).op {
            Op::Binary(BinaryOp::Add, a, b) => {
                self.known(*b).map(|n| (*a, n)).or_else(|| self.known(*a).map(|n| (*b, n)))
            }
            Op::Binary(BinaryOp::Sub, a, b) => self.known(*b).map(|n| (*a, -n)),
            _ => None,
        };
        match moved {
            Some((rest, n)) => {
                let (base, more) = self.split(rest);
                (base, more.wrapping_add(n))
            }
            None => (Some(v), 0),
        }
    }

    /// Whether a power of two is known to divide an integer.
    pub fn is_multiple(&self, v: ValueId, of: i64) -> bool {
        let v = self.source(v);
        if of <= 1 {
            return true;
        }
        if let Some(n) = self.known(v) {
            return n % of == 0;
        }
        match &self.body.inst(v).op {
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => self.is_multiple(*a, of) && self.is_multiple(*b, of),
            Op::Binary(BinaryOp::Mul, a, b) => [(*a, *b), (*b, *a)].into_iter().any(|(factor, other)| {
                self.known(factor).is_some_and(|n| {
                    let part = 1 << n.trailing_zeros().min(of.trailing_zeros());
                    self.is_multiple(other, of / part)
                })
            }),
            Op::Binary(BinaryOp::Shl, a, b) => {
                self.known(*b).is_some_and(|n| (0..31).contains(&n) && self.is_multiple(*a, (of >> n).max(1)))
            }
            Op::Binary(BinaryOp::Mod | BinaryOp::Rem, a, b) => {
                self.is_multiple(*a, of) && self.known(*b).is_some_and(|n| n % of == 0)
            }
            Op::Binary(BinaryOp::And, a, b) => self.is_multiple(*a, of) || self.is_multiple(*b, of),
            _ => false,
        }
    }
}

fn is_index(body: &Body, v: ValueId) -> bool {
    matches!(body.ty(v).scalar(), Some(Scalar::I32 | Scalar::I64)) && !body.ty(v).is_tensor()
}
