//! Which memory iterations of a parallel loop share, and which is private to one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use octants_ir::{BlockId, Body, BufferId, Const, ForLoop, LocalId, Op, Type, ValueId};

use crate::addresses::{Place, first_uses_set, for_each_element, trace_address};
use crate::dependence::{Dependence, Subscript};
use crate::solve_equations::Conflict;

/// The locals that iterations of a root loop share: used outside of it, and not set by an iteration before it reads
/// them.
pub fn locals_of_all_iterations(body: &Body, root_loop: ValueId) -> HashSet<LocalId> {
    let mut shared = shared_locals(body, root_loop);
    for inner in body.inst(root_loop).op.blocks() {
        let first = first_uses_set(body, body.block(inner));
        shared.retain(|l| first.get(l) != Some(&true));
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

/// Calls `f` on each operation of a block and of nested blocks, except those inside of a loop.
fn visit_outside(body: &Body, block: BlockId, of: ValueId, f: &mut impl FnMut(&Op)) {
    for &v in body.block(block) {
        let op = &body.inst(v).op;
        f(op);
        if v != of {
            op.blocks().into_iter().for_each(|b| visit_outside(body, b, of, f));
        }
    }
}

/// Different ways to index a buffer that are compared with each other; beyond this number, the result is unknown.
const MOST_INDICES: usize = 16;

/// The buffers in which no two iterations of a parallel loop touch the same element.
pub fn touched_at_own_indices(body: &Body, v: ValueId) -> BTreeSet<BufferId> {
    let Op::For(l) = &body.inst(v).op else { return BTreeSet::new() };
    let mut calls = false;
    body.visit(l.body, &mut |_, inst| calls |= matches!(inst.op, Op::Call(..)));
    if calls {
        return BTreeSet::new();
    }
    let mut dependence = Dependence::exact(body);
    let mut touched: BTreeMap<BufferId, Vec<Vec<Subscript>>> = BTreeMap::new();
    for_each_element(body, l.body, &mut |b, element| {
        let Op::BufferAddr(_, indices) = &body.inst(element).op else { return };
        let subscripts = dependence.indices(indices).into_iter().map(|s| s.if_steps_by_one(v)).collect();
        let known = touched.entry(b).or_default();
        if !known.contains(&subscripts) {
            known.push(subscripts);
        }
    });
    let mut is_own = |all: &[Vec<Subscript>]| {
        all.len() <= MOST_INDICES
            && all.iter().enumerate().all(|(i, x)| {
                all[i..].iter().all(|y| {
                    let axes = dependence.between_iterations(v, x, y).axes;
                    axes.iter().all(|meeting| matches!(meeting, Conflict::SameIteration | Conflict::Apart))
                })
            })
    };
    touched.retain(|_, all| is_own(all));
    touched.into_keys().collect()
}

/// A loop is known to have no second iteration.
pub fn runs_once(body: &Body, l: &ForLoop) -> bool {
    l.dims.iter().all(|r| match (body.as_const(r.begin), body.as_const(r.end)) {
        (Some(Const::Int(begin)), Some(Const::Int(end))) => end <= begin.saturating_add(1),
        _ => false,
    })
}
