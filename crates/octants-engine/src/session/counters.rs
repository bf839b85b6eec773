//! [`counters_of`]: the integers in memory that a program's data-dependent loops change.
//!
//! The gradient of such a loop runs the same rounds, so it starts with the values that the counters had when the loop
//! began (octants-autodiff's `promote_counters`).

use std::collections::BTreeSet;

use octants_artifact::{Condition, ScalarKind};
use octants_ir::{ArgLayout, Body, BufferId, Effect, LaunchCount, Layout, Op, Program, Scalar, TaskGraph, Type};

/// Their addresses, for a program whose arguments are in these slots.
pub(super) fn counters_of(program: &Program, layout: &ArgLayout) -> Vec<Condition> {
    let mut writes = Writes::default();
    writes.add(program, &program.graph, false);
    let places = writes.by_one.difference(&writes.by_many);
    places.filter_map(|b| place_of(program, layout, *b)).collect()
}

/// The memory that the tasks of a program write.
#[derive(Default)]
struct Writes {
    /// Buffers that tasks of one iteration write in rounds.
    by_one: BTreeSet<BufferId>,
    /// Buffers that other tasks write.
    by_many: BTreeSet<BufferId>,
}

impl Writes {
    fn add(&mut self, program: &Program, graph: &TaskGraph, repeats: bool) {
        match graph {
            TaskGraph::While { body, .. } => self.add(program, body, true),
            TaskGraph::Launch { task, count } => {
                let writes = program.tasks[task.index()].access.writes.iter().copied();
                if *count != LaunchCount::Known(1) {
                    self.by_many.extend(writes);
                } else if repeats {
                    self.by_one.extend(writes);
                } else {
                    self.add_serial_loops(&program.tasks[task.index()].body);
                }
            }
            _ => graph.parts().into_iter().for_each(|part| self.add(program, part, repeats)),
        }
    }

    /// Adds the scalars that serial loops of a task write. Their iterations are not separate tasks.
    fn add_serial_loops(&mut self, body: &Body) {
        let loops = body.block(body.root).iter().filter_map(|v| match body.inst(*v).op {
            Op::Loop(block) => Some(block),
            _ => None,
        });
        for block in loops {
            body.visit(block, &mut |_, inst| {
                if let Effect::Write(a) | Effect::Update(a) = inst.op.effect()
                    && let Op::BufferAddr(b, indices) = &body.inst(a).op
                    && indices.is_empty()
                {
                    self.by_one.insert(*b);
                }
            });
        }
    }
}

fn place_of(program: &Program, layout: &ArgLayout, b: BufferId) -> Option<Condition> {
    let buffer = &program.buffers[b.index()];
    let (Type::Scalar(s), 0) = (&buffer.elem, buffer.ndim) else { return None };
    let kind = kind_of(*s)?;
    Some(match (&buffer.layout, layout.buffers[b.index()]) {
        (Layout::Dense { components, .. }, _) => {
            Condition { slot: Some(layout.roots[components[0].root as usize]), offset: components[0].place.base, kind }
        }
        (_, slot) => Condition { slot: Some(slot?), offset: 0, kind },
    })
}

/// The kind of an integer.
fn kind_of(s: Scalar) -> Option<ScalarKind> {
    Some(match s {
        Scalar::U1 => ScalarKind::U1,
        Scalar::I8 => ScalarKind::I8,
        Scalar::I16 => ScalarKind::I16,
        Scalar::I32 => ScalarKind::I32,
        Scalar::I64 => ScalarKind::I64,
        Scalar::U8 => ScalarKind::U8,
        Scalar::U16 => ScalarKind::U16,
        Scalar::U32 => ScalarKind::U32,
        Scalar::U64 => ScalarKind::U64,
        _ => return None,
    })
}
