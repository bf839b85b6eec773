//! Facts about the program and the body that passes look at.

use octants_analysis::{CostModel, MemoryClasses, OwnBehavior, find_local_uses};
use octants_ir::schedule::{Behavior, LocalUses, ScheduleOptions};
use octants_ir::{BlockId, Body, Const, Op, Program, TargetInfo, ValueId};

/// Facts about a program.
pub(crate) struct ProgramFacts<'p> {
    pub program: &'p Program,
    pub target: &'p TargetInfo,
    pub options: ScheduleOptions,
    /// Each function by itself.
    pub own: Vec<OwnBehavior>,
    /// Each function with those that it calls.
    pub behaviors: Vec<Behavior>,
    pub memory: MemoryClasses<'p>,
    /// Per buffer: the first one whose memory may overlap its own.
    pub overlapping: Vec<usize>,
}

impl<'p> ProgramFacts<'p> {
    /// Collects the facts.
    pub fn of(program: &'p Program, target: &'p TargetInfo, options: ScheduleOptions) -> ProgramFacts<'p> {
        let own: Vec<_> = program.functions.iter().map(|f| OwnBehavior::of(&f.body)).collect();
        let with_callees = |o: &OwnBehavior| o.with(o.reached(&own).iter().map(|f| own[f.index()].behavior));
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

/// The bodies of the parallel loops of a task.
pub(crate) fn parallel_bodies(body: &Body) -> Vec<BlockId> {
    let mut found = Vec::new();
    body.visit(body.root, &mut |_, inst| {
        if let Op::For(l) = &inst.op {
            found.extend(l.blocks().filter(|_| l.parallel.is_some()));
        }
    });
    found
}

/// Facts about a body of a program.
pub(crate) struct BodyFacts<'a> {
    pub of: &'a ProgramFacts<'a>,
    pub body: &'a Body,
    pub locals: LocalUses,
}

impl<'a> BodyFacts<'a> {
    /// Collects the facts. `parallel_body` is the body of the task's parallel loop, if it has one.
    pub fn new(of: &'a ProgramFacts<'a>, body: &'a Body, parallel_body: Option<BlockId>) -> BodyFacts<'a> {
        BodyFacts { of, body, locals: find_local_uses(body, parallel_body.as_slice()) }
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
