//! Demotes atomic updates to plain ones. If a parallel loop touches an array only at the elements of its own indices,
//! no other iteration touches them, so an atomic update becomes a load, an operation and a store.
//!
//! Early in the pipeline only shadow buffers are considered: nothing else runs during a derivative, but other launches
//! may update other memory. When launches are ordered, all memory is considered at the end (`demote_atomics`), so that
//! loops without atomics can be vectorized. Reverse mode considers all memory before it differentiates
//! (`demote_unshared_atomics`), because its sweeps do not modify it.

use std::collections::{BTreeSet, HashSet};

use octants_ir::{
    AtomicOp, BinaryOp, BlockId, Body, BufferId, Kernel, Layout, Op, Scalar, Type, ValueId, push_plain_update,
    task_statements,
};

use crate::pass_options::PassOptions;
use octants_analysis::{MemoryClasses, Place, runs_once, touched_at_own_indices, trace_address};

/// Demotes updates of shadow buffers whose elements belong to an iteration.
pub fn demote_shadow_atomics(kernel: &mut Kernel, options: &PassOptions) {
    if kernel.shadow_buffers.is_empty() {
        return;
    }
    let shadow_buffers: BTreeSet<BufferId> = kernel.shadow_buffers.values().copied().collect();
    let sums = |op, _: &Type| match op {
        AtomicOp::Add => Some(New::Of(BinaryOp::Add)),
        AtomicOp::Sub => Some(New::Of(BinaryOp::Sub)),
        _ => None,
    };
    _ = make_plain(kernel, options, &|b| shadow_buffers.contains(&b), &sums, None);
}

/// Demotes all updates whose elements belong to one iteration, for launches that do not run concurrently. Kernels that
/// print are unchanged, because printing may make the host launch another kernel during the launch. Returns whether
/// there are such updates.
pub fn demote_atomics(kernel: &mut Kernel, options: &PassOptions) -> bool {
    let prints = |body: &Body| {
        let mut any = false;
        body.visit(body.root, &mut |_, inst| any |= matches!(inst.op, Op::Print(..)));
        any
    };
    if prints(&kernel.body) || kernel.functions.iter().any(|f| prints(&f.body)) {
        return false;
    }
    let all = |op: AtomicOp, _: &Type| Some(op.binary().map_or(New::Operand, New::Of));
    make_plain(kernel, options, &|_| true, &all, Some(&mut HashSet::new()))
}

/// Demotes updates of those `wanted` buffers that a parallel loop accesses only at its own indices. Returns whether
/// there are any.
fn make_plain(
    kernel: &mut Kernel,
    options: &PassOptions,
    wanted: &dyn Fn(BufferId) -> bool,
    new: &dyn Fn(AtomicOp, &Type) -> Option<New>,
    mut found: Option<&mut HashSet<ValueId>>,
) -> bool {
    let mut any = false;
    let Kernel { body, buffers, .. } = kernel;
    let memory = MemoryClasses::of(buffers, options.arrays_may_alias);
    let is_distinct = |b: BufferId| {
        let mut others = (0..buffers.len()).filter(|i| *i != b.index());
        match buffers[b.index()].layout {
            Layout::Dense { .. } => !others.any(|other| memory.may_alias(b.index(), other)),
            Layout::Contiguous => !options.arrays_may_alias,
            // Elements of one array may be the same memory.
            Layout::Strided | Layout::Flat(_) => false,
        }
    };
    for v in task_statements(body) {
        let Op::For(l) = &body.inst(v).op else { continue };
        if !l.is_parallel() {
            continue;
        }
        let inner = l.body;
        let mut own = touched_at_own_indices(body, v);
        own.retain(|b| wanted(*b) && is_distinct(*b));
        if !own.is_empty() {
            let mut rewrite = Rewrite { used: used_values(body), new, found: found.as_deref_mut(), any: false };
            rewrite.block(body, inner, &|b| own.contains(&b));
            any |= rewrite.any;
        }
    }
    any
}

/// Atomic products and exchanges of float elements become a load, an operation and a store, which have differentiation
/// rules. This applies in sequential code, and in parallel loops to elements that belong to one iteration. Returns the
/// loads of old values that the kernel uses.
pub fn demote_unshared_atomics(kernel: &mut Kernel) -> HashSet<ValueId> {
    let body = &mut kernel.body;
    let new = |op, ty: &Type| match op {
        _ if !ty.scalar().is_some_and(Scalar::is_float) => None,
        AtomicOp::Mul => Some(New::Of(BinaryOp::Mul)),
        AtomicOp::Exchange => Some(New::Operand),
        _ => None,
    };
    let mut found = HashSet::new();
    let mut rewrite = Rewrite { used: used_values(body), new: &new, found: Some(&mut found), any: false };
    let mut out = Vec::new();
    let root = body.root.index();
    for v in std::mem::take(&mut body.blocks[root]) {
        match &body.inst(v).op {
            Op::For(l) if l.is_parallel() && !runs_once(body, l) => {
                let (inner, own) = (l.body, touched_at_own_indices(body, v));
                rewrite.block(body, inner, &|b| own.contains(&b));
                out.push(v);
            }
            _ => rewrite.inst(body, v, &|_| true, &mut out),
        }
    }
    body.blocks[root] = out;
    found
}

/// The value that an update stores.
#[derive(Debug, Clone, Copy)]
enum New {
    /// The result of an operation on the old value and the operand.
    Of(BinaryOp),
    /// The operand.
    Operand,
}

fn used_values(body: &Body) -> Vec<bool> {
    let mut used = vec![false; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| used[u.index()] = true));
    used
}

/// How updates are made plain.
struct Rewrite<'a> {
    /// Values that others use.
    used: Vec<bool>,
    /// The results of the demoted updates.
    new: &'a dyn Fn(AtomicOp, &Type) -> Option<New>,
    /// Records the loads of the old values that the kernel uses. Without it such updates stay.
    found: Option<&'a mut HashSet<ValueId>>,
    /// Some update was demoted.
    any: bool,
}

impl Rewrite<'_> {
    /// Demotes the updates of an iteration's `own` buffers.
    fn block(&mut self, body: &mut Body, block: BlockId, own: &dyn Fn(BufferId) -> bool) {
        let mut out = Vec::new();
        for v in std::mem::take(&mut body.blocks[block.index()]) {
            self.inst(body, v, own, &mut out);
        }
        body.blocks[block.index()] = out;
    }

    /// Appends an instruction, or its replacement, to `out`.
    fn inst(&mut self, body: &mut Body, v: ValueId, own: &dyn Fn(BufferId) -> bool, out: &mut Vec<ValueId>) {
        let inst = body.inst(v).clone();
        inst.op.blocks().into_iter().for_each(|b| self.block(body, b, own));
        let used = self.used[v.index()];
        let update = match inst.op {
            Op::Atomic(op, addr, x)
                if !(used && self.found.is_none())
                    && matches!(trace_address(body, addr), Place::Buffer(b) if own(b)) =>
            {
                (self.new)(op, &inst.ty).map(|new| (addr, x, new))
            }
            _ => None,
        };
        let Some((addr, x, new)) = update else {
            out.push(v);
            return;
        };
        self.any = true;
        if let Some(found) = self.found.as_mut().filter(|_| used) {
            // Its number then denotes the old value.
            body.inst_mut(v).op = Op::Load(addr);
            found.insert(v);
            out.push(v);
        }
        let op = match new {
            New::Of(op) => Some(op),
            New::Operand => None,
        };
        push_plain_update(body, out, &inst, (addr, x, op), None);
    }
}
