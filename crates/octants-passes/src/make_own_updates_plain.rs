//! Updates of gradients and duals that look shared and are not: where a parallel loop touches an array only at the elements of its own
//! indices, no other iteration updates what an iteration does, and an atomic update becomes a load, an operation and a store.
//!
//! Only companions are looked at, since nothing else runs while a derivative does: other launches may update other memory
//! at the same time.

use std::collections::{BTreeSet, HashMap};

use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Kernel, Layout, Op, Type, ValueId};

use crate::pipeline::PassOptions;
use crate::trace_address::{Place, for_each_element, trace_address};

/// Makes updates plain whose elements belong to an iteration.
pub fn make_own_updates_plain(kernel: &mut Kernel, options: &PassOptions) {
    if kernel.companions.is_empty() {
        return;
    }
    let Kernel { body, buffers, companions, .. } = kernel;
    let companions: BTreeSet<BufferId> = companions.values().copied().collect();
    for v in body.block(body.root).to_vec() {
        let Op::For(l) = &body.inst(v).op else { continue };
        if !l.is_parallel() {
            continue;
        }
        let inner = l.body;
        let is_distinct = |b: BufferId| {
            let own = &buffers[b.index()];
            let mut others = buffers.iter().enumerate().filter(|(i, _)| *i != b.index());
            match own.layout {
                Layout::Dense { .. } => !others.any(|(_, other)| may_overlap(own, other)),
                Layout::Contiguous => !options.arrays_may_alias,
                // Elements of one array may be the same memory.
                Layout::Strided => false,
            }
        };
        let mut own = touched_at_own_indices(body, v);
        own.retain(|b| companions.contains(b) && is_distinct(*b));
        if !own.is_empty() {
            let sums = |op| match op {
                AtomicOp::Add => Some(BinaryOp::Add),
                AtomicOp::Sub => Some(BinaryOp::Sub),
                _ => None,
            };
            let used = used_values(body);
            make_plain(body, inner, &own, &used, &sums);
        }
    }
}

/// Products with elements that belong to an iteration, in loops at the root, become a load, a product and a store: what differentiation has
/// rules for.
pub(crate) fn make_own_products_plain(body: &mut Body) {
    let used = used_values(body);
    for v in body.block(body.root).to_vec() {
        if let Op::For(l) = &body.inst(v).op
            && l.is_parallel()
        {
            let (inner, own) = (l.body, touched_at_own_indices(body, v));
            make_plain(body, inner, &own, &used, &|op| (op == AtomicOp::Mul).then_some(BinaryOp::Mul));
        }
    }
}

fn used_values(body: &Body) -> Vec<bool> {
    let mut used = vec![false; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| used[u.index()] = true));
    used
}

/// Makes plain the updates of `own` buffers for which `plain` has an operation, where nobody asks what was there before.
fn make_plain(
    body: &mut Body,
    block: BlockId,
    own: &BTreeSet<BufferId>,
    used: &[bool],
    plain: &dyn Fn(AtomicOp) -> Option<BinaryOp>,
) {
    let mut out = Vec::new();
    for v in std::mem::take(&mut body.blocks[block.index()]) {
        let inst = body.inst(v).clone();
        inst.op.blocks().into_iter().for_each(|b| make_plain(body, b, own, used, plain));
        match inst.op {
            Op::Atomic(op, addr, x)
                if !used[v.index()]
                    && matches!(trace_address(body, addr), Place::Buffer(b) if own.contains(&b))
                    && let Some(op) = plain(op) =>
            {
                let old = body.add_inst(Op::Load(addr), inst.ty.clone(), inst.span);
                let new = body.add_inst(Op::Binary(op, old, x), inst.ty, inst.span);
                let store = body.add_inst(Op::Store(addr, new), Type::Unit, inst.span);
                out.extend([old, new, store]);
            }
            _ => out.push(v),
        }
    }
    body.blocks[block.index()] = out;
}

/// The buffers that a parallel loop touches only at the elements of its own indices, the same ones along the same axes.
pub(crate) fn touched_at_own_indices(body: &Body, v: ValueId) -> BTreeSet<BufferId> {
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

/// Two buffers may share memory: arrays, and fields of which one is a component of the other.
pub(crate) fn may_overlap(a: &Buffer, b: &Buffer) -> bool {
    let is_array = |b: &Buffer| !matches!(b.layout, Layout::Dense { .. });
    a.shares_memory(b) || is_array(a) && is_array(b)
}
