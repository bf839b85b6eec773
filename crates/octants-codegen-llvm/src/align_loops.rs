//! Loops in order in which the threads of a warp add to the same element at a time, although they run differently often: gradients
//! of what all iterations of a parallel loop read one after the other.
//!
//! In `for i: for k in range(n[i]): g[k] += f(i, k)` the threads of a warp, which run neighbouring `i` in step, are at the same `k`. Run
//! backwards they would each begin at their own end; here all begin at the farthest end of a warp's threads, and those that have
//! not come to theirs wait, which costs nothing, for a warp takes as long as its longest thread anyhow. Then the sums of a warp are
//! combined in registers (`gather_sums`), and one thread adds the result, instead of many that get in each other's way.
//!
//! It applies to sums of floats into copies in a block's memory (`share_in_blocks`); for those of integers there is an instruction that
//! minds less. Whether all threads are there and mean the same element is found out before the loop; else each adds by itself.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BinaryOp, Body, Const, ForLoop, Op, Range, Scalar, ValueId};

use crate::emit::{IntCmp, V};
use crate::gather_sums::{Gathered, Inner, find_inner, may_leave, sums_of_branches};
use crate::load_early::EarlyLoads;
use crate::lower_body::{Index, LoopTargets, Lowering};

/// A loop whose threads can be aligned.
struct Alignment {
    /// The sums whose elements are then the same.
    gathered: Gathered,
    /// The elements follow the index backwards.
    descending: bool,
    /// Values from outside of the loop that they depend on.
    given: Vec<ValueId>,
}

/// How an index of a sum's address follows the loop's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Follows {
    Index,
    /// The last index minus the loop's, plus the first.
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

/// What is known of an address.
#[derive(Default)]
struct Traced {
    /// Values from outside of the loop that it depends on.
    given: Vec<ValueId>,
    /// It follows the index of the inner loop that the sum is in.
    along: bool,
}

fn find_alignment(lowering: &Lowering<'_, '_>, v: ValueId, l: &ForLoop) -> Option<Alignment> {
    let (body, facts) = (lowering.body, &lowering.u.facts);
    let [range] = l.dims.as_slice() else { return None };
    let mut inside = HashSet::new();
    let mut leaves = false;
    body.visit(l.body, &mut |v, inst| {
        inside.insert(v);
        leaves |= match &inst.op {
            Op::Return(_) | Op::Assert(..) => true,
            Op::Call(f, _) => facts.effects[f.index()].fails,
            _ => false,
        };
    });
    if leaves || may_leave(body, l.body) {
        return None;
    }
    let search = Search { lowering, number: v, range, inside };
    let mut found = Alignment { gathered: Gathered::default(), descending: false, given: Vec::new() };
    let mut direction = Follows::Nothing;
    let is_sum = |v: ValueId| search.is_sum(v);
    for &sum in body.block(l.body).iter().filter(|v| is_sum(**v)) {
        search.take(sum, None, &mut direction, &mut found);
    }
    let inner = find_inner(body, l.body, &is_sum).unwrap_or_default();
    let mut finds_any = false;
    for inner in &inner {
        let mut sums = Vec::new();
        sums_of_branches(body, inner.body, &is_sum, &mut sums);
        for sum in sums {
            finds_any |= search.take(sum, Some(inner), &mut direction, &mut found);
        }
    }
    // All of them: what they leave in local arrays for one another is then in registers.
    found.gathered.written_out = inner.into_iter().filter(|_| finds_any).map(|i| (i.number, i.indices)).collect();
    found.descending = direction == Follows::Backwards;
    found.given.push(range.begin);
    (!found.gathered.sites.is_empty()).then_some(found)
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

    /// Takes a sum whose elements are the same in all threads; `false` where they may not be.
    fn take(&self, sum: ValueId, inner: Option<&Inner>, direction: &mut Follows, found: &mut Alignment) -> bool {
        let body = self.lowering.body;
        let Op::Atomic(_, address, _) = body.inst(sum).op else { return false };
        let (mut indices, mut traced) = (Vec::new(), Traced::default());
        root_of(body, address, &mut indices);
        let mut all = Some(*direction);
        for index in indices {
            let index = self.lowering.source(index);
            let follows = if self.inside.contains(&index) || body.as_const(index).is_some() {
                self.follows(index, inner, &mut traced)
            } else {
                traced.given.push(index);
                Some(Follows::Nothing)
            };
            all = all.zip(follows).and_then(|(a, b)| a.with(b));
        }
        let Some(all) = all else { return false };
        if !found.gathered.insert(self.lowering, &self.inside, sum, inner.filter(|_| traced.along)) {
            return false;
        }
        *direction = all;
        found.given.append(&mut traced.given);
        true
    }

    fn follows(&self, index: ValueId, inner: Option<&Inner>, traced: &mut Traced) -> Option<Follows> {
        let (lowering, body) = (self.lowering, self.lowering.body);
        let index = lowering.source(index);
        match body.inst(index).op {
            Op::Const(_) => Some(Follows::Nothing),
            Op::LoopIndex(of, _) if of == self.number => Some(Follows::Index),
            Op::LoopIndex(of, _) if inner.is_some_and(|inner| inner.number == of) => {
                traced.along = true;
                Some(Follows::Nothing)
            }
            Op::Param(_) => Some(Follows::Nothing),
            // Threads are at the same iteration of a loop around this one, as a rule.
            Op::LoopIndex(of, _) if !self.inside.contains(&index) && self.is_serial(of) => {
                traced.given.push(index);
                Some(Follows::Nothing)
            }
            Op::Binary(BinaryOp::Sub, last, i) if self.is_mirrored(last, i) => Some(Follows::Backwards),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if self.inside.contains(&index) => {
                self.follows(a, inner, traced)?.with(self.follows(b, inner, traced)?)
            }
            Op::Binary(BinaryOp::Mul, a, b) if self.inside.contains(&index) => {
                let is_const = |v: ValueId| body.as_const(lowering.source(v)).is_some();
                let scales = is_const(a) || is_const(b);
                scales.then(|| self.follows(a, inner, traced)?.with(self.follows(b, inner, traced)?)).flatten()
            }
            _ => None,
        }
    }

    fn is_serial(&self, v: ValueId) -> bool {
        matches!(&self.lowering.body.inst(v).op, Op::For(l) if l.parallel.is_none())
    }

    /// `last - i` runs through the loop's indices backwards.
    fn is_mirrored(&self, last: ValueId, i: ValueId) -> bool {
        let (lowering, range) = (self.lowering, self.range);
        if lowering.body.inst(lowering.source(i)).op != Op::LoopIndex(self.number, 0) {
            return false;
        }
        let ((base, n), (of_end, m)) = (terms(lowering, last), terms(lowering, range.end));
        let (None, first) = terms(lowering, range.begin) else { return false };
        base == of_end && n == m + first - 1
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
    let v = lowering.source(v);
    match lowering.body.inst(v).op {
        Op::Const(Const::Int(n)) => (None, n),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => match (terms(lowering, a), terms(lowering, b)) {
            ((base, n), (None, m)) if op == BinaryOp::Add => (base, n.wrapping_add(m)),
            ((base, n), (None, m)) => (base, n.wrapping_sub(m)),
            ((None, n), (base, m)) if op == BinaryOp::Add => (base, n.wrapping_add(m)),
            _ => (Some(v), 0),
        },
        _ => (Some(v), 0),
    }
}

impl<'p> Lowering<'_, 'p> {
    /// Lowers a loop in order with its threads aligned, where that is of use; else nothing is done.
    pub fn align_loop(&mut self, v: ValueId, l: &'p ForLoop) -> bool {
        let is_candidate = !self.moved.is_empty() && self.gathered.is_none() && self.u.target.shares_by_stride();
        let Some(alignment) = is_candidate.then(|| find_alignment(self, v, l)).flatten() else { return false };
        let e = self.e;
        let (begin, end, s) = (self.bound(l.dims[0].begin), self.bound(l.dims[0].end), self.scalar_of(l.dims[0].begin));
        // From a number that is not negative there are fewer than 2^31 iterations.
        let is_short = s.bits() <= 32 && e.as_int(begin).is_some_and(|first| first >= 0);
        let count = if is_short { Scalar::I32 } else { Scalar::I64 };
        let ty = e.scalar(count);
        let narrow = |v: V| if is_short { e.trunc(v, ty) } else { v };
        let zero = e.zero(ty);
        let own = e.select(e.icmp(IntCmp::LLVMIntSLT, begin, end), narrow(e.sub(end, begin)), zero);
        let (together, steps) = self.agree(&alignment.given, count, own);
        let early = EarlyLoads::find(self, l.body);
        let loaded = self.load_early(&early, e.icmp(IntCmp::LLVMIntSGT, own, zero), None);

        let (head, inside, run) = (self.new_block(c"step"), self.new_block(c"step.body"), self.new_block(c"step.run"));
        let (join, exit) = (self.new_block(c"step.join"), self.new_block(c"steps.end"));
        let one = e.int(ty, 1);
        let first = if alignment.descending { e.sub_nsw(steps, one) } else { zero };
        let from = e.block();
        e.br(head);
        e.position(head);
        let step = e.phi(ty);
        e.add_incoming(step, first, from);
        let carry = |v: &V| {
            let phi = e.phi(e.type_of(*v));
            e.add_incoming(phi, *v, from);
            phi
        };
        let loaded: Vec<Vec<V>> = loaded.iter().map(|leaves| leaves.iter().map(carry).collect()).collect();
        let goes_on = match alignment.descending {
            true => e.icmp(IntCmp::LLVMIntSGE, step, zero),
            false => e.icmp(IntCmp::LLVMIntSLT, step, steps),
        };
        e.cond_br(goes_on, inside, exit);
        e.position(inside);
        let following = if alignment.descending { e.sub_nsw(step, one) } else { e.add_nsw(step, one) };
        let is_active = e.icmp(IntCmp::LLVMIntSLT, step, own);
        // A thread that waits has an index too: it may add for the others. Its end may be any number.
        let far = if is_short { e.sext(step, e.i64) } else { step };
        let index = match alignment.descending {
            // Widened by parts: the last index less this one is then seen to be the step.
            true => {
                let last = e.sub(narrow(end), one);
                let far_last = if is_short { e.sext(last, e.i64) } else { last };
                Index { narrow: self.narrowed(e.sub(last, step), s), wide: e.sub(far_last, far) }
            }
            false => Index { narrow: self.narrowed(e.add_nsw(narrow(begin), step), s), wide: e.add_nsw(begin, far) },
        };
        self.indices.insert(v, vec![index]);
        self.clear_collected(&alignment.gathered);
        e.cond_br(is_active, run, join);

        e.position(run);
        self.gathered = Some(alignment.gathered);
        self.loops.push(LoopTargets { on_break: exit, on_continue: join });
        self.block_with_early(l.body, &early, &loaded);
        self.loops.pop();
        let comes = match alignment.descending {
            true => e.icmp(IntCmp::LLVMIntSGE, following, zero),
            false => e.icmp(IntCmp::LLVMIntSLT, following, own),
        };
        let to_come = self.load_early(&early, comes, Some(&loaded));
        let gathered = self.gathered.take().expect("compiler bug: an aligned loop is open");
        let ran = e.block();
        e.br(join);

        e.position(join);
        let any = |ran_with: V, waited_with: V| {
            let phi = e.phi(e.type_of(ran_with));
            e.add_incoming(phi, ran_with, ran);
            e.add_incoming(phi, waited_with, inside);
            phi
        };
        let to_come = to_come.iter().flatten().zip(loaded.iter().flatten());
        let to_come: Vec<(V, V)> = to_come.map(|(next, held)| (*held, any(*next, *held))).collect();
        let (as_one, apart, next) = (self.new_block(c"as.one"), self.new_block(c"apart"), self.new_block(c"step.next"));
        e.cond_br(together, as_one, apart);
        e.position(as_one);
        self.add_as_one(&gathered);
        e.br(next);
        e.position(apart);
        self.add_apart(&gathered);
        e.br(next);
        e.position(next);
        self.indices.remove(&v);
        e.add_incoming(step, following, next);
        to_come.iter().for_each(|(held, next_one)| e.add_incoming(*held, *next_one, next));
        e.br(head);
        e.position(exit);
        true
    }

    /// A number as wide as a scalar.
    fn narrowed(&self, v: V, s: Scalar) -> V {
        let ty = self.e.scalar(s);
        if self.e.type_of(v) == ty { v } else { self.e.trunc(v, ty) }
    }

    /// Lets a warp's threads, which want `own` iterations each, agree: whether all are there and have the same values `given`, and how often
    /// they run.
    fn agree(&self, given: &[ValueId], count: Scalar, own: V) -> (V, V) {
        let (e, target) = (self.e, self.u.target);
        let (ask, agreed) = (self.new_block(c"agree"), self.new_block(c"agreed"));
        let whole = target.is_whole_warp(e);
        let from = e.block();
        e.cond_br(whole, ask, agreed);
        e.position(ask);
        let extreme =
            |s: Scalar, v: V, p: IntCmp| target.combine_warp(e, s, v, &|a, b| e.select(e.icmp(p, a, b), a, b));
        let most = if e.as_int(own).is_some() { own } else { extreme(count, own, IntCmp::LLVMIntSGT) };
        let mut same = e.int(e.i1, 1);
        let mut asked_for = HashSet::new();
        for v in given {
            let (s, v) = (self.scalar_of(*v), self.value(*v));
            if e.as_int(v).is_none() && asked_for.insert(v) {
                let (low, high) = (extreme(s, v, IntCmp::LLVMIntULT), extreme(s, v, IntCmp::LLVMIntUGT));
                same = e.and(same, e.icmp(IntCmp::LLVMIntEQ, low, high));
            }
        }
        let asked = e.block();
        e.br(agreed);
        e.position(agreed);
        let merge = |ty, yes, no| {
            let phi = e.phi(ty);
            e.add_incoming(phi, yes, asked);
            e.add_incoming(phi, no, from);
            phi
        };
        (merge(e.i1, same, e.int(e.i1, 0)), merge(e.scalar(count), most, own))
    }
}
