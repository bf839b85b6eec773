//! Loops that are not fused, whatever the others are.
//!
//! Under `fast_math`, the optimizer may order a sum or product of several floats by the places of their loads, which
//! change with the code around them. Vector code and the code of its remainder round quotients, roots and mathematical
//! functions differently, and which iterations are the remainder changes, too.

use std::collections::BTreeSet;

use octants_analysis::{locals_of_all_iterations, may_leave, trace_element};
use octants_ir::{
    AtomicOp, BinaryOp, Body, BufferId, Effect, ForLoop, Kernel, LoopConfig, Op, Reduction, Scalar, Type, UnaryOp,
    ValueId,
};

use super::{FusionPlan, Refusal, loop_at};
use crate::privatize_reductions::MOST_REDUCTIONS;

/// Refuses loops that cannot be fused.
pub(super) fn find_refusals(stages: &[(&Kernel, ValueId)], plan: &FusionPlan<'_>) -> Result<(), Refusal> {
    let (first, v) = stages[0];
    let first = loop_at(&first.body, v);
    for (n, (kernel, v)) in stages.iter().enumerate() {
        let (body, name) = (&kernel.body, &kernel.name);
        let l = loop_at(body, *v);
        if !same_options(first, l) {
            return Err(format!("the loops of `{name}` and of the kernel before it have different options"));
        }
        if !l.reductions.iter().all(|r| is_exact(body, r)) {
            return Err(format!("`{name}` adds or multiplies floats of all iterations"));
        }
        if !locals_of_all_iterations(body, *v).is_empty() {
            return Err(format!("iterations of `{name}` share a variable"));
        }
        if n + 1 < stages.len() && may_leave(body, l.body) {
            return Err(format!("`{name}` leaves iterations by `continue`"));
        }
        find_effects(body, l).map_err(|what| format!("`{name}` {what}"))?;
        if plan.fast_math {
            let found = find_choices(body, l, plan.vectorizes);
            found.map_err(|what| format!("`{name}` {what}: with fast_math, its rounding depends on other code"))?;
        }
    }
    if stages.iter().map(|(kernel, v)| loop_at(&kernel.body, *v).reductions.len()).sum::<usize>() > MOST_REDUCTIONS {
        return Err("the loops compute too many sums of all iterations".into());
    }
    if plan.fast_math {
        find_sums(stages, plan)?;
    }
    if plan.buffers.iter().any(|b| b.space.is_temporary() || b.is_packed()) {
        return Err("threads share memory of blocks, or elements of words".into());
    }
    Ok(())
}

/// The order of the iterations does not matter to the result.
fn is_exact(body: &Body, of: &Reduction) -> bool {
    let Type::Ref(target) = body.ty(of.target) else { return false };
    !target.leaves().iter().any(|s| s.is_float()) || matches!(of.op, AtomicOp::Min | AtomicOp::Max)
}

/// Refuses loops that add to the same floats.
fn find_sums(stages: &[(&Kernel, ValueId)], plan: &FusionPlan<'_>) -> Result<(), Refusal> {
    let mut added: BTreeSet<BufferId> = BTreeSet::new();
    for (kernel, v) in stages {
        let (body, mut here) = (&kernel.body, BTreeSet::new());
        body.visit(loop_at(body, *v).body, &mut |v, inst| {
            if let (Op::Atomic(_, a, _), true) = (&inst.op, body.ty(v).scalar().is_some_and(Scalar::is_float)) {
                here.extend(trace_element(body, *a).map(|(b, _)| b));
            }
        });
        if let Some(twice) = added.intersection(&here).next() {
            let name = &plan.buffers[twice.index()].name;
            return Err(format!("two loops add to the floats of `{name}`: with fast_math, its rounding may change"));
        }
        added.append(&mut here);
    }
    Ok(())
}

fn same_options(a: &ForLoop, b: &ForLoop) -> bool {
    let unnamed = |l: &ForLoop| l.parallel.clone().map(|config| LoopConfig { name: None, ..config });
    a.hints == b.hints && a.groups.is_empty() && b.groups.is_empty() && unnamed(a) == unnamed(b) && {
        a.parallel.as_ref().is_none_or(|config| config.group.is_none())
    }
}

/// Refuses effects besides those on memory.
fn find_effects(body: &Body, l: &ForLoop) -> Result<(), &'static str> {
    let mut used = vec![false; body.insts.len()];
    body.visit(body.root, &mut |_, inst| inst.op.for_each_operand(|u| used[u.index()] = true));
    let mut found = Ok(());
    body.visit(l.body, &mut |v, inst| {
        let what = match inst.op.effect() {
            Effect::Pure | Effect::Index => match inst.op {
                Op::Grid(_) | Op::FragmentIndex(_) | Op::AddressBits(_) => Some("uses threads or addresses"),
                _ => None,
            },
            Effect::Read(_) | Effect::Write(_) | Effect::Branch(..) | Effect::For(_) | Effect::Loop(_) => None,
            Effect::Leave if matches!(inst.op, Op::Break | Op::Continue) => None,
            Effect::Update(_) => match inst.op {
                Op::Atomic(AtomicOp::Exchange, ..) => Some("exchanges values atomically"),
                Op::Atomic(..) if !used[v.index()] => None,
                _ => Some("uses the old value of an atomic"),
            },
            Effect::Reduce => None,
            Effect::ReadVolatile(_) => Some("has a volatile load"),
            Effect::Draw => Some("draws random numbers"),
            Effect::ReadClock => Some("reads a clock"),
            Effect::Call(..) => Some("calls a function that is not inlined"),
            Effect::Print => Some("prints"),
            Effect::Assert => Some("has assertions"),
            Effect::Leave | Effect::Exchange | Effect::Synchronize => Some("uses threads together"),
        };
        if let (Some(what), true) = (what, found.is_ok()) {
            found = Err(what);
        }
    });
    found
}

/// Refuses float operations that the optimizer may round differently next to other code.
fn find_choices(body: &Body, l: &ForLoop, vectorizes: bool) -> Result<(), &'static str> {
    let mut found = Ok(());
    body.visit(l.body, &mut |v, inst| {
        if found.is_ok() {
            found = find_choice(body, v, &inst.op, vectorizes).map_or(Ok(()), Err);
        }
    });
    found
}

fn find_choice(body: &Body, v: ValueId, op: &Op, vectorizes: bool) -> Option<&'static str> {
    let ty = body.ty(v);
    if matches!(ty, Type::Ref(_)) {
        return None;
    }
    if ty.scalar().is_none() && ty.leaves().iter().any(|s| s.is_float()) {
        return Some("uses structs with floats");
    }
    let scalar = ty.scalar().filter(|s| s.is_float())?;
    let sums = |x: &ValueId| is_made_by(body, *x, &[BinaryOp::Add, BinaryOp::Sub]);
    let multiplies = |x: &ValueId| is_made_by(body, *x, &[BinaryOp::Mul, BinaryOp::Div]);
    match op {
        Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
            let many = sums(a) || sums(b) || (multiplies(a) && multiplies(b));
            many.then_some("adds several floats or products")
        }
        Op::Binary(BinaryOp::Mul | BinaryOp::Div, a, b) if multiplies(a) || multiplies(b) => {
            Some("multiplies several floats")
        }
        Op::MatMul(..) | Op::Fold(..) => Some("adds several floats"),
        Op::Binary(BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max, ..) => None,
        Op::Binary(BinaryOp::Div, _, b) if scalar == Scalar::F64 || body.as_const(*b).is_some() => None,
        Op::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil, _) => None,
        Op::Unary(UnaryOp::Sqrt, _) if scalar == Scalar::F64 => None,
        Op::Binary(..) | Op::Unary(..) if vectorizes => Some("divides floats, or calls a mathematical function"),
        _ => None,
    }
}

/// The value may be the result of such an operation, perhaps with its sign changed. Variables may hold anything.
fn is_made_by(body: &Body, v: ValueId, ops: &[BinaryOp]) -> bool {
    match &body.inst(v).op {
        Op::Binary(op, ..) => ops.contains(op),
        Op::Unary(UnaryOp::Neg, a) | Op::Splat(a) | Op::Extract(a, _) => is_made_by(body, *a, ops),
        Op::Load(a) => trace_element(body, *a).is_none(),
        Op::MakeTensor(of) => of.iter().any(|a| is_made_by(body, *a, ops)),
        _ => false,
    }
}
