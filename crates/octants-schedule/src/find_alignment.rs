//! Which loops in order are run with the threads of a warp at the same element at a time, and which sums they add as
//! one: those whose addresses follow the number of the loop's iteration, and of a short inner loop's, but nothing else
//! that threads differ in.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)` the threads of a warp, which run neighboring `i` in step, are at
//! the same `k`, or are once they are aligned. It applies to sums of floats into copies in a block's memory; for those
//! of integers there is an instruction that minds less.

use std::collections::{HashMap, HashSet};

use octants_analysis::{may_leave, trace_indices};
use octants_ir::schedule::{Alignment, Along, Scatter, Site};
use octants_ir::{AtomicOp, BinaryOp, Const, Effect, ForLoop, Op, Range, Scalar, ValueId};

use crate::facts::BodyFacts;
use crate::find_early_loads::find_early_loads;
use crate::find_short_loops::{ShortLoop, find_short_loops, sums_of_branches, write_out};

/// Most registers for what loops that are written out add.
const MOST_REGISTERS: usize = 32;

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
    facts: &'a BodyFacts<'a>,
    /// What blocks of threads have copies of.
    copied: &'a Scatter,
    number: ValueId,
    range: &'a Range,
    /// What is inside the loop.
    inside: HashSet<ValueId>,
}

/// A sum whose elements are the same in all threads.
struct Aligned<'a> {
    sum: ValueId,
    /// The loop inside that it is in.
    inner: Option<&'a ShortLoop>,
    /// Its address follows the loop's index.
    follows: Follows,
    /// It follows the index of the inner loop too.
    along: bool,
    /// Values from outside of the loop that it depends on.
    given: Vec<ValueId>,
    /// How parts of it follow the index, as far as that is known: they may be shared.
    parts: HashMap<ValueId, Option<Follows>>,
}

/// The sums of a loop whose threads can be aligned, while blocks of them have these copies. Where sums follow the
/// loop's own index, and it may stand in the code `times` times, several iterations are collected.
pub(crate) fn find_alignment(
    facts: &BodyFacts<'_>,
    copied: &Scatter,
    v: ValueId,
    l: &ForLoop,
    times: u32,
) -> Option<Alignment> {
    let body = facts.body;
    let [range] = l.dims.as_slice() else { return None };
    let mut inside = HashSet::new();
    let mut leaves = false;
    body.visit(l.body, &mut |v, inst| {
        inside.insert(v);
        leaves |= match inst.op.effect() {
            Effect::Assert => true,
            Effect::Call(f, _) => facts.of.behaviors[f.index()].fails,
            _ => matches!(inst.op, Op::Return(_)),
        };
    });
    if leaves || may_leave(body, l.body) {
        return None;
    }
    let search = Search { facts, copied, number: v, range, inside };
    let is_sum = |v: ValueId| search.is_sum(v);
    let inner = find_short_loops(body, l.body, &is_sum).unwrap_or_default();
    let mut sums: Vec<(ValueId, Option<&ShortLoop>)> =
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
    let scalars: usize = aligned.iter().map(|a| search.scalars_of(a.sum).len()).sum();
    let fits = |n: &u32| *n <= times && *n as usize * scalars <= MOST_REGISTERS;
    let at_once = if finds_inner { 1 } else { [8, 4, 2].into_iter().find(fits).unwrap_or(1) };
    let mut given = vec![range.begin];
    let mut sites = Vec::new();
    for a in aligned {
        let along = match a.inner.filter(|_| a.along) {
            Some(inner) => Along { number: inner.number, elements: inner.trips() },
            None if a.follows == Follows::Nothing => Along { number: v, elements: 1 },
            None => Along { number: v, elements: at_once as usize },
        };
        if search.insert(&mut sites, a.sum, along) {
            given.extend(a.given);
        }
    }
    // All of them: what they leave in local arrays for one another is then in registers.
    let inner = if finds_inner { inner } else { Vec::new() };
    (!sites.is_empty()).then(|| Alignment {
        sites,
        descending: direction == Follows::Backwards,
        at_once: i64::from(at_once),
        given,
        written_out: write_out(facts, l.body, &inner),
        early: find_early_loads(facts, l.body),
    })
}

impl Search<'_> {
    /// A sum of floats into a copy.
    fn is_sum(&self, v: ValueId) -> bool {
        let body = self.facts.body;
        let Op::Atomic(AtomicOp::Add | AtomicOp::Sub, address, operand) = body.inst(v).op else { return false };
        let is_copied = || {
            let buffer = trace_indices(body, address, &mut Vec::new());
            buffer.is_some_and(|b| self.copied.regions.iter().any(|r| r.buffers.contains(&b.index())))
        };
        body.ty(operand).scalar().is_some_and(Scalar::is_float) && is_copied()
    }

    /// How the address of a sum follows the loop's index; `None` where threads may differ in it.
    fn follow<'i>(&self, sum: ValueId, inner: Option<&'i ShortLoop>) -> Option<Aligned<'i>> {
        let body = self.facts.body;
        let Op::Atomic(_, address, _) = body.inst(sum).op else { return None };
        let mut found =
            Aligned { sum, inner, follows: Follows::Nothing, along: false, given: Vec::new(), parts: HashMap::new() };
        let mut indices = Vec::new();
        trace_indices(body, address, &mut indices);
        for index in indices {
            let index = self.facts.source(index);
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
        let index = self.facts.source(index);
        if let Some(known) = found.parts.get(&index) {
            return *known;
        }
        let follows = self.look_at(index, found);
        found.parts.insert(index, follows);
        follows
    }

    fn look_at(&self, index: ValueId, found: &mut Aligned<'_>) -> Option<Follows> {
        let (facts, body) = (self.facts, self.facts.body);
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
                let is_const = |v: ValueId| body.as_const(facts.source(v)).is_some();
                let scales = is_const(a) || is_const(b);
                scales.then(|| self.follows(a, found)?.with(self.follows(b, found)?)).flatten()
            }
            _ => None,
        }
    }

    fn is_serial(&self, v: ValueId) -> bool {
        matches!(&self.facts.body.inst(v).op, Op::For(l) if l.parallel.is_none())
    }

    /// `last - i` is how many iterations are left.
    fn is_mirrored(&self, last: ValueId, i: ValueId) -> bool {
        let (facts, range) = (self.facts, self.range);
        if facts.body.inst(facts.source(i)).op != Op::LoopIndex(self.number, 0) {
            return false;
        }
        let ((base, n), (of_end, m)) = (terms(facts, last), terms(facts, range.end));
        base == of_end && n == m.wrapping_sub(1)
    }

    /// The scalars that a sum adds.
    fn scalars_of(&self, sum: ValueId) -> Vec<Scalar> {
        let Op::Atomic(_, _, operand) = self.facts.body.inst(sum).op else { panic!("compiler bug: this is no sum") };
        self.facts.body.ty(operand).leaves()
    }

    /// Adds a sum, to others at the same elements if there are any; `false` where it would take too many registers.
    fn insert(&self, sites: &mut Vec<Site>, sum: ValueId, along: Along) -> bool {
        let Op::Atomic(_, address, _) = self.facts.body.inst(sum).op else { return false };
        let is_same = |site: &&mut Site| site.along == along && is_same_address(self.facts, site.address, address);
        if let Some(site) = sites.iter_mut().find(is_same) {
            site.sums.push(sum);
            return true;
        }
        let (elements, scalars) = (along.elements, self.scalars_of(sum));
        let taken: usize = sites.iter().map(|site| site.along.elements * site.scalars.len()).sum();
        if elements > 1 && taken + elements * scalars.len() > MOST_REGISTERS {
            return false;
        }
        let mut steps = Vec::new();
        self.trace(address, &mut steps);
        sites.push(Site { sums: vec![sum], address, along, steps, scalars });
        true
    }

    /// Appends the instructions inside the loop that compute a value.
    fn trace(&self, v: ValueId, steps: &mut Vec<ValueId>) {
        if !self.inside.contains(&v) || steps.contains(&v) {
            return;
        }
        match (&self.facts.body.inst(v).op, self.facts.locals.forwarded(v)) {
            (_, Some(stored)) => self.trace(stored, steps),
            (Op::LoopIndex(..), None) => {}
            (op, None) => op.for_each_operand(|u| self.trace(u, steps)),
        }
        steps.push(v);
    }
}

/// A number as a value plus a constant.
fn terms(facts: &BodyFacts<'_>, v: ValueId) -> (Option<ValueId>, i64) {
    let (mut v, mut n) = (facts.source(v), 0i64);
    loop {
        let number = |v: ValueId| match facts.body.as_const(facts.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        };
        let (base, by) = match facts.body.inst(v).op {
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
        (v, n) = (facts.source(base), n.wrapping_add(by));
    }
}

fn is_same_address(facts: &BodyFacts<'_>, a: ValueId, b: ValueId) -> bool {
    let body = facts.body;
    let is_same = |a: &ValueId, b: &ValueId| {
        let (a, b) = (facts.source(*a), facts.source(*b));
        a == b || body.as_const(a).is_some() && body.as_const(a) == body.as_const(b)
    };
    let are_same = |a: &[ValueId], b: &[ValueId]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b));
    match (&body.inst(a).op, &body.inst(b).op) {
        _ if a == b => true,
        (Op::BufferAddr(x, i), Op::BufferAddr(y, j)) => x == y && are_same(i, j),
        (Op::ElementAddr(x, i), Op::ElementAddr(y, j)) => is_same_address(facts, *x, *y) && are_same(i, j),
        (Op::MemberAddr(x, i), Op::MemberAddr(y, j)) => i == j && is_same_address(facts, *x, *y),
        _ => false,
    }
}
