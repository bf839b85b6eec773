//! Whether iterations of a parallel loop may run at once in one thread's code, and how many should (`jam_loops`).
//!
//! They may where none of them can tell: what one writes no other one reads or writes, but for sums, and each of them runs the same
//! iterations of an inner loop. They should where that loop finds the elements that they read side by side, which makes vectors of what
//! they compute, or where it reads or adds to the same elements for all of them, which is then done once for all.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use octants_analysis::may_leave;
use octants_ir::schedule::Jam;
use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, ForLoop, FrameSlot, Layout, LocalId, Op, Range, ValueId};

use crate::facts::BodyFacts;
use crate::read_ahead::operations;

/// Iterations at once whose elements lie side by side, by the most operations on scalars in the inner loop's body.
const SIDE_BY_SIDE: [(usize, u32); 2] = [(12, 32), (32, 16)];
/// Iterations at once that share elements. Each has numbers in registers.
const SHARING: [(usize, u32); 2] = [(8, 8), (128, 4)];
/// Operations that count as so many or more are calls of vector functions.
const OF_CALLS: usize = 20;
/// Most operations on scalars around the inner loops of all iterations at once, and how often those in other loops count: LLVM writes
/// such loops out, or makes vectors of them, for each iteration.
const MOST_AROUND: usize = 512;
const IN_LOOPS: usize = 16;
/// LLVM writes out inner loops that are known to have at most so many iterations, and makes vectors of what the parallel loop computes.
const FEW_ITERATIONS: i64 = 32;

/// Shared memory that an access is to.
#[derive(Debug)]
enum Memory {
    /// A buffer, the indices of an element, and those of what is chosen in it at run time.
    Buffer(usize, Vec<ValueId>, Vec<ValueId>),
    Frame(FrameSlot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Sum,
    Write,
}

/// How the elements lie that iterations access at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Spread {
    Alike,
    SideBySide,
    Other,
}

/// A body whose iterations may run at once.
struct Search<'a> {
    facts: &'a BodyFacts<'a>,
    body: &'a Body,
    /// The parallel loop, and its axis along which iterations run at once.
    number: ValueId,
    axis: u32,
    inside: HashSet<ValueId>,
    accesses: HashMap<ValueId, (Memory, Kind)>,
    /// What was found out of values: computations share parts.
    alike: RefCell<HashMap<(ValueId, Option<ValueId>), bool>>,
}

/// Finds out whether several iterations of a parallel loop, which are independent, should run at once: where other
/// threads touch the same memory, and where none does.
pub(crate) fn find_jams(facts: &BodyFacts<'_>, number: ValueId, of: &ForLoop) -> [Option<Jam>; 2] {
    let Some(search) = look_for_jams(facts, number, of) else { return [None, None] };
    [false, true].map(|exclusive| search.jam(of, exclusive))
}

fn inner_loops<'b>(body: &'b Body, of: &ForLoop) -> Vec<(ValueId, &'b ForLoop)> {
    body.block(of.body).iter().filter_map(|v| Some((*v, as_for(body, *v)?))).collect()
}

fn look_for_jams<'a>(facts: &'a BodyFacts<'a>, number: ValueId, of: &ForLoop) -> Option<Search<'a>> {
    let body = facts.body;
    let loops = inner_loops(body, of);
    let axis = (of.dims.len() as u32).checked_sub(1)?;
    if loops.is_empty() || may_leave(body, of.body) {
        return None;
    }
    // What has too much code around what could be shared is not looked into: that takes the square of its accesses.
    let longest = SHARING.map(|(most, _)| most).into_iter().max().unwrap_or(0);
    let short = loops.iter().map(|(_, l)| l.body).filter(|b| size(body, *b, 1) <= longest);
    let least = size(body, of.body, IN_LOOPS) - short.map(|b| IN_LOOPS * size(body, b, IN_LOOPS)).sum::<usize>();
    if 2 * least > MOST_AROUND {
        return None;
    }
    let (inside, accesses, alike) = (HashSet::new(), HashMap::new(), RefCell::default());
    let mut search = Search { facts, body, number, axis, inside, accesses, alike };
    (search.look(of) && !search.meet()).then_some(search)
}

fn as_for(body: &Body, v: ValueId) -> Option<&ForLoop> {
    if let Op::For(l) = &body.inst(v).op { Some(l) } else { None }
}

/// Operations on scalars in a block; those in loops count several times.
fn size(body: &Body, block: BlockId, in_loops: usize) -> usize {
    let of = |v: &ValueId| {
        let inst = body.inst(*v);
        let times = if matches!(inst.op, Op::For(_) | Op::Loop(_)) { in_loops } else { 1 };
        let inner: usize = inst.op.blocks().into_iter().map(|b| size(body, b, in_loops)).sum();
        inst.ty.leaf_count().max(1) * operations(body, &inst.op) + times * inner
    };
    body.block(block).iter().map(of).sum()
}

impl Search<'_> {
    /// What runs at once, as no other thread does anything in between where `exclusive` says so.
    fn jam(&self, of: &ForLoop, exclusive: bool) -> Option<Jam> {
        let body = self.body;
        let loops = inner_loops(body, of);
        let found: Vec<_> =
            loops.iter().filter_map(|(v, l)| Some((*v, l.body, self.times(*v, l, exclusive)?))).collect();
        let around = size(body, of.body, IN_LOOPS)
            - found.iter().map(|(_, b, _)| IN_LOOPS * size(body, *b, IN_LOOPS)).sum::<usize>();
        let fewest = found.iter().map(|(.., (times, _))| *times).min()?;
        let times =
            std::iter::successors(Some(fewest), |n| Some(n / 2)).find(|n| *n as usize * around <= MOST_AROUND)?;
        let range = &of.dims[self.axis as usize];
        let extent = self.facts.known(range.end).zip(self.facts.known(range.begin));
        let fits = extent.is_none_or(|(end, begin)| end.saturating_sub(begin) >= i64::from(times));
        (times > 1 && fits)
            .then(|| Jam { times, loops: found.iter().map(|(v, _, (_, across))| (*v, *across)).collect() })
    }

    /// Collects what the parallel loop does; whether that is no more than to compute, and to use memory in ways that can be told.
    fn look(&mut self, of: &ForLoop) -> bool {
        let (mut used, mut sums) = (HashSet::new(), HashSet::new());
        let mut is_known = true;
        let body = self.body;
        let locals = &self.facts.locals;
        let (inside, accesses) = (&mut self.inside, &mut self.accesses);
        body.visit(of.body, &mut |v, inst| {
            inside.insert(v);
            let mut access = |address: ValueId, kind| match memory_of(body, address) {
                Some(memory) => _ = accesses.insert(v, (memory, kind)),
                // What stands before the loop is one for all iterations.
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
        // In which order others have added can be told from the sum that an addition finds.
        is_known && used.is_disjoint(&sums)
    }

    /// An iteration may read or write what another one writes, other than by sums.
    fn meet(&self) -> bool {
        let all: Vec<_> = self.accesses.values().collect();
        let may_meet = |(a, k): &(Memory, Kind), (b, l): &(Memory, Kind)| {
            let commute = k == l && *k != Kind::Write;
            !commute && self.may_be_same(a, b) && !self.are_own(a, b)
        };
        all.iter().enumerate().any(|(i, a)| all[i..].iter().any(|b| may_meet(a, b)))
    }

    fn may_be_same(&self, a: &Memory, b: &Memory) -> bool {
        match (a, b) {
            (Memory::Buffer(a, ..), Memory::Buffer(b, ..)) => self.facts.of.may_be_same(*a, *b),
            (Memory::Frame(a), Memory::Frame(b)) => a == b,
            _ => false,
        }
    }

    /// Both accesses are to elements that each iteration has for itself.
    fn are_own(&self, a: &Memory, b: &Memory) -> bool {
        let (Memory::Buffer(a, x, _), Memory::Buffer(b, y, _)) = (a, b) else { return false };
        a == b && x.iter().zip(y).any(|(x, y)| self.is_own_index(*x) && self.is_own_index(*y))
    }

    fn is_own_index(&self, v: ValueId) -> bool {
        self.body.inst(self.facts.source(v)).op == Op::LoopIndex(self.number, self.axis)
    }

    /// How many iterations should run an inner loop together, where that pays, and whether what they compute becomes vectors.
    fn times(&self, number: ValueId, inner: &ForLoop, exclusive: bool) -> Option<(u32, bool)> {
        let body = self.body;
        let trips = |d: &Range| Some(self.facts.known(d.end)?.saturating_sub(self.facts.known(d.begin)?).max(0));
        let count = inner.dims.iter().try_fold(1i64, |n, d| n.checked_mul(trips(d)?));
        let is_alike = |v| self.is_alike(v, None);
        let runs_alike = inner.dims.iter().all(|d| is_alike(d.begin) && is_alike(d.end));
        if inner.dims.is_empty()
            || count.is_some_and(|n| n <= FEW_ITERATIONS)
            || !runs_alike
            || may_leave(body, inner.body)
        {
            return None;
        }
        let (mut is_plain, mut calls) = (true, false);
        let (mut sums, mut spreads) = (HashSet::new(), HashSet::new());
        body.visit(inner.body, &mut |v, inst| {
            is_plain &= !matches!(inst.op, Op::For(_) | Op::Loop(_));
            calls |= operations(body, &inst.op) >= OF_CALLS && !self.is_alike(v, Some(number));
            let Some((memory, kind)) = self.accesses.get(&v) else { return };
            let spread = self.spread(memory, number);
            // Sums that are atomic stay what they are.
            is_plain &= *kind == Kind::Read || *kind == Kind::Sum && exclusive;
            sums.extend((*kind == Kind::Sum).then_some(spread));
            // What the inner loop leaves alone is read before it.
            if !self.is_left_alone(memory) {
                spreads.insert(spread);
            }
        });
        let of_size = |sizes: &[(usize, u32)]| {
            let size = size(body, inner.body, 1);
            sizes.iter().find(|(most, _)| size <= *most).map(|(_, times)| *times)
        };
        let side_by_side = || {
            let fits = spreads.contains(&Spread::SideBySide) && !spreads.contains(&Spread::Other);
            of_size(&SIDE_BY_SIDE).filter(|_| fits).map(|times| (times, true))
        };
        let sharing = || {
            // Where several add to an element iterations of the inner loop would no longer become vectors.
            let keeps_vectors = sums.iter().all(|spread| *spread == Spread::Alike);
            // Calls leave no numbers in registers: it takes sums to make up for that.
            let pays = spreads.contains(&Spread::Alike) && !(calls && sums.is_empty());
            let fits = keeps_vectors && pays;
            of_size(&SHARING).filter(|_| fits).map(|times| (times, false))
        };
        if is_plain { side_by_side().or_else(sharing) } else { None }
    }

    /// How the elements lie that iterations access at once, while they run an inner loop together.
    fn spread(&self, memory: &Memory, together: ValueId) -> Spread {
        let Memory::Buffer(buffer, indices, parts) = memory else { return Spread::Other };
        let is_alike = |v: &ValueId| self.is_alike(*v, Some(together));
        match indices.split_last() {
            _ if !parts.iter().all(is_alike) => Spread::Other,
            _ if indices.iter().all(is_alike) => Spread::Alike,
            Some((last, others)) if others.iter().all(is_alike) && self.steps_by_one(*last, together) => {
                if self.is_dense(*buffer) { Spread::SideBySide } else { Spread::Other }
            }
            _ => Spread::Other,
        }
    }

    /// An index of which each iteration has the one after that of the iteration before it, in the main.
    fn steps_by_one(&self, v: ValueId, together: ValueId) -> bool {
        let (steps, is_alike) = (|v| self.steps_by_one(v, together), |v| self.is_alike(v, Some(together)));
        match self.body.inst(self.facts.source(v)).op {
            Op::Binary(BinaryOp::Add, a, b) if is_alike(a) => steps(b),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if is_alike(b) => steps(a),
            // Up to the border of an image.
            Op::Binary(BinaryOp::Min | BinaryOp::Max, a, b) if is_alike(a) => steps(b),
            Op::Binary(BinaryOp::Min | BinaryOp::Max, a, b) if is_alike(b) => steps(a),
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
                Layout::Strided => false,
                Layout::Dense { components, .. } => {
                    components.iter().all(|c| matches!(c.axes.last().map(Vec::as_slice), Some([d]) if d.stride == unit))
                }
            }
    }

    /// An access that is to the same memory in each iteration of the inner loops.
    fn is_left_alone(&self, memory: &Memory) -> bool {
        let Memory::Buffer(_, indices, parts) = memory else { return true };
        let outside = |v: &ValueId| self.is_alike(*v, None) || self.is_own_index(*v);
        indices.iter().chain(parts).all(outside)
    }

    /// A value is the same in all iterations that run at once; so is the index of the inner loop that they run together.
    fn is_alike(&self, v: ValueId, together: Option<ValueId>) -> bool {
        let v = self.facts.source(v);
        let known = self.alike.borrow().get(&(v, together)).copied();
        known.unwrap_or_else(|| {
            let alike = self.is_computed_alike(v, together);
            self.alike.borrow_mut().insert((v, together), alike);
            alike
        })
    }

    fn is_computed_alike(&self, v: ValueId, together: Option<ValueId>) -> bool {
        let op = &self.body.inst(v).op;
        let is_alike = |v| self.is_alike(v, together);
        match op {
            _ if !self.inside.contains(&v) => true,
            Op::LoopIndex(l, axis) if *l == self.number => *axis != self.axis,
            Op::LoopIndex(l, _) => Some(*l) == together,
            Op::Load(_) => self.accesses.get(&v).is_some_and(|(memory, _)| {
                let Memory::Buffer(_, indices, parts) = memory else { return false };
                let changes = |(other, kind): &(Memory, Kind)| *kind != Kind::Read && self.may_be_same(memory, other);
                indices.iter().chain(parts).all(|i| is_alike(*i)) && !self.accesses.values().any(changes)
            }),
            // Each has locals of its own.
            Op::LocalAddr(_) => false,
            op if op.is_pure() => {
                let mut all = true;
                op.for_each_operand(|operand| all = all && is_alike(operand));
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
