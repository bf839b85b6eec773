//! Whether an iteration of a parallel loop may access memory that it has written before.
//!
//! LLVM is told that iterations carry no dependence. It then ignores the order of accesses within one iteration too: it
//! merges loads of neighboring elements at the first of them, and stores at the last (LLVM 22, interleaved access
//! groups). The hint is therefore withheld from loops whose iterations may access memory that they have written.

use std::collections::HashSet;

use octants_ir::{BlockId, Body, Effect, Op, ValueId};

use crate::facts::ProgramFacts;
use crate::scatter_privatization::{buffer_of, touched_by};

/// An iteration with this body may use memory of a class that it has written to before.
pub(crate) fn has_intra_iteration_dependence(facts: &ProgramFacts<'_>, body: &Body, block: BlockId) -> bool {
    Walk { facts, body, written: HashSet::new() }.block(block)
}

/// A class of memory: see [`ProgramFacts::overlapping`].
type Class = usize;

struct Walk<'a> {
    facts: &'a ProgramFacts<'a>,
    body: &'a Body,
    written: HashSet<Class>,
}

impl Walk<'_> {
    fn block(&mut self, block: BlockId) -> bool {
        self.body.block(block).iter().any(|v| self.op(*v))
    }

    fn op(&mut self, v: ValueId) -> bool {
        let op = &self.body.inst(v).op;
        if matches!(op, Op::For(_) | Op::Loop(_)) {
            // Its next iteration may use values that this one writes.
            let mut written = Vec::new();
            op.blocks().into_iter().for_each(|b| self.body.visit(b, &mut |v, _| written.extend(self.writes(v))));
            self.written.extend(written);
        }
        let uses = self.uses(v);
        if uses.iter().any(|class| self.written.contains(class)) {
            return true;
        }
        self.written.extend(self.writes(v));
        op.blocks().into_iter().any(|block| self.block(block))
    }

    /// Memory that an instruction uses.
    fn uses(&self, v: ValueId) -> Vec<Class> {
        match self.body.inst(v).op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => self.class(a).into_iter().collect(),
            _ => self.writes(v),
        }
    }

    /// Memory that an instruction may write to.
    fn writes(&self, v: ValueId) -> Vec<Class> {
        match self.body.inst(v).op.effect() {
            Effect::Write(a) | Effect::Update(a) => self.class(a).into_iter().collect(),
            Effect::Call(f, args) => {
                let mut buffers = Default::default();
                touched_by(self.facts.program, f, &mut Default::default(), &mut buffers);
                let passed = args.iter().filter_map(|a| self.class(*a));
                buffers.into_iter().map(|b| self.facts.overlapping[b]).chain(passed).collect()
            }
            Effect::Pure
            | Effect::Index
            | Effect::Read(_)
            | Effect::ReadVolatile(_)
            | Effect::Reduce
            | Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange
            | Effect::Synchronize
            | Effect::Branch(..)
            | Effect::For(_)
            | Effect::Loop(_)
            | Effect::Leave
            | Effect::Print
            | Effect::Assert => Vec::new(),
        }
    }

    /// The class of the buffer that an address is in.
    fn class(&self, address: ValueId) -> Option<Class> {
        buffer_of(self.body, address).map(|b| self.facts.overlapping[b])
    }
}
