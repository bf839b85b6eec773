//! Properties of a body's locals: which need no initial zero, and which need no memory.
//!
//! A local whose first use in program order is a store that dominates all other uses needs no initial zero. If that
//! store is the only one and every other use is a load of the whole, each load equals the stored value: such a local
//! gets no memory, and indices computed through it stay visible to address arithmetic.

use std::collections::HashMap;

use octants_ir::schedule::{LocalUse, LocalUses};
use octants_ir::{BlockId, Body, Op, ValueId};

/// Finds the uses of a body's locals. [`BodyFacts`](crate::BodyFacts) keep the answer.
pub(crate) fn find_local_uses(body: &Body) -> LocalUses {
    let parallel_bodies = &parallel_bodies(body)[..];
    let locals = vec![Uses::default(); body.locals.len()];
    let mut walk = Walk { body, parallel_bodies, is_outside: true, clock: 0, locals, ends: HashMap::new() };
    walk.block(body.root);
    let Walk { locals, ends, .. } = walk;
    let mut found = LocalUses::default();
    for uses in &locals {
        let dominated = uses.first_store.is_some_and(|(_, block)| uses.last < ends[&block].1);
        let is_value = dominated && uses.stores == 1 && uses.others == 0;
        if let (true, Some((value, _))) = (is_value, uses.first_store) {
            found.forwarded.extend(uses.loads.iter().map(|load| (*load, value)));
        }
        found.locals.push(LocalUse {
            is_value,
            is_unused: uses.first.is_none(),
            needs_zero: !dominated,
            is_used_before_loop: uses.is_outside && !parallel_bodies.is_empty(),
        });
    }
    found
}

/// The bodies of the parallel loops of a task.
fn parallel_bodies(body: &Body) -> Vec<BlockId> {
    let mut found = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::For(l) = &inst.op {
            found.extend(l.blocks().filter(|_| l.parallel.is_some()));
        }
    });
    found
}

/// The uses of a local found so far.
#[derive(Debug, Default, Clone)]
struct Uses {
    first: Option<usize>,
    /// One of the uses is outside of the parallel loops.
    is_outside: bool,
    last: usize,
    first_store: Option<(ValueId, BlockId)>,
    stores: usize,
    others: usize,
    loads: Vec<ValueId>,
}

struct Walk<'a> {
    body: &'a Body,
    parallel_bodies: &'a [BlockId],
    /// The walk is outside of the parallel loops.
    is_outside: bool,
    clock: usize,
    locals: Vec<Uses>,
    ends: HashMap<BlockId, (usize, usize)>,
}

impl Walk<'_> {
    fn local_of(&self, v: ValueId) -> Option<usize> {
        match self.body.inst(v).op {
            Op::LocalAddr(l) => Some(l.index()),
            _ => None,
        }
    }

    fn block(&mut self, b: BlockId) {
        let start = self.clock;
        for &v in self.body.block(b) {
            self.clock += 1;
            let at = self.clock;
            let op = &self.body.inst(v).op;
            let touch = |walk: &mut Self, l: usize| {
                walk.locals[l].first.get_or_insert(at);
                walk.locals[l].last = at;
                walk.locals[l].is_outside |= walk.is_outside;
            };
            match op {
                Op::Load(a) => {
                    if let Some(l) = self.local_of(*a) {
                        touch(self, l);
                        self.locals[l].loads.push(v);
                    }
                }
                Op::Store(a, value) => {
                    if let Some(l) = self.local_of(*a) {
                        if self.locals[l].first.is_none() {
                            self.locals[l].first_store = Some((*value, b));
                        }
                        touch(self, l);
                        self.locals[l].stores += 1;
                    }
                }
                _ => op.for_each_operand(|a| {
                    if let Some(l) = self.local_of(a) {
                        touch(self, l);
                        self.locals[l].others += 1;
                    }
                }),
            }
            for nested in op.blocks() {
                let around = self.is_outside;
                self.is_outside &= !self.parallel_bodies.contains(&nested);
                self.block(nested);
                self.is_outside = around;
            }
        }
        self.clock += 1;
        self.ends.insert(b, (start, self.clock));
    }
}
