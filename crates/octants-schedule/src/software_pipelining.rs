//! Software pipelining of a converged loop: the loads of a gradient's kept states are issued one iteration early, so
//! that a thread computes while it waits.
//!
//! A converged loop (`converge_loops`) has branches, and LLVM moves no load across them. The address of a kept state
//! comes from a local that counts the words of the store. At the end of an iteration this local holds the first value
//! of the next one, so the next load can be issued there. The assembler then moves it up to the last use of the state
//! before, and reuses its register. From further up it would need a copy, and would wait for the load there.

use std::collections::HashSet;

use octants_analysis::trace_indices;
use octants_ir::insert_code::zero;
use octants_ir::{BlockId, Body, Builder, Effect, LocalId, Op, ValueId};

use crate::clone_code::{Cloner, plainly};
use crate::facts::BodyFacts;

/// The loads of a loop that are issued one iteration early.
#[derive(Default)]
pub(crate) struct PipelinedLoads {
    /// The loads, with their addresses.
    pub loads: Vec<(ValueId, ValueId)>,
    /// The computation of the addresses, in order.
    pub steps: Vec<AddressStep>,
}

/// A step of the computation of an address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AddressStep {
    Compute(ValueId),
    /// A load of a local yields the value that was stored to it.
    Stored(ValueId, ValueId),
}

impl AddressStep {
    /// The instruction of the step.
    fn result(self) -> ValueId {
        match self {
            AddressStep::Compute(v) | AddressStep::Stored(v, _) => v,
        }
    }
}

impl PipelinedLoads {
    /// The locals that carry the loaded values to the next iteration, initially zero.
    pub fn add_locals(&self, b: &mut Builder) -> Vec<LocalId> {
        let add = |(load, _): &(ValueId, ValueId)| {
            let ty = b.ty(*load).clone();
            let local = b.body.add_local("ahead", ty.clone());
            // A value from an earlier run of the loop would take a register until here.
            let none = zero(b, &ty);
            b.store_local(local, none);
            local
        };
        self.loads.iter().map(add).collect()
    }

    /// Loads for the next iteration.
    pub fn load_ahead(&self, b: &mut Builder, cloner: &mut Cloner<'_>, locals: &[LocalId]) {
        let around = cloner.copier.values.clone();
        for step in &self.steps {
            match *step {
                AddressStep::Compute(v) => cloner.inst(b, v, &mut plainly),
                AddressStep::Stored(v, stored) => _ = cloner.copier.values.insert(v, cloner.value(stored)),
            }
        }
        let loaded: Vec<ValueId> = self.loads.iter().map(|(_, address)| b.load(cloner.value(*address))).collect();
        locals.iter().zip(loaded).for_each(|(local, value)| b.store_local(*local, value));
        cloner.copier.values = around;
    }
}

/// Finds the loads of a loop whose body has no early exit.
pub(crate) fn pipeline_loads(facts: &BodyFacts<'_>, loop_body: BlockId) -> PipelinedLoads {
    let body = facts.body;
    let (mut inside, mut written, mut is_ordered) = (HashSet::new(), HashSet::new(), false);
    body.visit(loop_body, &mut |v, inst| {
        inside.insert(v);
        match inst.op.effect() {
            Effect::Write(a) | Effect::Update(a) => written.extend(trace_indices(body, a, &mut Vec::new())),
            // Writes of other threads are seen in program order.
            Effect::Call(..) | Effect::ReadVolatile(_) | Effect::Synchronize => is_ordered = true,
            Effect::Pure
            | Effect::Index
            | Effect::Read(_)
            | Effect::Reduce
            | Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange => {}
            Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave => {}
            Effect::Print | Effect::Assert => {}
        }
    });
    let mut found = PipelinedLoads::default();
    if is_ordered {
        return found;
    }
    let statements = body.block(loop_body);
    for &load in statements {
        let Op::Load(address) = body.inst(load).op else { continue };
        let Some(b) = trace_indices(body, address, &mut Vec::new()) else { continue };
        if written.iter().any(|w| facts.of.memory.may_alias(b.index(), w.index())) {
            continue;
        }
        let mut search = Search { facts, statements, inside: &inside, steps: Vec::new(), changes: false };
        if search.leads_to(address) && search.changes {
            let is_known = |step: &AddressStep| found.steps.iter().any(|s| s.result() == step.result());
            search.steps.retain(|step| !is_known(step));
            found.steps.append(&mut search.steps);
            found.loads.push((load, address));
        }
    }
    found
}

struct Search<'a> {
    facts: &'a BodyFacts<'a>,
    /// The loop's body.
    statements: &'a [ValueId],
    inside: &'a HashSet<ValueId>,
    steps: Vec<AddressStep>,
    /// A local among them changes from iteration to iteration.
    changes: bool,
}

impl Search<'_> {
    /// Appends the computation of a value. `false` if it cannot be computed early.
    fn leads_to(&mut self, v: ValueId) -> bool {
        if !self.inside.contains(&v) || self.steps.iter().any(|s| s.result() == v) {
            return true;
        }
        let body = self.facts.body;
        let op = &body.inst(v).op;
        let step = match op {
            Op::Load(a) => {
                let Op::LocalAddr(local) = body.inst(*a).op else { return false };
                let Some(stores) = self.stores(local) else { return false };
                let Some(at) = self.position(v) else { return false };
                let stored = stores.iter().take_while(|s| s.0 < at).last().map(|s| s.1);
                let stored = stored.or(self.facts.locals.forwarded(v));
                self.changes |= !stores.is_empty();
                if !self.leads_to(stored.unwrap_or(*a)) {
                    return false;
                }
                stored.map_or(AddressStep::Compute(v), |stored| AddressStep::Stored(v, stored))
            }
            _ if op.is_pure() => {
                let mut computes = true;
                op.for_each_operand(|u| computes = computes && self.leads_to(u));
                if !computes {
                    return false;
                }
                AddressStep::Compute(v)
            }
            _ => return false,
        };
        self.steps.push(step);
        true
    }

    /// The stores to a local in the loop's body: position and value. `None` if it changes in another way.
    fn stores(&self, local: LocalId) -> Option<Vec<(usize, ValueId)>> {
        let body: &Body = self.facts.body;
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
