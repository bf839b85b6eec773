//! [`Rates`]: how many times each instruction of a thread's code runs once the threads are loops: once per block, once
//! per subgroup or once per thread.
//!
//! A value is as uniform as its operands and the control around it. Two facts go beyond that. A value may be affine in
//! the thread's index within its subgroup with coefficient one ([`Step`]); quotients of such a value by a multiple of
//! the subgroup's width are uniform. Control flow around operations that threads execute together counts as uniform
//! among them, in accordance with the verifier's convergence rule: threads that disagree follow the first of them.
//!
//! Rates only rise from the first guess, so the walk is repeated until none does.

use std::collections::HashMap;

use octants_analysis::{exits_of, may_leave, trace_element};
use octants_ir::schedule::LocalUses;
use octants_ir::{
    BinaryOp, BlockId, Body, Const, Definedness, ForLoop, GridValue, LocalId, MemorySpace, Op, Scalar, SubgroupOp,
    ThreadScope, Type, ValueId,
};

/// How many times something runs, and among which threads a value may differ: from rare to often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) enum Rate {
    #[default]
    Block,
    Subgroup,
    Thread,
}

use Rate::{Block, Subgroup, Thread};

/// A value that is its value on the subgroup's first thread plus the thread's index in the subgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Divides the value on the first thread.
    multiple: u64,
    /// It is never negative.
    is_natural: bool,
}

/// The parallel loop of a task whose threads cooperate.
pub(super) struct ThreadCode<'a> {
    pub body: &'a Body,
    pub loop_id: ValueId,
    pub of: &'a ForLoop,
    /// Threads of a block.
    pub block_dim: u32,
    /// Threads of a subgroup, as the program sees it.
    pub subgroup_size: u32,
    pub locals: &'a LocalUses,
    /// Per buffer: the first one whose memory may overlap its own.
    pub overlapping: Vec<usize>,
    /// The memory space of each buffer.
    pub spaces: Vec<MemorySpace>,
}

impl ThreadCode<'_> {
    /// A known integer.
    pub fn known(&self, v: ValueId) -> Option<i64> {
        match self.body.as_const(self.locals.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        }
    }

    /// The extent of an axis of the parallel loop, if known.
    pub fn extent(&self, axis: usize) -> Option<i64> {
        let d = &self.of.dims[axis];
        Some(self.known(d.end)?.saturating_sub(self.known(d.begin)?).max(0))
    }

    /// Loads of locals that hold one value are that value, and the stores to these are not needed. The threads of a
    /// block run on one thread of the machine, so that their fences order nothing.
    pub fn becomes_no_code(&self, v: ValueId) -> bool {
        match &self.body.inst(v).op {
            Op::Store(a, _) | Op::Load(a) => match self.body.inst(*a).op {
                Op::LocalAddr(l) => self.locals.of(l).is_value,
                _ => false,
            },
            Op::LocalAddr(l) => self.locals.of(*l).is_value,
            Op::Fence(scope) => *scope != ThreadScope::Device,
            _ => false,
        }
    }

    /// An instruction must not run when the program would not run it.
    pub fn may_be_undefined(&self, v: ValueId) -> bool {
        match &self.body.inst(v).op {
            Op::Load(_) => true,
            Op::Binary(_, _, divisor) if self.known(*divisor).is_some_and(|n| n > 0) => false,
            op => op.definedness() == Definedness::Partial,
        }
    }

    /// The local that an address leads to.
    pub fn local_of(&self, mut address: ValueId) -> Option<LocalId> {
        loop {
            match &self.body.inst(address).op {
                Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => address = *base,
                Op::LocalAddr(l) => return Some(*l),
                _ => return None,
            }
        }
    }
}

/// The rates of a thread's code.
pub(super) struct Rates {
    /// Threads of a subgroup: the program's, or fewer where the program does not see subgroups.
    pub width: u32,
    /// Per instruction: how many times it runs.
    pub runs: Vec<Rate>,
    /// Per value: among which threads it differs.
    pub varies: Vec<Rate>,
    pub steps: Vec<Option<Step>>,
    /// Per local: how many times it is stored to, and among which threads it differs.
    pub locals: Vec<Rate>,
}

impl Rates {
    /// The rates of a loop's code.
    pub fn of(code: &ThreadCode<'_>) -> Rates {
        let mut uses_subgroups = false;
        let mut reach = HashMap::new();
        code.body.visit(code.of.body, &mut |_, inst| uses_subgroups |= is_of_subgroup(&inst.op));
        scan_meetings(code.body, code.of.body, &mut reach);
        let size = code.subgroup_size.min(code.block_dim);
        let found = Walk::run(code, &reach, size);
        let narrow = if uses_subgroups { size } else { found.narrowest() };
        if narrow == size { found.rates } else { Walk::run(code, &reach, narrow).rates }
    }
}

impl Rates {
    /// A subgroup is in one row of the last axis of the parallel loop.
    pub fn rows_are_whole(&self, code: &ThreadCode<'_>) -> bool {
        let extent = code.of.dims.len().checked_sub(1).and_then(|last| code.extent(last));
        let extent = extent.and_then(|n| u64::try_from(n).ok());
        let is_whole = extent.is_some_and(|n| n > 0 && n.is_multiple_of(self.width.into()));
        is_whole && code.block_dim.is_multiple_of(self.width)
    }
}

/// An operation of the threads of a subgroup.
fn is_of_subgroup(op: &Op) -> bool {
    matches!(op, Op::Subgroup(..) | Op::Barrier(ThreadScope::Subgroup))
}

/// The threads that an operation lets meet.
pub(super) fn meeting(op: &Op) -> Option<Rate> {
    match op {
        Op::Barrier(ThreadScope::Subgroup) | Op::Subgroup(..) => Some(Subgroup),
        Op::Barrier(_) | Op::BlockCount(_) => Some(Block),
        _ => None,
    }
}

/// The rarer of two, if any.
fn rarer(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    a.into_iter().chain(b).min()
}

/// Finds for each instruction with blocks which threads meet in them.
fn scan_meetings(body: &Body, block: BlockId, reach: &mut HashMap<ValueId, Rate>) -> Option<Rate> {
    let mut all = None;
    for &v in body.block(block) {
        let op = &body.inst(v).op;
        let own = op.blocks().into_iter().fold(meeting(op), |m, b| rarer(m, scan_meetings(body, b, reach)));
        if let Some(rate) = own {
            reach.insert(v, rate);
        }
        all = rarer(all, own);
    }
    all
}

/// The position of a block.
#[derive(Debug, Clone, Copy)]
struct BlockPosition {
    /// How many times it runs.
    rate: Rate,
    /// The synchronization after it, in the same iteration of the enclosing loop, and anywhere in that loop.
    after: Option<Rate>,
    in_loop: Option<Rate>,
    /// Some threads have left that iteration.
    left: bool,
}

/// Trip counts up to this one are left inside the loop over threads: LLVM unrolls them there.
const SHORT: i64 = 4;

/// Narrower subgroups would leave most of a vector unused.
const NARROWEST: u64 = 8;

struct Walk<'a> {
    code: &'a ThreadCode<'a>,
    reach: &'a HashMap<ValueId, Rate>,
    rates: Rates,
    /// Power-of-two divisors of values that step.
    divisors: Vec<u64>,
    changed: bool,
}

impl<'a> Walk<'a> {
    fn run(code: &'a ThreadCode<'a>, reach: &'a HashMap<ValueId, Rate>, width: u32) -> Walk<'a> {
        let count = code.body.insts.len();
        let rates = Rates {
            width,
            runs: vec![Block; count],
            varies: vec![Block; count],
            steps: vec![None; count],
            locals: vec![Block; code.body.locals.len()],
        };
        let mut walk = Walk { code, reach, rates, divisors: Vec::new(), changed: true };
        while std::mem::take(&mut walk.changed) {
            walk.divisors.clear();
            walk.block(code.of.body, BlockPosition { rate: Block, after: None, in_loop: None, left: false });
        }
        walk
    }

    /// The width of subgroups with which quotients of thread indices are uniform.
    fn narrowest(&self) -> u32 {
        let width = u64::from(self.rates.width);
        let divisors = self.divisors.iter().copied().filter(|d| *d >= NARROWEST);
        divisors.fold(width, |w, d| if w.is_multiple_of(d) { d.min(w) } else { w }) as u32
    }

    /// Walks through a block; yields whether some threads may leave the iteration around it early.
    fn block(&mut self, block: BlockId, around: BlockPosition) -> bool {
        let body = self.code.body;
        let insts = body.block(block);
        let mut after = vec![around.after; insts.len() + 1];
        for (i, v) in insts.iter().enumerate().rev() {
            after[i] = rarer(after[i + 1], self.reach.get(v).copied());
        }
        let mut left = around.left;
        for (i, &v) in insts.iter().enumerate() {
            left |= self.inst(v, BlockPosition { after: after[i + 1], left, ..around });
        }
        left
    }

    fn inst(&mut self, v: ValueId, around: BlockPosition) -> bool {
        let body = self.code.body;
        let op = &body.inst(v).op;
        let meets = self.reach.get(&v).copied();
        match op {
            Op::If(c, yes, no) => {
                let [breaks, continues] = exits_of(body, v);
                let needed = rarer(meets, around.in_loop.filter(|_| breaks));
                let needed = rarer(needed, around.after.filter(|_| continues));
                let splits = !around.left && self.varies(*c) <= Subgroup && self.holds_split_loop(v);
                let rate = self.set_runs(v, around.rate, needed.or(splits.then_some(Subgroup)));
                let inside = BlockPosition { rate, ..around };
                let left = self.block(*yes, inside) | self.block(*no, inside);
                left || rate == Thread && (breaks || continues)
            }
            Op::For(l) => {
                let splits = !around.left && self.is_split(l);
                let rate = self.set_runs(v, around.rate, meets.or(splits.then_some(Subgroup)));
                let left = around.left && rate == Thread;
                self.block(l.body, BlockPosition { rate, after: None, in_loop: meets, left });
                false
            }
            Op::Loop(inner) => {
                let rate = self.set_runs(v, around.rate, meets);
                let left = around.left && rate == Thread;
                self.block(*inner, BlockPosition { rate, after: None, in_loop: meets, left });
                false
            }
            Op::Break | Op::Continue => {
                self.raise(v, around.rate, around.rate);
                around.rate == Thread
            }
            Op::Store(a, x) => {
                let local = self.code.local_of(*a);
                let rate = match local {
                    Some(l) => {
                        let left = if around.left { Thread } else { Block };
                        let rate = around.rate.max(self.rate_of(*x)).max(self.index_rate(*a)).max(left);
                        self.raise_local(l, rate)
                    }
                    None => Thread,
                };
                self.raise(v, rate.max(around.rate), Block);
                false
            }
            _ => {
                let varies = self.level(v, op);
                let runs = self.runs_at(op, varies).max(around.rate);
                // Operations that are undefined for some operands do not run for threads that have exited.
                let runs = if around.left && self.code.may_be_undefined(v) { Thread } else { runs };
                self.raise(v, runs, varies);
                let step = if varies == Thread { self.step(v, op) } else { None };
                self.rates.steps[v.index()] = step;
                false
            }
        }
    }

    fn set_runs(&mut self, v: ValueId, around: Rate, chosen: Option<Rate>) -> Rate {
        let rate = chosen.unwrap_or(Thread).max(around);
        self.raise(v, rate, Block);
        self.rates.runs[v.index()]
    }

    fn raise(&mut self, v: ValueId, runs: Rate, varies: Rate) {
        let (old, new) = (self.rates.runs[v.index()], self.rates.runs[v.index()].max(runs));
        self.changed |= old != new;
        self.rates.runs[v.index()] = new;
        let (old, new) = (self.rates.varies[v.index()], self.rates.varies[v.index()].max(varies));
        self.changed |= old != new;
        self.rates.varies[v.index()] = new;
    }

    fn raise_local(&mut self, l: LocalId, rate: Rate) -> Rate {
        let new = self.rates.locals[l.index()].max(rate);
        self.changed |= new != std::mem::replace(&mut self.rates.locals[l.index()], new);
        new
    }

    fn varies(&self, v: ValueId) -> Rate {
        self.rates.varies[self.code.locals.source(v).index()]
    }

    /// How many times code runs that needs a value: as often as the value differs or is computed.
    fn rate_of(&self, v: ValueId) -> Rate {
        self.varies(v).max(self.rates.runs[self.code.locals.source(v).index()])
    }

    /// A loop that runs once per subgroup although no threads meet in it, so that its body becomes vector code.
    fn is_split(&self, l: &ForLoop) -> bool {
        let trips = match l.dims.as_slice() {
            [d] => self.code.known(d.end).zip(self.code.known(d.begin)).map(|(end, begin)| end.saturating_sub(begin)),
            _ => None,
        };
        let is_uniform = l.dims.iter().all(|d| self.varies(d.begin).max(self.varies(d.end)) <= Subgroup);
        is_uniform && trips.is_none_or(|n| n > SHORT) && !may_leave(self.code.body, l.body)
    }

    fn holds_split_loop(&self, v: ValueId) -> bool {
        let body = self.code.body;
        let is_split = |v: &ValueId| match &body.inst(*v).op {
            Op::For(l) => self.is_split(l),
            Op::If(c, ..) => self.varies(*c) <= Subgroup && self.holds_split_loop(*v),
            _ => false,
        };
        body.inst(v).op.blocks().into_iter().any(|b| body.block(b).iter().any(is_split))
    }

    /// Among which threads the indices in an address differ.
    fn index_rate(&self, address: ValueId) -> Rate {
        let body = self.code.body;
        match &body.inst(address).op {
            Op::ElementAddr(base, index) => index.iter().fold(self.index_rate(*base), |r, i| r.max(self.rate_of(*i))),
            Op::MemberAddr(base, _) => self.index_rate(*base),
            _ => Block,
        }
    }

    /// How many times an operation with such a result runs, ignoring control flow.
    fn runs_at(&self, op: &Op, varies: Rate) -> Rate {
        match op {
            // A subgroup computes it as a whole.
            Op::Subgroup(op, _) if op.product().is_some() => Subgroup,
            Op::Barrier(_) | Op::BlockCount(_) | Op::Subgroup(..) => meeting(op).unwrap_or(Thread).max(varies),
            op if op.is_pure() => varies,
            Op::Load(_) | Op::Grid(_) | Op::LoopIndex(..) => varies,
            _ => Thread,
        }
    }

    /// Between which threads a value differs, ignoring control flow.
    fn level(&mut self, v: ValueId, op: &Op) -> Rate {
        if let Some(stored) = self.code.locals.forwarded(v) {
            return self.varies(stored);
        }
        let mut operands = Block;
        op.for_each_operand(|u| operands = operands.max(self.rate_of(u)));
        match op {
            Op::LocalAddr(l) => self.rates.locals[l.index()],
            Op::Grid(value) => {
                if value.is_divergent() {
                    Thread
                } else {
                    Block
                }
            }
            Op::LoopIndex(l, axis) if *l == self.code.loop_id => self.index_level(*axis as usize),
            Op::LoopIndex(l, _) => self.rates.runs[l.index()],
            // All threads read the same value at one address, unless they race.
            Op::Load(a) => match (self.code.local_of(*a), trace_element(self.code.body, *a)) {
                (None, None) => Thread,
                _ => operands,
            },
            Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) => {
                self.escape(*a);
                Thread
            }
            Op::Call(_, args) => {
                args.iter().for_each(|a| self.escape(*a));
                Thread
            }
            Op::BlockCount(_) | Op::Barrier(_) => Block,
            Op::Subgroup(op, operands) => self.exchanged(*op, operands),
            Op::Binary(op, x, c) => {
                if let (Some(step), Some(divisor)) = (self.step_of(*x), self.divisor(*op, *c)) {
                    self.divisors.push(1 << divisor.trailing_zeros());
                    if self.is_quotient(*op) && self.keeps_together(*op, step, divisor) {
                        return Subgroup.max(self.varies(*c));
                    }
                }
                operands
            }
            op if op.is_pure() => operands,
            _ => Thread,
        }
    }

    /// A local whose address escapes belongs to one thread.
    fn escape(&mut self, address: ValueId) {
        if let Some(l) = self.code.local_of(address) {
            self.raise_local(l, Thread);
        }
    }

    fn exchanged(&self, op: SubgroupOp, operands: &[ValueId]) -> Rate {
        let value = operands.first().map_or(Block, |v| self.varies(*v));
        match op {
            SubgroupOp::Shuffle | SubgroupOp::ShuffleXor | SubgroupOp::ShuffleUp | SubgroupOp::ShuffleDown => {
                // The last subgroup may have fewer threads.
                let rest = self.code.block_dim % self.rates.width;
                let everywhere = 0..i64::from(if rest > 0 { rest } else { self.rates.width });
                let is_there = self.code.known(operands[1]).is_some_and(|n| everywhere.contains(&n));
                let is_of_one = op == SubgroupOp::Shuffle && is_there;
                if is_of_one { value.min(Subgroup) } else { value }
            }
            SubgroupOp::Ballot | SubgroupOp::Any | SubgroupOp::All => Subgroup,
            SubgroupOp::AllHere | SubgroupOp::IsWhole => Subgroup,
            SubgroupOp::ProductF16 | SubgroupOp::ProductTf32 | SubgroupOp::ProductF32 | SubgroupOp::ProductF64 => {
                Thread
            }
        }
    }

    /// Among which threads an index of the parallel loop differs.
    fn index_level(&self, axis: usize) -> Rate {
        let last = self.code.of.dims.len() - 1;
        if axis < last && self.rows_are_whole() { Subgroup } else { Thread }
    }

    fn rows_are_whole(&self) -> bool {
        self.rates.rows_are_whole(self.code)
    }

    /// A block is whole subgroups.
    fn blocks_are_whole(&self) -> bool {
        self.code.block_dim.is_multiple_of(self.rates.width)
    }

    /// A value is computed once for the threads of a subgroup.
    fn is_shared(&self, v: ValueId) -> bool {
        self.rate_of(v) <= Subgroup
    }

    fn step_of(&self, v: ValueId) -> Option<Step> {
        self.rates.steps[self.code.locals.source(v).index()]
    }

    /// How a value depends on the thread's index in its subgroup.
    fn step(&self, v: ValueId, op: &Op) -> Option<Step> {
        if let Some(stored) = self.code.locals.forwarded(v) {
            return self.step_of(stored);
        }
        let width = u64::from(self.rates.width);
        match op {
            Op::Grid(GridValue::Thread) => Some(Step { multiple: width, is_natural: true }),
            Op::Grid(GridValue::Lane) if self.rates.width == self.code.subgroup_size.min(self.code.block_dim) => {
                Some(Step { multiple: 0, is_natural: true })
            }
            Op::LoopIndex(l, axis) if *l == self.code.loop_id => {
                let axis = *axis as usize;
                let is_only = self.code.of.dims.len() == 1 && self.blocks_are_whole();
                if !(is_only || axis + 1 == self.code.of.dims.len() && self.rows_are_whole()) {
                    return None;
                }
                let begin = self.code.of.dims[axis].begin;
                let is_natural = self.code.known(begin).is_some_and(|n| n >= 0);
                Some(Step { multiple: gcd(width, self.multiple(begin)), is_natural })
            }
            Op::Cast(x) if is_index(self.code.body.ty(v)) => {
                let (from, to) = (self.code.body.ty(*x).scalar()?, self.code.body.ty(v).scalar()?);
                let keeps = from.is_signed() && to.is_signed() && from.bits() <= to.bits();
                self.step_of(*x).filter(|step| step.is_natural || keeps)
            }
            Op::Binary(BinaryOp::Add, a, b) => {
                let (step, other) = self.step_of(*a).map_or_else(|| (self.step_of(*b), *a), |s| (Some(s), *b));
                let step = step.filter(|_| self.is_shared(other))?;
                let is_natural = step.is_natural && self.code.known(other).is_some_and(|n| n >= 0);
                Some(Step { multiple: gcd(step.multiple, self.multiple(other)), is_natural })
            }
            Op::Binary(BinaryOp::Sub, a, b) => {
                let step = self.step_of(*a).filter(|_| self.is_shared(*b))?;
                Some(Step { multiple: gcd(step.multiple, self.multiple(*b)), is_natural: false })
            }
            Op::Binary(op, x, c) => {
                let (step, divisor) = (self.step_of(*x)?, self.divisor(*op, *c)?);
                let stays = !self.is_quotient(*op) && self.keeps_together(*op, step, divisor);
                stays.then_some(Step { multiple: gcd(step.multiple, divisor), is_natural: true })
            }
            _ => None,
        }
    }

    /// The divisor of an operation that yields a quotient or a remainder.
    fn divisor(&self, op: BinaryOp, c: ValueId) -> Option<u64> {
        let c = u64::try_from(self.code.known(c)?).ok()?;
        match op {
            BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::Rem => (c > 0).then_some(c),
            BinaryOp::Shr | BinaryOp::UShr => 1u64.checked_shl(u32::try_from(c).ok()?),
            BinaryOp::And => (c + 1).is_power_of_two().then_some(c + 1),
            _ => None,
        }
    }

    fn is_quotient(&self, op: BinaryOp) -> bool {
        matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Shr | BinaryOp::UShr)
    }

    /// All threads of a subgroup have the same quotient.
    fn keeps_together(&self, op: BinaryOp, step: Step, divisor: u64) -> bool {
        let is_floor = matches!(op, BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::Shr | BinaryOp::And);
        (is_floor || step.is_natural) && gcd(step.multiple, divisor) >= u64::from(self.rates.width)
    }

    /// A number that divides a uniform value; one if no divisor is known, zero if the value is zero.
    fn multiple(&self, v: ValueId) -> u64 {
        let v = self.code.locals.source(v);
        if let Some(n) = self.code.known(v) {
            return n.unsigned_abs();
        }
        match &self.code.body.inst(v).op {
            Op::Binary(BinaryOp::Mul, a, b) => self.multiple(*a).saturating_mul(self.multiple(*b)),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => gcd(self.multiple(*a), self.multiple(*b)),
            Op::Cast(x) if is_index(self.code.body.ty(v)) && is_index(self.code.body.ty(*x)) => self.multiple(*x),
            _ => 1,
        }
    }
}

fn is_index(ty: &Type) -> bool {
    matches!(ty, Type::Scalar(Scalar::I32 | Scalar::I64 | Scalar::U32 | Scalar::U64))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
