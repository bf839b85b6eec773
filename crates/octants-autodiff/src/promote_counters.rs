//! Promotes the counters of data-dependent loops from memory to locals.
//!
//! A data-dependent loop counts in memory: `left[()] -= 1`. Its adjoint writes only gradients, so each of its rounds
//! would find the counter's final value. A local is initialized from memory when the adjoint begins, and its state is
//! kept from round to round like that of other locals. The launcher of the adjoint restores the counter's value at the
//! start of the kernel (`Artifact::counters` lists the counters).
//!
//! Only zero-dimensional integers that rounds change outside of their parallel loops are counters.

use std::collections::BTreeSet;

use octants_analysis::{Place, first_use_sets, runs_once, trace_address};
use octants_ir::{
    BinaryOp, BlockId, Body, BufferId, Const, Effect, ForLoop, Kernel, LocalId, Op, TextPart, Type, ValueId,
    task_blocks,
};

/// Makes them.
pub fn promote_counters(kernel: &mut Kernel) {
    let rounds: Vec<BlockId> = task_blocks(&kernel.body).into_iter().skip(1).collect();
    if rounds.is_empty() {
        return;
    }
    let mut writes =
        Writes { body: &kernel.body, rounds: rounds.clone(), serial: BTreeSet::new(), others: BTreeSet::new() };
    let mut single = Vec::new();
    writes.block(kernel.body.root, Enclosing::default(), &mut single);
    let Writes { serial, others, .. } = writes;
    let is_counter = |b: &BufferId| {
        let buffer = &kernel.buffers[b.index()];
        let is_integer = matches!(buffer.elem, Type::Scalar(s) if !s.is_float());
        is_integer && buffer.ndim == 0 && !others.contains(b) && !buffer.space.is_temporary()
    };
    let counters: Vec<BufferId> = serial.iter().copied().filter(is_counter).collect();
    for v in single {
        if let Op::For(l) = &mut kernel.body.inst_mut(v).op
            && let Some(config) = &mut l.parallel
        {
            config.serialize = true;
        }
    }
    for b in counters {
        if let Some(local) = promote(kernel, b) {
            refuse_zero(kernel, local, &rounds);
        }
    }
}

/// Adds a check in front of each loop that counts a local down to zero: one that begins with zero would run once for
/// each value of its type. The counter has this value because the launch has ended and it was not reset.
fn refuse_zero(kernel: &mut Kernel, counter: LocalId, rounds: &[BlockId]) {
    let name = kernel.body.locals[counter.index()].name.clone();
    for block in task_blocks(&kernel.body) {
        for v in kernel.body.block(block).to_vec() {
            let Op::Loop(inner) = kernel.body.inst(v).op else { continue };
            if !rounds.contains(&inner) || !counts_down(&kernel.body, inner, counter) {
                continue;
            }
            let body = &mut kernel.body;
            let (span, ty) = (body.inst(v).span, body.locals[counter.index()].ty.clone());
            let address = body.add_inst(Op::LocalAddr(counter), Type::Ref(Box::new(ty.clone())), span);
            let value = body.add_inst(Op::Load(address), ty.clone(), span);
            let zero = body.add_inst(Op::Const(Const::Int(0)), ty, span);
            let counts = body.add_inst(Op::Binary(BinaryOp::Ne, value, zero), Type::U1, span);
            let text = format!(
                "the gradient of a qd.graph.do_while() loop starts from its counter `{name}`, which is now 0: \
                 reset it to its value at the launch of the kernel, or use a tape"
            );
            let check = body.add_inst(Op::Assert(counts, vec![TextPart::Text(text)]), Type::Unit, span);
            let statements = &mut body.blocks[block.index()];
            let at = statements.iter().position(|u| *u == v).unwrap_or(0);
            statements.splice(at..at, [address, value, zero, counts, check]);
        }
    }
}

/// A round begins with the value of a local that is not set before, and is the last one when that is zero at its end.
/// By now the end of the loop may be a flag that the round sets.
fn counts_down(body: &Body, round: BlockId, counter: LocalId) -> bool {
    let is_zero = |v: ValueId| matches!(body.as_const(v), Some(Const::Int(0)));
    let reads = |condition: ValueId| {
        let read = match body.inst(condition).op {
            Op::Binary(BinaryOp::Ne, x, zero) if is_zero(zero) => x,
            Op::Cast(x) => x,
            _ => condition,
        };
        matches!(body.inst(read).op, Op::Load(a) if body.inst(a).op == Op::LocalAddr(counter))
    };
    let is_exit = |b: BlockId| {
        let of_exit = |v: &ValueId| match body.inst(*v).op {
            Op::Const(_) | Op::LocalAddr(_) | Op::Break => true,
            Op::Store(a, _) => matches!(body.inst(a).op, Op::LocalAddr(_)),
            _ => false,
        };
        !body.block(b).is_empty() && body.block(b).iter().all(of_exit)
    };
    let statements = body.block(round);
    let ends = |v: &ValueId| match body.inst(*v).op {
        Op::If(c, yes, no) => reads(c) && body.block(yes).is_empty() && is_exit(no),
        _ => false,
    };
    statements.iter().any(ends) && first_use_sets(body, statements, counter) == Some(false)
}

/// The local for a counter, if the kernel uses it.
fn promote(kernel: &mut Kernel, b: BufferId) -> Option<LocalId> {
    let buffer = &kernel.buffers[b.index()];
    let (name, ty) = (buffer.name.clone(), buffer.elem.clone());
    let body = &mut kernel.body;
    let local = body.add_local(name, ty.clone());
    let addresses = body.insts.iter_mut().filter(|inst| matches!(inst.op, Op::BufferAddr(of, _) if of == b));
    let mut span = None;
    for inst in addresses {
        span = span.or(Some(inst.span));
        inst.op = Op::LocalAddr(local);
    }
    let span = span?;
    let reference = Type::Ref(Box::new(ty.clone()));
    let memory = body.add_inst(Op::BufferAddr(b, Vec::new()), reference.clone(), span);
    let first = body.add_inst(Op::Load(memory), ty, span);
    let address = body.add_inst(Op::LocalAddr(local), reference, span);
    let store = body.add_inst(Op::Store(address, first), Type::Unit, span);
    let root = body.root;
    body.blocks[root.index()].splice(0..0, [memory, first, address, store]);
    Some(local)
}

/// What is around an instruction.
#[derive(Clone, Copy, Default)]
struct Enclosing {
    rounds: bool,
    /// A parallel loop of any number of iterations.
    parallel: bool,
}

struct Writes<'a> {
    body: &'a Body,
    /// Blocks of rounds.
    rounds: Vec<BlockId>,
    /// Buffers that rounds write outside of parallel loops.
    serial: BTreeSet<BufferId>,
    /// Buffers that parallel loops write.
    others: BTreeSet<BufferId>,
}

impl Writes<'_> {
    /// Finds the writes of a block, and which parallel loops of one iteration write in rounds.
    fn block(&mut self, block: BlockId, around: Enclosing, single: &mut Vec<ValueId>) {
        for &v in self.body.block(block) {
            let inst = self.body.inst(v);
            match inst.op.effect() {
                Effect::Write(a) | Effect::Update(a) => {
                    if let Place::Buffer(b) = trace_address(self.body, a) {
                        if around.parallel {
                            self.others.insert(b);
                        } else if around.rounds {
                            self.serial.insert(b);
                        }
                    }
                }
                Effect::For(l) => self.parallel_or_not(v, l, around, single),
                Effect::Loop(inner) => {
                    let rounds = around.rounds || self.rounds.contains(&inner);
                    self.block(inner, Enclosing { rounds, ..around }, single);
                }
                _ => inst.op.blocks().into_iter().for_each(|b| self.block(b, around, single)),
            }
        }
    }

    fn parallel_or_not(&mut self, v: ValueId, l: &ForLoop, around: Enclosing, single: &mut Vec<ValueId>) {
        let once = l.is_parallel() && runs_once(self.body, l);
        let before = self.serial.len();
        self.block(l.body, Enclosing { parallel: around.parallel || l.is_parallel() && !once, ..around }, single);
        if once && around.rounds && self.serial.len() > before {
            single.push(v);
        }
    }
}
