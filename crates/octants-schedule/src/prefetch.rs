//! Unroll factors that prefetch: the loads of several iterations are issued together.
//!
//! A CPU reorders such loads by itself. On a GPU the code must issue them next to one another: long loops in a thread
//! mean few threads, and no other thread computes during the wait.

use std::collections::HashSet;

use octants_analysis::{CostModel, Place, trace_address};
use octants_ir::{BlockId, Body, Const, Effect, ForLoop, Op, Unroll, ValueId};

/// LLVM fully unrolls short bodies with at most this trip count.
const SHORT_TRIP_COUNT: i64 = 64;
/// Scalar operations of a tiny body, of a short body, and of the longest body that is unrolled.
const TINY: usize = 8;
const SHORT: usize = 64;
const LONGEST: usize = 128;
/// Tasks with at least this many iterations reach full occupancy.
const MANY_ITERATIONS: u64 = 1 << 18;
/// From this unroll factor on, the remainder loop is unrolled too.
const LONG_REMAINDER: u32 = 16;
const REMAINDER_FACTOR: u32 = 4;
/// Loads in flight per thread, as a sum has them.
const MOST_LOADS: u32 = 4;

/// Loops in a block access buffers.
pub(crate) fn reads_in_loops(body: &Body, block: BlockId) -> bool {
    let mut reads = false;
    body.visit(block, &mut |_, inst| {
        if matches!(inst.op, Op::For(_) | Op::Loop(_)) {
            for inner in inst.op.blocks() {
                body.visit(inner, &mut |_, inst| reads |= matches!(inst.op, Op::BufferAddr(..)));
            }
        }
    });
    reads
}

/// Unroll factor for short, branch-free loops that load. Halved when occupancy is high, or when the trip count is the
/// length of a row that is read from memory.
fn unroll_factor(costs: CostModel<'_>, body: &Body, l: &ForLoop, has_many_threads: bool) -> Option<u32> {
    let (mut reads, mut straight, mut size) = (false, true, 0);
    body.visit(l.body, &mut |_, inst| {
        reads |= matches!(inst.op, Op::BufferAddr(..));
        straight &= inst.op.blocks().is_empty() && !inst.op.is_terminator();
        straight &= !matches!(inst.op, Op::Call(..) | Op::Print(_) | Op::Assert(..));
        size += costs.size(body, inst);
    });
    let bounds = l.dims.last().map(|d| [d.begin, d.end].map(|v| body.as_const(v)));
    let few = match bounds {
        Some([Some(Const::Int(begin)), Some(Const::Int(end))]) => end.saturating_sub(begin) <= SHORT_TRIP_COUNT,
        _ => false,
    };
    let for_few = if size <= TINY { 32 } else { 16 };
    let factor = match size > SHORT {
        true => 4,
        false if has_many_threads || is_row(body, l) => for_few / 2,
        false => for_few,
    };
    (reads && straight && !few && size <= LONGEST).then_some(factor)
}

/// Unroll factors of a serial loop that prefetch its loads.
pub(crate) fn prefetch(costs: CostModel<'_>, body: &Body, l: &ForLoop, has_many_threads: bool) -> Option<Unroll> {
    let factor = unroll_factor(costs, body, l, has_many_threads)?;
    Some(Unroll { factor, remainder_factor: (factor >= LONG_REMAINDER).then_some(REMAINDER_FACTOR) })
}

/// Unroll factor of a parallel loop that only adds up what it loads: a few loads in flight per thread, because the
/// thread waits for nothing else. Loads do not pass stores, so other loops gain nothing.
pub(crate) fn unroll_sums(costs: CostModel<'_>, body: &Body, l: &ForLoop) -> Option<Unroll> {
    let (mut loads, mut is_sum, mut size) = (0, !l.reductions.is_empty() && !l.dims.is_empty(), 0);
    body.visit(l.body, &mut |_, inst| {
        is_sum &= inst.op.blocks().is_empty() && !inst.op.is_terminator();
        let is_local = |at| matches!(trace_address(body, at), Place::Local(_));
        match inst.op.effect() {
            Effect::Pure | Effect::Index | Effect::Reduce => {}
            Effect::Read(at) => loads += u32::from(!is_local(at)),
            Effect::Write(at) => is_sum &= is_local(at),
            _ => is_sum = false,
        }
        size += costs.size(body, inst);
    });
    let factor = MOST_LOADS.checked_div(loads)?;
    (is_sum && factor > 1 && size <= SHORT).then_some(Unroll { factor, remainder_factor: None })
}

/// A task has many iterations, or is likely to because it has several axes. Occupancy, which registers limit, then
/// matters more than prefetching.
pub(crate) fn has_many_threads(l: &ForLoop, count: Option<u64>) -> bool {
    l.dims.len() > 1 || count.is_some_and(|n| n >= MANY_ITERATIONS)
}

/// The innermost bounds may be computed from memory at loop indices.
pub(crate) fn is_row(body: &Body, l: &ForLoop) -> bool {
    let mut open: Vec<ValueId> = l.dims.last().map_or(Vec::new(), |d| vec![d.begin, d.end]);
    let (mut seen, mut is_read, mut depends) = (HashSet::new(), false, false);
    while let Some(v) = open.pop() {
        if seen.insert(v) {
            let op = &body.inst(v).op;
            is_read |= matches!(op, Op::Load(_));
            depends |= matches!(op, Op::LoopIndex(..) | Op::LocalAddr(_));
            op.for_each_operand(|u| open.push(u));
        }
    }
    is_read && depends
}
