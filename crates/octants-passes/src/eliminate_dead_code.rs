//! Dead-code elimination: removes unused values, stores to locals that nothing reads, empty branches and loops, calls
//! of functions without effects, functions without callers, and unused locals. Renumbers the remaining code.
//!
//! A `Loop` is kept, because it may not terminate.

use octants_ir::{BlockId, Body, Effect, FuncId, Kernel, Op, ValueId, renumber};

use octants_analysis::{Effects, Place, function_effects, trace_address};

/// Removes dead code from the kernel and its functions.
pub fn eliminate_dead_code(kernel: &mut Kernel) {
    let effects = function_effects(&kernel.functions);
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        while sweep(body, &effects) {}
    }
    remove_functions(kernel);
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        renumber(body);
    }
}

/// One pass over a body, backwards; true when it removed something.
fn sweep(body: &mut Body, functions: &[Effects]) -> bool {
    let mut read = vec![false; body.locals.len()];
    body.visit(body.root, &mut |_, inst| {
        let mut on = |v: ValueId| {
            if let Place::Local(l) = trace_address(body, v) {
                read[l.index()] = true;
            }
        };
        match inst.op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) | Effect::Update(a) => on(a),
            Effect::For(l) => l.reductions.iter().for_each(|r| on(r.target)),
            Effect::Call(_, args) => {
                args.iter().filter(|a| matches!(body.ty(**a), octants_ir::Type::Ref(_))).for_each(|a| on(*a));
            }
            Effect::Pure
            | Effect::Index
            | Effect::Write(_)
            | Effect::Reduce
            | Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange
            | Effect::Synchronize
            | Effect::Branch(..)
            | Effect::Loop(_)
            | Effect::Leave
            | Effect::Print
            | Effect::Assert => {}
        }
    });
    let used = vec![false; body.insts.len()];
    let mut sweep = Sweep { body, functions, read, used, removed: false };
    sweep.block(sweep.body.root);
    sweep.removed
}

struct Sweep<'a> {
    body: &'a mut Body,
    functions: &'a [Effects],
    /// Locals that are read, or whose address leaves the body.
    read: Vec<bool>,
    used: Vec<bool>,
    removed: bool,
}

impl Sweep<'_> {
    fn block(&mut self, b: BlockId) {
        let mut insts = std::mem::take(&mut self.body.blocks[b.index()]);
        if let Some(end) = insts.iter().position(|v| self.body.inst(*v).op.is_terminator()) {
            insts.truncate(end + 1);
        }
        let mut kept = Vec::with_capacity(insts.len());
        for v in insts.into_iter().rev() {
            for inner in self.body.inst(v).op.blocks().into_iter().rev() {
                self.block(inner);
            }
            if self.used[v.index()] || self.is_seen(v) {
                let used = &mut self.used;
                self.body.inst(v).op.for_each_operand(|u| used[u.index()] = true);
                kept.push(v);
            } else {
                self.removed = true;
            }
        }
        kept.reverse();
        self.body.blocks[b.index()] = kept;
    }

    /// Has side effects.
    fn is_seen(&self, v: ValueId) -> bool {
        match self.body.inst(v).op.effect() {
            Effect::Pure | Effect::Index | Effect::Read(_) | Effect::Draw | Effect::ReadClock | Effect::Exchange => {
                false
            }
            Effect::Write(a) => match trace_address(self.body, a) {
                Place::Local(l) => self.read[l.index()],
                Place::Buffer(_) | Place::Frame(_) | Place::Param(_) => true,
            },
            Effect::Branch(then, other) => !self.body.block(then).is_empty() || !self.body.block(other).is_empty(),
            Effect::For(l) => !self.body.block(l.body).is_empty(),
            Effect::Call(f, _) => !self.functions[f.index()].is_silent(),
            Effect::ReadVolatile(_)
            | Effect::Update(_)
            | Effect::Reduce
            | Effect::Synchronize
            | Effect::Loop(_)
            | Effect::Leave
            | Effect::Print
            | Effect::Assert => true,
        }
    }
}

fn remove_functions(kernel: &mut Kernel) {
    let mut called = vec![false; kernel.functions.len()];
    let mut work = calls(&kernel.body);
    while let Some(f) = work.pop() {
        if !std::mem::replace(&mut called[f.index()], true) {
            work.extend(calls(&kernel.functions[f.index()].body));
        }
    }
    let mut count = 0;
    let numbers: Vec<u32> = called
        .iter()
        .map(|c| {
            count += u32::from(*c);
            count.saturating_sub(1)
        })
        .collect();
    let mut keep = called.iter();
    kernel.functions.retain(|_| keep.next() == Some(&true));
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        for inst in &mut body.insts {
            if let Op::Call(f, _) = &mut inst.op {
                *f = FuncId(numbers[f.index()]);
            }
        }
    }
}

fn calls(body: &Body) -> Vec<FuncId> {
    let mut all = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::Call(f, _) = inst.op {
            all.push(f);
        }
    });
    all
}
