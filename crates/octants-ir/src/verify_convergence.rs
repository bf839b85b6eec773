//! The convergence rule, 16 of [`crate::verify::Rule`]: operations that the threads of a block or subgroup execute
//! together must be reached by all of them, or by none.
//!
//! Divergence is a taint analysis on values. Its sources are thread positions, indices of parallel loops, old values of
//! atomics, random numbers, and loads from divergent addresses. Locals are tainted by stored values, and by the control
//! flow of the store. Control diverges at divergent conditions and loop bounds, and after exits that only some threads
//! take. The following count as uniform: parameters of functions, memory at the same address, and, within a subgroup,
//! comparisons of thread numbers, which may cut between subgroups. Code of a task or kernel outside of parallel loops
//! runs on one thread, so its operations converge. A condition that consists of `is_whole` or `all_here` ensures
//! convergence: inside it, control is uniform for the subgroup, even under divergent control flow.
//!
//! Assumes that the rules about form hold.

use crate::body::Body;
use crate::kernel::{Function, TaskKind};
use crate::op::*;
use crate::operation_table::{BinaryOp, GridValue, SubgroupOp};
use crate::types::Scalar;

/// Among which threads a value or the way to a place in the code differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Level {
    /// None of a block.
    #[default]
    Uniform,
    /// Threads of different subgroups may diverge; threads of one may too.
    Subgroups,
    /// All threads, by their order: a cut may fall between two subgroups.
    Threads,
    /// All threads.
    Lanes,
}

use Level::{Lanes, Subgroups, Threads, Uniform};

/// Which threads run a body from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunBy {
    /// One, outside of parallel loops: a kernel or a task.
    OneThread,
    /// Its callers' threads, or those of a grid: a function, or a task of a grid.
    Threads,
}

impl RunBy {
    /// What runs a task's body.
    pub fn of(kind: &TaskKind) -> RunBy {
        match kind {
            TaskKind::Serial | TaskKind::Parallel(_) => RunBy::OneThread,
            TaskKind::Grid(_) => RunBy::Threads,
        }
    }
}

/// The properties of a function that its callers need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Summary {
    /// It contains operations of a block, or of a subgroup, or calls a function that does.
    block: bool,
    subgroup: bool,
    result: Level,
}

/// The convergence check of bodies that may call some functions.
pub(crate) struct Convergence {
    summaries: Vec<Summary>,
}

impl Convergence {
    /// Analyzes the functions, which may call each other.
    pub fn new(functions: &[Function]) -> Convergence {
        let mut known = Convergence { summaries: vec![Summary::default(); functions.len()] };
        loop {
            let now: Vec<Summary> = functions.iter().map(|f| known.summary(&f.body)).collect();
            if now == known.summaries {
                return known;
            }
            known.summaries = now;
        }
    }

    fn summary(&self, body: &Body) -> Summary {
        let mut summary = self.operations(body);
        summary.result = self.find_divergence(body).result;
        summary
    }

    /// Which operations of threads a body and the functions it calls have.
    fn operations(&self, body: &Body) -> Summary {
        let mut found = Summary::default();
        body.visit(body.root, &mut |_, inst| match &inst.op {
            Op::Call(f, _) => {
                let callee = self.summaries[f.index()];
                found.block |= callee.block;
                found.subgroup |= callee.subgroup;
            }
            op => match scope_of(op) {
                Some(ThreadScope::Block) => found.block = true,
                Some(_) => found.subgroup = true,
                None => {}
            },
        });
        found
    }

    /// Calls `report` on each instruction that some of its threads do not reach.
    pub fn check(&self, body: &Body, run_by: RunBy, mut report: impl FnMut(ValueId)) {
        let operations = self.operations(body);
        if operations.block || operations.subgroup {
            let mut found = self.find_divergence(body);
            found.report = Some(&mut report);
            found.of_threads = run_by == RunBy::Threads;
            found.block(body.root, Uniform);
        }
    }

    fn find_divergence<'a>(&'a self, body: &'a Body) -> Divergence<'a> {
        let mut found = Divergence {
            known: self,
            body,
            values: vec![Uniform; body.insts.len()],
            locals: vec![Uniform; body.locals.len()],
            exits: vec![Uniform; body.insts.len()],
            result: Uniform,
            changed: true,
            guard_values: vec![false; body.insts.len()],
            guard_locals: vec![false; body.locals.len()],
            is_guarded: false,
            of_threads: false,
            report: None,
        };
        // Levels only rise.
        while std::mem::take(&mut found.changed) {
            found.block(body.root, Uniform);
        }
        found
    }
}

/// The threads that must all execute an operation together.
fn scope_of(op: &Op) -> Option<ThreadScope> {
    match op {
        Op::Barrier(scope) => Some(*scope),
        Op::BlockCount(_) => Some(ThreadScope::Block),
        Op::LoadMatrices(..) => Some(ThreadScope::Subgroup),
        Op::Subgroup(SubgroupOp::AllHere | SubgroupOp::IsWhole, _) => None,
        Op::Subgroup(..) => Some(ThreadScope::Subgroup),
        _ => None,
    }
}

/// How control diverges at early exits from a block.
#[derive(Debug, Clone, Copy, Default)]
struct Exits {
    /// By `continue`.
    next: Level,
    /// By `break`.
    out: Level,
    /// By `return`.
    end: Level,
}

impl Exits {
    fn join(&mut self, other: Exits) {
        self.next = self.next.max(other.next);
        self.out = self.out.max(other.out);
        self.end = self.end.max(other.end);
    }

    fn any(self) -> Level {
        self.next.max(self.out).max(self.end)
    }
}

struct Divergence<'a> {
    known: &'a Convergence,
    body: &'a Body,
    values: Vec<Level>,
    locals: Vec<Level>,
    /// For each loop how its exits diverge.
    exits: Vec<Level>,
    result: Level,
    changed: bool,
    /// See [`Divergence::guards`].
    guard_values: Vec<bool>,
    guard_locals: Vec<bool>,
    /// The visited code is under such a condition.
    is_guarded: bool,
    /// More than one thread runs the visited code.
    of_threads: bool,
    report: Option<&'a mut dyn FnMut(ValueId)>,
}

impl Divergence<'_> {
    fn of(&self, v: ValueId) -> Level {
        self.values[v.index()]
    }

    fn raise(&mut self, v: ValueId, level: Level) {
        let new = self.of(v).max(level);
        self.changed |= new != std::mem::replace(&mut self.values[v.index()], new);
    }

    fn raise_local(&mut self, l: LocalId, level: Level) {
        let new = self.locals[l.index()].max(level);
        self.changed |= new != std::mem::replace(&mut self.locals[l.index()], new);
    }

    /// Walks through a block that control enters with some divergence.
    fn block(&mut self, b: BlockId, control: Level) -> Exits {
        let body = self.body;
        let mut here = control;
        let mut exits = Exits::default();
        for &v in body.block(b) {
            let left = self.inst(v, here);
            // Some threads do not reach the following code.
            here = here.max(left.any());
            exits.join(left);
        }
        exits
    }

    fn inst(&mut self, v: ValueId, here: Level) -> Exits {
        let body = self.body;
        let op = &body.inst(v).op;
        self.check(v, op, here);
        let mut exits = Exits::default();
        match op {
            Op::If(c, yes, no) => {
                let around = self.is_guarded;
                let guards = self.guard_values[c.index()];
                self.is_guarded |= guards;
                let inside = if guards { here.min(Subgroups) } else { here.max(self.of(*c)) };
                exits = self.block(*yes, inside);
                exits.join(self.block(*no, inside));
                self.is_guarded = around;
            }
            Op::For(l) => {
                let bounds = l.dims.iter().flat_map(|d| [self.of(d.begin), self.of(d.end)]).max().unwrap_or_default();
                // The threads of a subgroup run a converged loop in lockstep, regardless of its bounds.
                let bounds = if l.hints.converged { bounds.min(Subgroups) } else { bounds };
                let inside = if l.parallel.is_some() { here } else { here.max(bounds) };
                let around = self.of_threads;
                self.of_threads |= l.parallel.is_some();
                for b in l.blocks() {
                    exits.end = exits.end.max(self.repeated(v, b, inside));
                }
                self.of_threads = around;
            }
            Op::Loop(inner) => exits.end = self.repeated(v, *inner, here),
            Op::Continue => exits.next = here,
            Op::Break => exits.out = here,
            Op::Return(value) => {
                exits.end = here;
                let level = value.map_or(Uniform, |x| self.of(x)).max(here);
                self.changed |= level > self.result;
                self.result = self.result.max(level);
            }
            Op::Store(a, x) | Op::VectorStore(a, x) => {
                let level = self.of(*x).max(self.of(*a)).max(here);
                self.store(*a, level);
                if let Some(l) = self.local_of(*a)
                    && (self.is_guarded || self.guard_values[x.index()])
                {
                    self.changed |= !std::mem::replace(&mut self.guard_locals[l.index()], true);
                }
            }
            _ => {
                let level = self.level(op, here);
                self.raise(v, level);
                let guards = self.guards(op);
                self.changed |= guards && !std::mem::replace(&mut self.guard_values[v.index()], guards);
            }
        }
        exits
    }

    /// The body of a loop, which some threads leave before others; yields how `return` diverges in it.
    fn repeated(&mut self, v: ValueId, inner: BlockId, control: Level) -> Level {
        let left = self.block(inner, control.max(self.exits[v.index()]));
        let new = self.exits[v.index()].max(left.out).max(left.end);
        self.changed |= new != std::mem::replace(&mut self.exits[v.index()], new);
        left.end
    }

    /// Whether a condition implies, possibly among others, that the threads of a subgroup are converged.
    fn guards(&self, op: &Op) -> bool {
        match op {
            Op::Subgroup(SubgroupOp::IsWhole | SubgroupOp::AllHere, _) => true,
            Op::Load(a) => self.local_of(*a).is_some_and(|l| self.guard_locals[l.index()]),
            Op::Binary(BinaryOp::And, a, b) => self.guard_values[a.index()] || self.guard_values[b.index()],
            _ => false,
        }
    }

    /// Taints the local that an address leads to.
    fn store(&mut self, address: ValueId, level: Level) {
        if let Some(l) = self.local_of(address) {
            self.raise_local(l, level);
        }
    }

    fn local_of(&self, mut address: ValueId) -> Option<LocalId> {
        loop {
            match &self.body.inst(address).op {
                Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => address = *base,
                Op::LocalAddr(l) => return Some(*l),
                _ => return None,
            }
        }
    }

    /// The divergence of a value.
    fn level(&mut self, op: &Op, here: Level) -> Level {
        let mut operands = Uniform;
        op.for_each_operand(|u| operands = operands.max(self.of(u)));
        match op {
            Op::Grid(GridValue::Thread) => Threads,
            Op::Grid(GridValue::Lane) | Op::FragmentIndex(_) | Op::Random | Op::Clock | Op::Balance { .. } => Lanes,
            Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => {
                self.store(*a, Lanes);
                Lanes
            }
            Op::LoopIndex(l, axis) => match &self.body.inst(*l).op {
                Op::For(l) if l.parallel.is_some() => Threads,
                Op::For(l) => self.of(l.dims[*axis as usize].begin),
                _ => Uniform,
            },
            // A difference in which the thread's number cancels.
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b)
                if operands == Threads && self.in_threads(op, *a, *b, 8) == Some(0) =>
            {
                Uniform
            }
            // The first thread of the subgroup.
            Op::Binary(BinaryOp::Sub, a, b)
                if self.is_of_grid(*a, GridValue::Thread) && self.is_of_grid(*b, GridValue::Lane) =>
            {
                Subgroups
            }
            // Quotients and comparisons of thread numbers may cut between subgroups.
            Op::Binary(op, ..) if operands == Threads && cuts(*op) => Subgroups,
            Op::Load(a) | Op::VolatileLoad(a) | Op::VectorLoad(a) => match self.local_of(*a) {
                Some(l) => operands.max(self.locals[l.index()]),
                None if operands == Threads => Lanes,
                None => operands,
            },
            Op::LoadMatrices(..) => Lanes,
            Op::BlockCount(_) => Uniform,
            Op::Subgroup(op, vs) => self.exchanged(*op, vs),
            Op::Call(f, args) => {
                // It may write to locals that it is given.
                for a in args {
                    self.store(*a, operands.max(here));
                }
                operands.max(self.known.summaries[f.index()].result)
            }
            _ => operands,
        }
    }

    fn is_of_grid(&self, v: ValueId, value: GridValue) -> bool {
        matches!(self.body.inst(v).op, Op::Grid(found) if found == value)
    }

    /// The coefficient of the thread index in an integer that is affine in it. `None` if unknown. Follows at most
    /// `depth` operations.
    fn factor(&self, v: ValueId, depth: u32) -> Option<i64> {
        if self.of(v) == Uniform {
            return Some(0);
        }
        match &self.body.inst(v).op {
            Op::Grid(GridValue::Thread) => Some(1),
            Op::LoopIndex(l, _) => match &self.body.inst(*l).op {
                Op::For(l) if l.parallel.is_some() && l.dims.len() == 1 => Some(1),
                _ => None,
            },
            Op::Cast(x) if self.body.ty(*x).scalar().is_some_and(Scalar::is_int) => self.factor(*x, depth),
            op @ Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) if depth > 0 => self.in_threads(op, *a, *b, depth - 1),
            _ => None,
        }
    }

    /// The same of a sum or a difference.
    fn in_threads(&self, op: &Op, a: ValueId, b: ValueId, depth: u32) -> Option<i64> {
        let (a, b) = (self.factor(a, depth)?, self.factor(b, depth)?);
        if matches!(op, Op::Binary(BinaryOp::Sub, ..)) { a.checked_sub(b) } else { a.checked_add(b) }
    }

    fn exchanged(&self, op: SubgroupOp, operands: &[ValueId]) -> Level {
        let value = operands.first().map_or(Uniform, |v| self.of(*v));
        let of_one = value.min(Subgroups);
        match op {
            SubgroupOp::Ballot | SubgroupOp::Any | SubgroupOp::All => of_one,
            SubgroupOp::AllHere | SubgroupOp::IsWhole => Subgroups,
            SubgroupOp::ProductF16 | SubgroupOp::ProductTf32 | SubgroupOp::ProductF32 | SubgroupOp::ProductF64 => Lanes,
            // All take the value of one thread.
            SubgroupOp::Shuffle if self.of(operands[1]) <= Subgroups => of_one.max(self.of(operands[1])),
            SubgroupOp::Shuffle | SubgroupOp::ShuffleXor | SubgroupOp::ShuffleUp | SubgroupOp::ShuffleDown => {
                if value > Uniform { Lanes } else { Uniform }
            }
        }
    }

    fn check(&mut self, v: ValueId, op: &Op, here: Level) {
        let Some(report) = self.report.as_mut().filter(|_| self.of_threads) else { return };
        let (block, subgroup) = match op {
            Op::Call(f, _) => {
                let callee = self.known.summaries[f.index()];
                (callee.block, callee.subgroup)
            }
            op => {
                let scope = scope_of(op);
                (scope == Some(ThreadScope::Block), scope == Some(ThreadScope::Subgroup))
            }
        };
        if (block && here >= Subgroups) || (subgroup && here >= Threads) {
            report(v);
        }
    }
}

/// Whether the operation on thread numbers may yield a value that is uniform in a subgroup.
fn cuts(op: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(op, Lt | Le | Gt | Ge | Div | FloorDiv | Shr | UShr | And)
}
