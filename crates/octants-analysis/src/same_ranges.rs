//! [`SameRanges`]: the dependence test between loops that follow one another. An element that one loop reaches, another
//! one reaches too when its subscripts are the same functions of indices that have the same ranges.

use std::collections::HashMap;

use octants_ir::{Body, ForLoop, Op, ValueId};

/// An axis of a loop.
pub type Axis = (ValueId, u32);

/// Axes of the loops around a read, and those of the loops around a write that have the same ranges.
pub struct SameRanges<'a> {
    body: &'a Body,
    of: HashMap<Axis, Axis>,
}

impl<'a> SameRanges<'a> {
    /// No axes yet.
    pub fn of(body: &'a Body) -> SameRanges<'a> {
        SameRanges { body, of: HashMap::new() }
    }

    /// An axis of a loop around the write has the range of one around the read.
    pub fn is_paired(&self, written: Axis) -> bool {
        self.of.values().any(|a| *a == written)
    }

    /// Two values are the same where the indices of such axes are.
    pub fn lead_to_the_same(&mut self, x: ValueId, y: ValueId) -> bool {
        if x == y {
            return true;
        }
        let body = self.body;
        if body.ty(x) != body.ty(y) {
            return false;
        }
        match (&body.inst(x).op, &body.inst(y).op) {
            (Op::LoopIndex(l, a), Op::LoopIndex(m, b)) => self.pair((*l, *a), (*m, *b)),
            (Op::Binary(f, x, u), Op::Binary(g, y, v)) => {
                f == g && self.lead_to_the_same(*x, *y) && self.lead_to_the_same(*u, *v)
            }
            (Op::Unary(f, x), Op::Unary(g, y)) => f == g && self.lead_to_the_same(*x, *y),
            (Op::Cast(x), Op::Cast(y)) => self.lead_to_the_same(*x, *y),
            (x @ (Op::Const(_) | Op::Param(_) | Op::Shape(..)), y) => x == y,
            _ => false,
        }
    }

    fn pair(&mut self, read: Axis, written: Axis) -> bool {
        if let Some(known) = self.of.get(&read) {
            return *known == written;
        }
        if self.is_paired(written) {
            return false;
        }
        let (Some(r), Some(w)) = (self.loop_of(read), self.loop_of(written)) else { return false };
        let (r, w) = (r.dims[read.1 as usize], w.dims[written.1 as usize]);
        let same = self.lead_to_the_same(r.begin, w.begin) && self.lead_to_the_same(r.end, w.end);
        if same {
            self.of.insert(read, written);
        }
        same
    }

    fn loop_of(&self, axis: Axis) -> Option<&'a ForLoop> {
        match &self.body.inst(axis.0).op {
            Op::For(l) => Some(l),
            _ => None,
        }
    }
}
