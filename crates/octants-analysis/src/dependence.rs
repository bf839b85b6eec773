//! [`Dependence`]: the dependence test. It decides whether two accesses of a buffer reach the same element: in one
//! iteration, in two iterations of a loop, in consecutive loops, or in two tasks.
//!
//! Each axis gives an equation of two affine sums. An equation of constants has an answer by itself. Between
//! iterations, the equations of each axis of the loop are solved together. Between tasks, whose loops have nothing in
//! common, ranges of indices are compared.

use std::collections::{HashMap, HashSet};

use octants_ir::schedule::LocalUses;
use octants_ir::{Affine, Body, BufferId, Op, Term, ValueId};

use crate::addresses::{Place, is_read, trace_address};
use crate::affine::Sums;
use crate::fixed_distance::{Distance, fixed_distance};
use crate::same_values::{SameRanges, same_value};
use crate::solve_equations::{Conflict, Equation, Multiple, solve};

/// An index on the way to an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscript {
    /// The value, unless it is the position of a member.
    value: Option<ValueId>,
    sum: Option<Affine>,
}

impl Subscript {
    /// An unknown index.
    pub const UNKNOWN: Subscript = Subscript { value: None, sum: None };

    /// The index as a sum, if it is one.
    pub fn sum(&self) -> Option<&Affine> {
        self.sum.as_ref()
    }

    /// The subscript if it moves by one between iterations of a loop, so that it never wraps onto itself. Unknown
    /// otherwise.
    pub fn if_steps_by_one(self, around: ValueId) -> Subscript {
        let steps =
            |(term, factor): (&Term, &i64)| matches!(term, Term::Index(l, _) if *l == around) && factor.abs() == 1;
        if self.sum.as_ref().is_some_and(|sum| sum.terms.iter().any(steps)) { self } else { Subscript::UNKNOWN }
    }
}

/// The result of the test for two iterations of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BetweenIterations {
    /// Per axis of the loop: which of its indices meet. `Possible` also when no subscript depends on the axis.
    pub axes: Vec<Conflict>,
    /// All subscripts were understood.
    pub is_exact: bool,
}

/// The dependence test for accesses of a body.
pub struct Dependence<'a> {
    body: &'a Body,
    sums: Sums<'a>,
    memory: KnownMemory,
}

/// A kernel's memory as diagnostics see it.
#[derive(Debug, Clone, Default)]
pub struct KnownMemory {
    /// Arrays that are the same as others, which have their extents.
    pub same_arrays: HashMap<BufferId, BufferId>,
    /// Buffers that the kernel does not write.
    pub constants: HashSet<BufferId>,
}

impl<'a> Dependence<'a> {
    /// For decisions about code: sums are exact, and seen through locals that hold one value.
    pub fn of(body: &'a Body, locals: &'a LocalUses) -> Dependence<'a> {
        Dependence { body, sums: Sums::through(body, locals), memory: KnownMemory::default() }
    }

    /// For decisions about code that may still have locals in memory: sums are exact.
    pub fn exact(body: &'a Body) -> Dependence<'a> {
        Dependence { body, sums: Sums::new(body), memory: KnownMemory::default() }
    }

    /// For diagnostics: arithmetic is taken not to wrap.
    pub fn as_meant(body: &'a Body, memory: KnownMemory) -> Dependence<'a> {
        Dependence { body, sums: Sums::as_meant(body), memory }
    }

    /// The same, seen through locals that hold one value.
    pub fn as_meant_through(body: &'a Body, locals: &'a LocalUses, memory: KnownMemory) -> Dependence<'a> {
        Dependence { body, sums: Sums::as_meant(body).seen_through(locals), memory }
    }

    /// The subscripts on the way to an address, outermost first; unknown once its target is unknown.
    pub fn subscripts(&mut self, address: ValueId) -> Vec<Subscript> {
        let mut subscripts = match &self.body.inst(address).op {
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => self.subscripts(*base),
            Op::BufferAddr(..) => Vec::new(),
            _ => return vec![Subscript::UNKNOWN],
        };
        match &self.body.inst(address).op {
            Op::MemberAddr(_, member) => {
                subscripts.push(Subscript { value: None, sum: Some(Affine::from(i64::from(*member))) });
            }
            Op::BufferAddr(_, indices) | Op::ElementAddr(_, indices) => {
                subscripts.extend(self.indices(indices));
            }
            _ => {}
        }
        subscripts
    }

    /// The subscripts of an element at these indices.
    pub fn indices(&mut self, indices: &[ValueId]) -> Vec<Subscript> {
        indices.iter().map(|i| Subscript { value: Some(self.sums.source(*i)), sum: self.sum(*i) }).collect()
    }

    /// Whether two accesses in one iteration of all loops around them reach the same element.
    pub fn within_iteration(&self, a: &[Subscript], b: &[Subscript]) -> Conflict {
        let axis = |(x, y): (&Subscript, &Subscript)| match self.difference(x, y) {
            Some(d) => d.as_constant().map_or(Conflict::Possible, |d| certain(d == 0)),
            None => Conflict::Possible,
        };
        a.iter().zip(b).map(axis).min().unwrap_or(Conflict::Certain)
    }

    /// Which iterations of a loop reach the same elements by two accesses in its body.
    pub fn between_iterations(&mut self, around: ValueId, a: &[Subscript], b: &[Subscript]) -> BetweenIterations {
        let Op::For(l) = &self.body.inst(around).op else { panic!("compiler bug: not a loop") };
        let mut equations: Vec<Vec<Equation>> = vec![Vec::new(); l.dims.len()];
        let (mut is_exact, mut apart) = (true, false);
        for (x, y) in a.iter().zip(b) {
            match self.relate(around, x, y) {
                Relation::Apart => apart = true,
                Relation::Holds => {}
                Relation::Equation(axis, equation) => equations[axis as usize].push(equation),
                Relation::Unknown => is_exact = false,
            }
        }
        let known = |sum: Option<Affine>| sum.and_then(|s| s.as_constant());
        let mut axes = Vec::new();
        for (range, equations) in l.dims.iter().zip(&equations) {
            let solved = match equations.is_empty() {
                _ if apart => Conflict::Apart,
                true => Conflict::Possible,
                false => solve(known(self.sum(range.begin)), known(self.sum(range.end)), equations),
            };
            is_exact &= equations.is_empty() || solved != Conflict::Possible;
            axes.push(solved);
        }
        BetweenIterations { axes, is_exact }
    }

    /// The ranges of a later loop's axes by which an access there reaches each element of one in a loop before it.
    /// `None` if it may not.
    pub fn in_later_loops(&self, read: &[Subscript], written: &[Subscript]) -> Option<SameRanges> {
        let mut ranges = SameRanges::default();
        let mut leads = |(x, y): (&Subscript, &Subscript)| match (x.value, y.value) {
            (Some(x), Some(y)) => ranges.lead_to_the_same(self.body, x, y),
            _ => x.sum.is_some() && x.sum == y.sum,
        };
        read.iter().zip(written).all(&mut leads).then_some(ranges)
    }

    /// Whether accesses in two tasks reach the same element. A range whose end is an extent or a parameter counts as
    /// not empty.
    pub fn between_tasks(&mut self, a: &[Subscript], b: &[Subscript]) -> Conflict {
        let mut least = Conflict::Certain;
        for (x, y) in a.iter().zip(b) {
            least = least.min(self.ranges_meet(x, y));
        }
        least
    }

    /// The value as a sum. Extents of arrays that are the same are one number.
    fn sum(&mut self, v: ValueId) -> Option<Affine> {
        let mut sum = self.sums.of(v)?;
        for term in sum.terms.keys().copied().collect::<Vec<_>>() {
            if let Term::Extent(b, axis) = term
                && let Some(same) = self.memory.same_arrays.get(&b)
            {
                sum = sum.replace(term, &Affine::from(Term::Extent(*same, axis)))?;
            }
        }
        Some(sum)
    }

    /// `y - x`, in one iteration.
    fn difference(&self, x: &Subscript, y: &Subscript) -> Option<Affine> {
        match (&x.sum, &y.sum) {
            _ if x.value.is_some() && x.value == y.value => Some(Affine::default()),
            (Some(x), Some(y)) => y.plus(&x.times(-1)?),
            // Both values are loaded by the same instruction.
            _ => x.value.zip(y.value).is_some_and(|(x, y)| same_value(self.body, x, y)).then(Affine::default),
        }
    }

    /// Both subscripts are computed in the same way, and not from memory.
    fn are_same(&self, x: &Subscript, y: &Subscript) -> bool {
        let values = x.value.zip(y.value);
        values.is_some_and(|(x, y)| same_value(self.body, x, y) && !is_read(self.body, x))
    }

    /// The constraint of an axis on iterations `i` and `j` of a loop.
    fn relate(&self, around: ValueId, x: &Subscript, y: &Subscript) -> Relation {
        let (Some(x_sum), Some(y_sum)) = (&x.sum, &y.sum) else {
            return if self.are_same(x, y) { Relation::Holds } else { Relation::Unknown };
        };
        let (Some((x, x_rest)), Some((y, y_rest))) = (split(x_sum, around), split(y_sum, around)) else {
            return Relation::Unknown;
        };
        if x_rest.terms != y_rest.terms {
            return Relation::Unknown;
        }
        let inner = x_rest.terms.keys().any(|t| matches!(t, Term::Index(l, _) if self.is_inside(*l, around)));
        match (x.axis.or(y.axis), inner) {
            (Some(_), true) => Relation::Unknown,
            // Indices of inner loops take the same values in all iterations.
            (None, true) => {
                if x.plus == y.plus {
                    Relation::Holds
                } else {
                    Relation::Unknown
                }
            }
            (None, false) => {
                if x.plus == y.plus {
                    Relation::Holds
                } else {
                    Relation::Apart
                }
            }
            (Some(_), false) if x.axis.is_some() && y.axis.is_some() && x.axis != y.axis => Relation::Unknown,
            (Some(axis), false) => Relation::Equation(axis, Equation { first: x.by(), second: y.by() }),
        }
    }

    /// A loop is inside of another one.
    fn is_inside(&self, inner: ValueId, around: ValueId) -> bool {
        let mut found = false;
        for block in self.body.inst(around).op.blocks() {
            self.body.visit(block, &mut |v, _| found |= v == inner);
        }
        found
    }

    fn ranges_meet(&mut self, x: &Subscript, y: &Subscript) -> Conflict {
        match (self.range(x), self.range(y)) {
            (Some(x), Some(y)) => x.meets(&y),
            _ => self.points_meet(x, y),
        }
    }

    /// Whether subscripts may be equal although their ranges are unknown: those that no loop changes, and steps of
    /// different remainders.
    fn points_meet(&self, x: &Subscript, y: &Subscript) -> Conflict {
        if let (Some(x), Some(y)) = (&x.sum, &y.sum) {
            let Some(apart) = x.times(-1).and_then(|x| y.plus(&x)) else { return Conflict::Possible };
            if let Some(by) = apart.as_constant() {
                return certain(by == 0);
            }
            // Sums of multiples of a number whose difference is not a multiple of it.
            let step = apart.terms.values().fold(0, |step, factor| common_divisor(step, factor.unsigned_abs()));
            let is_apart = step > 1 && !apart.constant.unsigned_abs().is_multiple_of(step);
            return if is_apart { Conflict::Apart } else { Conflict::Possible };
        }
        let Some(values) = x.value.zip(y.value) else { return Conflict::Possible };
        let source = |v| self.sums.source(v);
        let is_fixed = |load: ValueId| match self.body.inst(load).op {
            Op::Load(a) => {
                matches!(trace_address(self.body, a), Place::Buffer(b) if self.memory.constants.contains(&b))
            }
            _ => false,
        };
        match fixed_distance(self.body, values, &source, &is_fixed) {
            Distance::Known(by) => certain(by == 0),
            Distance::Different => Conflict::Apart,
            Distance::Unknown => Conflict::Possible,
        }
    }

    /// The values of a subscript in all iterations: those of a loop's index, moved by a constant, or a constant.
    fn range(&mut self, of: &Subscript) -> Option<IndexRange> {
        let sum = of.sum.as_ref()?;
        if let Some(point) = sum.as_constant() {
            return Some(IndexRange { low: point, high: Some(Affine::from(point.checked_add(1)?)) });
        }
        let (Term::Index(l, axis), 1) = single_term(sum)? else { return None };
        let Op::For(l) = &self.body.inst(l).op else { return None };
        let range = *l.dims.get(axis as usize)?;
        let low = self.sum(range.begin)?.as_constant()?.checked_add(sum.constant)?;
        // For other sums, the range may be empty.
        let end = self.sum(range.end).filter(|end| match single_term(end) {
            Some((term, factor)) => factor == 1 && end.constant == 0 && !matches!(term, Term::Index(..)),
            None => end.as_constant().is_some(),
        });
        Some(IndexRange { low, high: end.and_then(|end| end.plus(&Affine::from(sum.constant))) })
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The constraint of an axis on two iterations.
enum Relation {
    /// Its indices never are the same.
    Apart,
    /// They are or may be equal, regardless of the iterations.
    Holds,
    /// They are equal in iterations that solve an equation along an axis of the loop.
    Equation(u32, Equation),
    Unknown,
}

/// A sum of a multiple of a loop's index along one axis and a constant.
struct LoopMultiple {
    axis: Option<u32>,
    factor: i64,
    plus: i64,
}

impl LoopMultiple {
    fn by(&self) -> Multiple {
        Multiple { by: self.factor, plus: self.plus }
    }
}

/// Splits a sum into the part that depends on a loop's index along one axis, with the constant, and the remaining
/// terms.
fn split(sum: &Affine, around: ValueId) -> Option<(LoopMultiple, Affine)> {
    let mut rest = sum.clone();
    let mut of_loop = LoopMultiple { axis: None, factor: 0, plus: std::mem::take(&mut rest.constant) };
    for (term, factor) in &sum.terms {
        if let Term::Index(l, axis) = term
            && *l == around
        {
            if of_loop.axis.is_some() {
                return None;
            }
            (of_loop.axis, of_loop.factor) = (Some(*axis), *factor);
            rest.terms.remove(term);
        }
    }
    Some((of_loop, rest))
}

fn single_term(sum: &Affine) -> Option<(Term, i64)> {
    let mut terms = sum.terms.iter();
    let (term, factor) = terms.next()?;
    terms.next().is_none().then_some((*term, *factor))
}

fn certain(meets: bool) -> Conflict {
    if meets { Conflict::Certain } else { Conflict::Apart }
}

/// Values in `[low, high)`, where `high` may be a launch-time value, or unknown.
struct IndexRange {
    low: i64,
    high: Option<Affine>,
}

impl IndexRange {
    fn meets(&self, other: &IndexRange) -> Conflict {
        let known = |range: &IndexRange| range.high.as_ref().and_then(Affine::as_constant);
        let ((low_a, high_a), (low_b, high_b)) = ((self.low, known(self)), (other.low, known(other)));
        if let (Some(high_a), Some(high_b)) = (high_a, high_b) {
            return certain(low_a < high_b && low_b < high_a && low_a < high_a && low_b < high_b);
        }
        match (high_a, high_b) {
            (Some(high), _) if low_b >= high => Conflict::Apart,
            (_, Some(high)) if low_a >= high => Conflict::Apart,
            _ if self.high.is_none() || other.high.is_none() => Conflict::Possible,
            (Some(high), _) => {
                if (low_a..high).contains(&low_b) {
                    Conflict::Certain
                } else {
                    Conflict::Possible
                }
            }
            (_, Some(high)) => {
                if (low_b..high).contains(&low_a) {
                    Conflict::Certain
                } else {
                    Conflict::Possible
                }
            }
            _ => {
                if self.high == other.high {
                    Conflict::Certain
                } else {
                    Conflict::Possible
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use octants_ir::{BinaryOp, Body, Builder, ForLoop, Range, Scalar, Type};

    use super::*;

    /// `for i in range(n): for j in range(4): ...` with the subscripts that `f` makes of `i`, `j` and `n`.
    fn subscripts(f: impl FnOnce(&mut Builder, [ValueId; 3]) -> [ValueId; 2]) -> (Body, ValueId, [ValueId; 2]) {
        let mut b = Builder::new();
        let n = b.push(Op::Param(0), Type::I32);
        let [zero, four] = [0, 4].map(|c| b.int(c, Scalar::I32));
        let open = |b: &mut Builder, end| {
            let body = b.body.add_block();
            let dims = vec![Range { begin: zero, end }];
            let of = ForLoop::serial(dims, body);
            let l = b.push(Op::For(Box::new(of)), Type::Unit);
            b.set_cursor(body);
            (l, b.push(Op::LoopIndex(l, 0), Type::I32))
        };
        let (outer, i) = open(&mut b, n);
        let (_, j) = open(&mut b, four);
        let made = f(&mut b, [i, j, n]);
        (b.body, outer, made)
    }

    fn test(f: impl FnOnce(&mut Builder, [ValueId; 3]) -> [ValueId; 2]) -> (Conflict, BetweenIterations, Conflict) {
        let (body, outer, [x, y]) = subscripts(f);
        let locals = LocalUses::default();
        let mut dependence = Dependence::of(&body, &locals);
        let (x, y) = (dependence.indices(&[x]), dependence.indices(&[y]));
        let between = dependence.between_iterations(outer, &x, &y);
        (dependence.within_iteration(&x, &y), between, dependence.between_tasks(&x, &y))
    }

    fn exact(meeting: Conflict) -> BetweenIterations {
        BetweenIterations { axes: vec![meeting], is_exact: true }
    }

    #[test]
    fn neighbors_conflict_only_between_iterations() {
        let (within, between, tasks) = test(|b, [i, _, _]| {
            let one = b.int(1, Scalar::I32);
            [i, b.binary(BinaryOp::Add, i, one)]
        });
        assert_eq!((within, between), (Conflict::Apart, exact(Conflict::Certain)));
        // 0..n and 1..n + 1 may have at most one element.
        assert_eq!(tasks, Conflict::Possible);
    }

    #[test]
    fn a_common_offset_keeps_iterations_independent() {
        let (within, between, _) = test(|b, [i, _, n]| [b.binary(BinaryOp::Add, i, n), b.binary(BinaryOp::Add, n, i)]);
        assert_eq!((within, between), (Conflict::Certain, exact(Conflict::SameIteration)));
    }

    #[test]
    fn inner_loop_indices_conflict_between_iterations() {
        let (within, between, _) = test(|_, [_, j, _]| [j, j]);
        assert_eq!((within, between), (Conflict::Certain, exact(Conflict::Possible)));
        let (_, between, _) = test(|b, [i, j, _]| [b.binary(BinaryOp::Add, i, j), i]);
        assert!(!between.is_exact);
    }

    #[test]
    fn even_and_odd_elements_are_independent() {
        let (_, between, _) = test(|b, [i, _, _]| {
            let [one, two] = [1, 2].map(|c| b.int(c, Scalar::I32));
            let even = b.binary(BinaryOp::Mul, i, two);
            [even, b.binary(BinaryOp::Add, even, one)]
        });
        assert_eq!(between, exact(Conflict::Apart));
    }
}
