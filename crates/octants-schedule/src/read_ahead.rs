//! Which loops inside a task wait for memory, so that loads of several iterations should be under way at once.
//!
//! A processor finds such loads by itself. On a GPU the code must have them next to one another: where there are few threads, which is where
//! loops in a thread are long, no other thread computes meanwhile.

use std::collections::HashSet;

use octants_ir::schedule::Unroll;
use octants_ir::{BlockId, Body, Const, CostClass, ForLoop, Op, ValueId};

/// Loops of at most so many iterations get code for each, if it is short, without being asked to.
const FEW_ITERATIONS: i64 = 64;
/// Operations on scalars of a tiny body, of a short one and of one that is worth having four times.
const TINY: usize = 8;
const SHORT: usize = 64;
const LONGEST: usize = 128;
/// Tasks of so many iterations have threads enough to keep a device busy.
const MANY_ITERATIONS: u64 = 1 << 18;
/// What so many iterations at a time leave over is worth taking several at a time too.
const LEAVES_MUCH: u32 = 16;
const REST_TIMES: u32 = 4;

/// Loops in a block go through memory.
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

/// How often the body of a loop should stand in the code, where it is short straight code that reads memory, and there are too many iterations for each to
/// get code of its own: half as often if there are many threads to run it, as there are where its length is that of a row read from memory.
pub(crate) fn times_to_unroll(body: &Body, l: &ForLoop, has_many_threads: bool) -> Option<u32> {
    let (mut reads, mut straight, mut size) = (false, true, 0);
    body.visit(l.body, &mut |_, inst| {
        reads |= matches!(inst.op, Op::BufferAddr(..));
        straight &= inst.op.blocks().is_empty() && !inst.op.is_terminator();
        straight &= !matches!(inst.op, Op::Call(..) | Op::Print(_) | Op::Assert(..));
        size += inst.ty.leaf_count().max(1) * operations(body, &inst.op);
    });
    let bounds = l.dims.last().map(|d| [d.begin, d.end].map(|v| body.as_const(v)));
    let few = match bounds {
        Some([Some(Const::Int(begin)), Some(Const::Int(end))]) => end.saturating_sub(begin) <= FEW_ITERATIONS,
        _ => false,
    };
    let for_few = if size <= TINY { 32 } else { 16 };
    let times = match size > SHORT {
        true => 4,
        false if has_many_threads || is_row(body, l) => for_few / 2,
        false => for_few,
    };
    (reads && straight && !few && size <= LONGEST).then_some(times)
}

/// How often the body of a loop in order should stand in the code, see [`times_to_unroll`], and how often for what is
/// left over.
pub(crate) fn find_unroll(body: &Body, l: &ForLoop, has_many_threads: bool) -> Option<Unroll> {
    let times = times_to_unroll(body, l, has_many_threads)?;
    Some(Unroll { times, rest: (times >= LEAVES_MUCH).then_some(REST_TIMES) })
}

/// A task's loop is known to have many iterations, or likely to, being over several axes: then threads, which registers limit, matter more than
/// loads under way in each.
pub(crate) fn has_many_threads(l: &ForLoop, count: Option<u64>) -> bool {
    l.dims.len() > 1 || count.is_some_and(|n| n >= MANY_ITERATIONS)
}

/// The innermost bounds are computed from what lies in memory at indices of loops, or may be.
fn is_row(body: &Body, l: &ForLoop) -> bool {
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

/// Roughly how many instructions on scalars an operation is. Locals are registers.
pub(crate) fn operations(body: &Body, op: &Op) -> usize {
    if let Op::Load(a) | Op::Store(a, _) = op
        && matches!(body.inst(*a).op, Op::LocalAddr(_))
    {
        return 0;
    }
    match op.cost() {
        CostClass::Free | CostClass::Index => 0,
        CostClass::Argument | CostClass::Simple | CostClass::Division | CostClass::Root | CostClass::Product => 1,
        CostClass::Draw | CostClass::Memory | CostClass::Atomic | CostClass::Text | CostClass::Nested => 1,
        CostClass::Function => 20,
        CostClass::LongFunction => 30,
    }
}
