//! Tasks of which each thread runs several neighbouring iterations, so that what neighbours load and store becomes few wide
//! accesses.
//!
//! It applies to short loop bodies without control flow that walk arrays in the order of memory: maps, stencils, sums. The
//! launcher takes this form where addresses and extents of a launch fit (`octants_artifact::WideForm`); code of the form
//! relies on that. Where a body reads several rows of an array it walks in tiles: without, each row comes from the memory of the whole
//! device as often as the body names it.

use std::collections::HashSet;

use octants_artifact::WideForm;
use octants_ir::{BinaryOp, Body, BufferId, Layout, Op, Program, Task, ValueId};

use crate::facts::Facts;
use crate::lower_body::Lowering;
use crate::strided_loops::TILE_COLUMNS;

/// Longest body, in instructions.
const MOST_INSTRUCTIONS: usize = 64;
/// Fewest iterations: with fewer there are more threads to keep busy than iterations to share out.
const LEAST_ITERATIONS: u64 = 1 << 19;
/// Fewest groups of neighbours in a row: those at its ends are run one by one.
const LEAST_GROUPS: u32 = 16;
/// Bytes of the widest access.
const BYTES: u32 = 16;

/// Which iterations a thread runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grouping {
    /// How many neighbours of the last axis at a time.
    pub lanes: u32,
    /// The threads of a block run tiles of the last two axes.
    pub tiles: bool,
}

impl Grouping {
    /// One by one, in order.
    pub const NONE: Grouping = Grouping { lanes: 1, tiles: false };

    /// Several at a time.
    pub fn is_wide(self) -> bool {
        self.lanes > 1
    }
}

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
        match &inst.op {
            Op::If(..) | Op::For(_) | Op::Loop(_) | Op::Call(..) | Op::Print(_) | Op::Assert(..) => fits = false,
            Op::Random | Op::Balance { .. } => fits = false,
            Op::Break | Op::Continue | Op::Return(_) => fits = false,
            Op::BufferAddr(b, index) => {
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
            _ => {}
        }
    });
    let lanes = (BYTES / widest).min(8);
    let wanted = fits && in_order && size <= MOST_INSTRUCTIONS && lanes > 1;
    wanted.then_some(Grouping { lanes, tiles: tiles && l.dims.len() > 1 })
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

/// What a launch must fulfil.
pub(crate) fn wide_form(facts: &Facts<'_>, symbol: String, grouping: Grouping) -> WideForm {
    // Of two tiles next to one another less than half is wasted.
    let columns = if grouping.tiles { 2 * TILE_COLUMNS } else { LEAST_GROUPS };
    let mut form = WideForm {
        symbol,
        code: Vec::new(),
        lanes: grouping.lanes,
        alignment: BYTES,
        least_iterations: LEAST_ITERATIONS,
        least_row: u64::from(columns * grouping.lanes),
        addresses: Vec::new(),
        extents: Vec::new(),
    };
    for (buffer, slot) in facts.program.buffers.iter().zip(&facts.args.buffers) {
        if let (Layout::Contiguous, Some(slot)) = (&buffer.layout, slot) {
            form.addresses.push(*slot);
            if buffer.ndim > 1 {
                form.extents.push(slot + buffer.ndim);
            }
        }
    }
    form
}

impl Lowering<'_, '_> {
    /// Tells the optimiser what the launcher saw to.
    pub fn assume_wide(&self, form: &WideForm) {
        let e = self.e;
        for slot in &form.extents {
            self.assume_multiple(self.argument(*slot, e.i64), form.lanes);
        }
    }

    /// Tells the optimiser that a number is a multiple of a power of two.
    pub fn assume_multiple(&self, v: crate::emit::V, of: u32) {
        let e = self.e;
        if e.as_int(v).is_none() {
            let rest = e.and(v, e.i64c(i64::from(of) - 1));
            let whole = e.icmp(crate::emit::IntCmp::LLVMIntEQ, rest, e.i64c(0));
            let assume = e.declare("llvm.assume", e.void, &mut [e.i1]);
            e.call(assume, &[whole]);
        }
    }
}
