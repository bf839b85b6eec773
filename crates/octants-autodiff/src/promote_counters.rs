//! Makes locals of the integers in memory that decide about rounds.
//!
//! A loop by what is in memory counts there: `left[()] -= 1`. Its adjoint writes no memory but gradients, so that it
//! would find what the last round has left in each of its rounds. As a local, which begins as what memory holds when
//! the adjoint begins, the counter is kept from round to round like any other. Whoever launches the adjoint lets memory
//! hold what it held when the kernel began (`Artifact::counters` says which).
//!
//! Only integers without axes that rounds change outside of their parallel loops are counters.

use std::collections::BTreeSet;

use octants_analysis::{Place, runs_once, trace_address};
use octants_ir::{BlockId, Body, BufferId, Effect, ForLoop, Kernel, Op, Type, ValueId, task_blocks};

/// Makes them.
pub fn promote_counters(kernel: &mut Kernel) {
    let rounds: Vec<BlockId> = task_blocks(&kernel.body).into_iter().skip(1).collect();
    if rounds.is_empty() {
        return;
    }
    let mut writes = Writes { body: &kernel.body, rounds, serial: BTreeSet::new(), others: BTreeSet::new() };
    let mut single = Vec::new();
    writes.block(kernel.body.root, Around::default(), &mut single);
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
    counters.into_iter().for_each(|b| promote(kernel, b));
}

fn promote(kernel: &mut Kernel, b: BufferId) {
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
    let Some(span) = span else { return };
    let reference = Type::Ref(Box::new(ty.clone()));
    let memory = body.add_inst(Op::BufferAddr(b, Vec::new()), reference.clone(), span);
    let first = body.add_inst(Op::Load(memory), ty, span);
    let address = body.add_inst(Op::LocalAddr(local), reference, span);
    let store = body.add_inst(Op::Store(address, first), Type::Unit, span);
    let root = body.root;
    body.blocks[root.index()].splice(0..0, [memory, first, address, store]);
}

/// What stands around an instruction.
#[derive(Clone, Copy, Default)]
struct Around {
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
    /// Finds what a block writes, and which parallel loops of one iteration write in rounds.
    fn block(&mut self, block: BlockId, around: Around, single: &mut Vec<ValueId>) {
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
                    self.block(inner, Around { rounds, ..around }, single);
                }
                _ => inst.op.blocks().into_iter().for_each(|b| self.block(b, around, single)),
            }
        }
    }

    fn parallel_or_not(&mut self, v: ValueId, l: &ForLoop, around: Around, single: &mut Vec<ValueId>) {
        let once = l.is_parallel() && runs_once(self.body, l);
        let before = self.serial.len();
        self.block(l.body, Around { parallel: around.parallel || l.is_parallel() && !once, ..around }, single);
        if once && around.rounds && self.serial.len() > before {
            single.push(v);
        }
    }
}
