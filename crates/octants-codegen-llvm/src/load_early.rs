//! Loads of an aligned loop that are made an iteration early, so that a thread computes while it waits: those of states that a gradient
//! has kept.
//!
//! An aligned loop (`align_loops`) has branches, over which nobody moves a load. The address of a kept state comes from a local that
//! counts the words of the store. At the end of an iteration it holds what the next one begins with, and what that one will load can be
//! loaded. From there the assembler moves the load up to where the state before is used for the last time, and takes its register; from
//! further up it would be moved from register to register at the end, and waited for there.

use std::collections::HashSet;

use octants_ir::{BlockId, Body, Effect, LocalId, Op, ValueId};

use crate::emit::V;
use crate::find_alignment::root_of;
use crate::lower_body::{Lowering, Val};
use crate::place::Place;

/// The loads of a loop that can be made an iteration early.
#[derive(Debug, Default)]
pub(crate) struct EarlyLoads {
    /// The loads, with their addresses.
    loads: Vec<(ValueId, ValueId)>,
    /// How the addresses are computed, in order.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Compute(ValueId),
    /// A load of a local is a value that was stored in it.
    Stored(ValueId, ValueId),
}

impl Step {
    fn result(self) -> ValueId {
        match self {
            Step::Compute(v) | Step::Stored(v, _) => v,
        }
    }
}

impl EarlyLoads {
    /// Finds those of a loop whose body ends at its end.
    pub fn find(lowering: &Lowering<'_, '_>, loop_body: BlockId) -> EarlyLoads {
        let body = lowering.body;
        let (mut inside, mut written, mut watches) = (HashSet::new(), HashSet::new(), false);
        body.visit(loop_body, &mut |v, inst| {
            inside.insert(v);
            match inst.op.effect() {
                Effect::Write(a) | Effect::Update(a) => written.extend(root_of(body, a, &mut Vec::new())),
                // What others write is seen in the order of the program.
                Effect::Call(..) | Effect::ReadVolatile(_) => watches = true,
                Effect::Pure | Effect::Index | Effect::Read(_) | Effect::Reduce | Effect::Draw | Effect::Exchange => {}
                Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave => {}
                Effect::Print | Effect::Assert => {}
            }
        });
        let mut found = EarlyLoads::default();
        if watches {
            return found;
        }
        let statements = body.block(loop_body);
        for &load in statements {
            let Op::Load(address) = body.inst(load).op else { continue };
            let Some(b) = root_of(body, address, &mut Vec::new()) else { continue };
            if written.iter().any(|w| lowering.u.facts.may_be_same(b, *w)) {
                continue;
            }
            let mut search = Search { lowering, statements, inside: &inside, steps: Vec::new(), changes: false };
            if search.leads_to(address) && search.changes {
                let is_known = |step: &Step| found.steps.iter().any(|s| s.result() == step.result());
                search.steps.retain(|step| !is_known(step));
                found.steps.append(&mut search.steps);
                found.loads.push((load, address));
            }
        }
        found
    }
}

struct Search<'a> {
    lowering: &'a Lowering<'a, 'a>,
    /// The loop's body.
    statements: &'a [ValueId],
    inside: &'a HashSet<ValueId>,
    steps: Vec<Step>,
    /// A local among them is another one in each iteration.
    changes: bool,
}

impl Search<'_> {
    /// Appends what computes a value; `false` where it may not be computed early.
    fn leads_to(&mut self, v: ValueId) -> bool {
        if !self.inside.contains(&v) || self.steps.iter().any(|s| s.result() == v) {
            return true;
        }
        let body = self.lowering.body;
        let op = &body.inst(v).op;
        let step = match op {
            Op::Load(a) => {
                let Op::LocalAddr(local) = body.inst(*a).op else { return false };
                let Some(stores) = self.stores(local) else { return false };
                let Some(at) = self.position(v) else { return false };
                let stored = stores.iter().take_while(|s| s.0 < at).last().map(|s| s.1);
                let stored = stored.or(self.lowering.facts.forwarded(v));
                self.changes |= !stores.is_empty();
                if !self.leads_to(stored.unwrap_or(*a)) {
                    return false;
                }
                stored.map_or(Step::Compute(v), |stored| Step::Stored(v, stored))
            }
            _ if op.is_pure() => {
                let mut computes = true;
                op.for_each_operand(|u| computes = computes && self.leads_to(u));
                if !computes {
                    return false;
                }
                Step::Compute(v)
            }
            _ => return false,
        };
        self.steps.push(step);
        true
    }

    /// Where the loop's body stores a local, and what; `None` if it is changed in another way.
    fn stores(&self, local: LocalId) -> Option<Vec<(usize, ValueId)>> {
        let body: &Body = self.lowering.body;
        let is_it = |a: ValueId| body.inst(a).op == Op::LocalAddr(local);
        let mut stores = Vec::new();
        for v in self.inside {
            match body.inst(*v).op {
                Op::Load(_) => {}
                Op::Store(a, value) if is_it(a) => stores.push((self.position(*v)?, value)),
                ref op => {
                    let mut used = false;
                    op.for_each_operand(|u| used |= is_it(u));
                    if used {
                        return None;
                    }
                }
            }
        }
        stores.sort();
        Some(stores)
    }

    fn position(&self, v: ValueId) -> Option<usize> {
        self.statements.iter().position(|s| *s == v)
    }
}

impl Lowering<'_, '_> {
    /// What the loads yield in the iteration that comes, where one does; else what they yielded before, if anything.
    pub fn load_early(&mut self, early: &EarlyLoads, comes: V, before: Option<&[Vec<V>]>) -> Vec<Vec<V>> {
        if early.loads.is_empty() {
            return Vec::new();
        }
        let e = self.e;
        let (load, after) = (self.new_block(c"early"), self.new_block(c"early.end"));
        let from = e.block();
        e.cond_br(comes, load, after);
        e.position(load);
        let loaded: Vec<Vec<V>> = self.places_to_come(early).iter().map(|place| self.load_place(place)).collect();
        let loaded_in = e.block();
        e.br(after);
        e.position(after);
        let mut yielded = Vec::new();
        for (number, leaves) in loaded.into_iter().enumerate() {
            let merged = leaves.into_iter().enumerate().map(|(i, value)| {
                let phi = e.phi(e.type_of(value));
                e.add_incoming(phi, value, loaded_in);
                let other = before.map_or_else(|| e.undef(e.type_of(value)), |before| before[number][i]);
                e.add_incoming(phi, other, from);
                phi
            });
            yielded.push(merged.collect());
        }
        yielded
    }

    /// Lowers instructions of a loop's body, in which the loads yield `values`.
    pub fn with_early(&mut self, instructions: &[ValueId], early: &EarlyLoads, values: &[Vec<V>]) {
        for &v in instructions {
            match early.loads.iter().zip(values).find(|((load, _), _)| *load == v) {
                Some((_, leaves)) => self.values[v.index()] = Some(Val::Leaves(leaves.clone())),
                None => self.inst(v),
            }
        }
    }

    /// The places of the loads in the iteration that comes.
    fn places_to_come(&mut self, early: &EarlyLoads) -> Vec<Place> {
        let take = |step: &Step| (step.result(), self.values[step.result().index()].take());
        let before: Vec<(ValueId, Option<Val>)> = early.steps.iter().map(take).collect();
        for step in &early.steps {
            match *step {
                Step::Compute(v) => self.inst(v),
                Step::Stored(v, stored) => self.values[v.index()] = self.values[stored.index()].clone(),
            }
        }
        let places = early.loads.iter().map(|(_, address)| self.place(*address)).collect();
        for (v, value) in before {
            self.values[v.index()] = value;
        }
        places
    }
}
