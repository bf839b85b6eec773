//! Loops in the reverse sweep. Parallel loops have both sweeps of an iteration in their bodies. Others run from the
//! last iteration to the first, each recomputed from the state that was kept at its start.

use std::collections::{HashMap, HashSet};

use octants_ir::{
    BinaryOp, BlockId, BufferId, ForLoop, Layout, LocalId, LoopConfig, LoopGroup, Op, Range, Scalar, Type, ValueId,
};

use super::balance_lanes::{Turns, lengths_of};
use super::emit_sweeps::Emitter;
use super::keep_states::{uses_store, uses_store_within};
use super::sweep_state::{Indices, Iteration, Mode};
use octants_analysis::{MemoryClasses, for_each_element, locals_of_all_iterations, touched_at_own_indices};

/// The user's loop settings, for the reversed loop. Its group belongs to a region of the adjoint:
/// `join_conflicting_groups` ensures that these groups may run concurrently.
fn in_adjoint(config: Option<&LoopConfig>) -> Option<LoopConfig> {
    let reversed = |g: LoopGroup| LoopGroup { region: Some(g.region.unwrap_or(u32::MAX)), ..g };
    config.map(|c| LoopConfig { group: c.group.map(reversed), ..c.clone() })
}

impl<'a> Emitter<'a> {
    fn restore(&mut self, v: ValueId) {
        for &l in &self.plan.loops[&v].restored {
            if let Some(value) = self.snapshots.get(&(v, l)).copied() {
                let value = self.carry(value);
                self.b.store_local(l, value);
            }
        }
    }

    pub(super) fn reverse_parallel(&mut self, v: ValueId) {
        self.restore(v);
        let source = self.source();
        let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: a parallel loop that is not a `for`") };
        let shared = locals_of_all_iterations(source, v);
        let private = (0..source.locals.len() as u32).map(LocalId).filter(|l| !shared.contains(l)).collect();
        if uses_store_within(self.plan, l.body) {
            return self.reverse_in_lanes(v, l, private);
        }
        let inner = self.b.body.add_block();
        let parallel = in_adjoint(l.parallel.as_ref());
        let copy = self.push_loop(Op::For(Box::new(ForLoop { body: inner, parallel, ..(**l).clone() })));
        self.indices.insert(v, Indices::Of(copy));
        self.within(inner, |e| e.run_iteration(v, l.body, private));
    }

    fn run_iteration(&mut self, v: ValueId, from: BlockId, private: HashSet<LocalId>) {
        let start = self.mark();
        let own = self.own_buffers(v, from);
        self.iteration = Some(Iteration { private, own, adjoints: HashMap::new(), start });
        self.body(v, from);
        self.iteration = None;
    }

    /// The fields that a parallel loop touches only at its own indices, in the same order: only one iteration adds to
    /// each element of their gradients. Excludes fields that share memory. Arrays may alias, which the pass
    /// `demote_shadow_atomics` takes into account.
    fn own_buffers(&self, v: ValueId, from: BlockId) -> HashSet<BufferId> {
        let source = self.source();
        // A kernel may use a gradient like any other memory.
        let mut used = HashSet::new();
        for_each_element(source, from, &mut |b, _| _ = used.insert(b));
        let memory = MemoryClasses::of(self.buffers, true);
        let is_alone = |g: BufferId| {
            let mut others = (0..self.buffers.len()).filter(|i| *i != g.index());
            !others.any(|other| memory.may_alias(g.index(), other))
        };
        let own = |b: BufferId| {
            let is_field = matches!(self.buffers[b.index()].layout, Layout::Dense { .. });
            let gradient = self.gradients[b.index()];
            is_field && gradient.is_some_and(|g| !used.contains(&g) && is_alone(g))
        };
        touched_at_own_indices(source, v).into_iter().filter(|b| own(*b)).collect()
    }

    /// A parallel loop over lanes, each of which has a part of the store and runs its share of the iterations in order.
    fn reverse_in_lanes(&mut self, v: ValueId, l: &ForLoop, private: HashSet<LocalId>) {
        let args = self.store.args();
        let dims: Vec<Range> =
            l.dims.iter().map(|r| Range { begin: self.get(r.begin), end: self.get(r.end) }).collect();
        let n = self.extent(&l.dims);
        let (zero, one) = (self.b.int(0, Scalar::I64), self.b.int(1, Scalar::I64));
        let lanes = args.lanes(&mut self.b);
        let (sum, index) = (self.b.binary(BinaryOp::Add, n, lanes), Scalar::I64);
        let sum = self.b.binary(BinaryOp::Sub, sum, one);
        let share = self.b.binary(BinaryOp::Div, sum, lanes);
        let outer = self.b.body.add_block();
        let range = vec![Range { begin: zero, end: lanes }];
        let parallel = ForLoop { parallel: in_adjoint(l.parallel.as_ref()), ..ForLoop::serial(range, outer) };
        let over_lanes = self.b.push(Op::For(Box::new(parallel)), Type::Unit);
        self.within(outer, |e| {
            let lane = e.b.push(Op::LoopIndex(over_lanes, 0), index.into());
            let neighbors = args.neighbors(&mut e.b);
            let first = e.b.binary(BinaryOp::Mul, lane, share);
            let first = e.b.push(Op::Select(neighbors, first, lane), index.into());
            let step = e.b.push(Op::Select(neighbors, one, lanes), index.into());
            let outside = e.store.begin_lane(&mut e.b, lane);
            let run = |e: &mut Self, linear: ValueId| {
                let inside = e.b.binary(BinaryOp::Lt, linear, n);
                let run = |e: &mut Self| {
                    let indices = e.spread(linear, &dims);
                    e.indices.insert(v, Indices::Are(indices));
                    e.run_iteration(v, l.body, private);
                };
                e.branch(inside, run, |_| ());
            };
            let turns = Turns { first, step, lanes, share, n };
            match lengths_of(e.plan, l) {
                Some(lengths) => e.balanced_turns((v, l), &dims, &turns, &lengths, run),
                None => e.each(share, |e, turn| {
                    let own = turns.own(&mut e.b, turn);
                    run(e, own);
                }),
            }
            e.store = outside;
        });
    }

    /// Both sweeps of the body of a loop.
    fn body(&mut self, v: ValueId, from: BlockId) {
        self.scopes.push(HashMap::new());
        self.forward(from, &self.plan.loops[&v].need, Mode::Keep);
        self.reverse(from);
        self.scopes.pop();
    }

    pub(super) fn reverse_loop(&mut self, v: ValueId) {
        self.restore(v);
        let source = self.source();
        let inner = self.b.body.add_block();
        let counted = self.plan.is_counted(v);
        let span = source.inst(v).span;
        let (dims, from) = match &source.inst(v).op {
            Op::For(l) => {
                let map = |e: &mut Self, r: &Range| Range { begin: e.get(r.begin), end: e.get(r.end) };
                let dims: Vec<Range> = l.dims.iter().map(|r| map(self, r)).collect();
                (dims, l.body)
            }
            Op::Loop(from) if self.plan.tasks.contains(from) => return self.reverse_rounds(v, *from),
            Op::Loop(from) => (Vec::new(), *from),
            op => panic!("compiler bug: {op:?} is not a loop"),
        };
        self.b.span = span;
        let run = if counted {
            dims.clone()
        } else {
            let trips = self.carry(self.trips[&v]);
            vec![Range { begin: self.b.int(0, self.plan.trips_type(v)), end: trips }]
        };
        if uses_store(self.plan, v) {
            self.store.settle(&mut self.b, self.plan);
        }
        self.begin_deferring(v);
        let backwards = ForLoop::serial(run.clone(), inner);
        let copy = self.b.push(Op::For(Box::new(backwards)), Type::Unit);
        self.within(inner, |e| {
            let indices = if counted { e.mirrored(copy, &run) } else { e.delinearized(copy, run[0].end, &dims) };
            e.indices.insert(v, Indices::Are(indices));
            if let Some(stack) = e.stacks.get(&v).cloned() {
                e.store.pop(&mut e.b, &stack);
            }
            e.body(v, from);
        });
        self.end_deferring(v);
    }

    /// A loop whose iterations are tasks. The reversed loop has tasks too, and runs from the last iteration to the
    /// first. There is at least one iteration.
    fn reverse_rounds(&mut self, v: ValueId, from: BlockId) {
        self.b.span = self.source().inst(v).span;
        let trips = self.carry(self.trips[&v]);
        let left = self.b.body.add_local("rounds left", Scalar::I64.into());
        self.b.store_local(left, trips);
        if uses_store(self.plan, v) {
            self.store.settle(&mut self.b, self.plan);
        }
        let inner = self.b.body.add_block();
        self.b.push(Op::Loop(inner), Type::Unit);
        self.within(inner, |e| {
            let one = e.b.int(1, Scalar::I64);
            e.b.update_local(left, |b, n| b.binary(BinaryOp::Sub, n, one));
            e.indices.insert(v, Indices::Are(Vec::new()));
            if let Some(stack) = e.stacks.get(&v).cloned() {
                e.store.pop(&mut e.b, &stack);
            }
            e.body(v, from);
            let (n, zero) = (e.b.load_local(left), e.b.int(0, Scalar::I64));
            let again = e.b.binary(BinaryOp::Gt, n, zero);
            let [go_on, stop] = [e.b.body.add_block(), e.b.body.add_block()];
            let back = e.b.set_cursor(stop);
            e.b.push(Op::Break, Type::Unit);
            e.b.set_cursor(back);
            e.b.push(Op::If(again, go_on, stop), Type::Unit);
        });
    }

    /// The indices of a loop counted from its end: `begin + (last - index)`. The sum of both bounds may overflow their
    /// type; the remaining length of a range does not.
    fn mirrored(&mut self, copy: ValueId, dims: &[Range]) -> Vec<ValueId> {
        let mut out = Vec::new();
        for (axis, r) in dims.iter().enumerate() {
            let ty = self.b.ty(r.begin).clone();
            let s = ty.scalar().expect("compiler bug: a bound is not a scalar");
            let one = self.b.int(1, s);
            let last = self.b.binary(BinaryOp::Sub, r.end, one);
            let index = self.b.push(Op::LoopIndex(copy, axis as u32), ty);
            let left = self.b.binary(BinaryOp::Sub, last, index);
            let index = self.b.binary(BinaryOp::Add, r.begin, left);
            self.note(index);
            out.push(index);
        }
        out
    }

    /// The indices of a loop that was left after some iterations, counted from there.
    fn delinearized(&mut self, copy: ValueId, trips: ValueId, dims: &[Range]) -> Vec<ValueId> {
        let ty = self.b.ty(trips).clone();
        let one = self.b.int(1, ty.scalar().expect("compiler bug: a trip count that is not a scalar"));
        let index = self.b.push(Op::LoopIndex(copy, 0), ty);
        let last = self.b.binary(BinaryOp::Sub, trips, one);
        let linear = self.b.binary(BinaryOp::Sub, last, index);
        self.spread(linear, dims)
    }

    /// The indices of an iteration by its number.
    pub(super) fn spread(&mut self, linear: ValueId, dims: &[Range]) -> Vec<ValueId> {
        let mut out = vec![linear; dims.len()];
        let mut rest = linear;
        for (axis, r) in dims.iter().enumerate().rev() {
            let s = self.b.ty(r.begin).scalar().expect("compiler bug: a bound is not a scalar");
            let mut at = rest;
            if axis > 0 {
                let number = self.b.ty(rest).scalar().expect("compiler bug: an iteration number that is not a scalar");
                let [begin, end] = [r.begin, r.end].map(|v| self.b.cast(v, number));
                let extent = self.b.binary(BinaryOp::Sub, end, begin);
                at = self.b.binary(BinaryOp::Rem, rest, extent);
                rest = self.b.binary(BinaryOp::Div, rest, extent);
            }
            let at = self.b.cast(at, s);
            out[axis] = self.b.binary(BinaryOp::Add, r.begin, at);
            self.note(out[axis]);
        }
        out
    }
}
