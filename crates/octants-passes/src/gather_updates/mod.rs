//! Turns scattered sums into gathered ones. Sums that the inner loop of a parallel loop scatters are computed by a
//! parallel loop over the target elements, with the original loop's iterations in order inside. No two threads then
//! update the same element, so nothing is atomic.
//!
//! In `for i: for j: g[j] += f(i, j)` the threads of a GPU add to the same element at the same time, which costs a
//! hundred times as much as computing the addends. Here it becomes `for j: for i: g[j] += f(i, j)`, at the price of
//! computing twice what both loops need. Further indices of the parallel loop in the address (as in the gradient of a
//! matrix product) stay parallel.
//!
//! Only gradients are gathered: nothing else runs during a derivative, so the order is not observable. The new loop
//! runs first. It reads what the original loop reads before it writes, and adds to memory that the original does not
//! read. It has one iteration per element of the buffer along that axis; a comparison skips the elements that the
//! inner loop does not reach. If there are too few elements to fill a device, atomics are kept.
//!
//! This is a kernel pass rather than a schedule pass, because the new loop must become a separate task and because
//! later passes complete the work: they demote its updates to plain ones, and turn sums without an inner-loop index
//! into reductions.
//!
//! Assumes that arrays share no memory, and that invariants have been hoisted from the inner loops. Leaves dead code.
//!
//! `find_gathers` finds what can be computed separately; `build_loop` rewrites the code.

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

/// The kind of an index of a scattered address.
#[derive(Debug, Clone, PartialEq)]
enum Index {
    /// The parallel loop's, along an axis.
    Outer(u32),
    /// The index of the inner loop, possibly transformed by its `mirror`.
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
    /// Indices of the component, if it is one.
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
    /// The code that must be recomputed.
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

/// The dependences of the axes of an element.
fn axes(u: &Update) -> Vec<&Index> {
    u.indices.iter().filter(|i| !matches!(i, Index::Fixed(_))).collect()
}

/// The range of an update's gathered axis, if known.
fn known_range(buffers: &[Buffer], u: &Update) -> Option<(i64, i64)> {
    let axis = u.indices.iter().position(|i| *i == Index::Inner)?;
    match &buffers[u.buffer.index()].layout {
        Layout::Dense { shape, offset, .. } => Some((offset[axis], offset[axis] + shape[axis] as i64)),
        _ => None,
    }
}
