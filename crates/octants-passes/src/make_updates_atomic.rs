//! Inside a parallel loop, makes updates of shared variables atomic: `s = s op x` written as a load, an operation and
//! a store of the same variable, which lives outside the loop, with no interfering write in between.
//!
//! The front end emits plain updates, because it does not know which variables iterations share.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BlockId, Body, Effect, Kernel, LocalId, Op, ValueId, task_statements};

use octants_analysis::{Place, locals_of_all_iterations, same_address, trace_address};

/// Turns updates of shared variables in parallel loops into atomics.
pub fn make_updates_atomic(kernel: &mut Kernel) {
    let body = &mut kernel.body;
    for v in task_statements(body) {
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

/// Makes additions to float variables atomic, shared or not: a single instruction that does not use the old value.
pub fn make_sums_atomic(kernel: &mut Kernel) {
    let body = &mut kernel.body;
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

fn rewrite_block(body: &mut Body, b: BlockId, wanted: Wanted<'_>, uses: &[u32]) {
    let mut list = body.block(b).to_vec();
    let mut at = 0;
    while at < list.len() {
        if let Some(update) = find_update(body, &list, at, wanted) {
            let Update { load, math, op, addr, operand } = update;
            // The load's number then denotes the old value, which the atomic returns.
            body.inst_mut(load).op = Op::Atomic(op, addr, operand);
            list[at] = load;
            let (i, j) = (position(&list, load), position(&list, math));
            list.retain(|v| *v != math);
            // `load` is twice now; the first is removed. The new value, if it has uses other than the store, is
            // computed after the atomic.
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
    list.iter().position(|u| *u == v).expect("compiler bug: an instruction is not in its block")
}

struct Update {
    load: ValueId,
    math: ValueId,
    op: AtomicOp,
    addr: ValueId,
    operand: ValueId,
}

/// The update whose store is at `at`.
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
        let quiet =
            matches!(op.effect(), Effect::Pure | Effect::Index | Effect::Draw | Effect::ReadClock | Effect::Read(_));
        let mut uses = false;
        op.for_each_operand(|u| uses |= (u == load && v != math) || u == math);
        if !quiet || uses {
            return None;
        }
    }
    (found && operand != load).then_some(Update { load, math, op, addr, operand })
}
