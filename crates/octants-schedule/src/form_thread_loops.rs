//! Blocks of threads on machines without a grid: the parallel loop runs blocks, and the code of a block runs its
//! threads in loops.
//!
//! A thread's code is split at synchronization points: barriers, votes and exchanges. Each piece, a region, becomes a
//! loop over the threads. Its iterations are independent, so LLVM vectorizes it. Control flow around a synchronization
//! point is outside of these loops, because all threads take it together. This is the method of work-group functions
//! for OpenCL on processors: Jääskeläinen et al., "pocl: A Performance-Portable OpenCL Implementation", 2015 (parallel
//! region formation); Karrenberg and Hack, "Improving Performance of OpenCL on CPUs", 2012 (uniform values, vectors).
//! Stratton et al., "MCUDA", 2008, has the fission of loops.
//!
//! There are two levels. A block is a loop over subgroups, which contains loops over the threads of a subgroup. A
//! subgroup is a few vectors wide. Barriers of the block end the outer loop, exchanges of a subgroup only the inner
//! one. Loops that are uniform for a subgroup are placed between the two, even if no threads synchronize in them: their
//! accumulators stay in vector registers, because they are one subgroup wide.
//!
//! - `rates` finds uniform values, `plan` splits the code, `values` finds the values that cross regions (`recompute`
//!   those that need not), `memory` adds buffers for them, and `emit`, `thread_code`, `exchange` and `products` write
//!   the code. `split_structs` and `number_draws` run before.
//! - Shared memory becomes private memory of the thread that runs the block. Its atomic updates become plain.
//! - The last block may have fewer threads. It has its own version of the code, without vectors. In it, no thread waits
//!   for missing threads.
//! - If threads disagree on control flow that must be uniform, all follow the first of them.
//! - A failed assertion ends the block.
//!
//! Assumes that thread operations are in the task itself: functions that contain them have been inlined.

mod emit;
mod exchange;
mod memory;
mod number_draws;
mod plan;
mod products;
mod rates;
mod recompute;
mod split_structs;
mod thread_code;
mod values;

use octants_analysis::{MemoryClasses, local_uses, own_behavior};
use octants_ir::{
    BinaryOp, Body, Builder, CodeSizeHint, Const, ForLoop, Layout, LoopConfig, MemorySpace, Op, Program, Range, Scalar,
    Scheduled, Task, TaskId, TaskKind, Type, ValueId, launch_count, renumber,
};

use crate::clone_code::remove_unused;
use crate::decide_schedule::decide_schedule;
use crate::scheduling::Scheduling;
use crate::shared_buffers::next_root;
use emit::{Emitter, Fill, Position, decode, extent};
use memory::{Slots, add_slots};
use number_draws::number_draws;
use plan::Plan;
use rates::{Rates, ThreadCode};
use split_structs::split_structs;
use values::find_storage;

/// Threads of a block if the program does not specify it.
const BLOCK_DIM: u32 = 64;

/// Code of more instructions has one version, for any number of threads.
const MAX_VERSIONED: usize = 3000;

/// Lets the parallel loops of threads that cooperate run blocks. The schedule is decided again.
pub(crate) fn form_thread_loops(scheduled: &mut Scheduled, of: &Scheduling) {
    let program = &mut scheduled.program;
    let tasks: Vec<usize> = (0..program.tasks.len()).filter(|t| cooperates(program, &program.tasks[*t])).collect();
    if tasks.is_empty() {
        return;
    }
    let spaces: Vec<MemorySpace> = program.buffers.iter().map(|b| b.space).collect();
    make_shared_memory_private(program);
    for number in tasks {
        form(program, number, &spaces, of);
    }
    *scheduled = decide_schedule(std::mem::take(program), &of.target, of.options);
}

/// Whether the threads of a task's loop synchronize, depend on their thread index, or share memory of a block.
fn cooperates(program: &Program, task: &Task) -> bool {
    let mut found = own_behavior(&task.body).behavior.cooperates;
    task.body.visit(task.body.root, &mut |_, inst| {
        found |= matches!(inst.op, Op::BufferAddr(b, _) if program.buffers[b.index()].space == MemorySpace::Shared);
    });
    found && matches!(task.kind, TaskKind::Parallel(_))
}

fn make_shared_memory_private(program: &mut Program) {
    let first = next_root(&program.buffers, MemorySpace::Private);
    for buffer in program.buffers.iter_mut().filter(|b| b.space == MemorySpace::Shared) {
        buffer.space = MemorySpace::Private;
        if let Layout::Dense { components, .. } = &mut buffer.layout {
            components.iter_mut().for_each(|c| c.root += first);
        }
    }
}

/// Rewrites a task.
fn form(program: &mut Program, number: usize, spaces: &[MemorySpace], of: &Scheduling) {
    let overlapping = MemoryClasses::of(&program.buffers, of.options.arrays_may_alias).overlapping();
    let mut body = std::mem::take(&mut program.tasks[number].body);
    split_structs(&mut body);
    let config = match body.block(body.root).last().map(|v| &body.inst(*v).op) {
        Some(Op::For(l)) => l.parallel.clone().unwrap_or_default(),
        _ => panic!("compiler bug: a parallel task that does not end in its loop"),
    };
    let block_dim = config.block_dim.unwrap_or(BLOCK_DIM).max(1);
    number_draws(&mut body, block_dim);
    let Some((&loop_id, prologue)) = body.block(body.root).split_last() else {
        panic!("compiler bug: a parallel task that does not end in its loop")
    };
    let Op::For(l) = &body.inst(loop_id).op else {
        panic!("compiler bug: a parallel task that does not end in its loop")
    };
    let code = ThreadCode {
        body: &body,
        loop_id,
        of: l,
        block_dim,
        subgroup_size: of.target.subgroup_size,
        locals: &local_uses(&body),
        overlapping,
        spaces: spaces.to_vec(),
    };
    let rates = Rates::of(&code);
    let plan = Plan::of(&code, &rates);
    let storage = find_storage(&code, &rates, &plan);
    // LLVM keeps memory in registers if only one version of the code touches it, at known indices.
    let slots = versions_of(&code).iter().map(|fill| (*fill, add_slots(&mut program.buffers, &code, &rates, &storage)));
    let slots: Vec<(Fill, Slots)> = slots.collect();

    let mut b = Builder::new();
    b.body = body.clone();
    b.body.blocks[body.root.index()] = prologue.to_vec();
    b.set_cursor(body.root);
    b.span = body.inst(loop_id).span;
    let count = count(&mut b, &code);
    let blocks = blocks(&mut b, &code, count);
    let (begin, inside) = (b.int(0, Scalar::I64), b.body.add_block());
    let config = LoopConfig { block_dim: None, ..config };
    let of_blocks = ForLoop {
        reductions: l.reductions.clone(),
        ..ForLoop::parallel(vec![Range { begin, end: blocks }], inside, config.clone())
    };
    let of_blocks = b.push(Op::For(Box::new(of_blocks)), Type::Unit);
    b.set_cursor(inside);
    let emit = |b: Builder, fill: Fill, here| {
        let slots = slots.iter().find(|(of, _)| *of == fill);
        let (_, slots) = slots.expect("compiler bug: a version without memory");
        Emitter::new((&code, &rates, &plan), (&storage, slots), b, fill, here).block()
    };
    let mut rewritten = versions(b, &code, (of_blocks, count, blocks), &emit);
    remove_unused(&mut rewritten);
    remove_empty_loops(&mut rewritten);
    renumber(&mut rewritten);
    let task = &mut program.tasks[number];
    (task.body, task.kind) = (rewritten, TaskKind::Parallel(config));
    let count = launch_count(task);
    program.graph.set_count(TaskId(number as u32), count);
}

/// Removes loops over threads in which everything is computed again elsewhere.
fn remove_empty_loops(body: &mut Body) {
    let is_empty = |v: &ValueId| match &body.inst(*v).op {
        Op::For(l) => l.hints.code_size == CodeSizeHint::VectorsFirst && body.block(l.body).is_empty(),
        _ => false,
    };
    let kept: Vec<Vec<ValueId>> =
        body.blocks.iter().map(|b| b.iter().copied().filter(|v| !is_empty(v)).collect()).collect();
    body.blocks = kept;
    remove_unused(body);
}

/// The number of iterations, i64.
fn count(b: &mut Builder, code: &ThreadCode<'_>) -> ValueId {
    let known = (0..code.of.dims.len()).try_fold(1i64, |n, axis| n.checked_mul(code.extent(axis)?));
    if let Some(known) = known {
        return b.int(known, Scalar::I64);
    }
    let extents: Vec<ValueId> = (0..code.of.dims.len()).map(|axis| extent(b, code, axis)).collect();
    extents
        .into_iter()
        .reduce(|n, extent| b.binary(BinaryOp::Mul, n, extent))
        .expect("compiler bug: a buffer without axes")
}

/// The number of blocks, i64.
fn blocks(b: &mut Builder, code: &ThreadCode<'_>, count: ValueId) -> ValueId {
    let dim = i64::from(code.block_dim);
    if let Some(Const::Int(n)) = b.body.as_const(count) {
        return b.int(n / dim + i64::from(n % dim > 0), Scalar::I64);
    }
    let round = b.int(dim - 1, Scalar::I64);
    let up = b.binary(BinaryOp::Add, count, round);
    let dim = b.int(dim, Scalar::I64);
    b.binary(BinaryOp::Div, up, dim)
}

/// The versions of a block's code that a task has.
fn versions_of(code: &ThreadCode<'_>) -> &'static [Fill] {
    let known = (0..code.of.dims.len()).try_fold(1i64, |n, axis| n.checked_mul(code.extent(axis)?));
    if known.is_some_and(|n| n % i64::from(code.block_dim) == 0) || code.block_dim == 1 {
        return &[Fill::Whole];
    }
    let mut size = 0;
    code.body.visit(code.of.body, &mut |_, _| size += 1);
    if size > MAX_VERSIONED { &[Fill::Partial] } else { &[Fill::Whole, Fill::Partial] }
}

/// The code of a block: for one that has all its threads, and for one that may lack some.
fn versions(
    mut b: Builder,
    code: &ThreadCode<'_>,
    (of_blocks, count, blocks): (ValueId, ValueId, ValueId),
    emit: &dyn Fn(Builder, Fill, Position) -> Body,
) -> Body {
    let block = b.push(Op::LoopIndex(of_blocks, 0), Scalar::I64.into());
    let dim = b.int(code.block_dim.into(), Scalar::I64);
    let first = b.binary(BinaryOp::Mul, block, dim);
    let [block, blocks] = [block, blocks].map(|v| b.cast(v, Scalar::I32));
    let indices = decode(&mut b, code, first);
    let (threads, base) = (b.int(code.block_dim.into(), Scalar::I32), b.int(0, Scalar::I32));
    let whole = Position { first, block, blocks, threads, base, indices, subgroup: None, lane: None };
    let versions = versions_of(code);
    if versions == [Fill::Whole] {
        return emit(b, Fill::Whole, whole);
    }
    let left = b.binary(BinaryOp::Sub, count, first);
    let some = |b: &mut Builder| {
        let threads = b.binary(BinaryOp::Min, left, dim);
        let threads = b.cast(threads, Scalar::I32);
        Position { threads, ..whole.clone() }
    };
    if versions == [Fill::Partial] {
        let here = some(&mut b);
        return emit(b, Fill::Partial, here);
    }
    let has_all = b.binary(BinaryOp::Ge, left, dim);
    let branches = [b.body.add_block(), b.body.add_block()];
    b.push(Op::If(has_all, branches[0], branches[1]), Type::Unit);
    b.set_cursor(branches[0]);
    let span = b.span;
    let body = emit(b, Fill::Whole, whole.clone());
    let mut b = Builder::new();
    (b.body, b.span) = (body, span);
    b.set_cursor(branches[1]);
    let here = some(&mut b);
    emit(b, Fill::Partial, here)
}
