//! Temporaries of a fused loop: each iteration keeps its element in a local instead of memory.

use std::collections::BTreeSet;

use octants_analysis::{
    Dependence, Place, Subscript, for_each_element, reads_before_set, touched_at_own_indices, trace_address,
};
use octants_ir::{Body, BufferId, Kernel, Op, Type, ValueId};

use super::fused_loop;

/// Replaces those buffers whose element each iteration sets before it reads it. Yields them.
pub(super) fn remove_temporaries(kernel: &mut Kernel, temporaries: &BTreeSet<BufferId>) -> BTreeSet<BufferId> {
    let mut removed = BTreeSet::new();
    for &buffer in temporaries {
        let mut body = kernel.body.clone();
        let elem = kernel.buffers[buffer.index()].elem.clone();
        if replace(&mut body, buffer, elem) {
            kernel.body = body;
            removed.insert(buffer);
        }
    }
    removed
}

/// Replaces a buffer by a local. False if that is impossible; the body is then of no use.
fn replace(body: &mut Body, buffer: BufferId, elem: Type) -> bool {
    let Some((v, l)) = fused_loop(body) else { return false };
    let inner = l.body;
    if !has_one_element(body, v, buffer) || !touched_at_own_indices(body, v).contains(&buffer) {
        return false;
    }
    let local = body.add_local("temporary", elem);
    for inst in &mut body.insts {
        if matches!(inst.op, Op::BufferAddr(b, _) if b == buffer) {
            inst.op = Op::LocalAddr(local);
        }
    }
    // Atomics of one iteration's memory are not supported as such.
    let mut updates = false;
    body.visit(inner, &mut |_, inst| {
        if let Op::Atomic(_, a, _) | Op::AtomicCas(a, ..) = inst.op {
            updates |= trace_address(body, a) == Place::Local(local);
        }
    });
    !updates && !reads_before_set(body, body.block(inner), local)
}

/// All accesses of a loop to a buffer are at indices that are the same in an iteration.
fn has_one_element(body: &Body, v: ValueId, buffer: BufferId) -> bool {
    let mut dependence = Dependence::exact(body);
    let mut found = Vec::new();
    let Op::For(l) = &body.inst(v).op else { return false };
    for_each_element(body, l.body, &mut |b, element| {
        if let (true, Op::BufferAddr(_, indices)) = (b == buffer, &body.inst(element).op) {
            let subscripts = dependence.indices(indices);
            if !found.contains(&subscripts) {
                found.push(subscripts);
            }
        }
    });
    let sums = |of: &Vec<Subscript>| of.iter().map(|s| s.sum().cloned()).collect::<Option<Vec<_>>>();
    let all: Option<Vec<_>> = found.iter().map(sums).collect();
    all.is_some_and(|all| all.windows(2).all(|pair| pair[0] == pair[1]))
}
