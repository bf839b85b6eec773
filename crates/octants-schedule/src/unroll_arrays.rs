//! Full unrolling of serial loops over short local arrays, so that the arrays become registers.
//!
//! Registers cannot be indexed: an array of a thread stays in memory unless each access has a constant index. On a GPU
//! such memory is as slow as global memory. LLVM unrolls small loops by itself, but iterations of a gradient are rarely
//! small.

use octants_ir::{BlockId, Body, Const, ForLoop, Op, ValueId};

/// Maximum length of an array that becomes registers.
const MAX_LENGTH: usize = 16;
/// Maximum trip count of the loop nest.
const MAX_ITERATIONS: i64 = 32;
/// Maximum number of instructions after unrolling.
const MAX_INSTRUCTIONS: i64 = 4096;

/// The loop walks short arrays and is short enough to be fully unrolled.
pub(crate) fn walks_short_arrays(body: &Body, l: &ForLoop) -> bool {
    let fits = |n: i64| {
        n.saturating_mul(iterations(body, l.body)) <= MAX_ITERATIONS
            && n.saturating_mul(instructions(body, l.body)) <= MAX_INSTRUCTIONS
    };
    trips(body, l).is_some_and(fits) && indexes_arrays(body, l.body)
}

/// The trip count of a loop with one axis, if known.
fn trips(body: &Body, l: &ForLoop) -> Option<i64> {
    let [range] = l.dims[..] else { return None };
    match [range.begin, range.end].map(|v| body.as_const(v)) {
        [Some(Const::Int(begin)), Some(Const::Int(end))] => Some(end.saturating_sub(begin).max(0)),
        _ => None,
    }
}

/// How many times the innermost code of a block runs. Unknown trip counts are one.
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

/// Estimated length of a block after full unrolling of loops with known trip counts.
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

/// The block indexes short local arrays by run-time values.
fn indexes_arrays(body: &Body, block: BlockId) -> bool {
    let mut found = false;
    body.visit(block, &mut |_, inst| {
        if let Op::ElementAddr(base, indices) = &inst.op
            && let Op::LocalAddr(local) = body.inst(*base).op
            && body.locals[local.index()].ty.leaf_count() <= MAX_LENGTH
        {
            found |= indices.iter().any(|i| body.as_const(*i).is_none());
        }
    });
    found
}
