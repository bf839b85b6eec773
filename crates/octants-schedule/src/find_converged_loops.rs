//! Warp-synchronous (converged) loops: serial loops in which the threads of a warp stay at the same element, and the
//! sums that the warp then reduces before one thread adds the result.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)`, the threads of a warp run adjacent `i`. They are at the same `k`,
//! at the latest when the loop is converged. The address of such a sum depends on the loop's index and on the index of
//! a short inner loop, and on nothing else that differs between threads.
//!
//! Applies to sums of floats into copies in shared memory. Integer sums need it less: GPUs have an instruction for
//! them.

use std::collections::{HashMap, HashSet};

use octants_analysis::{Conflict, Dependence, may_leave, trace_indices};
use octants_ir::{AtomicOp, BinaryOp, Const, Effect, ForLoop, MemorySpace, Op, Range, Scalar, ValueId};

use crate::facts::BodyFacts;
use crate::full_unroll::{FullUnroll, ShortLoop, find_short_loops, plan_full_unroll, sums_of_branches};
use crate::software_pipelining::{PipelinedLoads, pipeline_loads};

/// Maximum number of registers for the partial sums of a warp.
const MAX_REGISTERS: usize = 32;

/// A warp-synchronous loop: the threads of a warp are at the same element at a time.
pub(crate) struct ConvergedLoop {
    /// The sums that the warp combines before one thread adds the result.
    pub reductions: Vec<WarpReduction>,
    /// The element index decreases while the loop index increases.
    pub descending: bool,
    /// Differences between the last index and the loop's index: the number of remaining iterations.
    pub mirrored: HashSet<ValueId>,
    /// Iterations between two reductions of the warp.
    pub interleave_factor: i64,
    /// Values from outside the loop that the addresses depend on. They must agree across the warp.
    pub invariants: Vec<ValueId>,
    /// Inner loops that are fully unrolled.
    pub full_unroll: FullUnroll,
    /// Loads that are issued one iteration early.
    pub pipelined: PipelinedLoads,
}

/// Sums whose element is the same in all threads of a warp: one element, or one for each iteration of an inner loop.
pub(crate) struct WarpReduction {
    pub sums: Vec<ValueId>,
    /// The address of each of them.
    pub address: ValueId,
    /// The loop that the elements follow.
    pub along: Along,
    /// The instructions inside the converged loop that compute the address, in order.
    pub steps: Vec<ValueId>,
}

/// The loop whose index the elements of a reduction follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Along {
    /// An inner loop, or the converged one.
    pub loop_id: ValueId,
    /// Number of its iterations that are collected before the warp combines them. With one element, the address
    /// contains no index of an inner loop.
    pub elements: usize,
}

/// How an index of a sum's address depends on the loop's index.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Follows {
    Ascending,
    /// The last index minus the loop's.
    Descending,
    /// Invariant in the loop.
    Invariant,
}

impl Follows {
    /// The dependence of a sum of two indices, or of an address with both.
    fn with(self, other: Follows) -> Option<Follows> {
        match (self, other) {
            (Follows::Invariant, f) | (f, Follows::Invariant) => Some(f),
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// The loop under analysis.
struct Search<'a> {
    facts: &'a BodyFacts<'a>,
    loop_id: ValueId,
    range: &'a Range,
    /// The instructions inside the loop.
    inside: HashSet<ValueId>,
}

/// A sum whose element is the same in all threads.
struct UniformSum<'a> {
    sum: ValueId,
    /// The inner loop around it.
    inner: Option<&'a ShortLoop>,
    /// How its address depends on the loop's index.
    follows: Follows,
    /// Its address depends on the index of the inner loop.
    along: bool,
    /// Values from outside the loop that the address depends on.
    invariants: Vec<ValueId>,
    /// Results for parts of the address, because computations share parts.
    parts: HashMap<ValueId, Option<Follows>>,
}

/// Finds the sums of a loop that a warp can reduce. Several iterations are collected before a reduction, at most
/// `unroll_factor`, when the sums follow the loop's own index.
pub(crate) fn find_converged_loop(
    facts: &BodyFacts<'_>,
    v: ValueId,
    l: &ForLoop,
    unroll_factor: u32,
) -> Option<ConvergedLoop> {
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
    let search = Search { facts, loop_id: v, range, inside };
    let is_sum = |v: ValueId| search.is_sum(v);
    let inner = find_short_loops(body, l.body, &is_sum).unwrap_or_default();
    let mut sums: Vec<(ValueId, Option<&ShortLoop>)> =
        body.block(l.body).iter().filter(|v| is_sum(**v)).map(|v| (*v, None)).collect();
    for inner in &inner {
        let mut of_inner = Vec::new();
        sums_of_branches(body, inner.body, &is_sum, &mut of_inner);
        sums.extend(of_inner.into_iter().map(|sum| (sum, Some(inner))));
    }
    let (mut direction, mut uniform) = (Follows::Invariant, Vec::new());
    for (sum, inner) in sums {
        let fits = |a: &UniformSum<'_>| direction.with(a.follows);
        if let Some(found) = search.follow(sum, inner)
            && let Some(both) = fits(&found)
        {
            direction = both;
            uniform.push(found);
        }
    }
    let finds_inner = uniform.iter().any(|a| a.inner.is_some());
    let scalars: usize = uniform.iter().map(|a| search.scalars_of(a.sum).len()).sum();
    let fits = |n: &u32| *n <= unroll_factor && *n as usize * scalars <= MAX_REGISTERS;
    let interleave_factor = if finds_inner { 1 } else { [8, 4, 2].into_iter().find(fits).unwrap_or(1) };
    let mut invariants = vec![range.begin];
    let mut reductions = Vec::new();
    for a in uniform {
        let along = match a.inner.filter(|_| a.along) {
            Some(inner) => Along { loop_id: inner.loop_id, elements: inner.trips() },
            None if a.follows == Follows::Invariant => Along { loop_id: v, elements: 1 },
            None => Along { loop_id: v, elements: interleave_factor as usize },
        };
        if search.insert(&mut reductions, a.sum, along) {
            invariants.extend(a.invariants);
        }
    }
    // All of them, so that local arrays which pass values between them become registers.
    let inner = if finds_inner { inner } else { Vec::new() };
    (!reductions.is_empty()).then(|| ConvergedLoop {
        reductions,
        descending: direction == Follows::Descending,
        mirrored: search.mirrored(),
        interleave_factor: i64::from(interleave_factor),
        invariants,
        full_unroll: plan_full_unroll(facts, l.body, &inner),
        pipelined: pipeline_loads(facts, l.body),
    })
}

impl Search<'_> {
    /// A sum of floats into a copy in shared memory.
    fn is_sum(&self, v: ValueId) -> bool {
        let body = self.facts.body;
        let Op::Atomic(AtomicOp::Add | AtomicOp::Sub, address, operand) = body.inst(v).op else { return false };
        let is_copied = || {
            let buffer = trace_indices(body, address, &mut Vec::new());
            buffer.is_some_and(|b| self.facts.of.program.buffers[b.index()].space == MemorySpace::Shared)
        };
        body.ty(operand).scalar().is_some_and(Scalar::is_float) && is_copied()
    }

    /// How the address of a sum depends on the loop's index. `None` if it may differ between threads.
    fn follow<'i>(&self, sum: ValueId, inner: Option<&'i ShortLoop>) -> Option<UniformSum<'i>> {
        let body = self.facts.body;
        let Op::Atomic(_, address, _) = body.inst(sum).op else { return None };
        let mut found = UniformSum {
            sum,
            inner,
            follows: Follows::Invariant,
            along: false,
            invariants: Vec::new(),
            parts: HashMap::new(),
        };
        let mut indices = Vec::new();
        trace_indices(body, address, &mut indices);
        for index in indices {
            let index = self.facts.source(index);
            if self.inside.contains(&index) || body.as_const(index).is_some() {
                let follows = self.follows(index, &mut found)?;
                found.follows = found.follows.with(follows)?;
            } else {
                found.invariants.push(index);
            }
        }
        Some(found)
    }

    fn follows(&self, index: ValueId, found: &mut UniformSum<'_>) -> Option<Follows> {
        let index = self.facts.source(index);
        if let Some(known) = found.parts.get(&index) {
            return *known;
        }
        let follows = self.look_at(index, found);
        found.parts.insert(index, follows);
        follows
    }

    fn look_at(&self, index: ValueId, found: &mut UniformSum<'_>) -> Option<Follows> {
        let (facts, body) = (self.facts, self.facts.body);
        match body.inst(index).op {
            Op::Const(_) => Some(Follows::Invariant),
            Op::LoopIndex(of, _) if of == self.loop_id => Some(Follows::Ascending),
            Op::LoopIndex(of, _) if found.inner.is_some_and(|inner| inner.loop_id == of) => {
                found.along = true;
                Some(Follows::Invariant)
            }
            Op::Param(_) => Some(Follows::Invariant),
            // As a rule, threads are at the same iteration of an outer loop.
            Op::LoopIndex(of, _) if !self.inside.contains(&index) && self.is_serial(of) => {
                found.invariants.push(index);
                Some(Follows::Invariant)
            }
            Op::Binary(BinaryOp::Sub, last, i) if self.is_mirrored(last, i) => Some(Follows::Descending),
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

    /// `last - i` is the number of remaining iterations.
    fn is_mirrored(&self, last: ValueId, i: ValueId) -> bool {
        let (facts, range) = (self.facts, self.range);
        if facts.body.inst(facts.source(i)).op != Op::LoopIndex(self.loop_id, 0) {
            return false;
        }
        let ((base, n), (of_end, m)) = (terms(facts, last), terms(facts, range.end));
        base == of_end && n == m.wrapping_sub(1)
    }

    /// The differences between the last index and the loop's.
    fn mirrored(&self) -> HashSet<ValueId> {
        let is_one = |v: &ValueId| match self.facts.body.inst(*v).op {
            Op::Binary(BinaryOp::Sub, last, i) => self.is_mirrored(last, i),
            _ => false,
        };
        self.inside.iter().copied().filter(is_one).collect()
    }

    /// The scalars that a sum adds.
    fn scalars_of(&self, sum: ValueId) -> Vec<Scalar> {
        let Op::Atomic(_, _, operand) = self.facts.body.inst(sum).op else { panic!("compiler bug: not a sum") };
        self.facts.body.ty(operand).leaves()
    }

    /// Adds a sum to the reductions. `false` if it would take too many registers.
    fn insert(&self, reductions: &mut Vec<WarpReduction>, sum: ValueId, along: Along) -> bool {
        let Op::Atomic(_, address, _) = self.facts.body.inst(sum).op else { return false };
        let is_same =
            |other: &&mut WarpReduction| other.along == along && is_same_address(self.facts, other.address, address);
        if let Some(same) = reductions.iter_mut().find(is_same) {
            same.sums.push(sum);
            return true;
        }
        let (elements, scalars) = (along.elements, self.scalars_of(sum).len());
        let taken: usize = reductions.iter().map(|r| r.along.elements * self.scalars_of(r.sums[0]).len()).sum();
        if elements > 1 && taken + elements * scalars > MAX_REGISTERS {
            return false;
        }
        let mut steps = Vec::new();
        self.trace(address, &mut steps);
        reductions.push(WarpReduction { sums: vec![sum], address, along, steps });
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

/// A value as a base plus a constant.
fn terms(facts: &BodyFacts<'_>, v: ValueId) -> (Option<ValueId>, i64) {
    let (mut v, mut n) = (facts.source(v), 0i64);
    loop {
        let constant = |v: ValueId| match facts.body.as_const(facts.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        };
        let (base, by) = match facts.body.inst(v).op {
            Op::Const(Const::Int(m)) => return (None, n.wrapping_add(m)),
            Op::Binary(BinaryOp::Add, a, b) => match (constant(a), constant(b)) {
                (_, Some(m)) => (a, m),
                (Some(m), None) => (b, m),
                _ => return (Some(v), n),
            },
            Op::Binary(BinaryOp::Sub, a, b) => match constant(b) {
                Some(m) => (a, m.wrapping_neg()),
                None => return (Some(v), n),
            },
            _ => return (Some(v), n),
        };
        (v, n) = (facts.source(base), n.wrapping_add(by));
    }
}

/// Both addresses are those of one element in each iteration.
fn is_same_address(facts: &BodyFacts<'_>, a: ValueId, b: ValueId) -> bool {
    let buffer = |address| trace_indices(facts.body, address, &mut Vec::new());
    let mut dependence = Dependence::of(facts.body, &facts.locals);
    let (x, y) = (dependence.subscripts(a), dependence.subscripts(b));
    buffer(a) == buffer(b) && x.len() == y.len() && dependence.within_iteration(&x, &y) == Conflict::Certain
}
