//! The memory that code touches: buffers and frame slots, through calls and through references passed to functions.
//!
//! Functions may be recursive. A `Shape` touches nothing. Locals are left out, because other tasks cannot see them.

use std::collections::BTreeSet;

use octants_ir::{AccessSet, Body, Effect, FuncId, Op, Type, ValueId};

use crate::addresses::{Place, trace_address};

/// The memory effects of a body that are visible outside of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Buffers and frame slots.
    pub access: AccessSet,
    /// Reference parameters that it reads through.
    pub param_reads: BTreeSet<u32>,
    /// Reference parameters that it writes through.
    pub param_writes: BTreeSet<u32>,
    /// It prints, asserts, draws random numbers or synchronizes with other threads.
    pub other: bool,
}

impl Effects {
    fn read(&mut self, place: Place) {
        match place {
            Place::Buffer(b) => _ = self.access.reads.insert(b),
            Place::Frame(s) => _ = self.access.frame_reads.insert(s),
            Place::Param(p) => _ = self.param_reads.insert(p),
            Place::Local(_) => {}
        }
    }

    fn write(&mut self, place: Place) {
        match place {
            Place::Buffer(b) => _ = self.access.writes.insert(b),
            Place::Frame(s) => _ = self.access.frame_writes.insert(s),
            Place::Param(p) => _ = self.param_writes.insert(p),
            Place::Local(_) => {}
        }
    }

    /// Adds those of a call with these arguments.
    fn call(&mut self, callee: &Effects, args: &[Option<Place>]) {
        self.access.reads.extend(&callee.access.reads);
        self.access.writes.extend(&callee.access.writes);
        self.other |= callee.other;
        for (i, place) in (0..).zip(args) {
            let Some(place) = place else { continue };
            if callee.param_reads.contains(&i) {
                self.read(*place);
            }
            if callee.param_writes.contains(&i) {
                self.write(*place);
            }
        }
    }

    /// Changes nothing that anyone could see afterwards.
    pub fn is_silent(&self) -> bool {
        self.access.writes.is_empty()
            && self.access.frame_writes.is_empty()
            && self.param_writes.is_empty()
            && !self.other
    }
}

/// The effects of a body by itself, and what it passes to the functions that it calls.
#[derive(Debug)]
pub(crate) struct OwnEffects {
    effects: Effects,
    /// For each call, where its arguments that are references point.
    calls: Vec<(FuncId, Vec<Option<Place>>)>,
}

impl OwnEffects {
    /// Analyzes a body.
    pub fn of(body: &Body) -> OwnEffects {
        let mut own = OwnEffects { effects: Effects::default(), calls: Vec::new() };
        body.visit(body.root, &mut |_, inst| match inst.op.effect() {
            Effect::Call(f, args) => own.calls.push((f, passed(body, args))),
            _ => inst_effects(body, &inst.op, &[], &mut own.effects),
        });
        own
    }

    /// The effects of the body, given those of the functions it may call.
    pub fn with(&self, functions: &[Effects]) -> Effects {
        let mut e = self.effects.clone();
        self.calls.iter().for_each(|(f, args)| e.call(&functions[f.index()], args));
        e
    }
}

/// The targets of a call's reference arguments.
fn passed(body: &Body, args: &[ValueId]) -> Vec<Option<Place>> {
    args.iter().map(|a| matches!(body.ty(*a), Type::Ref(_)).then(|| trace_address(body, *a))).collect()
}

/// Adds the effects of one operation, without its blocks.
pub fn inst_effects(body: &Body, op: &Op, functions: &[Effects], e: &mut Effects) {
    let place = |v: ValueId| trace_address(body, v);
    match op.effect() {
        // A reduction's target is touched by its loop.
        Effect::Pure | Effect::Index | Effect::Branch(..) | Effect::Loop(_) | Effect::Leave | Effect::Reduce => {}
        Effect::Read(a) => e.read(place(a)),
        Effect::ReadVolatile(a) => {
            e.read(place(a));
            // To wait for others is an effect.
            e.other = true;
        }
        Effect::Write(a) => e.write(place(a)),
        Effect::Update(a) => {
            e.read(place(a));
            e.write(place(a));
        }
        Effect::For(l) => {
            for r in &l.reductions {
                e.read(place(r.target));
                e.write(place(r.target));
            }
        }
        Effect::Call(func, args) => e.call(&functions[func.index()], &passed(body, args)),
        Effect::Print | Effect::Assert | Effect::Draw | Effect::ReadClock | Effect::Exchange | Effect::Synchronize => {
            e.other = true
        }
    }
}
