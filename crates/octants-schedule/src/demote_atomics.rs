//! Code that runs on one thread needs no atomics: they become loads, operations and stores, in the bodies of such
//! variants and in copies of the functions that they call.
//!
//! Iterations that update the same memory plainly depend on one another, so a parallel loop with such updates loses the
//! hint that its iterations are independent.

use std::collections::{BTreeMap, HashSet};

use octants_ir::schedule::{FunctionSchedule, Role};
use octants_ir::{BlockId, Body, Effect, FuncId, Op, Program, Scheduled, ValueId, push_plain_swap, push_plain_update};

/// Demotes the atomics of variants that run on one thread, or on memory of one thread.
pub(crate) fn demote_atomics(scheduled: &mut Scheduled) {
    let Scheduled { program, schedule } = scheduled;
    let mut functions = Functions { program, schedules: &mut schedule.functions, copies: BTreeMap::new() };
    for task in &mut schedule.tasks {
        let runs_alone = task.forms.runs_alone;
        for variant in &mut task.variants {
            let is_alone = match variant.role {
                Role::SingleThread | Role::Private => true,
                Role::Main => runs_alone,
                Role::Coarse | Role::Merge(_) => false,
            };
            if is_alone {
                functions.demote(&mut variant.body);
            }
        }
    }
    functions.demote_copies();
}

/// Functions with atomics, and their copies without.
struct Functions<'a> {
    program: &'a mut Program,
    schedules: &'a mut Vec<FunctionSchedule>,
    copies: BTreeMap<FuncId, FuncId>,
}

impl Functions<'_> {
    /// The copy of a function without atomics, or the function itself if it and its callees have none.
    fn without_atomics(&mut self, f: FuncId) -> FuncId {
        let schedule = &self.schedules[f.index()];
        if schedule.behavior.atomics == 0 {
            return f;
        }
        if let Some(copy) = self.copies.get(&f) {
            return *copy;
        }
        let copy = FuncId(self.program.functions.len() as u32);
        let mut schedule = schedule.clone();
        schedule.behavior.atomics = 0;
        self.schedules.push(schedule);
        self.program.functions.push(self.program.functions[f.index()].clone());
        self.copies.insert(f, copy);
        copy
    }

    /// Demotes the atomics of the copies, which may lead to more of them.
    fn demote_copies(&mut self) {
        let first = self.program.functions.len() - self.copies.len();
        let mut next = first;
        while next < self.program.functions.len() {
            let mut body = std::mem::take(&mut self.program.functions[next].body);
            self.demote(&mut body);
            self.program.functions[next].body = body;
            next += 1;
        }
    }

    fn demote(&mut self, body: &mut Body) {
        let (mut used, mut reduces) = (HashSet::new(), false);
        body.visit(body.root, &mut |_, inst| {
            inst.op.for_each_operand(|v| _ = used.insert(v));
            if let Op::For(l) = &inst.op {
                reduces |= !l.reductions.is_empty();
            }
        });
        if !self.forget_independence(body, body.root) && !reduces {
            return;
        }
        for block in 0..body.blocks.len() {
            let mut rebuilt = Vec::with_capacity(body.blocks[block].len());
            for v in std::mem::take(&mut body.blocks[block]) {
                self.inst(body, v, used.contains(&v), &mut rebuilt);
            }
            body.blocks[block] = rebuilt;
        }
    }

    /// Whether a block updates memory. Loops in it that do are no longer independent.
    fn forget_independence(&self, body: &mut Body, block: BlockId) -> bool {
        let mut updates = false;
        for v in body.block(block).to_vec() {
            let updates_here = match body.inst(v).op.effect() {
                Effect::Update(_) => true,
                Effect::Call(f, _) => self.schedules[f.index()].behavior.atomics > 0,
                _ => {
                    let blocks: Vec<BlockId> = body.inst(v).op.blocks().into_iter().collect();
                    let mut found = false;
                    for inner in blocks {
                        found |= self.forget_independence(body, inner);
                    }
                    found
                }
            };
            if updates_here && let Op::For(l) = &mut body.inst_mut(v).op {
                l.hints.independent = false;
            }
            updates |= updates_here;
        }
        updates
    }

    /// Appends an instruction, or its replacement, to `out`.
    fn inst(&mut self, body: &mut Body, v: ValueId, is_used: bool, out: &mut Vec<ValueId>) {
        let inst = body.inst(v).clone();
        match inst.op {
            Op::Atomic(op, address, x) => {
                let op = op.binary();
                let reads = is_used || op.is_some();
                if reads {
                    body.inst_mut(v).op = Op::Load(address);
                    out.push(v);
                }
                push_plain_update(body, out, &inst, (address, x, op), reads.then_some(v));
            }
            Op::AtomicCas(address, expected, desired) => {
                body.inst_mut(v).op = Op::Load(address);
                out.push(v);
                push_plain_swap(body, out, &inst, (address, expected, desired), v);
            }
            Op::Call(f, args) => {
                body.inst_mut(v).op = Op::Call(self.without_atomics(f), args);
                out.push(v);
            }
            Op::For(mut l) => {
                l.reductions.iter_mut().for_each(|r| r.plain = true);
                body.inst_mut(v).op = Op::For(l);
                out.push(v);
            }
            _ => out.push(v),
        }
    }
}
