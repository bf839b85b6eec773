//! Strip-mines a loop whose states would be kept in memory. States are kept at the start of each block of a few
//! iterations. Those within the block are recomputed when it is reversed, into locals that become registers.
//!
//! `for k in begin..end` becomes a loop over blocks around a loop over the iterations of a block, whose trip count is
//! a compile-time constant. The body is in a branch that skips iterations beyond the end. The plan of such loops keeps
//! the states of the outer loop in the store, or in a local array if there are few, and those of the inner loop in
//! locals, and runs the inner loop again.
//!
//! A `break` becomes a flag: the remaining iterations of its block do nothing, and the loop over blocks ends after it.
//!
//! This pays on a GPU if an iteration is short, because arithmetic is cheap and memory slow. On the CPU the store is
//! in the cache.

use std::collections::{HashMap, HashSet};

use octants_diag::Span;
use octants_ir::{
    BinaryOp, BlockId, Body, BufferId, Builder, CostClass, CostTable, ForLoop, LocalId, Op, Range, Scalar, Type,
    UnaryOp, ValueId,
};

use super::keep_states::{fits_locals, words_of};
use super::plan_sweeps::{Exit, Plan, exit_of};
use octants_analysis::{CostModel, for_each_element, known_int};
use octants_ir::insert_code::{and, push_if};

/// The strip length, by the maximum size of a state and of an iteration. The states of a strip should fit into
/// registers, together with an iteration's temporaries, and the code is repeated for each iteration of a strip in each
/// of three sweeps.
const BLOCKS: [Block; 2] =
    [Block { length: 8, words: 4, operations: 64 }, Block { length: 4, words: 8, operations: 128 }];

/// Loops of at most this many iterations are fully unrolled, so their states are in registers anyway.
const MOST_IN_REGISTERS: u64 = 8;

struct Block {
    length: i64,
    /// Words of 32 bits of a state.
    words: i64,
    /// Operations on scalars of an iteration.
    operations: usize,
}

/// A body with loops in blocks.
pub(super) struct Stripped {
    pub body: Body,
    /// For each loop over blocks, the number of iterations per block.
    pub lengths: HashMap<ValueId, u32>,
}

/// Maximum number of loops that are strip-mined. Each becomes several unrolled loops, so with more of them the code
/// would be too long.
const MOST_CUT: usize = 4;

/// Cuts the loops of a body for which that pays; `None` if there are none. `gradients` selects the buffers that are
/// gradients.
pub(super) fn strip_kept_loops(plan: &Plan, gradients: &[Option<BufferId>]) -> Option<Stripped> {
    let mut found = Vec::new();
    plan.body.visit(plan.body.root, &mut |v, _| {
        // Values computed from gradients cannot be recomputed once gradients were updated.
        found.extend(block_length(plan, v).filter(|_| !reads_gradients(plan.body, v, gradients)).map(|n| (v, n)));
    });
    if found.is_empty() || found.len() > MOST_CUT {
        return None;
    }
    let mut b = Builder::new();
    b.body = plan.body.clone();
    for &(v, length) in &found {
        cut(&mut b, plan, v, length);
    }
    Some(Stripped { body: b.body, lengths: found.into_iter().map(|(v, n)| (v, n as u32)).collect() })
}

/// How many iterations a block of a loop has.
fn block_length(plan: &Plan, v: ValueId) -> Option<i64> {
    let (inner, axes) = match &plan.body.inst(v).op {
        Op::For(l) => (l.body, l.dims.len()),
        Op::Loop(inner) => (*inner, 1),
        _ => return None,
    };
    let within_parallel =
        std::iter::successors(plan.layout.around(v), |u| plan.layout.around(*u)).any(|around| plan.is_parallel(around));
    let exit = exit_of(plan.body, inner);
    let mut is_innermost = true;
    plan.body.visit(inner, &mut |u, _| is_innermost &= !keeps_in_memory(plan, u));
    if !(keeps_in_memory(plan, v) && is_innermost && within_parallel) || axes != 1 || matches!(exit, Exit::Always(_)) {
        return None;
    }
    let [short, long] = words_of(plan, v);
    let words = short + 2 * long;
    let operations = operations_in(plan.body, inner)?;
    let block = BLOCKS.iter().find(|block| words <= block.words && operations <= block.operations)?;
    Some(block.length)
}

/// A loop keeps states in the store, or in more locals than there are registers.
fn keeps_in_memory(plan: &Plan, v: ValueId) -> bool {
    let Some(p) = plan.loops.get(&v) else { return false };
    let in_registers = match &plan.body.inst(v).op {
        Op::For(l) => fits_locals(plan, v) && trips(plan.body, l).is_some_and(|n| n <= MOST_IN_REGISTERS),
        _ => false,
    };
    !p.kept.is_empty() && !in_registers
}

/// The number of iterations of a loop, if known.
fn trips(body: &Body, l: &ForLoop) -> Option<u64> {
    let extent = |r: &Range| {
        let (begin, end) = (known_int(body, r.begin)?, known_int(body, r.end)?);
        Some((i128::from(end) - i128::from(begin)).max(0) as u64)
    };
    l.dims.iter().map(extent).try_fold(1, |n: u64, extent| Some(n.saturating_mul(extent?)))
}

fn reads_gradients(body: &Body, v: ValueId, gradients: &[Option<BufferId>]) -> bool {
    let mut reads = false;
    for block in body.inst(v).op.blocks() {
        for_each_element(body, block, &mut |buffer, _| reads |= gradients.contains(&Some(buffer)));
    }
    reads
}

/// Roughly how many instructions on scalars a block is; `None` if the number of iterations of a loop in it is unknown.
/// Locals are registers.
fn operations_in(body: &Body, block: BlockId) -> Option<usize> {
    // The target is not known yet.
    let costs = CostModel::of(&CostTable::GENERIC);
    let mut sum: usize = 0;
    for &v in body.block(block) {
        let inst = body.inst(v);
        let here = match &inst.op {
            Op::For(l) => operations_in(body, l.body)?.saturating_mul(usize::try_from(trips(body, l)?).ok()?),
            Op::Loop(_) => return None,
            Op::If(_, yes, no) => 1 + operations_in(body, *yes)? + operations_in(body, *no)?,
            Op::MatMul(a, _) => inst.ty.leaf_count().max(1) * body.ty(*a).leaf_count(),
            // Loaded once, before the loop.
            op if op.cost() == CostClass::Argument => 0,
            _ => costs.size(body, inst),
        };
        sum = sum.saturating_add(here);
    }
    Some(sum)
}

/// Turns a loop into one over strips. The added code has no source location, because its integers do not overflow.
fn cut(b: &mut Builder, plan: &Plan, v: ValueId, length: i64) {
    let op = b.body.inst(v).op.clone();
    let from = op.blocks()[0];
    b.span = Span::default();
    let is_left = note_break(b, plan, from);
    let numbers = match &op {
        Op::For(l) => Some(count_iterations(b, plan.layout.home[v.index()], v, l, length)),
        _ => None,
    };

    let over_blocks = b.body.add_block();
    b.set_cursor(over_blocks);
    if let Some(is_left) = is_left {
        let no = b.int(0, Scalar::U1);
        b.store_local(is_left, no);
    }
    let block = numbers.as_ref().map(|numbers| begin_block(b, v, numbers, length));
    let s = numbers.as_ref().map_or(Scalar::I32, |n| n.index);
    let (over_iterations, no) = (b.body.add_block(), b.body.add_block());
    let (zero, size) = (b.int(0, s), b.int(length, s));
    let dims = vec![Range { begin: zero, end: size }];
    let iterations = ForLoop::serial(dims, over_iterations);
    let iterations = b.push(Op::For(Box::new(iterations)), Type::Unit);
    b.set_cursor(over_iterations);
    // Values that both sweeps of an iteration use are outside of the branch.
    let mut runs = None;
    if let Some(Begun { first, left }) = block {
        let at = b.push(Op::LoopIndex(iterations, 0), s.into());
        runs = left.map(|left| {
            let number = b.ty(left).scalar().expect("compiler bug: an iteration number that is not a scalar");
            let place = b.cast(at, number);
            b.binary(BinaryOp::Lt, place, left)
        });
        let index = b.binary(BinaryOp::Add, first, at);
        replace_index(&mut b.body, from, v, index);
    }
    if let Some(is_left) = is_left {
        let is_left = b.load_local(is_left);
        let goes_on = b.unary(UnaryOp::LogicNot, is_left);
        runs = Some(and(b, runs, goes_on));
    }
    let runs = runs.unwrap_or_else(|| b.int(1, Scalar::U1));
    b.push(Op::If(runs, from, no), Type::Unit);
    if let Some(is_left) = is_left {
        b.set_cursor(over_blocks);
        let is_left = b.load_local(is_left);
        push_if(b, is_left, |b| _ = b.push(Op::Break, Type::Unit));
    }
    b.body.inst_mut(v).op = match (op, numbers) {
        (Op::For(l), Some(Numbers { blocks, .. })) => {
            Op::For(Box::new(ForLoop { dims: vec![blocks], body: over_blocks, ..*l }))
        }
        _ => Op::Loop(over_blocks),
    };
}

/// Sets a flag instead of leaving a loop with this body.
fn note_break(b: &mut Builder, plan: &Plan, from: BlockId) -> Option<LocalId> {
    let Exit::If(exit) = exit_of(&b.body, from) else { return None };
    let flag = flag_of(plan, exit, from);
    let is_left = flag.unwrap_or_else(|| b.body.add_local("left", Type::U1));
    for arm in b.body.inst(exit).op.blocks() {
        if breaks(&b.body, arm) {
            b.body.blocks[arm.index()].pop();
            if flag.is_none() {
                b.set_cursor(arm);
                let yes = b.int(1, Scalar::U1);
                b.store_local(is_left, yes);
            }
        }
    }
    Some(is_left)
}

fn breaks(body: &Body, block: BlockId) -> bool {
    body.block(block).last().is_some_and(|u| body.inst(*u).op == Op::Break)
}

/// The existing flag: zero before the loop, and set by its exit.
fn flag_of(plan: &Plan, exit: ValueId, from: BlockId) -> Option<LocalId> {
    let (body, layout) = (plan.body, &plan.layout);
    let Op::If(c, yes, _) = body.inst(exit).op else { return None };
    let Op::Load(address) = body.inst(c).op else { return None };
    let Op::LocalAddr(flag) = body.inst(address).op else { return None };
    let is_last = |s: &ValueId| layout.position[s.index()] < layout.position[c.index()];
    let is_set = |s: &ValueId| {
        let inside = layout.is_inside(*s, from);
        let Op::Store(_, x) = body.inst(*s).op else { return false };
        known_int(body, x) == Some(i64::from(inside)) && (!inside || is_last(s))
    };
    (breaks(body, yes) && layout.home[c.index()] == from && layout.stores[flag.index()].iter().all(is_set))
        .then_some(flag)
}

/// The numbers of a `for`'s iterations.
struct Numbers {
    index: Scalar,
    begin: ValueId,
    /// How many there are, as an unsigned number; `None` if they fill their blocks.
    n: Option<ValueId>,
    /// Those of its blocks.
    blocks: Range,
}

/// A block of iterations that begins.
struct Begun {
    /// Its first index.
    first: ValueId,
    /// How many iterations are left; `None` if there are enough for the block.
    left: Option<ValueId>,
}

/// Counts the iterations of a loop before it.
fn count_iterations(b: &mut Builder, home: BlockId, v: ValueId, l: &ForLoop, length: i64) -> Numbers {
    let range = l.dims[0];
    let index = b.ty(range.begin).scalar().expect("compiler bug: a bound is not a scalar");
    // The distance from the minimum to the maximum exceeds a signed integer.
    let number = if index == Scalar::I64 { Scalar::U64 } else { Scalar::U32 };
    let before = b.body.add_block();
    b.set_cursor(before);
    let (n, blocks) = match trips(&b.body, l) {
        Some(n) => {
            let blocks = b.int(n.div_ceil(length as u64) as i64, index);
            ((!n.is_multiple_of(length as u64)).then(|| b.int(n as i64, number)), blocks)
        }
        None => {
            let (n, blocks) = count_blocks(b, &range, number, length);
            (Some(n), blocks)
        }
    };
    let zero = b.int(0, index);
    splice_before(&mut b.body, home, v, before);
    Numbers { index, begin: range.begin, n, blocks: Range { begin: zero, end: blocks } }
}

/// Begins a block of a `for`.
fn begin_block(b: &mut Builder, v: ValueId, numbers: &Numbers, length: i64) -> Begun {
    let block = b.push(Op::LoopIndex(v, 0), numbers.index.into());
    let size = b.int(length, numbers.index);
    let done = b.binary(BinaryOp::Mul, block, size);
    let first = b.binary(BinaryOp::Add, numbers.begin, done);
    let left = numbers.n.map(|n| {
        let number = b.ty(n).scalar().expect("compiler bug: an iteration number that is not a scalar");
        let done = b.cast(done, number);
        b.binary(BinaryOp::Sub, n, done)
    });
    Begun { first, left }
}

/// The number of iterations of a range, and the number of strips.
fn count_blocks(b: &mut Builder, range: &Range, number: Scalar, length: i64) -> (ValueId, ValueId) {
    let s = b.ty(range.begin).scalar().expect("compiler bug: a bound is not a scalar");
    let runs = b.binary(BinaryOp::Lt, range.begin, range.end);
    let extent = b.binary(BinaryOp::Sub, range.end, range.begin);
    let none = b.int(0, s);
    let n = b.push(Op::Select(runs, extent, none), s.into());
    let n = b.cast(n, number);
    let (size, none) = (b.int(length, number), b.int(0, number));
    let whole = b.binary(BinaryOp::Div, n, size);
    let rest = b.binary(BinaryOp::Rem, n, size);
    let rest = b.binary(BinaryOp::Ne, rest, none);
    let rest = b.cast(rest, number);
    let blocks = b.binary(BinaryOp::Add, whole, rest);
    (n, b.cast(blocks, s))
}

/// Replaces the index of a loop by a value in a block.
fn replace_index(body: &mut Body, block: BlockId, v: ValueId, index: ValueId) {
    let (mut inside, mut blocks, mut old) = (Vec::new(), vec![block], HashSet::new());
    body.visit(block, &mut |u, inst| {
        inside.push(u);
        blocks.extend(inst.op.blocks());
        old.extend((inst.op == Op::LoopIndex(v, 0)).then_some(u));
    });
    blocks.into_iter().for_each(|b| body.blocks[b.index()].retain(|u| !old.contains(u)));
    inside.into_iter().for_each(|u| body.inst_mut(u).op.map_operands(|x| if old.contains(&x) { index } else { x }));
}

/// Inserts the code of a block before an instruction of another one.
fn splice_before(body: &mut Body, home: BlockId, v: ValueId, code: BlockId) {
    let code = std::mem::take(&mut body.blocks[code.index()]);
    let list = &mut body.blocks[home.index()];
    let at = list.iter().position(|u| *u == v).expect("compiler bug: a loop is not in its block");
    list.splice(at..at, code);
}
