//! Which tasks have a form in which each thread runs several neighboring iterations, so that what neighbors load and
//! store becomes few wide accesses.
//!
//! It applies to short loop bodies without control flow that walk arrays in the order of memory: maps, stencils, sums.
//! The launcher takes this form where addresses and extents of a launch fit (`Grouping`); code of the form relies on
//! that. Where a body reads several rows of an array it walks in tiles: without, each row comes from the memory of the
//! whole device as often as the body names it.

use std::collections::HashSet;

use octants_ir::schedule::{Grouping, TILE_COLUMNS};
use octants_ir::{BinaryOp, Body, BufferId, Effect, Layout, Op, Program, Task, ValueId};

/// Longest body, in instructions.
const MOST_INSTRUCTIONS: usize = 64;
/// Fewest iterations: with fewer there are more threads to keep busy than iterations to share out.
const LEAST_ITERATIONS: u64 = 1 << 19;
/// Fewest groups of neighbors in a row: those at its ends are run one by one.
const LEAST_GROUPS: u32 = 16;
/// Bytes of the widest access.
const BYTES: u32 = 16;

/// Which iterations a thread should run at a time, where these are several.
pub(crate) fn find_grouping(program: &Program, task: &Task, v: ValueId, count: Option<u64>) -> Option<Grouping> {
    let body = &task.body;
    let Op::For(l) = &body.inst(v).op else { return None };
    if l.dims.is_empty() || count.is_some_and(|n| n < LEAST_ITERATIONS) {
        return None;
    }
    let last = l.dims.len() as u32 - 1;
    let (mut size, mut fits, mut in_order, mut widest) = (0, true, false, 1);
    let mut rows: Vec<(BufferId, Vec<ValueId>)> = Vec::new();
    let mut tiles = false;
    body.visit(l.body, &mut |_, inst| {
        size += 1;
        fits &= match inst.op.effect() {
            Effect::Pure | Effect::Index | Effect::Read(_) | Effect::ReadVolatile(_) => true,
            Effect::Write(_) | Effect::Update(_) | Effect::Reduce => true,
            Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) | Effect::Leave | Effect::Call(..) => false,
            Effect::Draw | Effect::Exchange | Effect::Synchronize | Effect::Print | Effect::Assert => false,
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
                Layout::Strided => false,
                Layout::Dense { components, .. } => components.iter().all(|c| {
                    let digits = c.axes.last().map_or(&[][..], |d| d.as_slice());
                    digits.len() == 1 && digits[0].stride <= u64::from(BYTES)
                }),
            };
            if walks {
                in_order |= unit;
                widest = widest.max(scalar.bytes());
                let row = index[..index.len() - 1].to_vec();
                tiles |= rows.iter().any(|(of, other)| of == b && !same_row(body, &row, other));
                rows.push((*b, row));
            }
        }
    });
    let lanes = (BYTES / widest).min(8);
    let wanted = fits && in_order && size <= MOST_INSTRUCTIONS && lanes > 1;
    let tiles = tiles && l.dims.len() > 1;
    // Of two tiles next to one another less than half is wasted.
    let columns = if tiles { 2 * TILE_COLUMNS } else { LEAST_GROUPS };
    let least_row = u64::from(columns * lanes);
    let (alignment, least_iterations) = (BYTES, LEAST_ITERATIONS);
    wanted.then_some(Grouping { lanes, tiles, alignment, least_iterations, least_row })
}

/// The indices of two rows are plainly the same.
fn same_row(body: &Body, a: &[ValueId], b: &[ValueId]) -> bool {
    let same = |a: ValueId, b: ValueId| {
        let plain = |v: ValueId| matches!(body.inst(v).op, Op::LoopIndex(..) | Op::Const(_));
        a == b || plain(a) && body.inst(a).op == body.inst(b).op
    };
    a.iter().zip(b).all(|(a, b)| same(*a, *b))
}

/// The value is an axis's index of the loop, as it is or moved by what does not depend on the loop's body.
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
