//! Sums that the inner loop of a parallel loop scatters are gathered: by a parallel loop over the elements that they
//! are added to, with the original's iterations in order inside. No two threads meet there, so that nothing is atomic.
//!
//! In `for i: for j: g[j] += f(i, j)` threads of a GPU add to the same element at the same time, which takes a hundred
//! times as long as computing what they add. Here this becomes `for j: for i: g[j] += f(i, j)`, which computes what
//! both loops need twice. Other indices of the parallel loop in the address (the gradient of a product of matrices has
//! them) stay parallel.
//!
//! Only gradients are gathered, where nothing else runs meanwhile and nobody sees the order. The new loop runs first:
//! it reads what the original reads before it writes, and adds to memory that the original does not read. It has as
//! many iterations as the buffer has elements along that axis; a comparison leaves out those that the inner loop does
//! not reach. Where elements are too few to keep a device busy, atomics stay.
//!
//! This is a pass of the kernel, and not of octants-schedule, because the new loop must become a task of its own, and
//! because what follows in the pipeline completes it: its updates are demoted to plain ones, and sums without an index
//! of the inner loop become reductions.
//!
//! Assumes that arrays share no memory, and that invariants have left the inner loops; leaves code that nothing uses.
//!
//! `find_gathers` tells what can be computed apart, `build_loop` does it.

mod build_loop;
mod find_gathers;

use std::collections::{BTreeSet, HashSet};

use octants_ir::{BinaryOp, Body, Buffer, BufferId, ForLoop, Kernel, Layout, LocalId, Op, ValueId};

use crate::pass_options::PassOptions;
use build_loop::Emission;
use find_gathers::find;

/// Gathers sums of gradients that inner loops scatter over at least `options.gather` elements.
pub fn gather_updates(kernel: &mut Kernel, options: &PassOptions) {
    let Some(least) = options.gather else { return };
    let shadow_buffers: BTreeSet<BufferId> = kernel.shadow_buffers.values().copied().collect();
    let mut done = HashSet::new();
    for v in kernel.body.block(kernel.body.root).to_vec() {
        while let Some(gather) = find(&kernel.body, &kernel.buffers, &shadow_buffers, v, &done) {
            done.extend(gather.updates.iter().map(|u| u.inst));
            Emission { gather: &gather, buffers: &kernel.buffers, least: i64::from(least) }.apply(&mut kernel.body);
        }
    }
}

/// What an index of a scattered address is.
#[derive(Debug, Clone, PartialEq)]
enum Index {
    /// The parallel loop's, along an axis.
    Outer(u32),
    /// The inner loop's, or what its `mirror` makes of it.
    Inner,
    /// A constant or parameter.
    Fixed(Op),
}

/// How an element's index follows the inner loop's backwards: it is `last` minus that one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mirror {
    last: ValueId,
    /// Plus the loop's first index.
    from_begin: bool,
}

/// A sum into a gradient.
struct Update {
    inst: ValueId,
    op: BinaryOp,
    buffer: BufferId,
    indices: Vec<Index>,
    /// The element's index follows the inner loop's backwards.
    mirror: Option<Mirror>,
    /// Indices of the component, where it is one.
    component: Vec<Op>,
    value: ValueId,
}

/// Sums of one inner loop that can be gathered by one loop.
struct Gather {
    parallel: ValueId,
    inner: ValueId,
    /// That of all updates.
    mirror: Option<Mirror>,
    updates: Vec<Update>,
    /// What must be computed again.
    needed: HashSet<ValueId>,
    /// Locals that iterations set.
    private: HashSet<LocalId>,
}

fn for_loop(body: &Body, v: ValueId) -> Option<&ForLoop> {
    match &body.inst(v).op {
        Op::For(l) => Some(l),
        _ => None,
    }
}

/// What the axes of an element depend on.
fn axes(u: &Update) -> Vec<&Index> {
    u.indices.iter().filter(|i| !matches!(i, Index::Fixed(_))).collect()
}

/// The range of an update's gathered axis, where it is known.
fn known_range(buffers: &[Buffer], u: &Update) -> Option<(i64, i64)> {
    let axis = u.indices.iter().position(|i| *i == Index::Inner)?;
    match &buffers[u.buffer.index()].layout {
        Layout::Dense { shape, offset, .. } => Some((offset[axis], offset[axis] + shape[axis] as i64)),
        _ => None,
    }
}
