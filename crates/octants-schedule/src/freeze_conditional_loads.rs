//! Freezes conditional loads before the stores that follow them.
//!
//! LLVM 22 merges a masked load with the `select` between its value and another one, and places the result at the
//! `select`: after a store under the same condition (llvm/llvm-project, issue 215453, fixed in 23). It does not merge
//! a `select` of a frozen value. So a conditional load is frozen if a later store may write to its memory.

use std::collections::HashSet;

use octants_analysis::may_leave;
use octants_ir::{BlockId, Body, CodeSizeHint, Effect, Inst, Op, Scheduled, ValueId};

use crate::facts::ProgramFacts;
use crate::scatter_privatization::buffer_of;
use crate::scheduling::Scheduling;

/// Memory other than a local: a buffer, or unknown memory.
type Place = Option<usize>;

/// Freezes such loads in the variants of tasks and in functions. The whole body of a function counts as conditional,
/// because its calls may be.
pub(crate) fn freeze_conditional_loads(scheduled: &mut Scheduled, of: &Scheduling) {
    let Scheduled { program, schedule } = scheduled;
    let facts = ProgramFacts::of(program, &of.target, of.options);
    for variant in schedule.tasks.iter_mut().flat_map(|t| &mut t.variants) {
        let loads = find_loads(&facts, &variant.body, false);
        freeze(&mut variant.body, &loads);
    }
    let loads: Vec<_> = program.functions.iter().map(|f| find_loads(&facts, &f.body, true)).collect();
    for (function, loads) in program.functions.iter_mut().zip(loads) {
        freeze(&mut function.body, &loads);
    }
}

/// Freezes the values of these instructions; their numbers then denote the frozen values. Unused values are not
/// changed.
fn freeze(body: &mut Body, loads: &HashSet<ValueId>) {
    let mut used = HashSet::new();
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|v| used.extend(loads.contains(&v).then_some(v))));
    if used.is_empty() {
        return;
    }
    for block in 0..body.blocks.len() {
        let mut rebuilt = Vec::with_capacity(body.blocks[block].len());
        for v in std::mem::take(&mut body.blocks[block]) {
            if used.contains(&v) {
                let Inst { op, ty, span } = body.inst(v).clone();
                let load = body.add_inst(op, ty, span);
                body.inst_mut(v).op = Op::Freeze(load);
                rebuilt.push(load);
            }
            rebuilt.push(v);
        }
        body.blocks[block] = rebuilt;
    }
}

/// Conditional loads of a body from memory to which later instructions may store.
fn find_loads(facts: &ProgramFacts<'_>, body: &Body, is_function: bool) -> HashSet<ValueId> {
    let mut walk = Walk { body, reads: Vec::new(), stores: Vec::new(), clock: 0 };
    walk.block(body.root, is_function);
    let may_be_same = |a: Place, b: Place| a.zip(b).is_none_or(|(a, b)| facts.memory.may_alias(a, b));
    let Walk { reads, mut stores, .. } = walk;
    // The last store to each location decides.
    stores.sort_by_key(|(place, at)| (*place, std::cmp::Reverse(*at)));
    stores.dedup_by_key(|(place, _)| *place);
    let is_frozen = |place: Place, at: usize| stores.iter().any(|(p, last)| at <= *last && may_be_same(place, *p));
    reads.into_iter().filter(|(_, place, at)| is_frozen(*place, *at)).map(|(v, ..)| v).collect()
}

struct Walk<'a> {
    body: &'a Body,
    /// Conditional reads: instruction, memory, position in program order.
    reads: Vec<(ValueId, Place, usize)>,
    stores: Vec<(Place, usize)>,
    clock: usize,
}

impl Walk<'_> {
    fn block(&mut self, block: BlockId, conditional: bool) {
        let mut conditional = conditional;
        for &v in self.body.block(block) {
            self.clock += 1;
            let op = &self.body.inst(v).op;
            let (read, stored) = match op.effect() {
                Effect::Read(a) => (Some(a), None),
                Effect::Write(a) => (None, Some(a)),
                Effect::Update(a) => (Some(a), Some(a)),
                // A volatile load is not moved. Calls are handled below.
                Effect::ReadVolatile(_) | Effect::Call(..) => (None, None),
                Effect::Pure | Effect::Index | Effect::Reduce | Effect::Draw | Effect::ReadClock | Effect::Exchange => {
                    (None, None)
                }
                Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave => (None, None),
                Effect::Print | Effect::Assert | Effect::Synchronize => (None, None),
            };
            if let (true, Some(place)) = (conditional, read.and_then(|a| self.place(a))) {
                self.reads.push((v, place, self.clock));
            }
            if let Some(place) = stored.and_then(|a| self.place(a)) {
                self.stores.push((place, self.clock));
            }
            if matches!(op, Op::Call(..)) {
                self.reads.extend(conditional.then_some((v, None, self.clock)));
                self.stores.push((None, self.clock));
            }
            let is_branch = matches!(op, Op::If(..));
            // Branches around a loop over threads are not conditions in its vector code.
            let is_thread_loop = matches!(op, Op::For(l) if l.hints.code_size == CodeSizeHint::VectorsFirst);
            for inner in op.blocks() {
                self.block(inner, !is_thread_loop && (conditional || is_branch));
                // The rest is conditional if a branch may end the iteration.
                conditional |= is_branch && may_leave(self.body, inner);
            }
        }
    }

    /// The memory of an address. `None` for locals.
    fn place(&self, address: ValueId) -> Option<Place> {
        match self.body.inst(address).op {
            Op::LocalAddr(_) => None,
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => self.place(base),
            _ => Some(buffer_of(self.body, address)),
        }
    }
}
