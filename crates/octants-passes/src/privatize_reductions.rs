//! Reductions: in a parallel loop, an atomic update of a loop-invariant address with an unused result becomes a
//! `reduce`. Each thread folds into its own accumulator, and the loop combines the accumulators into the address at
//! its end.
//!
//! All accesses of the loop to that memory must be such updates with one operation, so the delay is not observable. A
//! difference is a sum of negated values; a vector update is one reduction per component.

use std::collections::{BTreeMap, HashMap};

use octants_ir::{
    AtomicOp, Body, BufferId, Const, Inst, Kernel, Layout, Op, Reduction, Scalar, Type, UnaryOp, ValueId,
    task_statements,
};

use crate::check_bounds::index_range;
use crate::pass_options::PassOptions;
use octants_analysis::{
    Effects, MemoryClasses, Place, function_effects, inst_effects, same_address, shared_locals, trace_address,
};

/// More accumulators than this would spill out of registers.
pub(crate) const MOST_REDUCTIONS: usize = 32;

/// Turns updates of loop-invariant addresses into reductions.
///
/// With bounds checks, only for addresses that are provably in bounds: the check stays in the loop, and the address is
/// used after it. If arrays may alias, only if the loop uses no other array.
pub fn privatize_reductions(kernel: &mut Kernel, options: &PassOptions) {
    let checked = options.check_bounds;
    let functions = function_effects(&kernel.functions);
    // One buffer represents all that may alias.
    let first = MemoryClasses::of(&kernel.buffers, options.arrays_may_alias).sharing();
    let memory = |place: Place| match place {
        Place::Buffer(b) => Place::Buffer(BufferId(first[b.index()] as u32)),
        Place::Local(_) | Place::Frame(_) | Place::Param(_) => place,
    };
    let inside = |body: &Body, addr: ValueId| !checked || is_inside(body, &kernel.buffers, addr);
    let body = &mut kernel.body;
    for v in task_statements(body) {
        let Op::For(l) = &body.inst(v).op else { continue };
        if l.is_parallel() {
            // Elements of quantized types are rounded by each update.
            let is_excluded = |b: BufferId| {
                let of = &kernel.buffers[b.index()];
                of.space.is_temporary() || of.is_packed()
            };
            let updates = foldable_updates(body, v, &functions, &inside, &memory, &is_excluded);
            if !updates.is_empty() {
                privatize(body, v, &updates);
            }
        }
    }
}

/// The updates in a loop that may become reductions.
fn foldable_updates(
    body: &Body,
    root_loop: ValueId,
    functions: &[Effects],
    inside: &dyn Fn(&Body, ValueId) -> bool,
    memory: &dyn Fn(Place) -> Place,
    is_excluded: &dyn Fn(BufferId) -> bool,
) -> Vec<ValueId> {
    let Op::For(l) = &body.inst(root_loop).op else { return Vec::new() };
    // Most loops have no updates. The other conditions concern the whole kernel.
    let mut any = false;
    body.visit(l.body, &mut |_, inst| any |= matches!(inst.op, Op::Atomic(..)));
    if !any {
        return Vec::new();
    }
    let mut used = vec![false; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| used[u.index()] = true));
    let mut in_loop = vec![false; body.insts.len()];
    body.visit(l.body, &mut |v, _| in_loop[v.index()] = true);
    let shared = shared_locals(body, root_loop);
    // For each place the updates found so far; `None` once something else was seen there.
    let mut places: BTreeMap<Place, Option<Vec<ValueId>>> = BTreeMap::new();
    body.visit(l.body, &mut |v, inst| {
        if let Op::Atomic(op, addr, _) = &inst.op
            && !used[v.index()]
            && is_fold(*op, inst.ty.scalar())
            && is_invariant(body, *addr, &in_loop)
            && inside(body, *addr)
        {
            let entry = places.entry(memory(trace_address(body, *addr))).or_insert_with(|| Some(Vec::new()));
            if let Some(found) = entry {
                found.push(v);
            }
            return;
        }
        let mut effects = Effects::default();
        inst_effects(body, &inst.op, functions, &mut effects);
        for b in effects.access.reads.iter().chain(&effects.access.writes) {
            places.insert(memory(Place::Buffer(*b)), None);
        }
        for s in effects.access.frame_reads.iter().chain(&effects.access.frame_writes) {
            places.insert(Place::Frame(*s), None);
        }
        if !matches!(inst.op, Op::ElementAddr(..) | Op::MemberAddr(..)) {
            inst.op.for_each_operand(|u| {
                if matches!(body.ty(u), Type::Ref(_))
                    && let place @ Place::Local(_) = trace_address(body, u)
                {
                    places.insert(place, None);
                }
            });
        }
    });
    // Shared memory belongs to a block; its addresses are unknown before the loop.
    let private = |p: &Place| match p {
        Place::Local(l) => !shared.contains(l),
        Place::Buffer(b) => is_excluded(*b),
        _ => false,
    };
    let one_op = |vs: &[ValueId]| {
        let fold = |v: ValueId| match body.inst(v).op {
            Op::Atomic(op, ..) => combined(op),
            _ => AtomicOp::Exchange,
        };
        vs.iter().all(|v| fold(*v) == fold(vs[0]))
    };
    let mut all: Vec<ValueId> = places
        .into_iter()
        .filter(|(p, _)| !private(p))
        .filter_map(|(_, vs)| vs.filter(|vs| one_op(vs)))
        .flatten()
        .collect();
    all.sort();
    all
}

fn is_fold(op: AtomicOp, s: Option<Scalar>) -> bool {
    op != AtomicOp::Exchange && s.is_some_and(|s| s != Scalar::U1)
}

/// A difference is folded as a sum.
fn combined(op: AtomicOp) -> AtomicOp {
    if op == AtomicOp::Sub { AtomicOp::Add } else { op }
}

/// The value does not depend on the iteration, and may be computed before the loop.
fn is_invariant(body: &Body, v: ValueId, in_loop: &[bool]) -> bool {
    if !in_loop[v.index()] {
        return true;
    }
    let op = &body.inst(v).op;
    let mut invariant = op.is_pure();
    op.for_each_operand(|u| invariant = invariant && is_invariant(body, u, in_loop));
    invariant
}

/// Whether the address is in bounds for any shape at launch.
fn is_inside(body: &Body, buffers: &[octants_ir::Buffer], addr: ValueId) -> bool {
    let within = |indices: &[ValueId], bounds: Vec<(i64, i64)>| {
        indices
            .iter()
            .zip(bounds)
            .all(|(i, (offset, n))| index_range(body, *i).is_some_and(|(low, high)| low >= offset && high < offset + n))
    };
    match &body.inst(addr).op {
        Op::BufferAddr(_, indices) if indices.is_empty() => true,
        Op::BufferAddr(b, indices) => match &buffers[b.index()].layout {
            Layout::Dense { shape, offset, .. } => {
                within(indices, offset.iter().copied().zip(shape.iter().map(|n| *n as i64)).collect())
            }
            _ => false,
        },
        Op::ElementAddr(base, indices) => {
            let Type::Ref(t) = body.ty(*base) else { return false };
            within(indices, t.shape().iter().map(|n| (0, i64::from(*n))).collect()) && is_inside(body, buffers, *base)
        }
        Op::MemberAddr(base, _) => is_inside(body, buffers, *base),
        Op::LocalAddr(_) | Op::FrameAddr(_) => true,
        _ => false,
    }
}

/// Rewrites the updates of one loop.
fn privatize(body: &mut Body, root_loop: ValueId, updates: &[ValueId]) {
    let mut before: Vec<ValueId> = Vec::new();
    let mut copies = HashMap::new();
    let mut reductions: Vec<Reduction> = Vec::new();
    let mut replacements: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    let mut in_loop = vec![false; body.insts.len()];
    let Op::For(l) = &body.inst(root_loop).op else { return };
    let loop_body = l.body;
    body.visit(loop_body, &mut |v, _| in_loop[v.index()] = true);
    for &v in updates {
        let Inst { op, ty, span } = body.inst(v).clone();
        let Op::Atomic(op, addr, value) = op else { continue };
        if reductions.len() + ty.leaf_count() > MOST_REDUCTIONS {
            continue;
        }
        let base = hoist(body, addr, &in_loop, &mut copies, &mut before);
        let s = ty.scalar().expect("compiler bug: an atomic operation on a type without scalars");
        let scalar = Type::Scalar(s);
        let mut code = Vec::new();
        for component in 0..ty.leaf_count() as u32 {
            let (mut target, mut part) = (base, value);
            if ty.is_tensor() {
                target = component_addr(body, base, &ty, component, &mut before);
                part = push(body, &mut code, Op::Extract(value, component), scalar.clone(), span);
            }
            if op == AtomicOp::Sub {
                part = push(body, &mut code, Op::Unary(UnaryOp::Neg, part), scalar.clone(), span);
            }
            let op = combined(op);
            let known = reductions.iter().position(|r| r.op == op && same_address(body, r.target, target));
            let slot = known.unwrap_or_else(|| {
                reductions.push(Reduction { op, target, plain: false });
                reductions.len() - 1
            });
            push(body, &mut code, Op::Reduce(slot as u32, part), Type::Unit, span);
        }
        replacements.insert(v, code);
    }
    if reductions.is_empty() {
        return;
    }
    for block in &mut body.blocks {
        if block.iter().any(|v| replacements.contains_key(v) || *v == root_loop) {
            let old = std::mem::take(block);
            for v in old {
                match replacements.get(&v) {
                    Some(code) => block.extend(code),
                    None => {
                        if v == root_loop {
                            block.append(&mut before);
                        }
                        block.push(v);
                    }
                }
            }
        }
    }
    if let Op::For(l) = &mut body.inst_mut(root_loop).op {
        l.reductions = reductions;
    }
}

fn push(body: &mut Body, code: &mut Vec<ValueId>, op: Op, ty: Type, span: octants_diag::Span) -> ValueId {
    let v = body.add_inst(op, ty, span);
    code.push(v);
    v
}

/// The value, computed before the loop.
fn hoist(
    body: &mut Body,
    v: ValueId,
    in_loop: &[bool],
    copies: &mut HashMap<ValueId, ValueId>,
    before: &mut Vec<ValueId>,
) -> ValueId {
    if !in_loop.get(v.index()).copied().unwrap_or(false) {
        return v;
    }
    if let Some(copy) = copies.get(&v) {
        return *copy;
    }
    let Inst { mut op, ty, span } = body.inst(v).clone();
    op.map_operands(|u| hoist(body, u, in_loop, copies, before));
    let copy = push(body, before, op, ty, span);
    copies.insert(v, copy);
    copy
}

fn component_addr(body: &mut Body, base: ValueId, ty: &Type, component: u32, before: &mut Vec<ValueId>) -> ValueId {
    let span = body.inst(base).span;
    let columns = ty.shape().last().copied().unwrap_or(1);
    let position = if ty.shape().len() == 2 { vec![component / columns, component % columns] } else { vec![component] };
    let indices = position
        .into_iter()
        .map(|i| push(body, before, Op::Const(Const::Int(i64::from(i))), Type::I32, span))
        .collect();
    let s = ty.scalar().expect("compiler bug: a tensor type without a scalar");
    push(body, before, Op::ElementAddr(base, indices), Type::Ref(Box::new(Type::Scalar(s))), span)
}
