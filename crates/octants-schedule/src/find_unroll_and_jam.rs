//! Decides about unroll-and-jam: how many iterations of a parallel loop one thread interleaves.
//!
//! It is legal if the iterations cannot observe one another: except for sums, no iteration reads or writes what another
//! one writes, and all run the same iterations of an inner loop. It pays off if the inner loop finds their elements
//! adjacent, so that the computation is vectorized across them, or if all of them read or add to the same elements,
//! which then happens once.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use octants_analysis::{Conflict, Dependence, may_leave};
use octants_ir::{AtomicOp, BinaryOp, Body, ForLoop, FrameSlot, Layout, LocalId, Op, Range, ValueId};

use crate::facts::BodyFacts;

/// Interleave factors for adjacent elements, by the maximum number of scalar operations in the inner loop's body.
const ADJACENT: [(usize, u32); 2] = [(12, 64), (32, 16)];
/// Maximum number of bytes of adjacent elements: vector registers for as many partial sums as hide the latency of an
/// addition. With twice as many, LLVM 22 no longer vectorizes the sums.
const MAX_ADJACENT_BYTES: u32 = 256;
/// Interleave factors for shared elements. Each iteration needs its own registers.
const SHARING: [(usize, u32); 2] = [(8, 8), (128, 4)];
/// Operations of at least this cost are calls of vector functions.
const VECTOR_CALL: usize = 20;
/// Maximum number of scalar operations outside the jammed loops, summed over the interleaved iterations.
const MAX_OUTSIDE: usize = 512;
/// Weight of operations in other loops: LLVM unrolls or vectorizes such a loop once for each interleaved iteration.
const LOOP_WEIGHT: usize = 16;
/// LLVM fully unrolls inner loops with at most this trip count, and vectorizes the parallel loop.
const SHORT_TRIP_COUNT: i64 = 32;

/// The inner loops of a parallel loop that all iterations of a group run together.
#[derive(Debug)]
pub(crate) struct JammedLoops {
    /// Iterations of the parallel loop that are interleaved.
    pub interleave_factor: u32,
    /// `true`: vectorize across the iterations of the parallel loop, not of the inner loop.
    pub loops: HashMap<ValueId, bool>,
}

impl JammedLoops {
    /// The interleave factors, largest first. Iterations with adjacent elements get a smaller factor for the
    /// remainder, because each costs many times as much by itself.
    pub fn factors(&self) -> impl Iterator<Item = u32> {
        let small = self.loops.values().any(|across| *across).then_some(self.interleave_factor / 4);
        [self.interleave_factor].into_iter().chain(small.filter(|n| *n > 1))
    }
}

/// The memory of an access, except locals.
#[derive(Debug)]
enum Memory {
    /// A buffer, the indices of an element, and the run-time indices inside the element.
    Buffer(usize, Vec<ValueId>, Vec<ValueId>),
    Frame(FrameSlot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Sum,
    Write,
}

/// How the elements of interleaved iterations relate to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Spread {
    Uniform,
    Adjacent,
    Other,
}

/// The parallel loop under analysis.
struct Search<'a> {
    facts: &'a BodyFacts<'a>,
    body: &'a Body,
    loop_id: ValueId,
    /// The axis along which iterations are interleaved.
    axis: u32,
    inside: HashSet<ValueId>,
    accesses: HashMap<ValueId, (Memory, Kind)>,
    /// Results per value, because computations share parts.
    uniform: RefCell<HashMap<(ValueId, Option<ValueId>), bool>>,
}

/// Decides about unroll-and-jam of a parallel loop: while other threads touch the same memory, and while none does.
pub(crate) fn find_unroll_and_jam(facts: &BodyFacts<'_>, loop_id: ValueId, of: &ForLoop) -> [Option<JammedLoops>; 2] {
    let Some(search) = check_legality(facts, loop_id, of) else { return [None, None] };
    [false, true].map(|exclusive| search.decide(of, exclusive))
}

fn inner_loops<'b>(body: &'b Body, of: &ForLoop) -> Vec<(ValueId, &'b ForLoop)> {
    body.block(of.body).iter().filter_map(|v| Some((*v, as_for(body, *v)?))).collect()
}

fn check_legality<'a>(facts: &'a BodyFacts<'a>, loop_id: ValueId, of: &ForLoop) -> Option<Search<'a>> {
    let body = facts.body;
    let loops = inner_loops(body, of);
    let axis = (of.dims.len() as u32).checked_sub(1)?;
    if loops.is_empty() || may_leave(body, of.body) {
        return None;
    }
    // Give up early on bodies with too much code outside: the legality check is quadratic in the number of accesses.
    let longest = SHARING.map(|(most, _)| most).into_iter().max().unwrap_or(0);
    let costs = facts.of.costs();
    let short = loops.iter().map(|(_, l)| l.body).filter(|b| costs.block_size(body, *b, 1) <= longest);
    let least = costs.block_size(body, of.body, LOOP_WEIGHT)
        - short.map(|b| LOOP_WEIGHT * costs.block_size(body, b, LOOP_WEIGHT)).sum::<usize>();
    if 2 * least > MAX_OUTSIDE {
        return None;
    }
    let (inside, accesses, uniform) = (HashSet::new(), HashMap::new(), RefCell::default());
    let mut search = Search { facts, body, loop_id, axis, inside, accesses, uniform };
    (search.collect_accesses(of) && !search.has_dependence()).then_some(search)
}

fn as_for(body: &Body, v: ValueId) -> Option<&ForLoop> {
    if let Op::For(l) = &body.inst(v).op { Some(l) } else { None }
}

impl Search<'_> {
    /// The jammed loops and the interleave factor. `exclusive`: no other thread touches the memory.
    fn decide(&self, of: &ForLoop, exclusive: bool) -> Option<JammedLoops> {
        let body = self.body;
        let loops = inner_loops(body, of);
        let found: Vec<_> =
            loops.iter().filter_map(|(v, l)| Some((*v, l.body, self.factor(*v, l, exclusive)?))).collect();
        let costs = self.facts.of.costs();
        let outside = costs.block_size(body, of.body, LOOP_WEIGHT)
            - found.iter().map(|(_, b, _)| LOOP_WEIGHT * costs.block_size(body, *b, LOOP_WEIGHT)).sum::<usize>();
        let fewest = found.iter().map(|(.., (factor, _))| *factor).min()?;
        let interleave_factor =
            std::iter::successors(Some(fewest), |n| Some(n / 2)).find(|n| *n as usize * outside <= MAX_OUTSIDE)?;
        let range = &of.dims[self.axis as usize];
        let extent = self.facts.known(range.end).zip(self.facts.known(range.begin));
        let fits = extent.is_none_or(|(end, begin)| end.saturating_sub(begin) >= i64::from(interleave_factor));
        let loops = || found.iter().map(|(v, _, (_, across))| (*v, *across)).collect();
        (interleave_factor > 1 && fits).then(|| JammedLoops { interleave_factor, loops: loops() })
    }

    /// Collects the accesses of the parallel loop. `false` if it has other effects, or accesses unknown memory.
    fn collect_accesses(&mut self, of: &ForLoop) -> bool {
        let (mut used, mut sums) = (HashSet::new(), HashSet::new());
        let mut is_known = true;
        let body = self.body;
        let locals = &self.facts.locals;
        let (inside, accesses) = (&mut self.inside, &mut self.accesses);
        body.visit(of.body, &mut |v, inst| {
            inside.insert(v);
            let mut access = |address: ValueId, kind| match memory_of(body, address) {
                Some(memory) => _ = accesses.insert(v, (memory, kind)),
                // A local from before the loop is shared by all iterations.
                None => {
                    is_known &=
                        local_of(body, address).is_some_and(|l| kind == Kind::Read || !locals.of(l).is_used_before_loop)
                }
            };
            match &inst.op {
                Op::Load(a) => access(*a, Kind::Read),
                Op::Store(a, _) => access(*a, Kind::Write),
                Op::Atomic(AtomicOp::Add, a, _) => {
                    access(*a, Kind::Sum);
                    sums.insert(v);
                }
                Op::If(..)
                | Op::For(_)
                | Op::Loop(_)
                | Op::Break
                | Op::Continue
                | Op::LoopIndex(..)
                | Op::Reduce(..) => {}
                op => is_known &= op.is_pure(),
            }
            inst.op.for_each_operand(|operand| _ = used.insert(operand));
        });
        // The old value of a sum reveals the order of the additions.
        is_known && used.is_disjoint(&sums)
    }

    /// Whether an iteration may access memory that another one writes, other than by sums.
    fn has_dependence(&self) -> bool {
        let all: Vec<_> = self.accesses.values().collect();
        let mut dependence = Dependence::of(self.body, &self.facts.locals);
        let mut may_meet = |(a, k): &(Memory, Kind), (b, l): &(Memory, Kind)| {
            let commute = k == l && *k != Kind::Write;
            !commute && self.may_be_same(a, b) && !self.are_own(&mut dependence, a, b)
        };
        all.iter().enumerate().any(|(i, a)| all[i..].iter().any(|b| may_meet(a, b)))
    }

    fn may_be_same(&self, a: &Memory, b: &Memory) -> bool {
        match (a, b) {
            (Memory::Buffer(a, ..), Memory::Buffer(b, ..)) => self.facts.of.memory.may_alias(*a, *b),
            (Memory::Frame(a), Memory::Frame(b)) => a == b,
            _ => false,
        }
    }

    /// Both accesses are to elements that belong to one iteration.
    fn are_own(&self, dependence: &mut Dependence<'_>, a: &Memory, b: &Memory) -> bool {
        let (Memory::Buffer(a, x, _), Memory::Buffer(b, y, _)) = (a, b) else { return false };
        if a != b {
            return false;
        }
        let (x, y) = (dependence.indices(x), dependence.indices(y));
        let found = dependence.between_iterations(self.loop_id, &x, &y);
        matches!(found.axes[self.axis as usize], Conflict::Apart | Conflict::SameIteration)
    }

    fn is_own_index(&self, v: ValueId) -> bool {
        self.body.inst(self.facts.source(v)).op == Op::LoopIndex(self.loop_id, self.axis)
    }

    /// The interleave factor for an inner loop, if jamming it pays off, and whether to vectorize across iterations.
    fn factor(&self, inner_id: ValueId, inner: &ForLoop, exclusive: bool) -> Option<(u32, bool)> {
        let body = self.body;
        let trips = |d: &Range| Some(self.facts.known(d.end)?.saturating_sub(self.facts.known(d.begin)?).max(0));
        let count = inner.dims.iter().try_fold(1i64, |n, d| n.checked_mul(trips(d)?));
        let is_uniform = |v| self.is_uniform(v, None);
        let has_uniform_bounds = inner.dims.iter().all(|d| is_uniform(d.begin) && is_uniform(d.end));
        if inner.dims.is_empty()
            || count.is_some_and(|n| n <= SHORT_TRIP_COUNT)
            || !has_uniform_bounds
            || may_leave(body, inner.body)
        {
            return None;
        }
        let costs = self.facts.of.costs();
        let (mut is_plain, mut calls) = (true, false);
        let (mut sums, mut spreads, mut widest) = (HashSet::new(), HashSet::new(), 1);
        body.visit(inner.body, &mut |v, inst| {
            is_plain &= !matches!(inst.op, Op::For(_) | Op::Loop(_));
            calls |= costs.instructions(body, &inst.op) >= VECTOR_CALL && !self.is_uniform(v, Some(inner_id));
            let Some((memory, kind)) = self.accesses.get(&v) else { return };
            let spread = self.spread(memory, inner_id);
            // Atomic sums stay as they are.
            is_plain &= *kind == Kind::Read || *kind == Kind::Sum && exclusive;
            sums.extend((*kind == Kind::Sum).then_some(spread));
            widest = widest.max(self.bytes_of_element(memory));
            // Invariant elements are loaded before the inner loop.
            if !self.is_invariant(memory) {
                spreads.insert(spread);
            }
        });
        let of_size = |sizes: &[(usize, u32)]| {
            let size = costs.block_size(body, inner.body, 1);
            sizes.iter().find(|(most, _)| size <= *most).map(|(_, factor)| *factor)
        };
        let adjacent = || {
            let fits = spreads.contains(&Spread::Adjacent) && !spreads.contains(&Spread::Other);
            of_size(&ADJACENT).filter(|_| fits).map(|factor| (factor.min(MAX_ADJACENT_BYTES / widest), true))
        };
        let sharing = || {
            // With several updates of an element, the inner loop could no longer be vectorized.
            let keeps_vectors = sums.iter().all(|spread| *spread == Spread::Uniform);
            // Calls spill all registers. Only sums make up for that.
            let pays = spreads.contains(&Spread::Uniform) && !(calls && sums.is_empty());
            let fits = keeps_vectors && pays;
            of_size(&SHARING).filter(|_| fits).map(|factor| (factor, false))
        };
        if is_plain { adjacent().or_else(sharing) } else { None }
    }

    /// Bytes of a scalar of the memory.
    fn bytes_of_element(&self, memory: &Memory) -> u32 {
        let Memory::Buffer(buffer, ..) = memory else { return 1 };
        self.facts.of.program.buffers[*buffer].elem.scalar().map_or(1, |scalar| scalar.bytes())
    }

    /// How the elements of interleaved iterations relate to one another in a jammed loop.
    fn spread(&self, memory: &Memory, together: ValueId) -> Spread {
        let Memory::Buffer(buffer, indices, parts) = memory else { return Spread::Other };
        let is_uniform = |v: &ValueId| self.is_uniform(*v, Some(together));
        match indices.split_last() {
            _ if !parts.iter().all(is_uniform) => Spread::Other,
            _ if indices.iter().all(is_uniform) => Spread::Uniform,
            Some((last, others)) if others.iter().all(is_uniform) && self.steps_by_one(*last, together) => {
                if self.is_dense(*buffer) { Spread::Adjacent } else { Spread::Other }
            }
            _ => Spread::Other,
        }
    }

    /// An index that increases by one in each iteration, ignoring clamps.
    fn steps_by_one(&self, v: ValueId, together: ValueId) -> bool {
        let (steps, is_uniform) = (|v| self.steps_by_one(v, together), |v| self.is_uniform(v, Some(together)));
        match self.body.inst(self.facts.source(v)).op {
            Op::Binary(BinaryOp::Add, a, b) if is_uniform(a) => steps(b),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if is_uniform(b) => steps(a),
            // Clamped to the border of an image.
            Op::Binary(BinaryOp::Min | BinaryOp::Max, a, b) if is_uniform(a) => steps(b),
            Op::Binary(BinaryOp::Min | BinaryOp::Max, a, b) if is_uniform(b) => steps(a),
            Op::Cast(a) => self.body.ty(a).scalar().is_some_and(|s| s.is_int()) && steps(a),
            _ => self.is_own_index(v),
        }
    }

    /// Elements are scalars, next to one another along the last axis.
    fn is_dense(&self, buffer: usize) -> bool {
        let b = &self.facts.of.program.buffers[buffer];
        let unit = b.elem.scalar().map_or(0, |s| u64::from(s.bytes()));
        b.elem.leaf_count() == 1
            && match &b.layout {
                Layout::Contiguous => true,
                Layout::Strided | Layout::Flat(_) => false,
                Layout::Dense { components, .. } => components
                    .iter()
                    .all(|c| matches!(c.place.axes.last().map(Vec::as_slice), Some([d]) if d.stride == unit)),
            }
    }

    /// The access is invariant in the inner loops.
    fn is_invariant(&self, memory: &Memory) -> bool {
        let Memory::Buffer(_, indices, parts) = memory else { return true };
        let outside = |v: &ValueId| self.is_uniform(*v, None) || self.is_own_index(*v);
        indices.iter().chain(parts).all(outside)
    }

    /// A value is the same in all interleaved iterations. So is the index of the loop that they run `together`.
    fn is_uniform(&self, v: ValueId, together: Option<ValueId>) -> bool {
        let v = self.facts.source(v);
        let known = self.uniform.borrow().get(&(v, together)).copied();
        known.unwrap_or_else(|| {
            let uniform = self.is_computed_uniform(v, together);
            self.uniform.borrow_mut().insert((v, together), uniform);
            uniform
        })
    }

    fn is_computed_uniform(&self, v: ValueId, together: Option<ValueId>) -> bool {
        let op = &self.body.inst(v).op;
        let is_uniform = |v| self.is_uniform(v, together);
        match op {
            _ if !self.inside.contains(&v) => true,
            Op::LoopIndex(l, axis) if *l == self.loop_id => *axis != self.axis,
            Op::LoopIndex(l, _) => Some(*l) == together,
            Op::Load(_) => self.accesses.get(&v).is_some_and(|(memory, _)| {
                let Memory::Buffer(_, indices, parts) = memory else { return false };
                let changes = |(other, kind): &(Memory, Kind)| *kind != Kind::Read && self.may_be_same(memory, other);
                indices.iter().chain(parts).all(|i| is_uniform(*i)) && !self.accesses.values().any(changes)
            }),
            // Each iteration has its own locals.
            Op::LocalAddr(_) => false,
            op if op.is_pure() => {
                let mut all = true;
                op.for_each_operand(|operand| all = all && is_uniform(operand));
                all
            }
            _ => false,
        }
    }
}

fn memory_of(body: &Body, address: ValueId) -> Option<Memory> {
    match &body.inst(address).op {
        Op::BufferAddr(b, indices) => Some(Memory::Buffer(b.index(), indices.clone(), Vec::new())),
        Op::FrameAddr(slot) => Some(Memory::Frame(*slot)),
        Op::MemberAddr(base, _) => memory_of(body, *base),
        Op::ElementAddr(base, chosen) => {
            let mut memory = memory_of(body, *base)?;
            if let Memory::Buffer(.., parts) = &mut memory {
                parts.extend(chosen);
            }
            Some(memory)
        }
        _ => None,
    }
}

fn local_of(body: &Body, address: ValueId) -> Option<LocalId> {
    match &body.inst(address).op {
        Op::LocalAddr(l) => Some(*l),
        Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => local_of(body, *base),
        _ => None,
    }
}
