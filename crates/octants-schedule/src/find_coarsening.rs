//! Which tasks have a coarsened variant, in which each thread runs several neighboring iterations. `coarsen_threads`
//! writes it.
//!
//! Applies to short loop bodies without control flow that visit arrays in memory order: maps, stencils, sums. The
//! launcher uses the variant if the addresses and extents of a launch satisfy its conditions ([`Coarsening`]), on which
//! the code relies. A body that reads several rows of an array runs in tiles. Otherwise each row would be loaded from
//! global memory once per access in the body.

use std::collections::HashSet;

use octants_ir::schedule::Coarsening;
use octants_ir::{BinaryOp, Body, BufferId, Effect, Layout, Op, Program, Task, ValueId};

/// Maximum length of the body.
const MAX_INSTRUCTIONS: usize = 64;
/// Minimum number of iterations. With fewer, occupancy matters more.
const MIN_ITERATIONS: u64 = 1 << 19;
/// Minimum number of groups in a row. Groups at its ends run one iteration at a time.
const MIN_GROUPS: u32 = 16;
/// Threads of a block in one row of a tile.
pub(crate) const TILE_COLUMNS: u32 = 32;
/// Bytes of the widest access.
const BYTES: u32 = 16;

/// The coarsened variant of a task, if it pays off.
pub(crate) fn find_coarsening(program: &Program, task: &Task, v: ValueId, count: Option<u64>) -> Option<Coarsening> {
    let body = &task.body;
    let Op::For(l) = &body.inst(v).op else { return None };
    if l.dims.is_empty() || count.is_some_and(|n| n < MIN_ITERATIONS) {
        return None;
    }
    let last = l.dims.len() as u32 - 1;
    let (mut size, mut fits, mut is_contiguous, mut widest) = (0, true, false, 1);
    let mut rows: Vec<(BufferId, Vec<ValueId>)> = Vec::new();
    let mut tiles = false;
    body.visit(l.body, &mut |_, inst| {
        size += 1;
        fits &= match inst.op.effect() {
            Effect::Pure | Effect::Index | Effect::Read(_) | Effect::ReadVolatile(_) => true,
            Effect::Write(_) | Effect::Update(_) | Effect::Reduce => true,
            Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave | Effect::Call(..) => false,
            Effect::Draw
            | Effect::ReadClock
            | Effect::Exchange
            | Effect::Synchronize
            | Effect::Print
            | Effect::Assert => false,
        };
        if let Op::BufferAddr(b, index) = &inst.op {
            let buffer = &program.buffers[b.index()];
            let walks = index.last().is_some_and(|i| is_index(body, *i, v, last));
            let Some(scalar) = buffer.elem.scalar() else {
                fits = false;
                return;
            };
            let unit = match &buffer.layout {
                Layout::Contiguous => true,
                Layout::Strided | Layout::Flat(_) => false,
                Layout::Dense { components, .. } => components.iter().all(|c| {
                    let digits = c.place.axes.last().map_or(&[][..], |d| d.as_slice());
                    digits.len() == 1 && digits[0].stride <= u64::from(BYTES)
                }),
            };
            if walks {
                is_contiguous |= unit;
                widest = widest.max(scalar.bytes());
                let row = index[..index.len() - 1].to_vec();
                tiles |= rows.iter().any(|(of, other)| of == b && !same_row(body, &row, other));
                rows.push((*b, row));
            }
        }
    });
    let factor = (BYTES / widest).min(8);
    let wanted = fits && is_contiguous && size <= MAX_INSTRUCTIONS && factor > 1;
    let tiles = tiles && l.dims.len() > 1;
    // With two tiles in a row, less than half of the threads are idle.
    let columns = if tiles { 2 * TILE_COLUMNS } else { MIN_GROUPS };
    let min_row = u64::from(columns * factor);
    let (alignment, min_iterations) = (BYTES, MIN_ITERATIONS);
    wanted.then_some(Coarsening { factor, tiles, alignment, min_iterations, min_row })
}

/// The indices of two rows are syntactically equal.
fn same_row(body: &Body, a: &[ValueId], b: &[ValueId]) -> bool {
    let same = |a: ValueId, b: ValueId| {
        let plain = |v: ValueId| matches!(body.inst(v).op, Op::LoopIndex(..) | Op::Const(_));
        a == b || plain(a) && body.inst(a).op == body.inst(b).op
    };
    a.iter().zip(b).all(|(a, b)| same(*a, *b))
}

/// The value is the loop's index along an axis, or a sum or difference that contains it.
fn is_index(body: &Body, v: ValueId, l: ValueId, axis: u32) -> bool {
    let (mut open, mut seen) = (vec![v], HashSet::new());
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        match &body.inst(v).op {
            Op::LoopIndex(of, k) if *of == l && *k == axis => return true,
            Op::Cast(a) => open.push(*a),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => open.extend([*a, *b]),
            Op::Extract(a, i) => {
                if let Op::MakeTensor(parts) = &body.inst(*a).op {
                    open.push(parts[*i as usize]);
                }
            }
            _ => {}
        }
    }
    false
}
