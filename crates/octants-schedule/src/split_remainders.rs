//! [`split_remainders`]: a serial loop with an unroll factor for its remainder becomes two loops, one for whole groups
//! of iterations and one for the remainder.
//!
//! The optimizer's own remainder loop would run one iteration at a time, which is slow if the factor is large. The
//! first loop counts from zero to a multiple of the factor, so it needs no remainder. A loop with several axes becomes
//! a loop over the outer axes that contains two loops over the last axis.

use std::collections::HashSet;

use octants_analysis::{local_uses, may_leave};
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::schedule::LocalUses;
use octants_ir::{
    BinaryOp, Body, Builder, Const, ForLoop, LoopHints, Op, Range, Scalar, Scheduled, Type, Unroll, ValueId,
};

use crate::clone_code::{Cloner, plainly};

/// Splits loops in the variants of tasks, and in functions.
pub(crate) fn split_remainders(scheduled: &mut Scheduled) {
    let variants = scheduled.schedule.tasks.iter_mut().flat_map(|task| &mut task.variants);
    variants.for_each(|variant| split_in_body(&mut variant.body));
    scheduled.program.functions.iter_mut().for_each(|function| split_in_body(&mut function.body));
}

fn split_in_body(body: &mut Body) {
    let mut loops = HashSet::new();
    body.visit(body.root, &mut |v, inst| {
        loops.extend(matches!(&inst.op, Op::For(l) if factors(l).is_some() && !may_leave(body, l.body)).then_some(v));
    });
    if loops.is_empty() {
        return;
    }
    let source = body.clone();
    let locals = local_uses(&source);
    rebuild_blocks(body, |b, v| if loops.contains(&v) { split(b, (&source, &locals), v) } else { b.place(v) });
}

/// The unroll factors of the loop and of its remainder.
fn factors(l: &ForLoop) -> Option<(u32, u32)> {
    let Unroll { factor, remainder_factor } = l.hints.unroll?;
    Some((factor, remainder_factor?)).filter(|(factor, _)| factor.is_power_of_two())
}

/// Places the two loops at the cursor.
fn split(b: &mut Builder, (source, locals): (&Body, &LocalUses), v: ValueId) {
    let Op::For(l) = &source.inst(v).op else { panic!("compiler bug: {v} is not a loop") };
    let Some((factor, remainder_factor)) = factors(l) else { panic!("compiler bug: {v} has no remainder") };
    let Some((last, outer)) = l.dims.split_last() else { return b.place(v) };
    let axis = outer.len() as u32;
    let ty = source.ty(last.begin).clone();
    if !outer.is_empty() {
        let around = b.body.add_block();
        if let Op::For(l) = &mut b.body.inst_mut(v).op {
            (l.dims, l.body) = (outer.to_vec(), around);
            l.hints.unroll = None;
        }
        b.place(v);
        b.set_cursor(around);
    }
    let (zero, whole) = whole_groups(b, *last, &ty, factor);
    let hints = |factor| LoopHints { unroll: Some(Unroll { factor, remainder_factor: None }), ..l.hints };
    let push_loop = |b: &mut Builder, range: Range, offset: Option<ValueId>, factor: u32| {
        let body = b.body.add_block();
        let id = b.push(
            Op::For(Box::new(ForLoop { hints: hints(factor), ..ForLoop::serial(vec![range], body) })),
            Type::Unit,
        );
        let back = b.set_cursor(body);
        let mut index = b.push(Op::LoopIndex(id, 0), ty.clone());
        if let Some(offset) = offset {
            index = b.push(Op::Binary(BinaryOp::Add, offset, index), ty.clone());
        }
        let mut cloner = Cloner::new(source, locals);
        let mut own_index = |cloner: &mut Cloner<'_>, b: &mut Builder, at: ValueId| {
            let is_own = source.inst(at).op == Op::LoopIndex(v, axis);
            if is_own {
                cloner.set_value(at, index);
            }
            is_own || plainly(cloner, b, at)
        };
        cloner.block(b, l.body, &mut own_index);
        b.set_cursor(back);
    };
    let starts_at_zero = b.body.as_const(last.begin) == Some(Const::Int(0));
    push_loop(b, Range { begin: zero, end: whole }, (!starts_at_zero).then_some(last.begin), factor);
    let rest = if starts_at_zero { whole } else { b.push(Op::Binary(BinaryOp::Add, last.begin, whole), ty.clone()) };
    push_loop(b, Range { begin: rest, end: last.end }, None, remainder_factor);
}

/// Zero, and the number of iterations in whole groups.
fn whole_groups(b: &mut Builder, range: Range, ty: &Type, factor: u32) -> (ValueId, ValueId) {
    let scalar = ty.scalar().expect("compiler bug: a bound is not a scalar");
    let push = |b: &mut Builder, op| b.push(op, ty.clone());
    let trips = push(b, Op::Binary(BinaryOp::Sub, range.end, range.begin));
    let zero = b.int(0, scalar);
    let is_less = |b: &mut Builder, a, c| b.push(Op::Binary(BinaryOp::Lt, a, c), Scalar::U1.into());
    let runs = is_less(b, range.begin, range.end);
    // A difference that the type does not hold is left to the second loop.
    let is_exact = is_less(b, zero, trips);
    let holds = b.push(Op::Binary(BinaryOp::And, runs, is_exact), Scalar::U1.into());
    let trips = push(b, Op::Select(holds, trips, zero));
    let mask = b.int(-i64::from(factor), scalar);
    (zero, push(b, Op::Binary(BinaryOp::And, trips, mask)))
}
