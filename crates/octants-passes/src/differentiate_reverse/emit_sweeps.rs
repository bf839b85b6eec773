//! Builds the forward and the reverse sweep of a body as its plan says.
//!
//! A value of the source has a copy in the sweep of its region. Where a copy is needed beyond the block that it stands in (a branch
//! of the reverse sweep reads what the same branch of the forward sweep has computed), it goes through a local. Addresses and
//! constants are made anew where they are used.
//!
//! The adjoint of a value is summed up as a value as long as its contributions come from the block in which its definition is
//! reversed, and in a local where they come from blocks within. Locals have adjoint locals, buffers their gradients. Where
//! iterations of a parallel loop share what they add to, they add atomically.

use std::collections::{HashMap, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Builder, Const, ForLoop, LocalId, Op, Scalar, Type, UnaryOp,
    ValueId,
};

use super::defer_updates::Deferred;
use super::keep_states::{Stack, Store};
use super::plan_sweeps::{Exit, LoopPlan, Need, Plan, exit_of};
use super::reverse_extremes::is_extreme;
use crate::derivative_rules::{Kind, Part, has_derivative, kind_of, pull_back, whole, zero};
use crate::trace_address::{Place, trace_address};

/// Whether a forward sweep keeps what the reverse sweep of its region will ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// It does.
    Keep,
    /// It does not.
    Pass,
    /// It counts what would be kept, into these locals.
    Count([LocalId; 2]),
}

/// How the indices of a loop of the source are had.
#[derive(Debug, Clone)]
pub(super) enum Indices {
    /// From a loop with the same bounds.
    Of(ValueId),
    /// As these values.
    Are(Vec<ValueId>),
}

/// Where the adjoint of a value is summed up.
#[derive(Debug, Clone, Copy, Default)]
struct Adjoint {
    value: Option<ValueId>,
    local: Option<LocalId>,
}

/// An iteration of a parallel loop.
pub(super) struct Iteration {
    /// Locals of the source that are its own.
    pub private: HashSet<LocalId>,
    /// Buffers of which no other iteration touches the same elements.
    pub own: HashSet<BufferId>,
    pub adjoints: HashMap<LocalId, LocalId>,
    pub block: BlockId,
    /// Instruction behind which its adjoints are set to zero.
    pub anchor: ValueId,
}

/// Builds the sweeps.
pub(super) struct Emitter<'a> {
    pub plan: &'a Plan<'a>,
    pub(super) gradients: &'a [Option<BufferId>],
    pub(super) buffers: &'a [Buffer],
    pub b: Builder,
    /// Blocks around the cursor, outermost first.
    open: Vec<BlockId>,
    /// Copies of the source's values, by region and loop, innermost last.
    pub(super) scopes: Vec<HashMap<ValueId, ValueId>>,
    /// Block of each copy.
    pub(super) home: HashMap<ValueId, BlockId>,
    /// Locals that carry copies to other blocks.
    carriers: HashMap<ValueId, LocalId>,
    pub(super) indices: HashMap<ValueId, Indices>,
    adjoints: HashMap<ValueId, Adjoint>,
    adjoint_locals: HashMap<LocalId, LocalId>,
    /// For each block of the source where its reverse sweep stands, and the instruction that it begins with.
    reversed: HashMap<BlockId, (BlockId, ValueId)>,
    pub(super) iteration: Option<Iteration>,
    /// Of loops that are being run backwards.
    pub(super) deferred: HashMap<ValueId, Deferred>,
    /// Numbers of iterations that loops have run, where their bounds do not tell.
    pub(super) trips: HashMap<ValueId, ValueId>,
    pub(super) snapshots: HashMap<(ValueId, LocalId), ValueId>,
    pub(super) stacks: HashMap<ValueId, Stack>,
    pub(super) store: Store,
    /// When counting: iterations and words of a lane.
    pub totals: Option<[LocalId; 3]>,
}

impl<'a> Emitter<'a> {
    pub fn new(
        plan: &'a Plan<'a>,
        gradients: &'a [Option<BufferId>],
        buffers: &'a [Buffer],
        store: Store,
    ) -> Emitter<'a> {
        let mut b = Builder::new();
        b.body.locals = plan.body.locals.clone();
        let root = b.body.root;
        Emitter {
            plan,
            gradients,
            buffers,
            b,
            open: vec![root],
            scopes: vec![HashMap::new()],
            home: HashMap::new(),
            carriers: HashMap::new(),
            indices: HashMap::new(),
            adjoints: HashMap::new(),
            adjoint_locals: HashMap::new(),
            reversed: HashMap::new(),
            iteration: None,
            deferred: HashMap::new(),
            trips: HashMap::new(),
            snapshots: HashMap::new(),
            stacks: HashMap::new(),
            store,
            totals: None,
        }
    }

    /// Both sweeps of the whole body.
    pub fn root(mut self) -> Body {
        self.store.begin_root(&mut self.b);
        self.forward(self.plan.body.root, &self.plan.root, Mode::Keep);
        self.reverse(self.plan.body.root);
        self.b.body
    }

    pub(super) fn source(&self) -> &'a Body {
        self.plan.body
    }

    // Blocks.

    /// Runs `f` with the cursor in a new block.
    pub(super) fn within<T>(&mut self, block: BlockId, f: impl FnOnce(&mut Self) -> T) -> T {
        let back = self.b.set_cursor(block);
        self.open.push(block);
        let result = f(self);
        self.open.pop();
        self.b.set_cursor(back);
        result
    }

    /// Puts code behind an instruction that stands in a block.
    fn insert_behind(&mut self, block: BlockId, anchor: ValueId, f: impl FnOnce(&mut Builder)) {
        let aside = self.b.body.add_block();
        let back = self.b.set_cursor(aside);
        f(&mut self.b);
        self.b.set_cursor(back);
        let code = std::mem::take(&mut self.b.body.blocks[aside.index()]);
        let list = &mut self.b.body.blocks[block.index()];
        let at = list.iter().position(|v| *v == anchor).expect("compiler bug: an anchor left its block");
        list.splice(at + 1..at + 1, code);
    }

    pub(super) fn zero_behind(&mut self, block: BlockId, anchor: ValueId, local: LocalId) {
        self.insert_behind(block, anchor, |b| {
            let ty = b.body.locals[local.index()].ty.clone();
            let (addr, zero) = (b.local_addr(local), zero(b, &ty));
            b.store(addr, zero);
        });
    }

    /// An instruction without meaning that marks a place.
    pub(super) fn anchor(&mut self) -> ValueId {
        self.b.int(0, Scalar::I32)
    }

    // Values.

    fn lookup(&self, v: ValueId) -> Option<ValueId> {
        self.scopes.iter().rev().find_map(|s| s.get(&v)).copied()
    }

    fn record(&mut self, v: ValueId, copy: ValueId) {
        self.home.insert(copy, self.b.cursor());
        self.scopes.last_mut().expect("compiler bug: no scope").insert(v, copy);
    }

    /// The copy of a value of the source, usable here.
    pub fn get(&mut self, v: ValueId) -> ValueId {
        if let Some(copy) = self.lookup(v) {
            if self.open.contains(&self.home[&copy]) {
                return copy;
            }
            if !is_made_anew(&self.source().inst(v).op) {
                return self.carry(copy);
            }
        }
        if !is_made_anew(&self.source().inst(v).op) {
            panic!("compiler bug: {v} is used in a sweep that does not compute it\n{}", self.source());
        }
        self.copy(v)
    }

    /// A copy made in a block that has ended, or in one around, usable here.
    pub(super) fn carry(&mut self, copy: ValueId) -> ValueId {
        let block = self.home[&copy];
        if self.open.contains(&block) {
            return copy;
        }
        let local = match self.carriers.get(&copy) {
            Some(local) => *local,
            None => {
                let local = self.b.body.add_local("carried", self.b.ty(copy).clone());
                self.insert_behind(block, copy, |b| {
                    let addr = b.local_addr(local);
                    b.store(addr, copy);
                });
                self.carriers.insert(copy, local);
                local
            }
        };
        let addr = self.b.local_addr(local);
        self.b.load(addr)
    }

    /// Appends a copy of an instruction without blocks.
    fn copy(&mut self, v: ValueId) -> ValueId {
        let inst = self.source().inst(v).clone();
        let span = std::mem::replace(&mut self.b.span, inst.span);
        let copy = match inst.op {
            Op::LoopIndex(l, axis) => match self.indices.get(&l).cloned() {
                Some(Indices::Of(l)) => self.b.push(Op::LoopIndex(l, axis), inst.ty),
                Some(Indices::Are(values)) => {
                    let value = values[axis as usize];
                    self.b.span = span;
                    self.scopes.last_mut().expect("compiler bug: no scope").insert(v, value);
                    return value;
                }
                None => panic!("compiler bug: an index of a loop that is not run\n{}", self.source()),
            },
            mut op => {
                op.map_operands(|u| self.get(u));
                self.b.push(op, inst.ty)
            }
        };
        self.b.span = span;
        self.record(v, copy);
        copy
    }

    // The forward sweep.

    pub fn forward(&mut self, block: BlockId, need: &Need, mode: Mode) {
        self.forward_insts(block, self.source().block(block), need, mode);
    }

    /// The forward sweep of some instructions of a block.
    pub(super) fn forward_insts(&mut self, block: BlockId, insts: &[ValueId], need: &Need, mode: Mode) {
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

    /// Keeps locals that the reverse sweep of a loop reads and later code changes.
    fn take_snapshots(&mut self, v: ValueId, plan: &LoopPlan, block: BlockId) {
        let layout = &self.plan.layout;
        let mut region = block;
        while let Some(owner) = layout.owner[region.index()] {
            if matches!(self.source().inst(owner).op, Op::For(_) | Op::Loop(_)) {
                break;
            }
            region = layout.home[owner.index()];
        }
        for &l in &plan.restored {
            let later =
                |s: &ValueId| layout.position[s.index()] > layout.position[v.index()] && layout.is_inside(*s, region);
            if layout.stores[l.index()].iter().any(later) {
                let addr = self.b.local_addr(l);
                let value = self.b.load(addr);
                self.home.insert(value, self.b.cursor());
                self.snapshots.insert((v, l), value);
            }
        }
    }

    fn forward_inst(&mut self, v: ValueId, need: &Need, mode: Mode) {
        let op = &self.source().inst(v).op;
        match op {
            Op::Store(a, _) | Op::Atomic(_, a, _) if !self.repeats_changes_of(*a) => {
                if matches!(op, Op::Atomic(..)) {
                    let addr = self.get(*a);
                    let now = self.b.load(addr);
                    self.record(v, now);
                }
            }
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
                let blocks = [self.b.body.add_block(), self.b.body.add_block()];
                self.b.push(Op::If(c, blocks[0], blocks[1]), Type::Unit);
                self.within(blocks[0], |e| e.forward(*yes, need, mode));
                self.within(blocks[1], |e| e.forward(*no, need, mode));
            }
            Op::For(_) | Op::Loop(_) => self.forward_loop(v, need, mode),
            _ => _ = self.copy(v),
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
        let kept = plan.filter(|p| !p.kept.is_empty());
        let counts = plan.is_some() && !self.plan.is_counted(v);
        let trips = counts.then(|| {
            let trips = self.b.body.add_local("trips", Type::I32);
            self.set(trips, 0);
            trips
        });
        if kept.is_some() {
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
                copy.parallel = copy.parallel.filter(|c| !c.serialize);
                (Op::For(Box::new(copy)), l.body)
            }
            Op::Loop(from) => (Op::Loop(inner), *from),
            op => panic!("compiler bug: {op:?} is no loop"),
        };
        let copy = self.push_loop(op);
        self.indices.insert(v, Indices::Of(copy));
        self.scopes.push(HashMap::new());
        self.within(inner, |e| {
            if kept.is_some() {
                let stack = e.stacks[&v].clone();
                e.store.push(&mut e.b, &stack);
            }
            if let Some(trips) = trips {
                e.add_to_counter(trips, 1);
            }
            // What is counted is complete before the loop may be left.
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
            let addr = self.b.local_addr(trips);
            let count = self.b.load(addr);
            self.home.insert(count, self.b.cursor());
            self.trips.insert(v, count);
        }
    }

    pub(super) fn push_loop(&mut self, mut op: Op) -> ValueId {
        op.map_operands(|u| self.get(u));
        self.b.push(op, Type::Unit)
    }

    pub fn set(&mut self, local: LocalId, value: i64) {
        let s = self.b.body.locals[local.index()].ty.scalar().expect("compiler bug: a counter is a scalar");
        let (addr, value) = (self.b.local_addr(local), self.b.int(value, s));
        self.b.store(addr, value);
    }

    fn add_to_counter(&mut self, local: LocalId, by: i64) {
        let addr = self.b.local_addr(local);
        let (old, by) = (self.b.load(addr), self.b.int(by, Scalar::I32));
        let new = self.b.binary(BinaryOp::Add, old, by);
        self.b.store(addr, new);
    }

    // The reverse sweep.

    pub(super) fn reverse(&mut self, block: BlockId) {
        let anchor = self.anchor();
        self.reversed.insert(block, (self.b.cursor(), anchor));
        for &v in self.source().block(block).iter().rev() {
            if self.plan.activity.works(v) {
                self.b.span = self.source().inst(v).span;
                self.reverse_inst(v);
            }
        }
    }

    fn reverse_inst(&mut self, v: ValueId) {
        let source = self.source();
        match &source.inst(v).op {
            Op::If(c, yes, no) => {
                let c = self.get(*c);
                let blocks = [self.b.body.add_block(), self.b.body.add_block()];
                self.b.push(Op::If(c, blocks[0], blocks[1]), Type::Unit);
                self.within(blocks[0], |e| e.reverse(*yes));
                self.within(blocks[1], |e| e.reverse(*no));
            }
            Op::For(_) | Op::Loop(_) if self.plan.is_parallel(v) => self.reverse_parallel(v),
            Op::For(_) | Op::Loop(_) => self.reverse_loop(v),
            Op::Load(a) => {
                let Some(adjoint) = self.take_adjoint(v) else { return };
                if let Some(sum) = self.deferred_sum(v, *a) {
                    let addr = self.b.local_addr(sum);
                    self.add_at(addr, adjoint, false);
                } else if let Some((addr, shared)) = self.adjoint_address(*a) {
                    self.add_at(addr, adjoint, shared);
                }
            }
            Op::Store(a, x) => {
                if let Some((addr, _)) = self.adjoint_address(*a) {
                    let adjoint = self.b.load(addr);
                    let ty = self.b.ty(adjoint).clone();
                    let zero = zero(&mut self.b, &ty);
                    self.b.store(addr, zero);
                    self.contribute(*x, &Part::Whole, adjoint);
                }
            }
            Op::Atomic(op, a, x) if is_extreme(*op) => self.reverse_extreme(*a, *x),
            Op::Atomic(op, a, x) => {
                if let Some((addr, shared)) = self.adjoint_address(*a) {
                    let mut adjoint = self.b.load(addr);
                    if let Some(old) = self.take_adjoint(v) {
                        self.add_at(addr, old, shared);
                    }
                    if *op == AtomicOp::Sub {
                        adjoint = self.b.unary(UnaryOp::Neg, adjoint);
                    }
                    self.contribute(*x, &Part::Whole, adjoint);
                }
            }
            op if kind_of(op) == Kind::Rule => self.reverse_rule(v),
            op => panic!("compiler bug: {op:?} cannot be reversed\n{source}"),
        }
    }

    fn reverse_rule(&mut self, v: ValueId) {
        let Some(adjoint) = self.take_adjoint(v) else { return };
        let source = self.source();
        let mut operands = Vec::new();
        source.inst(v).op.for_each_operand(|u| operands.push(u));
        let here = self.lookup(v).filter(|copy| self.open.contains(&self.home[copy]));
        let y = here.unwrap_or_else(|| self.make_result(v));
        let activity = self.plan.activity;
        let contributions = pull_back(&mut self.b, y, adjoint, |i| activity.value(operands[i]));
        for c in contributions {
            self.contribute(operands[c.operand], &c.part, c.value);
        }
    }

    /// The instruction with those of its operands that its rule reads, where the forward sweep's copy cannot be used.
    fn make_result(&mut self, v: ValueId) -> ValueId {
        let inst = self.source().inst(v).clone();
        let mut needed = HashSet::new();
        let activity = self.plan.activity;
        super::needed_operands::needed_operands(&inst.op, |u| activity.value(u), |u| _ = needed.insert(u));
        let mut op = inst.op;
        op.map_operands(|u| {
            if needed.contains(&u) {
                return self.get(u);
            }
            let ty = self.source().ty(u).clone();
            zero(&mut self.b, &ty)
        });
        self.b.push(op, inst.ty)
    }

    /// The sum of what was contributed to the adjoint of a value; `None` where nothing was.
    fn take_adjoint(&mut self, v: ValueId) -> Option<ValueId> {
        let Adjoint { value, local } = self.adjoints.remove(&v)?;
        let inner = local.map(|local| {
            let addr = self.b.local_addr(local);
            self.b.load(addr)
        });
        match (value, inner) {
            (Some(a), Some(b)) => Some(add(&mut self.b, a, b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn contribute(&mut self, v: ValueId, part: &Part, value: ValueId) {
        if !self.plan.activity.value(v) {
            return;
        }
        let ty = self.source().ty(v).clone();
        let (block, anchor) = self.reversed[&self.plan.layout.home[v.index()]];
        if block == self.b.cursor() {
            let value = whole(&mut self.b, part, value, &ty);
            let old = self.adjoints.get(&v).and_then(|a| a.value);
            let sum = old.map_or(value, |old| add(&mut self.b, old, value));
            self.adjoints.entry(v).or_default().value = Some(sum);
            return;
        }
        let local = match self.adjoints.get(&v).and_then(|a| a.local) {
            Some(local) => local,
            None => {
                let local = self.b.body.add_local("adjoint", ty.clone());
                self.zero_behind(block, anchor, local);
                self.adjoints.entry(v).or_default().local = Some(local);
                local
            }
        };
        let addr = self.b.local_addr(local);
        let addr = match (part, &ty) {
            (Part::Whole, _) => addr,
            (Part::At(i), _) => self.component_addr(addr, &ty, *i),
            (Part::AtIndices(indices), _) => self.b.element_addr(addr, indices.clone()),
        };
        // Iterations share what was computed before their loop.
        let shared = self.iteration.is_some() && self.plan.layout.home[v.index()] == self.source().root;
        self.add_at(addr, value, shared);
    }

    /// The address of a component (row-major position) or member of what is at an address.
    pub(super) fn component_addr(&mut self, addr: ValueId, ty: &Type, i: u32) -> ValueId {
        let indices = match ty {
            Type::Scalar(_) => return addr,
            Type::Struct(_) => return self.b.member_addr(addr, i),
            Type::Matrix(_, _, m) => vec![i / m, i % m],
            _ => vec![i],
        };
        let indices = indices.into_iter().map(|i| self.b.int(i64::from(i), Scalar::I32)).collect();
        self.b.element_addr(addr, indices)
    }

    /// Adds the floats of a value to what is at an address.
    pub(super) fn add_at(&mut self, addr: ValueId, value: ValueId, shared: bool) {
        let ty = self.b.ty(value).clone();
        if let Type::Struct(s) = &ty {
            for (i, (_, member)) in s.members.iter().enumerate() {
                if has_derivative(member) {
                    let (at, part) = (self.b.member_addr(addr, i as u32), self.b.extract(value, i as u32));
                    self.add_at(at, part, shared);
                }
            }
        } else if shared {
            self.b.push(Op::Atomic(AtomicOp::Add, addr, value), ty);
        } else {
            let old = self.b.load(addr);
            let sum = self.b.binary(BinaryOp::Add, old, value);
            self.b.store(addr, sum);
        }
    }

    /// Where the adjoint of what is at an address lies, and whether iterations share it; `None` where it has none.
    pub(super) fn adjoint_address(&mut self, addr: ValueId) -> Option<(ValueId, bool)> {
        let inst = self.source().inst(addr).clone();
        match inst.op {
            Op::LocalAddr(l) => {
                let local = self.adjoint_local(l);
                let shared = self.iteration.as_ref().is_some_and(|i| !i.private.contains(&l));
                Some((self.b.local_addr(local), shared))
            }
            Op::ElementAddr(base, indices) => {
                let (base, shared) = self.adjoint_address(base)?;
                let indices = indices.into_iter().map(|i| self.get(i)).collect();
                Some((self.b.element_addr(base, indices), shared))
            }
            Op::MemberAddr(base, i) => {
                let (base, shared) = self.adjoint_address(base)?;
                Some((self.b.member_addr(base, i), shared))
            }
            Op::BufferAddr(buffer, indices) => {
                let gradient = self.gradients[buffer.index()]?;
                let indices = indices.into_iter().map(|i| self.get(i)).collect();
                let shared = self.iteration.as_ref().is_some_and(|i| !i.own.contains(&buffer));
                Some((self.b.push(Op::BufferAddr(gradient, indices), inst.ty), shared))
            }
            op => panic!("compiler bug: {op:?} is not an address"),
        }
    }

    fn adjoint_local(&mut self, l: LocalId) -> LocalId {
        let known = match &self.iteration {
            Some(i) if i.private.contains(&l) => i.adjoints.get(&l),
            _ => self.adjoint_locals.get(&l),
        };
        if let Some(known) = known {
            return *known;
        }
        let source = &self.source().locals[l.index()];
        let local = self.b.body.add_local(format!("adjoint of {}", source.name), source.ty.clone());
        match &mut self.iteration {
            Some(i) if i.private.contains(&l) => {
                i.adjoints.insert(l, local);
                let (block, anchor) = (i.block, i.anchor);
                self.zero_behind(block, anchor, local);
            }
            _ => {
                self.adjoint_locals.insert(l, local);
                let (block, anchor) = self.reversed[&self.source().root];
                self.zero_behind(block, anchor, local);
            }
        }
        local
    }
}

/// Addresses, constants and what is the same everywhere: cheaper made again than carried along.
fn is_made_anew(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_)
            | Op::Param(_)
            | Op::Shape(..)
            | Op::LoopIndex(..)
            | Op::LocalAddr(_)
            | Op::BufferAddr(..)
            | Op::ElementAddr(..)
            | Op::MemberAddr(..)
    )
}

/// The sum of two adjoints.
fn add(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let ty = b.ty(x).clone();
    match &ty {
        Type::Struct(s) => {
            let parts = (0..s.members.len() as u32)
                .map(|i| {
                    let (x, y) = (b.extract(x, i), b.extract(y, i));
                    add(b, x, y)
                })
                .collect();
            b.push(Op::MakeStruct(parts), ty)
        }
        _ if has_derivative(&ty) => b.binary(BinaryOp::Add, x, y),
        _ => x,
    }
}

/// The integer that a value is known to be.
pub(super) fn known_int(body: &Body, v: ValueId) -> Option<i64> {
    match body.as_const(v) {
        Some(Const::Int(i)) => Some(i),
        _ => None,
    }
}
