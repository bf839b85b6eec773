//! Facts about the current program and body, for the passes.

use std::sync::Arc;

use octants_analysis::{CostModel, MemoryClasses, OwnBehavior, local_uses, own_behavior};
use octants_ir::schedule::{Behavior, LocalUses, ScheduleOptions};
use octants_ir::{Body, Const, Program, TargetInfo, ValueId};

/// Facts about a program.
pub(crate) struct ProgramFacts<'p> {
    pub program: &'p Program,
    pub target: &'p TargetInfo,
    pub options: ScheduleOptions,
    /// Each function by itself.
    pub own: Vec<Arc<OwnBehavior>>,
    /// Each function with those that it calls.
    pub behaviors: Vec<Behavior>,
    pub memory: MemoryClasses<'p>,
    /// Per buffer: the first one whose memory may overlap its own.
    pub overlapping: Vec<usize>,
}

impl<'p> ProgramFacts<'p> {
    /// Collects the facts.
    pub fn of(program: &'p Program, target: &'p TargetInfo, options: ScheduleOptions) -> ProgramFacts<'p> {
        let own: Vec<_> = program.functions.iter().map(|f| own_behavior(&f.body)).collect();
        let with_callees = |o: &Arc<OwnBehavior>| o.with(o.reached(&own).iter().map(|f| own[f.index()].behavior));
        let behaviors = own.iter().map(with_callees).collect();
        let memory = MemoryClasses::of(&program.buffers, options.arrays_may_alias);
        let overlapping = memory.overlapping();
        ProgramFacts { program, target, options, behaviors, own, memory, overlapping }
    }

    /// The cost model of the target.
    pub fn costs(&self) -> CostModel<'_> {
        CostModel::of(&self.target.costs)
    }
}

/// Facts about a body of a program.
pub(crate) struct BodyFacts<'a> {
    pub of: &'a ProgramFacts<'a>,
    pub body: &'a Body,
    pub locals: Arc<LocalUses>,
}

impl<'a> BodyFacts<'a> {
    /// Collects the facts.
    pub fn new(of: &'a ProgramFacts<'a>, body: &'a Body) -> BodyFacts<'a> {
        BodyFacts { of, body, locals: local_uses(body) }
    }

    /// The instruction that defines `v`, seen through loads of locals that hold one value.
    pub fn source(&self, v: ValueId) -> ValueId {
        self.locals.source(v)
    }

    /// The value, if it is a known integer.
    pub fn known(&self, v: ValueId) -> Option<i64> {
        match self.body.as_const(self.source(v)) {
            Some(Const::Int(n)) => Some(n),
            _ => None,
        }
    }
}
