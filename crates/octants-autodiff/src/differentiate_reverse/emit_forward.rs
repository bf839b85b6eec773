//! Emits the forward sweep of a region: the needed part, in order, and the values that the reverse sweep uses. Memory
//! is not modified.

use std::collections::HashMap;

use octants_ir::{AtomicOp, BinaryOp, BlockId, Effect, ForLoop, LoopConfig, Op, Type, ValueId};

use super::emit_sweeps::Emitter;
use super::plan_sweeps::{Exit, LoopPlan, Need, exit_of};
use super::sweep_state::{Indices, Mode};
use crate::memory_use::changed_by;
use octants_analysis::{Place, trace_address};

impl Emitter<'_> {
    /// The forward sweep of a block.
    pub fn forward(&mut self, block: BlockId, need: &Need, mode: Mode) {
        self.forward_insts(block, self.source().block(block), need, mode);
    }

    /// The forward sweep of some instructions of a block.
    fn forward_insts(&mut self, block: BlockId, insts: &[ValueId], need: &Need, mode: Mode) {
        for &v in insts {
            if mode == Mode::Keep
                && let Some(plan) = self.plan.loops.get(&v)
            {
                self.take_snapshots(v, plan, block);
            }
            if need.values.contains(&v) {
                self.forward_inst(v, need, mode);
            } else if let Mode::Count(sum) = mode {
                self.count_by_extent(v, sum);
            }
        }
    }

    /// Keeps locals that the reverse sweep of a loop reads and later code of its region changes.
    fn take_snapshots(&mut self, v: ValueId, plan: &LoopPlan, block: BlockId) {
        let layout = &self.plan.layout;
        let region = layout.region(self.source(), block);
        for &l in &plan.restored {
            let later =
                |s: &ValueId| layout.position[s.index()] > layout.position[v.index()] && layout.is_inside(*s, region);
            if layout.stores[l.index()].iter().any(later) {
                let value = self.b.load_local(l);
                self.note(value);
                self.snapshots.insert((v, l), value);
            }
        }
    }

    fn forward_inst(&mut self, v: ValueId, need: &Need, mode: Mode) {
        let op = &self.source().inst(v).op;
        match op {
            op if changed_by(op).is_some_and(|a| !self.repeats_changes_of(a)) => {}
            // A variable of the sweep's own.
            Op::Atomic(AtomicOp::Add | AtomicOp::Sub, a, x) => {
                let sum = if matches!(op, Op::Atomic(AtomicOp::Add, ..)) { BinaryOp::Add } else { BinaryOp::Sub };
                let (addr, x) = (self.get(*a), self.get(*x));
                let old = self.b.load(addr);
                let new = self.b.binary(sum, old, x);
                self.b.store(addr, new);
                self.record(v, old);
            }
            Op::If(c, yes, no) => {
                let c = self.get(*c);
                self.branch(c, |e| e.forward(*yes, need, mode), |e| e.forward(*no, need, mode));
            }
            Op::For(_) | Op::Loop(_) => self.forward_loop(v, need, mode),
            op => match op.effect() {
                Effect::Pure
                | Effect::Index
                | Effect::Read(_)
                | Effect::ReadVolatile(_)
                | Effect::Draw
                | Effect::ReadClock => {
                    self.copy(v);
                }
                // The sweep's own variables.
                Effect::Write(_) | Effect::Update(_) => _ = self.copy(v),
                Effect::Exchange | Effect::Synchronize | Effect::Call(..) => _ = self.copy(v),
                Effect::Leave | Effect::Print | Effect::Assert => _ = self.copy(v),
                Effect::Reduce | Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) => {
                    panic!("compiler bug: the forward sweep has no code for {op:?}")
                }
            },
        }
    }

    /// Memory is left as it is, and so are locals that the iterations of the loop that is run backwards share.
    fn repeats_changes_of(&self, addr: ValueId) -> bool {
        match trace_address(self.source(), addr) {
            Place::Local(l) => self.iteration.as_ref().is_none_or(|i| i.private.contains(&l)),
            _ => false,
        }
    }

    fn forward_loop(&mut self, v: ValueId, need: &Need, mode: Mode) {
        let plan = self.plan.loops.get(&v).filter(|_| mode == Mode::Keep);
        let keeps = plan.is_some_and(|p| !p.kept.is_empty());
        let trips = (plan.is_some() && !self.plan.is_counted(v)).then(|| {
            let trips = self.b.body.add_local("trips", self.plan.trips_type(v).into());
            self.set(trips, 0);
            trips
        });
        if keeps {
            let stack = self.store.begin(&mut self.b, self.plan, v);
            self.stacks.insert(v, stack);
        }
        let counting = match mode {
            Mode::Count(sum) => Some((self.begin_count(v), sum)),
            _ => None,
        };
        let inner = self.b.body.add_block();
        let (op, from) = match &self.source().inst(v).op {
            Op::For(l) => {
                let mut copy = ForLoop { body: inner, ..(**l).clone() };
                copy.parallel = copy.parallel.filter(|c| !c.serialize).map(|c| LoopConfig { group: None, ..c });
                (Op::For(Box::new(copy)), l.body)
            }
            Op::Loop(from) => (Op::Loop(inner), *from),
            op => panic!("compiler bug: {op:?} is not a loop"),
        };
        let copy = self.push_loop(op);
        self.indices.insert(v, Indices::Of(copy));
        self.scopes.push(HashMap::new());
        self.within(inner, |e| {
            if keeps {
                let stack = e.stacks[&v].clone();
                e.store.push(&mut e.b, &stack);
            }
            if let Some(trips) = trips {
                e.b.update_local(trips, |b, n| {
                    let one = b.int(1, e.plan.trips_type(v));
                    b.binary(BinaryOp::Add, n, one)
                });
            }
            // The count is complete before the loop may exit.
            let insts = e.source().block(from);
            let (run, exit) = insts.split_at(insts.len() - usize::from(exit_of(e.source(), from) != Exit::Never));
            match counting {
                Some((largest, sum)) => e.count_iteration(v, from, largest, sum, |e, sum| {
                    e.forward_insts(from, run, need, Mode::Count(sum));
                }),
                None => e.forward_insts(from, run, need, Mode::Pass),
            }
            e.forward_insts(from, exit, need, Mode::Pass);
        });
        self.scopes.pop();
        if let Some((largest, sum)) = counting {
            self.end_count(v, largest, sum);
        }
        if let Some(trips) = trips {
            let count = self.b.load_local(trips);
            self.note(count);
            self.trips.insert(v, count);
        }
    }

    /// Appends a loop of the source with another body.
    pub fn push_loop(&mut self, mut op: Op) -> ValueId {
        op.map_operands(|u| self.get(u));
        self.b.push(op, Type::Unit)
    }
}
