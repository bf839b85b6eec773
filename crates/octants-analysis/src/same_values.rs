//! Structural equality of values: both are computed in the same way from the same values. This is the only such
//! comparison; the dependence test uses it for subscripts that are not affine.
//!
//! [`SameRanges`] compares the code of two loops that follow one another: loop indices count as equal if their ranges
//! are equal.

use std::collections::HashMap;

use octants_ir::{Body, ForLoop, Op, ValueId};

/// An axis of a loop.
pub type Axis = (ValueId, u32);

/// Both addresses are computed in the same way from the same values.
pub fn same_address(body: &Body, a: ValueId, b: ValueId) -> bool {
    a == b || same_op(body, a, b)
}

/// Both values are computed in the same way from the same values.
pub fn same_value(body: &Body, a: ValueId, b: ValueId) -> bool {
    compare(body, a, b, &mut |body, a, b| same_address(body, a, b))
}

/// The same, but `loads` decides whether two loads from the same address yield the same value.
pub(crate) fn same_value_by(body: &Body, a: ValueId, b: ValueId, loads: &dyn Fn(ValueId, ValueId) -> bool) -> bool {
    compare(body, a, b, &mut |body, a, b| match (&body.inst(a).op, &body.inst(b).op) {
        (Op::Load(x), Op::Load(y)) => same_address(body, *x, *y) && loads(a, b),
        _ => same_address(body, a, b),
    })
}

/// Compares values through arithmetic; `leaf` compares operations that are not arithmetic.
fn compare(body: &Body, a: ValueId, b: ValueId, leaf: &mut dyn FnMut(&Body, ValueId, ValueId) -> bool) -> bool {
    if a == b {
        return true;
    }
    if body.ty(a) != body.ty(b) {
        return false;
    }
    match (&body.inst(a).op, &body.inst(b).op) {
        (Op::Binary(f, x, u), Op::Binary(g, y, v)) => {
            f == g && compare(body, *x, *y, leaf) && compare(body, *u, *v, leaf)
        }
        (Op::Unary(f, x), Op::Unary(g, y)) => f == g && compare(body, *x, *y, leaf),
        (Op::Cast(x), Op::Cast(y)) => compare(body, *x, *y, leaf),
        _ => leaf(body, a, b),
    }
}

fn same_op(body: &Body, a: ValueId, b: ValueId) -> bool {
    let same = |x: &ValueId, y: &ValueId| same_address(body, *x, *y);
    let all = |xs: &[ValueId], ys: &[ValueId]| xs.len() == ys.len() && xs.iter().zip(ys).all(|(x, y)| same(x, y));
    if body.ty(a) != body.ty(b) {
        return false;
    }
    match (&body.inst(a).op, &body.inst(b).op) {
        (Op::ElementAddr(x, xs), Op::ElementAddr(y, ys)) => same(x, y) && all(xs, ys),
        (Op::MemberAddr(x, i), Op::MemberAddr(y, j)) => i == j && same(x, y),
        (Op::BufferAddr(x, xs), Op::BufferAddr(y, ys)) => x == y && all(xs, ys),
        (x @ (Op::LocalAddr(_) | Op::FrameAddr(_) | Op::LoopIndex(..)), y) => x == y,
        (x, y) => is_fixed(x) && x == y,
    }
}

/// The same in all of a body.
fn is_fixed(op: &Op) -> bool {
    matches!(op, Op::Const(_) | Op::Param(_) | Op::Shape(..))
}

/// Axes of the loops around a read, and those of the loops around a write that have the same ranges.
#[derive(Debug, Default)]
pub struct SameRanges {
    of: HashMap<Axis, Axis>,
}

impl SameRanges {
    /// An axis of a loop around the write has the range of one around the read.
    pub fn is_paired(&self, written: Axis) -> bool {
        self.of.values().any(|a| *a == written)
    }

    /// Whether a value of the read's loops equals one of the write's loops when the indices of such axes are equal.
    pub(crate) fn lead_to_the_same(&mut self, body: &Body, x: ValueId, y: ValueId) -> bool {
        compare(body, x, y, &mut |body, x, y| match (&body.inst(x).op, &body.inst(y).op) {
            (Op::LoopIndex(l, a), Op::LoopIndex(m, b)) => self.pair(body, (*l, *a), (*m, *b)),
            (x, y) => is_fixed(x) && x == y,
        })
    }

    fn pair(&mut self, body: &Body, read: Axis, written: Axis) -> bool {
        if let Some(known) = self.of.get(&read) {
            return *known == written;
        }
        if self.is_paired(written) {
            return false;
        }
        let (Some(r), Some(w)) = (loop_of(body, read), loop_of(body, written)) else { return false };
        let (r, w) = (r.dims[read.1 as usize], w.dims[written.1 as usize]);
        let same = self.lead_to_the_same(body, r.begin, w.begin) && self.lead_to_the_same(body, r.end, w.end);
        if same {
            self.of.insert(read, written);
        }
        same
    }
}

fn loop_of(body: &Body, axis: Axis) -> Option<&ForLoop> {
    match &body.inst(axis.0).op {
        Op::For(l) => Some(l),
        _ => None,
    }
}
