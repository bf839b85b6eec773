//! Which loads must be held before the stores that follow them.
//!
//! LLVM 22 makes one masked load of a masked load and the choice between its value and another one, and puts it where the choice stands: behind
//! a store that the same condition guards (llvm/llvm-project, issue 215453, mended in 23). A choice of the frozen value is left alone. So what
//! is loaded under a condition is frozen if the memory may be stored to later on.

use std::collections::HashSet;

use octants_analysis::may_leave;
use octants_ir::{BlockId, Body, Effect, Op, ValueId};

use crate::facts::ProgramFacts;
use crate::find_scatter::buffer_of;

/// Memory other than a local: a buffer, or what is not known.
type Place = Option<usize>;

/// Instructions of a body that read under a condition what later ones may store to. A function may be called under one: all of its body is.
pub(crate) fn loads_to_hold(facts: &ProgramFacts<'_>, body: &Body, is_function: bool) -> HashSet<ValueId> {
    let mut walk = Walk { body, reads: Vec::new(), stores: Vec::new(), clock: 0 };
    walk.block(body.root, is_function);
    let may_be_same = |a: Place, b: Place| a.zip(b).is_none_or(|(a, b)| facts.may_be_same(a, b));
    let Walk { reads, mut stores, .. } = walk;
    // The last store to each place is what counts.
    stores.sort_by_key(|(place, at)| (*place, std::cmp::Reverse(*at)));
    stores.dedup_by_key(|(place, _)| *place);
    let is_held = |place: Place, at: usize| stores.iter().any(|(p, last)| at <= *last && may_be_same(place, *p));
    reads.into_iter().filter(|(_, place, at)| is_held(*place, *at)).map(|(v, ..)| v).collect()
}

struct Walk<'a> {
    body: &'a Body,
    /// Under conditions: what reads, where, and when in the order of the program.
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
                // A volatile load stays where it is, and a call is looked at below.
                Effect::ReadVolatile(_) | Effect::Call(..) => (None, None),
                Effect::Pure | Effect::Index | Effect::Reduce | Effect::Draw | Effect::Exchange => (None, None),
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
            for inner in op.blocks() {
                self.block(inner, conditional || is_branch);
                // What follows runs unless the iteration has ended there.
                conditional |= is_branch && may_leave(self.body, inner);
            }
        }
    }

    /// Memory that an address is in; `None` for a local's.
    fn place(&self, address: ValueId) -> Option<Place> {
        match self.body.inst(address).op {
            Op::LocalAddr(_) => None,
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => self.place(base),
            _ => Some(buffer_of(self.body, address)),
        }
    }
}
