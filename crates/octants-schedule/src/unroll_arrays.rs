//! Which loops inside a task must be unrolled so that the arrays that they walk become registers.
//!
//! A register has no index: an array of a thread stays in memory, and what walks it waits for that, unless each iteration has code of its own. On a
//! GPU such memory is as far away as any. LLVM unrolls by itself what is small, which an iteration of a gradient seldom is.

use octants_ir::{BlockId, Body, Const, ForLoop, Op, ValueId};

/// Arrays of at most so many numbers go to registers.
const LONGEST_ARRAY: usize = 16;
/// Most iterations of a loop that walks them, with those of loops in it, and most instructions that may come of it.
const MOST_ITERATIONS: i64 = 32;
const MOST_INSTRUCTIONS: i64 = 4096;

/// The loop walks short arrays, and its code may stand there once for each iteration.
pub(crate) fn walks_short_arrays(body: &Body, l: &ForLoop) -> bool {
    let fits = |n: i64| {
        n.saturating_mul(iterations(body, l.body)) <= MOST_ITERATIONS
            && n.saturating_mul(instructions(body, l.body)) <= MOST_INSTRUCTIONS
    };
    trips(body, l).is_some_and(fits) && indexes_arrays(body, l.body)
}

/// The number of iterations of a loop of one axis, where it is known.
fn trips(body: &Body, l: &ForLoop) -> Option<i64> {
    let [range] = l.dims[..] else { return None };
    match [range.begin, range.end].map(|v| body.as_const(v)) {
        [Some(Const::Int(begin)), Some(Const::Int(end))] => Some(end.saturating_sub(begin).max(0)),
        _ => None,
    }
}

/// How often the innermost code of a block is run, as far as that is known.
fn iterations(body: &Body, block: BlockId) -> i64 {
    let of = |v: &ValueId| {
        let op = &body.inst(*v).op;
        let times = match op {
            Op::For(l) => trips(body, l).unwrap_or(1),
            _ => 1,
        };
        op.blocks().into_iter().map(|b| times.saturating_mul(iterations(body, b))).max().unwrap_or(1)
    };
    body.block(block).iter().map(of).max().unwrap_or(1).max(1)
}

/// Roughly how long the code of a block is, with loops in it unrolled where that can be.
fn instructions(body: &Body, block: BlockId) -> i64 {
    let mut sum: i64 = 0;
    for v in body.block(block) {
        let inst = body.inst(*v);
        let times = match &inst.op {
            Op::For(l) => trips(body, l).unwrap_or(1),
            _ => 1,
        };
        let inner = inst.op.blocks().into_iter().map(|b| instructions(body, b)).fold(0, i64::saturating_add);
        sum = sum.saturating_add(inst.ty.leaf_count().max(1) as i64).saturating_add(inner.saturating_mul(times));
    }
    sum
}

/// Code of a block goes to elements of short arrays among the locals, which ones is known when it runs.
fn indexes_arrays(body: &Body, block: BlockId) -> bool {
    let mut found = false;
    body.visit(block, &mut |_, inst| {
        if let Op::ElementAddr(base, indices) = &inst.op
            && let Op::LocalAddr(local) = body.inst(*base).op
            && body.locals[local.index()].ty.leaf_count() <= LONGEST_ARRAY
        {
            found |= indices.iter().any(|i| body.as_const(*i).is_none());
        }
    });
    found
}
