//! Inside a parallel loop, an update of a variable that lives outside the loop becomes atomic: `s = s op x` written as a load, an
//! operation and a store of the same variable, with nothing that could change it in between.
//!
//! The front end writes updates of variables plainly, for it does not know yet which of them iterations share.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BlockId, Body, Effect, Kernel, LocalId, Op, ValueId};

use octants_analysis::{Place, first_use_sets, trace_address};

/// Makes updates of shared variables in parallel loops atomic.
pub fn make_updates_atomic(kernel: &mut Kernel) {
    let body = &mut kernel.body;
    for v in body.block(body.root).to_vec() {
        let Op::For(l) = &body.inst(v).op else { continue };
        if !l.is_parallel() {
            continue;
        }
        let inner = l.body;
        let written = written_locals(body, inner);
        if written.is_empty() {
            continue;
        }
        let mut shared = locals_of_all_iterations(body, v);
        shared.retain(|l| written.contains(l));
        if !shared.is_empty() {
            let mut blocks = vec![inner];
            body.visit(inner, &mut |_, inst| blocks.extend(inst.op.blocks()));
            let mut uses = vec![0u32; body.insts.len()];
            body.visit(inner, &mut |_, inst| inst.op.for_each_operand(|u| uses[u.index()] += 1));
            for b in blocks {
                rewrite_block(body, b, &|local, _| shared.contains(&local), &uses);
            }
        }
    }
}

/// Makes atomic what is added to floats in variables, shared or not: one instruction, which does not ask for the old value.
pub(crate) fn make_sums_atomic(body: &mut Body) {
    let mut blocks = vec![body.root];
    let mut uses = vec![0u32; body.insts.len()];
    body.visit(body.root, &mut |_, inst| {
        blocks.extend(inst.op.blocks());
        inst.op.for_each_operand(|u| uses[u.index()] += 1);
    });
    let is_float = |l: &octants_ir::Local| l.ty.scalar().is_some_and(|s| s.is_float());
    let floats: Vec<bool> = body.locals.iter().map(is_float).collect();
    for b in blocks {
        let wanted = |l: LocalId, op| floats[l.index()] && matches!(op, AtomicOp::Add | AtomicOp::Sub);
        rewrite_block(body, b, &wanted, &uses);
    }
}

/// Which updates become atomic.
type Wanted<'a> = &'a dyn Fn(LocalId, AtomicOp) -> bool;

/// The locals that code of a loop stores to.
fn written_locals(body: &Body, inner: BlockId) -> HashSet<LocalId> {
    let mut written = HashSet::new();
    body.visit(inner, &mut |_, inst| {
        if let Op::Store(addr, _) = inst.op
            && let Place::Local(l) = trace_address(body, addr)
        {
            written.insert(l);
        }
    });
    written
}

/// The locals that iterations of a root loop share: used outside of it, and not set by an iteration before it reads them.
pub(crate) fn locals_of_all_iterations(body: &Body, root_loop: ValueId) -> HashSet<LocalId> {
    let mut shared = shared_locals(body, root_loop);
    for inner in body.inst(root_loop).op.blocks() {
        shared.retain(|l| first_use_sets(body, body.block(inner), *l) != Some(true));
    }
    shared
}

/// The locals that code outside a root loop reads or writes.
pub(crate) fn shared_locals(body: &Body, root_loop: ValueId) -> HashSet<LocalId> {
    let mut shared = HashSet::new();
    let mut on = |op: &Op| {
        if matches!(op, Op::ElementAddr(..) | Op::MemberAddr(..)) {
            return;
        }
        op.for_each_operand(|u| {
            if matches!(body.ty(u), octants_ir::Type::Ref(_))
                && let Place::Local(l) = trace_address(body, u)
            {
                shared.insert(l);
            }
        });
    };
    for &v in body.block(body.root) {
        let op = &body.inst(v).op;
        on(op);
        if v != root_loop {
            op.blocks().into_iter().for_each(|b| body.visit(b, &mut |_, inst| on(&inst.op)));
        }
    }
    shared
}

fn rewrite_block(body: &mut Body, b: BlockId, wanted: Wanted<'_>, uses: &[u32]) {
    let mut list = body.block(b).to_vec();
    let mut at = 0;
    while at < list.len() {
        if let Some(update) = find_update(body, &list, at, wanted) {
            let Update { load, math, op, addr, operand } = update;
            // The load's number goes on to mean the old value, which the atomic yields.
            body.inst_mut(load).op = Op::Atomic(op, addr, operand);
            list[at] = load;
            let (i, j) = (position(&list, load), position(&list, math));
            list.retain(|v| *v != math);
            // `load` stands twice now; the first goes. The new value, where anyone but the store wants it, follows the atomic.
            let first = if i < j { i } else { i - 1 };
            list.remove(first);
            at = position(&list, load);
            if uses[math.index()] > 1 {
                list.insert(at + 1, math);
            }
        }
        at += 1;
    }
    body.blocks[b.index()] = list;
}

fn position(list: &[ValueId], v: ValueId) -> usize {
    list.iter().position(|u| *u == v).expect("compiler bug: an instruction left its block")
}

struct Update {
    load: ValueId,
    math: ValueId,
    op: AtomicOp,
    addr: ValueId,
    operand: ValueId,
}

/// The update whose store stands at `at`.
fn find_update(body: &Body, list: &[ValueId], at: usize, wanted: Wanted<'_>) -> Option<Update> {
    let Op::Store(addr, math) = body.inst(list[at]).op else { return None };
    let Place::Local(local) = trace_address(body, addr) else { return None };
    let Op::Binary(op, x, y) = body.inst(math).op else { return None };
    let op = AtomicOp::from_binary(op)?;
    if !wanted(local, op) {
        return None;
    }
    let reads = |v: ValueId| matches!(body.inst(v).op, Op::Load(a) if same_address(body, a, addr));
    let (load, operand) = if reads(x) {
        (x, y)
    } else if reads(y) && op != AtomicOp::Sub {
        (y, x)
    } else {
        return None;
    };
    let start = list[..at].iter().position(|v| *v == load)?;
    let mut found = false;
    for &v in &list[start + 1..at] {
        found |= v == math;
        let op = &body.inst(v).op;
        let quiet = matches!(op.effect(), Effect::Pure | Effect::Index | Effect::Draw | Effect::Read(_));
        let mut uses = false;
        op.for_each_operand(|u| uses |= (u == load && v != math) || u == math);
        if !quiet || uses {
            return None;
        }
    }
    (found && operand != load).then_some(Update { load, math, op, addr, operand })
}

/// Both addresses are computed in the same way from the same values.
pub(crate) fn same_address(body: &Body, a: ValueId, b: ValueId) -> bool {
    a == b || same_op(body, a, b)
}

fn same_op(body: &Body, a: ValueId, b: ValueId) -> bool {
    let same = |x: &ValueId, y: &ValueId| same_address(body, *x, *y);
    let all = |xs: &[ValueId], ys: &[ValueId]| xs.len() == ys.len() && xs.iter().zip(ys).all(|(x, y)| same(x, y));
    if body.ty(a) != body.ty(b) {
        return false;
    }
    match (&body.inst(a).op, &body.inst(b).op) {
        (Op::ElementAddr(x, xs), Op::ElementAddr(y, ys)) => same(x, y) && all(xs, ys),
        (Op::MemberAddr(x, i), Op::MemberAddr(y, j)) => i == j && same(x, y),
        (Op::BufferAddr(x, xs), Op::BufferAddr(y, ys)) => x == y && all(xs, ys),
        (x @ (Op::LocalAddr(_) | Op::FrameAddr(_) | Op::Const(_) | Op::Param(_) | Op::LoopIndex(..)), y) => x == y,
        _ => false,
    }
}
