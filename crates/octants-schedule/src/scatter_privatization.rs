//! Scatter privatization: finds memory that a task uses only to scatter sums to, so that private copies can hold the
//! sums.
//!
//! On the CPU a task qualifies if every atomic is such a sum whose old value is unused: histograms, particles onto a
//! grid. On a GPU, thread blocks keep copies of small buffers in shared memory, regardless of the task's other
//! accesses.

use std::collections::{BTreeMap, BTreeSet};

use octants_analysis::{UNKNOWN_TRIPS, estimate_trips, touched_at_own_indices, trace_element};
use octants_ir::schedule::{Region, RegionMemory, ScatterPrivatization};
use octants_ir::{AtomicOp, BlockId, Body, BufferId, Effect, FuncId, Layout, Op, Program, Scalar, Task, ValueId};

use crate::facts::ProgramFacts;

/// Privatization per thread: applies if sums are the only atomics of the task.
pub(crate) fn privatize_scatter(
    facts: &ProgramFacts<'_>,
    task: &Task,
    (parallel, loop_body): (ValueId, BlockId),
) -> Option<ScatterPrivatization> {
    let sums = find_sums(facts, task, parallel);
    let regions = if sums.are_all { regions(facts, &sums.buffers, facts.target.private_bytes)? } else { return None };
    (!regions.is_empty()).then(|| ScatterPrivatization { regions, updates: updates(&task.body, loop_body) })
}

/// Privatization per thread block: the smallest fields that the task scatters sums to, up to `most` bytes in total, and
/// with `arrays` the arrays.
pub(crate) fn privatize_small_scatter(
    facts: &ProgramFacts<'_>,
    task: &Task,
    (parallel, loop_body): (ValueId, BlockId),
    most: u64,
    arrays: bool,
) -> Option<ScatterPrivatization> {
    let sums = find_sums(facts, task, parallel);
    let one = |b: &usize| regions(facts, &BTreeSet::from([*b]), most).unwrap_or_default();
    let mut regions: Vec<Region> = sums.buffers.iter().flat_map(one).collect();
    regions.sort_by_key(Region::known_bytes);
    let mut left = most;
    regions.retain(|r| {
        let bytes = r.known_bytes();
        let fits = bytes <= left && (arrays || bytes > 0);
        left -= if fits { bytes } else { 0 };
        fits
    });
    (!regions.is_empty()).then(|| ScatterPrivatization { regions, updates: updates(&task.body, loop_body) })
}

/// Sums that a task scatters.
struct Sums {
    /// Buffers that the task does nothing else with, and that several iterations may add to at one element.
    buffers: BTreeSet<usize>,
    /// The task has no other atomic operation.
    are_all: bool,
}

/// Finds the scattered sums of a task with this parallel loop. Memory to which no two iterations add does not benefit
/// from copies.
fn find_sums(facts: &ProgramFacts<'_>, task: &Task, parallel: ValueId) -> Sums {
    let body = &task.body;
    let mut are_all = true;
    let mut sums: BTreeSet<ValueId> = BTreeSet::new();
    let mut used: BTreeSet<ValueId> = BTreeSet::new();
    let mut others: BTreeSet<usize> = BTreeSet::new();
    let mut called = BTreeSet::new();
    body.visit(body.root, &mut |v, inst| {
        match &inst.op {
            Op::Atomic(AtomicOp::Add | AtomicOp::Sub, _, operand) => {
                sums.insert(v);
                used.insert(*operand);
            }
            // The use of the address of a part decides.
            Op::ElementAddr(_, index) => used.extend(index),
            Op::Call(f, _) => {
                are_all &= facts.behaviors[f.index()].atomics == 0;
                touched_by(facts.program, *f, &mut called, &mut others);
                used_operands(&inst.op, &mut used);
            }
            op => {
                let reduces = matches!(op, Op::For(l) if !l.reductions.is_empty());
                are_all &= !reduces && !matches!(op.effect(), Effect::Update(_));
                used_operands(op, &mut used);
            }
        }
    });
    let mut buffers = BTreeSet::new();
    for v in sums {
        let Op::Atomic(_, address, _) = body.inst(v).op else { continue };
        match buffer_of(body, address) {
            Some(b) if used.contains(&v) => _ = others.insert(b),
            Some(b) => _ = buffers.insert(b),
            None => {}
        }
        are_all &= !used.contains(&v) && buffer_of(body, address).is_some();
    }
    // Addresses with other uses than sums.
    others.extend(used.iter().filter_map(|v| buffer_of(body, *v)));
    let summed = buffers.len();
    buffers.retain(|b| !others.iter().any(|o| facts.memory.may_alias(*b, *o)));
    are_all &= buffers.len() == summed;
    if !buffers.is_empty() {
        let own = touched_at_own_indices(body, parallel);
        buffers.retain(|b| !own.contains(&BufferId(*b as u32)));
    }
    Sums { buffers, are_all }
}

fn used_operands(op: &Op, used: &mut BTreeSet<ValueId>) {
    op.for_each_operand(|v| {
        used.insert(v);
    });
}

/// The buffer that an address is in.
pub(crate) fn buffer_of(body: &Body, v: ValueId) -> Option<usize> {
    trace_element(body, v).map(|(b, _)| b.index())
}

/// Collects the buffers that a function touches, with the functions it calls; `called` holds those done already.
pub(crate) fn touched_by(program: &Program, f: FuncId, called: &mut BTreeSet<FuncId>, buffers: &mut BTreeSet<usize>) {
    if !called.insert(f) {
        return;
    }
    let body = &program.functions[f.index()].body;
    body.visit(body.root, &mut |_, inst| match &inst.op {
        Op::BufferAddr(b, _) => {
            buffers.insert(b.index());
        }
        Op::Call(f, _) => touched_by(program, *f, called, buffers),
        _ => {}
    });
}

fn regions(facts: &ProgramFacts<'_>, buffers: &BTreeSet<usize>, most: u64) -> Option<Vec<Region>> {
    let mut regions = Vec::new();
    let mut roots: BTreeMap<u32, (u64, u64, Scalar, Vec<usize>)> = BTreeMap::new();
    for &b in buffers {
        let buffer = &facts.program.buffers[b];
        let scalar = buffer.elem.scalar()?;
        if !matches!(scalar.bytes(), 4 | 8) {
            return None;
        }
        let components = match &buffer.layout {
            Layout::Contiguous if !facts.options.privatizes_arrays => return None,
            Layout::Contiguous => {
                regions.push(Region {
                    memory: RegionMemory::Array { buffer: b },
                    scalar,
                    buffers: vec![b],
                    copies: Vec::new(),
                    all_copies: None,
                });
                continue;
            }
            Layout::Strided | Layout::Flat(_) => return None,
            Layout::Dense { components, .. } => components,
        };
        for c in components {
            let unit = u64::from(scalar.bytes());
            if c.place.base % unit != 0 || c.place.axes.iter().flatten().any(|d| d.stride % unit != 0) {
                return None;
            }
            let end = c.place.end(unit);
            let root = roots.entry(c.root).or_insert_with(|| (c.place.base, end, scalar, Vec::new()));
            if root.2 != scalar {
                return None;
            }
            root.0 = root.0.min(c.place.base);
            root.1 = root.1.max(end);
            if !root.3.contains(&b) {
                root.3.push(b);
            }
        }
    }
    for (root, (start, end, scalar, buffers)) in roots {
        if end - start > most {
            return None;
        }
        // A copy begins at a multiple of eight bytes, like its original.
        let start = start & !7;
        regions.push(Region {
            memory: RegionMemory::Root { root, start, bytes: end - start },
            scalar,
            buffers,
            copies: Vec::new(),
            all_copies: None,
        });
    }
    // A buffer with components in several roots would get several copies.
    let listed: usize = regions.iter().map(|r| r.buffers.len()).sum();
    (listed == buffers.len()).then_some(regions)
}

fn updates(body: &Body, loop_body: BlockId) -> u64 {
    count_updates(body, loop_body).max(1.0).ceil() as u64
}

fn count_updates(body: &Body, block: BlockId) -> f32 {
    body.block(block)
        .iter()
        .map(|v| match &body.inst(*v).op {
            Op::Atomic(_, _, operand) => body.ty(*operand).leaf_count() as f32,
            Op::If(_, a, b) => 0.5 * (count_updates(body, *a) + count_updates(body, *b)),
            Op::For(l) => estimate_trips(body, l) * count_updates(body, l.body),
            Op::Loop(b) => UNKNOWN_TRIPS * count_updates(body, *b),
            _ => 0.0,
        })
        .sum()
}
