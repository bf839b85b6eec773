//! Which sums of a loop threads add to the same elements at a time, once they are aligned (`align_loops`): those whose addresses follow the
//! number of the loop's iteration, and of a short inner loop's, but nothing else that threads differ in.

use std::collections::{HashMap, HashSet};

use octants_ir::{AtomicOp, BinaryOp, Body, Const, Effect, ForLoop, Op, Range, Scalar, ValueId};

use crate::gather_sums::{Along, Gathered, MOST_REGISTERS};
use crate::lower_body::Lowering;
use crate::read_ahead::times_to_unroll;
use crate::write_out_loops::{Inner, find_inner, may_leave, sums_of_branches};

/// A loop whose threads can be aligned.
pub(crate) struct Alignment {
    /// The sums whose elements are then the same.
    pub gathered: Gathered,
    /// The elements follow the index backwards.
    pub descending: bool,
    /// So many iterations are run before sums are combined.
    pub at_once: i64,
    /// Values from outside of the loop that the elements depend on.
    pub given: Vec<ValueId>,
    /// Loops inside that are to be written out.
    pub inner: Vec<Inner>,
}

/// How an index of a sum's address follows the loop's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Follows {
    Index,
    /// The last index minus the loop's.
    Backwards,
    /// It is the same in all iterations.
    Nothing,
}

impl Follows {
    /// How a sum of two follows it, or one of the addresses that have both.
    fn with(self, other: Follows) -> Option<Follows> {
        match (self, other) {
            (Follows::Nothing, f) | (f, Follows::Nothing) => Some(f),
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// A loop whose sums are looked at.
struct Search<'a> {
    lowering: &'a Lowering<'a, 'a>,
    number: ValueId,
    range: &'a Range,
    /// What is inside the loop.
    inside: HashSet<ValueId>,
}

/// A sum whose elements are the same in all threads.
struct Aligned<'a> {
    sum: ValueId,
    /// The loop inside that it is in.
    inner: Option<&'a Inner>,
    /// Its address follows the loop's index.
    follows: Follows,
    /// It follows the index of the inner loop too.
    along: bool,
    /// Values from outside of the loop that it depends on.
    given: Vec<ValueId>,
    /// How parts of it follow the index, as far as that is known: they may be shared.
    parts: HashMap<ValueId, Option<Follows>>,
}

/// The sums of a loop whose threads can be aligned.
pub(crate) fn find_alignment(lowering: &Lowering<'_, '_>, v: ValueId, l: &ForLoop) -> Option<Alignment> {
    let (body, facts) = (lowering.body, &lowering.u.facts);
    let [range] = l.dims.as_slice() else { return None };
    let mut inside = HashSet::new();
    let mut leaves = false;
    body.visit(l.body, &mut |v, inst| {
        inside.insert(v);
        leaves |= match inst.op.effect() {
            Effect::Assert => true,
            Effect::Call(f, _) => facts.effects[f.index()].fails,
            _ => matches!(inst.op, Op::Return(_)),
        };
    });
    if leaves || may_leave(body, l.body) {
        return None;
    }
    let search = Search { lowering, number: v, range, inside };
    let is_sum = |v: ValueId| search.is_sum(v);
    let inner = find_inner(body, l.body, &is_sum).unwrap_or_default();
    let mut sums: Vec<(ValueId, Option<&Inner>)> =
        body.block(l.body).iter().filter(|v| is_sum(**v)).map(|v| (*v, None)).collect();
    for inner in &inner {
        let mut of_inner = Vec::new();
        sums_of_branches(body, inner.body, &is_sum, &mut of_inner);
        sums.extend(of_inner.into_iter().map(|sum| (sum, Some(inner))));
    }
    let (mut direction, mut aligned) = (Follows::Nothing, Vec::new());
    for (sum, inner) in sums {
        let fits = |a: &Aligned<'_>| direction.with(a.follows);
        if let Some(found) = search.follow(sum, inner)
            && let Some(both) = fits(&found)
        {
            direction = both;
            aligned.push(found);
        }
    }
    let finds_inner = aligned.iter().any(|a| a.inner.is_some());
    let scalars: usize = aligned.iter().map(|a| lowering.scalars_of_sum(a.sum).len()).sum();
    let at_once = if finds_inner { 1 } else { times_at_once(lowering, l, scalars) };
    let mut found = Alignment {
        gathered: Gathered::of(v),
        descending: direction == Follows::Backwards,
        at_once,
        given: vec![range.begin],
        inner: Vec::new(),
    };
    for a in aligned {
        let along = match a.inner.filter(|_| a.along) {
            Some(inner) => Along { number: inner.number, elements: inner.len() },
            None if a.follows == Follows::Nothing => Along { number: v, elements: 1 },
            None => Along { number: v, elements: at_once as usize },
        };
        if found.gathered.insert(lowering, &search.inside, a.sum, along) {
            found.given.extend(a.given);
        }
    }
    // All of them: what they leave in local arrays for one another is then in registers.
    found.inner = if finds_inner { inner } else { Vec::new() };
    (!found.gathered.sites.is_empty()).then_some(found)
}

/// How many iterations of a loop should be run before their sums are combined, with so many scalars in each.
fn times_at_once(lowering: &Lowering<'_, '_>, l: &ForLoop, scalars: usize) -> i64 {
    let short = times_to_unroll(lowering.body, l, lowering.many_threads).filter(|_| !lowering.many_loops).unwrap_or(1);
    let fits = |times: &u32| *times as usize * scalars <= MOST_REGISTERS;
    [8, 4, 2].into_iter().filter(|times| *times <= short).find(fits).unwrap_or(1).into()
}

impl Search<'_> {
    /// A sum of floats into a copy.
    fn is_sum(&self, v: ValueId) -> bool {
        let body = self.lowering.body;
        let Op::Atomic(AtomicOp::Add | AtomicOp::Sub, address, operand) = body.inst(v).op else { return false };
        let is_copied =
            || matches!(root_of(body, address, &mut Vec::new()), Some(b) if self.lowering.moved.contains_key(&b));
        body.ty(operand).scalar().is_some_and(Scalar::is_float) && is_copied()
    }

    /// How the address of a sum follows the loop's index; `None` where threads may differ in it.
    fn follow<'i>(&self, sum: ValueId, inner: Option<&'i Inner>) -> Option<Aligned<'i>> {
        let body = self.lowering.body;
        let Op::Atomic(_, address, _) = body.inst(sum).op else { return None };
        let mut found =
            Aligned { sum, inner, follows: Follows::Nothing, along: false, given: Vec::new(), parts: HashMap::new() };
        let mut indices = Vec::new();
        root_of(body, address, &mut indices);
        for index in indices {
            let index = self.lowering.source(index);
            if self.inside.contains(&index) || body.as_const(index).is_some() {
                let follows = self.follows(index, &mut found)?;
                found.follows = found.follows.with(follows)?;
            } else {
                found.given.push(index);
            }
        }
        Some(found)
    }

    fn follows(&self, index: ValueId, found: &mut Aligned<'_>) -> Option<Follows> {
        let index = self.lowering.source(index);
        if let Some(known) = found.parts.get(&index) {
            return *known;
        }
        let follows = self.look_at(index, found);
        found.parts.insert(index, follows);
        follows
    }

    fn look_at(&self, index: ValueId, found: &mut Aligned<'_>) -> Option<Follows> {
        let (lowering, body) = (self.lowering, self.lowering.body);
        match body.inst(index).op {
            Op::Const(_) => Some(Follows::Nothing),
            Op::LoopIndex(of, _) if of == self.number => Some(Follows::Index),
            Op::LoopIndex(of, _) if found.inner.is_some_and(|inner| inner.number == of) => {
                found.along = true;
                Some(Follows::Nothing)
            }
            Op::Param(_) => Some(Follows::Nothing),
            // Threads are at the same iteration of a loop around this one, as a rule.
            Op::LoopIndex(of, _) if !self.inside.contains(&index) && self.is_serial(of) => {
                found.given.push(index);
                Some(Follows::Nothing)
            }
            Op::Binary(BinaryOp::Sub, last, i) if self.is_mirrored(last, i) => Some(Follows::Backwards),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if self.inside.contains(&index) => {
                self.follows(a, found)?.with(self.follows(b, found)?)
            }
            Op::Binary(BinaryOp::Mul, a, b) if self.inside.contains(&index) => {
                let is_const = |v: ValueId| body.as_const(lowering.source(v)).is_some();
                let scales = is_const(a) || is_const(b);
                scales.then(|| self.follows(a, found)?.with(self.follows(b, found)?)).flatten()
            }
            _ => None,
        }
    }

    fn is_serial(&self, v: ValueId) -> bool {
        matches!(&self.lowering.body.inst(v).op, Op::For(l) if l.parallel.is_none())
    }

    /// `last - i` is how many iterations are left.
    fn is_mirrored(&self, last: ValueId, i: ValueId) -> bool {
        let (lowering, range) = (self.lowering, self.range);
        if lowering.body.inst(lowering.source(i)).op != Op::LoopIndex(self.number, 0) {
            return false;
        }
        let ((base, n), (of_end, m)) = (terms(lowering, last), terms(lowering, range.end));
        base == of_end && n == m.wrapping_sub(1)
    }
}

/// The buffer that an address is in, and the indices on the way.
pub(crate) fn root_of(body: &Body, address: ValueId, indices: &mut Vec<ValueId>) -> Option<usize> {
    match &body.inst(address).op {
        Op::BufferAddr(b, index) => {
            indices.extend(index);
            Some(b.index())
        }
        Op::ElementAddr(base, index) => {
            indices.extend(index);
            root_of(body, *base, indices)
        }
        Op::MemberAddr(base, _) => root_of(body, *base, indices),
        _ => None,
    }
}

/// A number as a value plus a constant.
fn terms(lowering: &Lowering<'_, '_>, v: ValueId) -> (Option<ValueId>, i64) {
    let (mut v, mut n) = (lowering.source(v), 0i64);
    loop {
        let number = |v: ValueId| match lowering.body.as_const(lowering.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        };
        let (base, by) = match lowering.body.inst(v).op {
            Op::Const(Const::Int(m)) => return (None, n.wrapping_add(m)),
            Op::Binary(BinaryOp::Add, a, b) => match (number(a), number(b)) {
                (_, Some(m)) => (a, m),
                (Some(m), None) => (b, m),
                _ => return (Some(v), n),
            },
            Op::Binary(BinaryOp::Sub, a, b) => match number(b) {
                Some(m) => (a, m.wrapping_neg()),
                None => return (Some(v), n),
            },
            _ => return (Some(v), n),
        };
        (v, n) = (lowering.source(base), n.wrapping_add(by));
    }
}
