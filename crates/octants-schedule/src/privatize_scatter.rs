//! Scatter privatization: the private variant of a task adds to the calling thread's private copies.
//!
//! `scatter_privatization` selects the memory to copy. The caller of the variant allocates the copies; `merge_copies`
//! merges them.

use std::collections::HashMap;

use octants_ir::schedule::Role;
use octants_ir::{BinaryOp, Body, BufferId, Layout, MemorySpace, Op, Scalar, Scheduled, Type, ValueId};

use crate::shared_buffers::next_root;

/// Lets the private variants of tasks address copies.
pub(crate) fn privatize_scatter(scheduled: &mut Scheduled) {
    for task in 0..scheduled.schedule.tasks.len() {
        let Some(mut found) = scheduled.schedule.tasks[task].forms.thread_privatization.take() else { continue };
        let mut copies = HashMap::new();
        let first = next_root(&scheduled.program.buffers, MemorySpace::Private);
        for (number, region) in found.regions.iter_mut().enumerate() {
            for &b in &region.buffers {
                let copy = add_copy(scheduled, region.start(), b, first + number as u32);
                region.copies.push(copy.buffer.index());
                copies.insert(BufferId(b as u32), copy);
            }
        }
        let schedule = &mut scheduled.schedule.tasks[task];
        schedule.forms.thread_privatization = Some(found);
        for variant in schedule.variants.iter_mut().filter(|v| v.role == Role::Private) {
            redirect(&mut variant.body, &copies);
        }
    }
}

/// The private buffer for a buffer.
struct Copy {
    buffer: BufferId,
    ndim: usize,
}

/// Adds the private buffer for a buffer of a region that has its own private root, and starts at byte `start` of the
/// shared one.
fn add_copy(scheduled: &mut Scheduled, start: u64, buffer: usize, root: u32) -> Copy {
    let Scheduled { program, schedule } = scheduled;
    let mut copy = program.buffers[buffer].clone();
    copy.name = format!("{} of a thread", copy.name);
    copy.space = MemorySpace::Private;
    copy.short_offsets = false;
    match &mut copy.layout {
        Layout::Dense { components, .. } => {
            for c in components {
                (c.root, c.place.base) = (root, c.place.base - start);
            }
        }
        // A passed copy has no shape: its index is linear.
        Layout::Contiguous | Layout::Strided | Layout::Flat(_) => copy.ndim = 1,
    }
    let ndim = copy.ndim as usize;
    program.buffers.push(copy);
    schedule.memory.push(schedule.memory[buffer]);
    schedule.tasks.iter_mut().for_each(|t| t.constants.push(false));
    Copy { buffer: BufferId(program.buffers.len() as u32 - 1), ndim }
}

/// Replaces the buffers of addresses.
fn redirect(body: &mut Body, copies: &HashMap<BufferId, Copy>) {
    for block in 0..body.blocks.len() {
        let mut rebuilt = Vec::with_capacity(body.blocks[block].len());
        for v in std::mem::take(&mut body.blocks[block]) {
            if let Op::BufferAddr(of, index) = &body.inst(v).op
                && let Some(copy) = copies.get(of)
            {
                let (of, mut index) = (*of, index.clone());
                if index.len() > copy.ndim {
                    index = vec![flat_index(body, v, of, &index, &mut rebuilt)];
                }
                body.inst_mut(v).op = Op::BufferAddr(copy.buffer, index);
            }
            rebuilt.push(v);
        }
        body.blocks[block] = rebuilt;
    }
}

/// Appends the computation of the number of an array's element to `out`, in 64 bits.
fn flat_index(body: &mut Body, like: ValueId, of: BufferId, index: &[ValueId], out: &mut Vec<ValueId>) -> ValueId {
    let span = body.inst(like).span;
    let mut push = |body: &mut Body, op| {
        let v = body.add_inst(op, Type::Scalar(Scalar::I64), span);
        out.push(v);
        v
    };
    let mut flat = None;
    for (axis, &i) in index.iter().enumerate() {
        let wide = if body.ty(i).scalar() == Some(Scalar::I64) { i } else { push(body, Op::Cast(i)) };
        flat = Some(match flat {
            None => wide,
            Some(outer) => {
                let extent = push(body, Op::Shape(of, axis as u32));
                let row = push(body, Op::Binary(BinaryOp::Mul, outer, extent));
                push(body, Op::Binary(BinaryOp::Add, row, wide))
            }
        });
    }
    flat.expect("compiler bug: an array access without an index")
}
