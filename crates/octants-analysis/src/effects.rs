//! The memory that code touches: buffers and frame slots, through calls and references passed to functions.
//!
//! Functions may call themselves. A `Shape` touches nothing. Locals are of no interest to other tasks and left out.

use std::collections::BTreeSet;

use octants_ir::{AccessSet, Body, Effect, Function, Op, Program, Type, ValueId};

use crate::addresses::{Place, trace_address};

/// What a body touches, seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Buffers and frame slots.
    pub access: AccessSet,
    /// Reference parameters that it reads through.
    pub param_reads: BTreeSet<u32>,
    /// Reference parameters that it writes through.
    pub param_writes: BTreeSet<u32>,
    /// It prints, asserts, draws random numbers or meets other threads.
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

    /// Changes nothing that anyone could see afterwards.
    pub fn is_silent(&self) -> bool {
        self.access.writes.is_empty()
            && self.access.frame_writes.is_empty()
            && self.param_writes.is_empty()
            && !self.other
    }
}

/// The effects of each function, by `FuncId`.
pub fn function_effects(functions: &[Function]) -> Vec<Effects> {
    let mut all = vec![Effects::default(); functions.len()];
    // Each round adds what one more call reaches; the sets only grow, so this ends.
    loop {
        let next: Vec<Effects> = functions.iter().map(|f| body_effects(&f.body, &all)).collect();
        if next == all {
            return all;
        }
        all = next;
    }
}

/// The effects of a body, given those of the functions it may call.
pub fn body_effects(body: &Body, functions: &[Effects]) -> Effects {
    let mut e = Effects::default();
    body.visit(body.root, &mut |_, inst| inst_effects(body, &inst.op, functions, &mut e));
    e
}

/// Adds the effects of one operation, the blocks in it aside.
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
        Effect::Call(func, args) => {
            let callee = &functions[func.index()];
            e.access.reads.extend(&callee.access.reads);
            e.access.writes.extend(&callee.access.writes);
            e.other |= callee.other;
            for (i, arg) in args.iter().enumerate() {
                if matches!(body.ty(*arg), Type::Ref(_)) {
                    if callee.param_reads.contains(&(i as u32)) {
                        e.read(place(*arg));
                    }
                    if callee.param_writes.contains(&(i as u32)) {
                        e.write(place(*arg));
                    }
                }
            }
        }
        Effect::Print | Effect::Assert | Effect::Draw | Effect::ReadClock | Effect::Exchange | Effect::Synchronize => {
            e.other = true
        }
    }
}

/// Fills in the access set of every task.
pub fn compute_access(program: &mut Program) {
    let functions = function_effects(&program.functions);
    for task in &mut program.tasks {
        task.access = body_effects(&task.body, &functions).access;
    }
}
