//! Loop-invariant code motion.
//!
//! LLVM does this within a task. Here it matters for reverse mode, which must see that an index is invariant, and then
//! recomputes less. Only nested loops are considered: code before a top-level loop belongs to another task.
//!
//! The loop may have no iteration, so hoisted code must be safe to execute. Operations that `check_overflow` would
//! report lose their span; the kernel itself reports the overflow where it computes the value.

use octants_ir::{BlockId, Body, Definedness, Effect, Kernel, Op, Type, ValueId};

/// Moves values that do not depend on the iteration out of the inner loops of the kernel and its functions.
pub fn hoist_invariants(kernel: &mut Kernel) {
    for body in kernel.functions.iter_mut().map(|f| &mut f.body).chain([&mut kernel.body]) {
        for v in body.block(body.root).to_vec() {
            for inner in body.inst(v).op.blocks() {
                hoist_within(body, inner);
            }
        }
    }
}

/// Inner loops first, so that a value leaves as many as it can.
fn hoist_within(body: &mut Body, block: BlockId) {
    let mut out = Vec::new();
    for v in body.block(block).to_vec() {
        let op = &body.inst(v).op;
        let is_loop = matches!(op, Op::For(_) | Op::Loop(_));
        for inner in op.blocks() {
            hoist_within(body, inner);
            if is_loop {
                out.extend(take_invariants(body, inner));
            }
        }
        out.push(v);
    }
    body.blocks[block.index()] = out;
}

/// Takes the values that are in a loop's body and depend on nothing in it.
fn take_invariants(body: &mut Body, inner: BlockId) -> Vec<ValueId> {
    let mut inside = vec![false; body.insts.len()];
    body.visit(inner, &mut |v, _| inside[v.index()] = true);
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for v in std::mem::take(&mut body.blocks[inner.index()]) {
        let inst = body.inst(v);
        let mut moves = may_move(&inst.op) && !matches!(inst.ty, Type::Ref(_));
        inst.op.for_each_operand(|u| moves &= !inside[u.index()]);
        if let Op::LoopIndex(l, _) = inst.op {
            moves &= !body.inst(l).op.blocks().contains(&inner);
        }
        if moves {
            inside[v.index()] = false;
            let inst = body.inst_mut(v);
            if inst.ty.scalar().is_some_and(|s| !s.is_float()) {
                inst.span.end = inst.span.start;
            }
            taken.push(v);
        } else {
            left.push(v);
        }
    }
    body.blocks[inner.index()] = left;
    taken
}

/// It may be computed even if the loop has no iteration: no division by zero, no index outside.
fn may_move(op: &Op) -> bool {
    op.definedness() == Definedness::Total && matches!(op.effect(), Effect::Pure | Effect::Index)
}
