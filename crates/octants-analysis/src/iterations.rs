//! What iterations of a parallel loop share, and what belongs to one alone.

use std::collections::{BTreeSet, HashMap, HashSet};

use octants_ir::{BlockId, Body, BufferId, Const, ForLoop, LocalId, Op, Type, ValueId};

use crate::addresses::{Place, first_use_sets, for_each_element, trace_address};

/// The locals that iterations of a root loop share: used outside of it, and not set by an iteration before it reads
/// them.
pub fn locals_of_all_iterations(body: &Body, root_loop: ValueId) -> HashSet<LocalId> {
    let mut shared = shared_locals(body, root_loop);
    for inner in body.inst(root_loop).op.blocks() {
        shared.retain(|l| first_use_sets(body, body.block(inner), *l) != Some(true));
    }
    shared
}

/// The locals that code outside a root loop reads or writes.
pub fn shared_locals(body: &Body, root_loop: ValueId) -> HashSet<LocalId> {
    let mut shared = HashSet::new();
    let mut on = |op: &Op| {
        if matches!(op, Op::ElementAddr(..) | Op::MemberAddr(..)) {
            return;
        }
        op.for_each_operand(|u| {
            if matches!(body.ty(u), Type::Ref(_))
                && let Place::Local(l) = trace_address(body, u)
            {
                shared.insert(l);
            }
        });
    };
    visit_outside(body, body.root, root_loop, &mut on);
    shared
}

/// Calls `f` on each operation of a block and of those in it, but for what is inside of a loop.
fn visit_outside(body: &Body, block: BlockId, of: ValueId, f: &mut impl FnMut(&Op)) {
    for &v in body.block(block) {
        let op = &body.inst(v).op;
        f(op);
        if v != of {
            op.blocks().into_iter().for_each(|b| visit_outside(body, b, of, f));
        }
    }
}

/// The buffers that a parallel loop touches only at the elements of its own indices, the same ones along the same axes.
pub fn touched_at_own_indices(body: &Body, v: ValueId) -> BTreeSet<BufferId> {
    let Op::For(l) = &body.inst(v).op else { return BTreeSet::new() };
    // For each buffer and axis of the loop, the axes of the buffer that it is the index of in all accesses.
    let mut positions: HashMap<BufferId, Vec<Vec<usize>>> = HashMap::new();
    for_each_element(body, l.body, &mut |b, element| {
        let Op::BufferAddr(_, indices) = &body.inst(element).op else { return };
        let is = |p: usize, axis: usize| body.inst(indices[p]).op == Op::LoopIndex(v, axis as u32);
        let all = || (0..l.dims.len()).map(|_| (0..indices.len()).collect()).collect();
        let axes = positions.entry(b).or_insert_with(all);
        axes.iter_mut().enumerate().for_each(|(axis, p)| p.retain(|p| is(*p, axis)));
    });
    let mut calls = false;
    body.visit(l.body, &mut |_, inst| calls |= matches!(inst.op, Op::Call(..)));
    if calls {
        return BTreeSet::new();
    }
    positions.into_iter().filter(|(_, axes)| axes.iter().all(|p| !p.is_empty())).map(|(b, _)| b).collect()
}

/// A loop is known to have no second iteration.
pub fn runs_once(body: &Body, l: &ForLoop) -> bool {
    l.dims.iter().all(|r| match (body.as_const(r.begin), body.as_const(r.end)) {
        (Some(Const::Int(begin)), Some(Const::Int(end))) => end <= begin.saturating_add(1),
        _ => false,
    })
}
