//! Plans the sweeps of every loop body that is reversed: the values that the reverse sweep reads, the state that must
//! be kept per iteration to recompute them, and the state that must be restored to the start of the loop.
//!
//! A region is the root, or the body of a loop. Its forward sweep and its reverse sweep are in one block, so the
//! reverse sweep uses values of the forward sweep. Loops in a region are separate regions. The forward sweep of the
//! outer region runs them for the code after them, and keeps the state at the start of their iterations. Its reverse
//! sweep runs their bodies again, one iteration at a time from the last. Memory therefore grows with the sum of the
//! trip counts of nested loops rather than with their product, at the cost of one more forward sweep per level.
//!
//! Only what the reverse sweep reads is kept. This excludes a sum that the loop does not read, what an iteration sets
//! before reading, and what the loop does not change.

use std::collections::{BTreeSet, HashMap, HashSet};

use octants_diag::{Code, Diagnostic};
use octants_ir::{BlockId, Body, Derivative, Effect, ForLoop, LocalId, Op, Range, Scalar, Type, ValueId, task_blocks};

use super::find_active_values::Activity;
use super::find_active_values::is_extreme;
use super::needed_operands::needed_operands;
use crate::memory_use::{MemoryUse, memory_use};
use octants_analysis::{CodeLayout, Place, first_use_sets, known_int, locals_of_all_iterations, trace_address};

/// The values that a sweep computes.
#[derive(Debug, Default, Clone)]
pub(super) struct Need {
    /// Instructions of the region.
    pub values: HashSet<ValueId>,
    /// Those of them whose results are read. The others run for the locals that they change, or for their nested
    /// instructions.
    pub read: HashSet<ValueId>,
    /// Locals whose values in the region are read.
    pub locals: BTreeSet<LocalId>,
    /// Values from outside of the region.
    pub outer: BTreeSet<ValueId>,
}

/// How a loop is run backwards.
#[derive(Debug, Default)]
pub(super) struct LoopPlan {
    /// The values that the sweeps of its body compute.
    pub need: Need,
    /// Locals whose values at the start of each iteration are kept.
    pub kept: Vec<LocalId>,
    /// Locals that must be what they were at the start of the loop.
    pub restored: Vec<LocalId>,
}

/// The plan of a body.
pub(super) struct Plan<'a> {
    pub body: &'a Body,
    pub activity: &'a Activity,
    pub layout: CodeLayout,
    /// Blocks whose statements are tasks: the root, and rounds with parallel loops.
    pub tasks: Vec<BlockId>,
    /// The values that the sweeps of the root compute.
    pub root: Need,
    /// The plans of the loops that are run backwards.
    pub loops: HashMap<ValueId, LoopPlan>,
}

/// How a loop can end other than by its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Exit {
    /// It does not.
    Never,
    /// By this branch at the end of its body.
    If(ValueId),
    /// After one iteration, by this `break` at the end of its body.
    Always(ValueId),
}

/// How a loop whose exits are structured ends.
pub(super) fn exit_of(body: &Body, inner: BlockId) -> Exit {
    match body.block(inner).last() {
        Some(&v) => match body.inst(v).op {
            Op::Break => Exit::Always(v),
            Op::If(_, yes, no) => {
                let breaks = |b| body.block(b).iter().any(|u| body.inst(*u).op == Op::Break);
                if breaks(yes) || breaks(no) { Exit::If(v) } else { Exit::Never }
            }
            _ => Exit::Never,
        },
        None => Exit::Never,
    }
}

impl<'a> Plan<'a> {
    /// Plans the sweeps of a body.
    pub fn of(body: &'a Body, activity: &'a Activity) -> Plan<'a> {
        let (layout, tasks) = (CodeLayout::of(body), task_blocks(body));
        let mut plan = Plan { body, activity, layout, tasks, root: Need::default(), loops: HashMap::new() };
        plan.root = plan.need_of(body.root);
        plan
    }

    /// The loop is parallel: its iterations have no order, and nothing is kept from one to the next.
    pub fn is_parallel(&self, v: ValueId) -> bool {
        matches!(&self.body.inst(v).op, Op::For(l) if l.is_parallel())
    }

    /// The statements of all blocks of tasks.
    pub fn statements(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.tasks.iter().flat_map(|b| self.body.block(*b).iter().copied())
    }

    /// The gradient runs a loop, forward or backward, or reads a value again.
    pub fn runs_again(&self, v: ValueId) -> bool {
        let in_need = |n: &Need| n.values.contains(&v);
        self.loops.contains_key(&v) || in_need(&self.root) || self.loops.values().any(|p| in_need(&p.need))
    }

    /// The bounds alone determine the trip count of the loop.
    pub fn is_counted(&self, v: ValueId) -> bool {
        match &self.body.inst(v).op {
            Op::For(l) => exit_of(self.body, l.body) == Exit::Never,
            _ => false,
        }
    }

    /// The type of the iteration counter of a loop with an early exit. Loops with several axes, whose indices are
    /// computed by division, must exit before the 2^31st iteration.
    pub fn trips_type(&self, v: ValueId) -> Scalar {
        let is_short = |r: &Range| self.body.ty(r.begin).scalar().is_some_and(|s| s.bits() <= 32);
        match &self.body.inst(v).op {
            Op::For(l) => match l.dims[..] {
                [range] if !is_short(&range) || known_int(self.body, range.begin).is_none_or(|n| n < 0) => Scalar::I64,
                _ => Scalar::I32,
            },
            _ => Scalar::I64,
        }
    }

    /// Computes what the sweeps of a region need, and plans the loops in it.
    fn need_of(&mut self, region: BlockId) -> Need {
        let mut seeds = Vec::new();
        self.find_seeds(region, &mut seeds);
        close(self.body, &self.layout, region, seeds)
    }

    fn plan_loop(&mut self, v: ValueId, inner: BlockId) {
        let need = self.need_of(inner);
        let parallel = self.is_parallel(v);
        let (mut kept, mut restored) = (Vec::new(), Vec::new());
        for &l in &need.locals {
            let sets_first = sets_before_use(self.body, self.body.block(inner), l) == Some(true);
            let changes = self.layout.stores[l.index()].iter().any(|s| self.layout.is_inside(*s, inner));
            if sets_first {
                continue;
            }
            if changes && !parallel {
                kept.push(l);
            } else if !parallel || self.is_used_outside(l, inner) {
                restored.push(l);
            }
        }
        self.loops.insert(v, LoopPlan { need, kept, restored });
    }

    /// Rejects operations that a sweep would have to recompute and cannot. Some loads are known to read memory that is
    /// `overwritten` immediately.
    pub fn refuse_unrepeatable(&self, overwritten: &HashSet<ValueId>) -> Result<(), Box<Diagnostic>> {
        self.refuse_in(&self.root, overwritten)?;
        let mut loops: Vec<_> = self.loops.iter().collect();
        loops.sort_by_key(|(v, _)| self.layout.position[v.index()]);
        loops.into_iter().try_for_each(|(_, p)| self.refuse_in(&p.need, overwritten))
    }

    /// Rejects operations that a sweep with these needs cannot recompute.
    pub fn refuse_in(&self, need: &Need, overwritten: &HashSet<ValueId>) -> Result<(), Box<Diagnostic>> {
        const GONE: (&str, &str) = (
            "a value in memory that an atomic operation overwrote",
            "accumulate in a local variable instead (`s = 0.0`), whose values are kept, and store the result to \
             memory",
        );
        let mut values: Vec<ValueId> = need.values.iter().copied().collect();
        values.sort_by_key(|v| self.layout.position[v.index()]);
        for v in values {
            let inst = self.body.inst(v);
            let in_buffer = |a: ValueId| matches!(trace_address(self.body, a), Place::Buffer(_));
            let (what, hint) = match memory_use(&inst.op) {
                MemoryUse::Load(_) if overwritten.contains(&v) => GONE,
                MemoryUse::Update { address, .. } if self.activity.value(v) && in_buffer(address) => GONE,
                MemoryUse::Update { address, .. } | MemoryUse::CompareAndSwap { address, .. } if in_buffer(address) => {
                    (
                        "the return value of an atomic operation on memory",
                        "write it to a field, and read the field in a separate kernel that is differentiated",
                    )
                }
                MemoryUse::Update { address, .. } | MemoryUse::CompareAndSwap { address, .. }
                    if need.read.contains(&v) && self.is_shared(v, address) =>
                {
                    (
                        "the return value of an atomic operation on a variable that iterations share",
                        "write it to a field, and read the field in a separate kernel that is differentiated",
                    )
                }
                MemoryUse::Nothing if inst.op.effect() == Effect::Draw => (
                    "a random number (RandStmt not supported)",
                    "draw it in a separate kernel, store it in a field, and read it from there",
                ),
                MemoryUse::Nothing if inst.op.effect() == Effect::ReadClock => {
                    ("the clock", "read it in a separate kernel, and pass the value through a field")
                }
                MemoryUse::Load(_) | MemoryUse::VolatileLoad(_) | MemoryUse::Store { .. } => continue,
                MemoryUse::Update { .. } | MemoryUse::CompareAndSwap { .. } | MemoryUse::Nothing => continue,
            };
            let message = format!("the gradient depends on {what}, which cannot be recomputed");
            return Err(Diagnostic::new(Code::Derivative, inst.span, message).with_hint(hint));
        }
        Ok(())
    }

    /// Whether iterations of the parallel loop around an instruction share the local at an address.
    fn is_shared(&self, v: ValueId, addr: ValueId) -> bool {
        let Place::Local(l) = trace_address(self.body, addr) else { return false };
        let around = |p: &&ValueId| {
            self.is_parallel(**p) && self.body.inst(**p).op.blocks().iter().any(|b| self.layout.is_inside(v, *b))
        };
        let parallel = self.statements().find(|p| around(&p));
        parallel.is_some_and(|p| locals_of_all_iterations(self.body, p).contains(&l))
    }

    fn is_used_outside(&self, l: LocalId, block: BlockId) -> bool {
        self.layout.stores[l.index()].iter().any(|s| !self.layout.is_inside(*s, block))
    }

    fn find_seeds(&mut self, block: BlockId, seeds: &mut Vec<Seed>) {
        let body = self.body;
        for &v in body.block(block) {
            if !self.activity.works(v) {
                continue;
            }
            let inst = body.inst(v);
            match inst.op.effect() {
                Effect::Branch(yes, no) => {
                    inst.op.for_each_operand(|c| seeds.push(Seed::Value(c)));
                    self.find_seeds(yes, seeds);
                    self.find_seeds(no, seeds);
                }
                Effect::For(&ForLoop { body: inner, .. }) | Effect::Loop(inner) => {
                    self.plan_loop(v, inner);
                    let plan = &self.loops[&v];
                    inst.op.for_each_operand(|u| seeds.push(Seed::Value(u)));
                    seeds.extend(plan.need.outer.iter().map(|u| Seed::Value(*u)));
                    seeds.extend(plan.kept.iter().chain(&plan.restored).map(|l| Seed::Local(*l)));
                    if !plan.kept.is_empty() || !self.is_counted(v) {
                        seeds.push(Seed::Value(v));
                    }
                }
                Effect::Read(a) | Effect::Write(a) | Effect::Update(a) => {
                    push_indices(body, a, seeds);
                    if let MemoryUse::Update { op, operand, .. } = memory_use(&inst.op)
                        && is_extreme(op)
                    {
                        seeds.push(Seed::Value(operand));
                    }
                }
                Effect::Pure | Effect::Exchange if inst.op.derivative() == Derivative::Rule => {
                    needed_operands(&inst.op, |u| self.activity.value(u), |u| seeds.push(Seed::Value(u)));
                }
                Effect::Pure | Effect::Index | Effect::ReadVolatile(_) | Effect::Reduce | Effect::Draw => {}
                Effect::ReadClock | Effect::Exchange | Effect::Synchronize | Effect::Leave | Effect::Call(..) => {}
                Effect::Print | Effect::Assert => {}
            }
        }
    }
}

/// The initial needs of a sweep.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seed {
    Value(ValueId),
    Local(LocalId),
}

/// Whether statements set all of a local before they use it: by their first use, or in branches and loops that contain
/// all uses. `None` if they do not use it.
fn sets_before_use(body: &Body, statements: &[ValueId], l: LocalId) -> Option<bool> {
    let use_of = |v: &ValueId| first_use_sets(body, std::slice::from_ref(v), l);
    let first = statements.iter().position(|v| use_of(v).is_some())?;
    let blocks = body.inst(statements[first]).op.blocks();
    if blocks.is_empty() {
        return use_of(&statements[first]);
    }
    let is_used_later = statements[first + 1..].iter().any(|v| use_of(v).is_some());
    Some(!is_used_later && blocks.into_iter().all(|b| sets_before_use(body, body.block(b), l) != Some(false)))
}

/// The indices on the way of an address.
fn push_indices(body: &Body, addr: ValueId, seeds: &mut Vec<Seed>) {
    match &body.inst(addr).op {
        Op::ElementAddr(base, indices) => {
            seeds.extend(indices.iter().map(|i| Seed::Value(*i)));
            push_indices(body, *base, seeds);
        }
        Op::MemberAddr(base, _) => push_indices(body, *base, seeds),
        Op::BufferAddr(_, indices) => seeds.extend(indices.iter().map(|i| Seed::Value(*i))),
        _ => {}
    }
}

/// All that a region must run so that the seeds have their values.
pub(super) fn close(body: &Body, layout: &CodeLayout, region: BlockId, seeds: Vec<Seed>) -> Need {
    let mut closure = Closure { body, layout, region, need: Need::default(), work: Vec::new() };
    for seed in seeds {
        match seed {
            Seed::Value(v) => closure.value(v),
            Seed::Local(l) => closure.local(l),
        }
    }
    while let Some(v) = closure.work.pop() {
        closure.inst(v);
    }
    closure.need
}

struct Closure<'a> {
    body: &'a Body,
    layout: &'a CodeLayout,
    region: BlockId,
    need: Need,
    work: Vec<ValueId>,
}

impl Closure<'_> {
    fn value(&mut self, v: ValueId) {
        if !self.layout.is_inside(v, self.region) {
            self.need.outer.insert(v);
            // An address is recomputed at each use, so its operands must be available.
            if matches!(self.body.ty(v), Type::Ref(_)) {
                self.body.inst(v).op.for_each_operand(|u| self.value(u));
                if let Op::LocalAddr(l) = self.body.inst(v).op {
                    self.local(l);
                }
            }
            return;
        }
        self.need.read.insert(v);
        self.run(v);
    }

    fn run(&mut self, v: ValueId) {
        if self.need.values.insert(v) {
            self.work.push(v);
        }
    }

    fn local(&mut self, l: LocalId) {
        if self.need.locals.insert(l) {
            for &s in &self.layout.stores[l.index()] {
                if self.layout.is_inside(s, self.region) {
                    self.run(s);
                }
            }
        }
    }

    fn inst(&mut self, v: ValueId) {
        let op = &self.body.inst(v).op;
        match op {
            Op::LoopIndex(..) => {}
            op => op.for_each_operand(|u| self.value(u)),
        }
        match op.effect() {
            Effect::Read(a) | Effect::Update(a) => {
                if let Place::Local(l) = trace_address(self.body, a) {
                    self.local(l);
                }
            }
            Effect::For(&ForLoop { body: inner, .. }) | Effect::Loop(inner) => {
                if let Some(guard) = self.guard_of(v) {
                    self.run(guard);
                }
                if let Exit::If(exit) | Exit::Always(exit) = exit_of(self.body, inner) {
                    self.value(exit);
                }
            }
            Effect::Branch(yes, no) => {
                let exits = [yes, no].into_iter().flat_map(|b| self.body.block(b));
                exits.filter(|u| self.body.inst(**u).op == Op::Break).for_each(|u| self.value(*u));
            }
            Effect::Pure | Effect::Index | Effect::ReadVolatile(_) | Effect::Write(_) | Effect::Reduce => {}
            Effect::Draw | Effect::ReadClock | Effect::Exchange | Effect::Synchronize => {}
            Effect::Leave | Effect::Call(..) => {}
            Effect::Print | Effect::Assert => {}
        }
        self.run_around(v);
    }

    /// The assertion directly in front of a loop: `promote_counters` adds one that keeps the loop from running forever.
    fn guard_of(&self, v: ValueId) -> Option<ValueId> {
        let block = self.body.block(self.layout.home[v.index()]);
        let at = block.iter().position(|u| *u == v)?;
        let changes = |u: &&ValueId| !matches!(self.body.inst(**u).op.effect(), Effect::Pure | Effect::Read(_));
        let before = *block[..at].iter().rev().find(changes)?;
        matches!(self.body.inst(before).op, Op::Assert(..)).then_some(before)
    }

    /// Code in a branch or loop needs that branch or loop.
    fn run_around(&mut self, v: ValueId) {
        if let Some(owner) = self.layout.around(v)
            && self.layout.is_inside(owner, self.region)
        {
            self.value(owner);
        }
    }
}
