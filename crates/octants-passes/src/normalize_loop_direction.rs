//! Reverses inner loops that run backwards without need. Memory is then read in ascending order, and the index is the
//! loop's own.
//!
//! The reverse sweep turns every loop around. If iterations carry nothing but sums, the direction affects only the
//! order of float additions, which is why the pass requires `fast_math`.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BinaryOp, BlockId, Body, Buffer, BufferId, Const, Kernel, LocalId, Op, Type, ValueId};

use crate::pass_options::PassOptions;
use octants_analysis::{MemoryClasses, Place, first_use_sets, points_into, trace_address};

/// Reverses the loops inside parallel loops that run backwards.
pub fn normalize_loop_direction(kernel: &mut Kernel, options: &PassOptions) {
    let Kernel { body, buffers, .. } = kernel;
    let mut loops = Vec::new();
    for &v in body.block(body.root) {
        for block in body.inst(v).op.blocks() {
            body.visit(block, &mut |v, inst| loops.extend(matches!(inst.op, Op::For(_)).then_some(v)));
        }
    }
    for v in loops {
        let Some(mirrored) = mirrored_indices(body, v) else { continue };
        if commutes(body, buffers, v, options.arrays_may_alias) {
            mirrored.into_iter().for_each(|index| body.inst_mut(index).op = Op::LoopIndex(v, 0));
        }
    }
}

/// The values that count a loop's index from its end, if the index has no other use.
fn mirrored_indices(body: &Body, v: ValueId) -> Option<Vec<ValueId>> {
    let Op::For(l) = &body.inst(v).op else { return None };
    let [range] = l.dims[..] else { return None };
    if [range.begin, range.end].iter().all(|v| body.as_const(*v).is_some()) {
        return None; // LLVM sees through known numbers in either direction.
    }
    let is_index = |u: ValueId| body.inst(u).op == Op::LoopIndex(v, 0);
    let is_left = |u: ValueId| match body.inst(u).op {
        Op::Binary(BinaryOp::Sub, last, index) => is_index(index) && is_last(body, last, range.end),
        _ => false,
    };
    let from_zero = is_int(body, range.begin, 0);
    let (mut found, mut only) = (Vec::new(), true);
    body.visit(l.body, &mut |u, inst| match inst.op {
        _ if is_left(u) => found.extend(from_zero.then_some(u)),
        Op::Binary(BinaryOp::Add, begin, left) if begin == range.begin && is_left(left) => found.push(u),
        _ => inst.op.for_each_operand(|u| only &= !is_index(u) && (from_zero || !is_left(u))),
    });
    (only && !found.is_empty()).then_some(found)
}

/// A value is the number before the end of a range.
pub(crate) fn is_last(body: &Body, v: ValueId, end: ValueId) -> bool {
    match (body.as_const(v), body.as_const(end)) {
        (Some(Const::Int(last)), Some(Const::Int(end))) => last == end.wrapping_sub(1),
        _ => matches!(body.inst(v).op, Op::Binary(BinaryOp::Sub, of, one) if of == end && is_int(body, one, 1)),
    }
}

/// A value is this number.
pub(crate) fn is_int(body: &Body, v: ValueId, n: i64) -> bool {
    body.as_const(v) == Some(Const::Int(n))
}

/// Iterations may run in any order: they only read, add to memory that none of them reads, and use private locals.
fn commutes(body: &Body, buffers: &[Buffer], v: ValueId, arrays_may_alias: bool) -> bool {
    let Op::For(l) = &body.inst(v).op else { return false };
    let (mut read, mut added_to): (HashSet<BufferId>, HashSet<BufferId>) = Default::default();
    let mut uses = vec![0u32; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| uses[u.index()] += 1));
    let (mut stored, mut plain) = (HashSet::new(), true);
    body.visit(l.body, &mut |u, inst| match inst.op {
        Op::Load(a) => match trace_address(body, a) {
            Place::Buffer(b) => _ = read.insert(b),
            place => plain &= matches!(place, Place::Local(_)),
        },
        Op::Store(a, _) => match trace_address(body, a) {
            Place::Local(local) => _ = stored.insert(local),
            _ => plain = false,
        },
        Op::Atomic(AtomicOp::Add | AtomicOp::Sub, a, _) if uses[u.index()] == 0 => match trace_address(body, a) {
            Place::Buffer(b) => _ = added_to.insert(b),
            _ => plain = false,
        },
        Op::If(..) | Op::For(_) | Op::LoopIndex(..) => {}
        ref op => plain &= op.is_pure(),
    });
    let memory = MemoryClasses::of(buffers, arrays_may_alias);
    let same = |a: &BufferId, b: &BufferId| memory.may_alias(a.index(), b.index());
    plain
        && !added_to.iter().any(|a| read.iter().any(|b| same(a, b)))
        && stored.into_iter().all(|local| is_own(body, l.body, local) || is_sum(body, l.body, local, &uses))
}

/// Whether each iteration sets a local before it reads it, and nothing else uses it.
fn is_own(body: &Body, block: BlockId, local: LocalId) -> bool {
    let uses = |within: BlockId| {
        let mut n = 0;
        body.visit(within, &mut |_, inst| inst.op.for_each_operand(|u| n += u32::from(is_use(body, u, local))));
        n
    };
    uses(block) == uses(body.root) && first_use_sets(body, body.block(block), local) == Some(true)
}

/// An operand is the address of a local, or in it.
fn is_use(body: &Body, operand: ValueId, local: LocalId) -> bool {
    matches!(body.ty(operand), Type::Ref(_)) && points_into(body, operand, local)
}

/// All that iterations do to a local is to add to it.
fn is_sum(body: &Body, block: BlockId, local: LocalId, uses: &[u32]) -> bool {
    let is_load = |v: ValueId| matches!(body.inst(v).op, Op::Load(a) if body.inst(a).op == Op::LocalAddr(local));
    let once = |v: ValueId| uses[v.index()] == 1;
    let (mut loads, mut sums, mut only) = (0, 0, true);
    body.visit(block, &mut |v, inst| match inst.op {
        Op::Load(a) if points_into(body, a, local) => {
            loads += 1;
            only &= is_load(v);
        }
        Op::Store(a, new) if points_into(body, a, local) => {
            let is_update = match body.inst(new).op {
                Op::Binary(BinaryOp::Add, x, y) => is_load(x) && once(x) || is_load(y) && once(y),
                Op::Binary(BinaryOp::Sub, x, _) => is_load(x) && once(x),
                _ => false,
            };
            sums += u32::from(is_update && once(new));
            only &= is_update && once(new) && body.inst(a).op == Op::LocalAddr(local);
        }
        _ => {}
    });
    only && loads == sums
}
