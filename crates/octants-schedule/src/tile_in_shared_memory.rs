//! [`tile_in_shared_memory`]: blocks of threads run all-pairs loops and matrix products in tiles. The elements that a
//! range of the inner loop loads are staged in shared memory, once for all iterations of the block.
//!
//! `find_tiling` decides. The main variant becomes code that each thread of the grid runs: blocks share the tiles of
//! the parallel loop; in each tile, the threads of a block run the inner loop together, one staged range at a time,
//! between barriers. A thread runs several iterations of a product, each with its own locals. Threads without an
//! iteration repeat the last one, without its stores.
//!
//! The untiled loop is kept as an alternative, and each launch chooses: a short inner loop does not justify the
//! barriers, and a product with few tiles would leave multiprocessors idle.

use std::collections::HashSet;

use octants_analysis::{Place, local_uses, trace_address};
use octants_ir::insert_code::{push_if, zero};
use octants_ir::schedule::{LaunchShape, LocalUses, Role, Variant};
use octants_ir::{
    BinaryOp, Body, BufferId, Builder, ForLoop, GridValue, LoopHints, Op, Range, Scalar, Scheduled, ThreadScope, Type,
    Unroll, ValueId,
};

use crate::clone_code::{Cloner, remove_unused};
use crate::facts::{BodyFacts, ProgramFacts};
use crate::find_tiling::{Tiling, find_tiling, pitch, shared_elements};
use crate::scheduling::Scheduling;
use crate::shared_buffers::{add_shared_buffer, flat_buffer};

/// Unroll factors of the loop over staged steps.
const UNROLL_PAIRS: u32 = 16;
const UNROLL_PRODUCT: u32 = 8;

/// Runs loops in tiles, in the main variants of tasks.
pub(crate) fn tile_in_shared_memory(scheduled: &mut Scheduled, of: &Scheduling) {
    let facts = ProgramFacts::of(&scheduled.program, &of.target, of.options);
    let plan = |found: &octants_ir::schedule::TaskSchedule| {
        let body = &found.variant(Role::Main)?.body;
        find_tiling(&BodyFacts::new(&facts, body), found)
    };
    let plans: Vec<Option<Tiling>> = scheduled.schedule.tasks.iter().map(plan).collect();
    for (task, plan) in plans.into_iter().enumerate() {
        let Some(plan) = plan else { continue };
        let copies = plan.staged.iter().map(|s| {
            let body = &scheduled.schedule.tasks[task].variants[0].body;
            let elem = body.inst(s.loads[0]).ty.clone();
            let copy = flat_buffer("tile", elem, shared_elements(s, &plan.axes, plan.steps));
            add_shared_buffer(scheduled, of, copy)
        });
        let copies: Vec<BufferId> = copies.collect();
        let found = &mut scheduled.schedule.tasks[task];
        found.hints.shares_tiles = plan.axes.len() > 1;
        let main = found.variants.iter_mut().find(|v| v.role == Role::Main);
        rewrite(main.expect("compiler bug: a task without a main variant"), &plan, &copies, of.target.full_grid);
    }
}

fn rewrite(variant: &mut Variant, plan: &Tiling, copies: &[BufferId], full_grid: u32) {
    let source = variant.body.clone();
    let locals = local_uses(&source);
    let Some((&v, prologue)) = source.block(source.root).split_last() else {
        panic!("compiler bug: a task without a loop")
    };
    let mut b = Builder::new();
    b.body = std::mem::take(&mut variant.body);
    b.body.blocks[source.root.index()] = prologue.to_vec();
    b.set_cursor(source.root);
    b.span = source.inst(v).span;
    let code = Tiles::start(&mut b, &source, &locals, plan, copies);
    if plan.axes.len() > 1 {
        let block_size = plan.axes.iter().filter_map(|a| a.threads).product();
        variant.shape = LaunchShape::Grid { block_size: Some(block_size) };
    }
    let pays = code.pays(&mut b, full_grid);
    let blocks = [b.body.add_block(), b.body.add_block()];
    b.push(Op::If(pays, blocks[0], blocks[1]), Type::Unit);
    b.set_cursor(blocks[0]);
    code.run(&mut b);
    b.set_cursor(blocks[1]);
    b.place(v);
    remove_unused(&mut b.body);
    variant.body = b.body;
}

/// An axis of the parallel loop, or the inner loop. All numbers are i64.
#[derive(Clone, Copy)]
struct Extent {
    begin: ValueId,
    trips: ValueId,
    /// The type of its index.
    index: Scalar,
}

/// The code of a task in tiles.
struct Tiles<'a> {
    source: &'a Body,
    locals: &'a LocalUses,
    plan: &'a Tiling,
    copies: &'a [BufferId],
    axes: Vec<Extent>,
    inner: Extent,
    /// The number of tiles along each axis, and of all, i64.
    counts: Vec<ValueId>,
    count: ValueId,
    /// This thread in its block, and the threads of the block, i64.
    thread: ValueId,
    threads: ValueId,
    /// This thread along each axis, i64, and the threads along it.
    positions: Vec<[ValueId; 2]>,
    /// Instructions for which each iteration has a value: indices of the parallel loop, staged loads, `invariant`.
    replaced: HashSet<ValueId>,
    /// In an all-pairs loop, the invariant instructions of the inner loop, in order. They run before the tiles, because
    /// a barrier keeps LLVM from hoisting loads out of the loop around it.
    invariant: Vec<ValueId>,
}

/// An iteration of a thread in a tile.
struct Lane<'a> {
    /// Its number along each axis, among the thread's.
    numbers: Vec<usize>,
    cloner: Cloner<'a>,
    /// The parallel loop has such an iteration.
    is_inside: ValueId,
}

impl<'a> Tiles<'a> {
    /// Computes values that are the same in all tiles.
    fn start(
        b: &mut Builder,
        source: &'a Body,
        locals: &'a LocalUses,
        plan: &'a Tiling,
        copies: &'a [BufferId],
    ) -> Tiles<'a> {
        let grid = |b: &mut Builder, value| {
            let number = b.push(Op::Grid(value), Type::I32);
            b.cast(number, Scalar::I64)
        };
        let thread = grid(b, GridValue::Thread);
        let fixed: Option<u32> = plan.axes.iter().map(|a| a.threads).product();
        let threads = match fixed {
            Some(threads) => b.int(threads.into(), Scalar::I64),
            None => grid(b, GridValue::BlockSize),
        };
        let mut cloner = Cloner::new(source, locals);
        let mut extent = |b: &mut Builder, range: Range| {
            let index = source.ty(range.begin).scalar().expect("compiler bug: a bound is not a scalar");
            let [begin, end] = [range.begin, range.end].map(|v| {
                let v = cloner.recompute(b, v);
                b.cast(v, Scalar::I64)
            });
            let [difference, none] = [b.binary(BinaryOp::Sub, end, begin), b.int(0, Scalar::I64)];
            Extent { begin, trips: b.binary(BinaryOp::Max, difference, none), index }
        };
        let dims = |v: ValueId| match &source.inst(v).op {
            Op::For(l) => l.dims.clone(),
            _ => panic!("compiler bug: {v} is not a loop"),
        };
        let axes: Vec<Extent> = dims(plan.parallel).into_iter().map(|range| extent(b, range)).collect();
        let inner = extent(b, dims(plan.inner)[0]);
        let mut positions = Vec::new();
        let mut rest = thread;
        for axis in plan.axes.iter().rev() {
            positions.push(match axis.threads {
                None => [thread, threads],
                Some(n) => {
                    let n = b.int(n.into(), Scalar::I64);
                    let own = b.binary(BinaryOp::Rem, rest, n);
                    rest = b.binary(BinaryOp::Div, rest, n);
                    [own, n]
                }
            });
        }
        positions.reverse();
        let mut counts = Vec::new();
        let mut count = None;
        for ((axis, extent), [_, threads]) in plan.axes.iter().zip(&axes).zip(&positions) {
            let per_thread = b.int(axis.per_thread.into(), Scalar::I64);
            let size = b.binary(BinaryOp::Mul, *threads, per_thread);
            let tiles = divide_up(b, extent.trips, size);
            count = Some(count.map_or(tiles, |count| b.binary(BinaryOp::Mul, count, tiles)));
            counts.push(tiles);
        }
        let count = count.expect("compiler bug: a tile without axes");
        let is_index = |op: &Op| matches!(op, Op::LoopIndex(l, _) if *l == plan.parallel);
        let indices = (0..source.insts.len() as u32).map(ValueId).filter(|v| is_index(&source.inst(*v).op));
        let loads = plan.staged.iter().flat_map(|s| s.loads.iter().copied());
        let invariant = if plan.axes.len() == 1 { invariant_insts(source, plan) } else { Vec::new() };
        let replaced = indices.chain(loads).chain(invariant.iter().copied()).collect();
        Tiles {
            source,
            locals,
            plan,
            copies,
            axes,
            inner,
            counts,
            count,
            thread,
            threads,
            positions,
            replaced,
            invariant,
        }
    }

    /// The inner loop is long enough to pay for barriers; of a product, there are tiles for as many blocks as keep the
    /// machine busy.
    fn pays(&self, b: &mut Builder, full_grid: u32) -> ValueId {
        let is_product = self.axes.len() > 1;
        let fewest = if is_product { self.plan.steps * 2 } else { self.plan.steps / 2 };
        let fewest = b.int(fewest.into(), Scalar::I64);
        let is_long = b.binary(BinaryOp::Ge, self.inner.trips, fewest);
        if !is_product {
            return is_long;
        }
        let blocks = b.int(full_grid.into(), Scalar::I64);
        let fills = b.binary(BinaryOp::Ge, self.count, blocks);
        b.binary(BinaryOp::And, fills, is_long)
    }

    /// The tiles of this block.
    fn run(&self, b: &mut Builder) {
        let [block, blocks] = [GridValue::Block, GridValue::Blocks].map(|value| {
            let number = b.push(Op::Grid(value), Type::I32);
            b.cast(number, Scalar::I64)
        });
        let left = b.binary(BinaryOp::Sub, self.count, block);
        let none = b.int(0, Scalar::I64);
        let left = b.binary(BinaryOp::Max, left, none);
        let turns = divide_up(b, left, blocks);
        push_loop(b, turns, unrolled(1), |b, turn| {
            let passed = b.binary(BinaryOp::Mul, turn, blocks);
            let number = b.binary(BinaryOp::Add, block, passed);
            self.tile(b, number);
        });
    }

    /// The first iteration of a tile along each axis, from zero.
    fn origins(&self, b: &mut Builder, number: ValueId) -> Vec<ValueId> {
        let mut rest = number;
        let mut origins = Vec::new();
        for k in (0..self.axes.len()).rev() {
            let tile = if k > 0 { b.binary(BinaryOp::Rem, rest, self.counts[k]) } else { rest };
            rest = if k > 0 { b.binary(BinaryOp::Div, rest, self.counts[k]) } else { rest };
            let per_thread = b.int(self.plan.axes[k].per_thread.into(), Scalar::I64);
            let size = b.binary(BinaryOp::Mul, self.positions[k][1], per_thread);
            origins.push(b.binary(BinaryOp::Mul, tile, size));
        }
        origins.reverse();
        origins
    }

    fn tile(&self, b: &mut Builder, number: ValueId) {
        let origins = self.origins(b, number);
        let mut lanes = self.lanes(b, &origins);
        let Op::For(l) = &self.source.inst(self.plan.parallel).op else {
            panic!("compiler bug: a task without a parallel loop")
        };
        let insts = self.source.block(l.body);
        let at = insts
            .iter()
            .position(|v| *v == self.plan.inner)
            .expect("compiler bug: the inner loop is not in its parallel loop");
        for lane in &mut lanes {
            self.zero_locals(b, lane, l);
            lane.cloner.insts(b, &insts[..at], &mut |_, _, v| self.replaced.contains(&v));
            lane.cloner.insts(b, &self.invariant, &mut |_, _, _| false);
        }
        let steps = b.int(self.plan.steps.into(), Scalar::I64);
        let ranges = divide_up(b, self.inner.trips, steps);
        push_loop(b, ranges, unrolled(1), |b, range| {
            let first = b.binary(BinaryOp::Mul, range, steps);
            self.stage(b, &origins, first);
            b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
            let left = b.binary(BinaryOp::Sub, self.inner.trips, first);
            let is_full = b.binary(BinaryOp::Ge, left, steps);
            let blocks = [b.body.add_block(), b.body.add_block()];
            b.push(Op::If(is_full, blocks[0], blocks[1]), Type::Unit);
            let back = b.set_cursor(blocks[0]);
            let factor = if self.axes.len() == 1 { UNROLL_PAIRS } else { UNROLL_PRODUCT };
            let full = b.int(self.plan.steps.into(), Scalar::I32);
            self.steps(b, &mut lanes, first, full, factor);
            b.set_cursor(blocks[1]);
            let rest = b.cast(left, Scalar::I32);
            self.steps(b, &mut lanes, first, rest, 1);
            b.set_cursor(back);
            // No thread overwrites data that another thread still reads.
            b.push(Op::Barrier(ThreadScope::Block), Type::Unit);
        });
        for mut lane in lanes {
            let mut hook = |_: &mut Cloner<'_>, _: &mut Builder, v: ValueId| self.replaced.contains(&v);
            push_if(b, lane.is_inside, |b| lane.cloner.insts(b, &insts[at + 1..], &mut hook));
        }
    }

    /// The iterations of this thread in a tile.
    fn lanes(&self, b: &mut Builder, origins: &[ValueId]) -> Vec<Lane<'a>> {
        let mut lanes = vec![(Vec::new(), Vec::new(), None)];
        for (k, axis) in self.plan.axes.iter().enumerate() {
            let own: Vec<_> = (0..axis.per_thread)
                .map(|number| {
                    let of_tile = self.place(b, k, number, Scalar::I64);
                    let position = b.binary(BinaryOp::Add, origins[k], of_tile);
                    let is_inside = b.binary(BinaryOp::Lt, position, self.axes[k].trips);
                    (self.index(b, self.axes[k], position), is_inside)
                })
                .collect();
            let mut all = Vec::new();
            for (numbers, indices, inside) in lanes {
                for (number, (index, is_inside)) in own.iter().enumerate() {
                    let inside = inside.map_or(*is_inside, |other| b.binary(BinaryOp::And, other, *is_inside));
                    let (mut numbers, mut indices): (Vec<usize>, Vec<ValueId>) =
                        (Vec::clone(&numbers), Vec::clone(&indices));
                    numbers.push(number);
                    indices.push(*index);
                    all.push((numbers, indices, Some(inside)));
                }
            }
            lanes = all;
        }
        let lane = |(numbers, indices, inside): (Vec<usize>, Vec<ValueId>, Option<ValueId>)| {
            let mut cloner = Cloner::with_own_locals(self.source, self.locals);
            self.set_indices(&mut cloner, &indices);
            Lane { numbers, cloner, is_inside: inside.expect("compiler bug: a tile without axes") }
        };
        lanes.into_iter().map(lane).collect()
    }

    /// Replaces the indices of the parallel loop by values.
    fn set_indices(&self, cloner: &mut Cloner<'a>, indices: &[ValueId]) {
        for v in &self.replaced {
            if let Op::LoopIndex(_, axis) = self.source.inst(*v).op {
                cloner.copier.values.insert(*v, indices[axis as usize]);
            }
        }
    }

    /// The place of an iteration of this thread in its tile along an axis.
    fn place(&self, b: &mut Builder, axis: usize, number: u32, ty: Scalar) -> ValueId {
        let adjacent = self.plan.axes[axis].adjacent;
        let [own, threads] = self.positions[axis].map(|v| b.cast(v, ty));
        let neighbors = b.int(adjacent.into(), ty);
        let mut place = b.binary(BinaryOp::Mul, own, neighbors);
        if number >= adjacent {
            let before = b.int((number / adjacent * adjacent).into(), ty);
            let passed = b.binary(BinaryOp::Mul, threads, before);
            place = b.binary(BinaryOp::Add, place, passed);
        }
        match number % adjacent {
            0 => place,
            n => {
                let n = b.int(n.into(), ty);
                b.binary(BinaryOp::Add, place, n)
            }
        }
    }

    /// The index at a position from zero; the last one for positions after it.
    fn index(&self, b: &mut Builder, of: Extent, position: ValueId) -> ValueId {
        let one = b.int(1, Scalar::I64);
        let last = b.binary(BinaryOp::Sub, of.trips, one);
        let position = b.binary(BinaryOp::Min, position, last);
        let index = b.binary(BinaryOp::Add, of.begin, position);
        b.cast(index, of.index)
    }

    /// Sets the locals of an iteration to zero whose zero it may see.
    fn zero_locals(&self, b: &mut Builder, lane: &mut Lane<'_>, l: &ForLoop) {
        let mut own: Vec<_> = self.source.locals_in(l.body).into_iter().collect();
        own.sort();
        for local in own {
            let uses = self.locals.of(local);
            if uses.needs_zero && !uses.is_value {
                let ty = self.source.locals[local.index()].ty.clone();
                let copy = lane.cloner.copy_of_local(b, local);
                let zero = zero(b, &ty);
                b.store_local(copy, zero);
            }
        }
    }

    /// The threads of the block write a range of steps to shared memory, from a step on.
    fn stage(&self, b: &mut Builder, origins: &[ValueId], first: ValueId) {
        for (number, staged) in self.plan.staged.iter().enumerate() {
            if let Some(axis) = staged.axis {
                self.stage_rows(b, number, axis as usize, (origins[axis as usize], first));
            }
        }
        if self.plan.staged.iter().any(|s| s.axis.is_none()) {
            self.stage_steps(b, first);
        }
    }

    /// Stages loads that depend only on the inner loop: one element per step.
    fn stage_steps(&self, b: &mut Builder, first: ValueId) {
        let steps = b.int(self.plan.steps.into(), Scalar::I64);
        let left = b.binary(BinaryOp::Sub, steps, self.thread);
        let none = b.int(0, Scalar::I64);
        let left = b.binary(BinaryOp::Max, left, none);
        let turns = divide_up(b, left, self.threads);
        push_loop(b, turns, unrolled(1), |b, turn| {
            let passed = b.binary(BinaryOp::Mul, turn, self.threads);
            let step = b.binary(BinaryOp::Add, self.thread, passed);
            let along = |number: &usize| self.plan.staged[*number].axis.is_none();
            let numbers: Vec<usize> = (0..self.plan.staged.len()).filter(along).collect();
            let values: Vec<_> = numbers.iter().map(|n| self.original(b, *n, None, (first, step))).collect();
            let step = b.cast(step, Scalar::I32);
            numbers.into_iter().zip(values).for_each(|(number, value)| self.write(b, number, step, value));
        });
    }

    /// Stages the elements of all iterations along an axis, for each step. Neighboring threads load neighbors.
    fn stage_rows(&self, b: &mut Builder, number: usize, axis: usize, (origin, first): (ValueId, ValueId)) {
        let staged = &self.plan.staged[number];
        let extent = self.plan.axes[axis].extent().expect("compiler bug: a matrix product without a block size");
        let threads: u32 = self.plan.axes.iter().filter_map(|a| a.threads).product();
        let mut values = Vec::new();
        for turn in 0..(extent * self.plan.steps).div_ceil(threads) {
            let before = b.int((turn * threads).into(), Scalar::I64);
            let element = b.binary(BinaryOp::Add, self.thread, before);
            let row = if staged.is_row { self.plan.steps } else { extent };
            let row = b.int(row.into(), Scalar::I64);
            let [low, high] = [BinaryOp::Rem, BinaryOp::Div].map(|op| b.binary(op, element, row));
            let (step, place) = if staged.is_row { (low, high) } else { (high, low) };
            let position = b.binary(BinaryOp::Add, origin, place);
            let index = self.index(b, self.axes[axis], position);
            let value = self.original(b, number, Some((axis, index)), (first, step));
            values.push((step, place, value));
        }
        for (step, place, value) in values {
            let pitch = b.int(pitch(staged, &self.plan.axes).into(), Scalar::I64);
            let row = b.binary(BinaryOp::Mul, step, pitch);
            let at = b.binary(BinaryOp::Add, row, place);
            let at = b.cast(at, Scalar::I32);
            self.write(b, number, at, value);
        }
    }

    /// The element of a step, in the memory that it is staged from. A step beyond the last one uses the last one's.
    fn original(
        &self,
        b: &mut Builder,
        number: usize,
        along: Option<(usize, ValueId)>,
        (first, step): (ValueId, ValueId),
    ) -> ValueId {
        let position = b.binary(BinaryOp::Add, first, step);
        let mut cloner = Cloner::new(self.source, self.locals);
        cloner.indices.insert((self.plan.inner, 0), self.index(b, self.inner, position));
        if let Some((axis, index)) = along {
            cloner.indices.insert((self.plan.parallel, axis as u32), index);
        }
        let address = cloner.recompute(b, self.plan.staged[number].address);
        b.load(address)
    }

    fn address(&self, b: &mut Builder, number: usize, at: ValueId) -> ValueId {
        let elem = self.source.inst(self.plan.staged[number].loads[0]).ty.clone();
        b.push(Op::BufferAddr(self.copies[number], vec![at]), Type::Ref(Box::new(elem)))
    }

    fn write(&self, b: &mut Builder, number: usize, at: ValueId, value: ValueId) {
        let address = self.address(b, number, at);
        b.store(address, value);
    }

    /// All iterations of this thread run a number of staged steps.
    fn steps(&self, b: &mut Builder, lanes: &mut [Lane<'a>], first: ValueId, count: ValueId, factor: u32) {
        let Op::For(inner) = &self.source.inst(self.plan.inner).op else { panic!("compiler bug: no inner loop") };
        push_loop(b, count, unrolled(factor), |b, step| {
            let wide = b.cast(step, Scalar::I64);
            let position = b.binary(BinaryOp::Add, first, wide);
            let index = b.binary(BinaryOp::Add, self.inner.begin, position);
            let index = b.cast(index, self.inner.index);
            let read: Vec<Vec<ValueId>> = (0..self.plan.staged.len()).map(|n| self.read(b, n, step)).collect();
            for lane in lanes {
                lane.cloner.indices.insert((self.plan.inner, 0), index);
                for (staged, values) in self.plan.staged.iter().zip(&read) {
                    let value = values[staged.axis.map_or(0, |axis| lane.numbers[axis as usize])];
                    lane.cloner.copier.values.extend(staged.loads.iter().map(|load| (*load, value)));
                }
                lane.cloner.block(b, inner.body, &mut |_, _, v| self.replaced.contains(&v));
            }
        });
    }

    /// The staged elements of a step: one, or one for each iteration of this thread along an axis.
    fn read(&self, b: &mut Builder, number: usize, step: ValueId) -> Vec<ValueId> {
        let staged = &self.plan.staged[number];
        let Some(axis) = staged.axis else {
            let address = self.address(b, number, step);
            return vec![b.load(address)];
        };
        let pitch = b.int(pitch(staged, &self.plan.axes).into(), Scalar::I32);
        let row = b.binary(BinaryOp::Mul, step, pitch);
        let of_axis = |n: u32| {
            let place = self.place(b, axis as usize, n, Scalar::I32);
            let at = b.binary(BinaryOp::Add, row, place);
            let address = self.address(b, number, at);
            b.load(address)
        };
        (0..self.plan.axes[axis as usize].per_thread).map(of_axis).collect()
    }
}

/// The invariant instructions of the inner loop, in order: operations on values from outside the loop, and loads of
/// buffers, which are constant in tiled loops. A tiled loop has at least one iteration.
fn invariant_insts(source: &Body, plan: &Tiling) -> Vec<ValueId> {
    let Op::For(inner) = &source.inst(plan.inner).op else { panic!("compiler bug: no inner loop") };
    let mut varying = HashSet::new();
    let is_given = |op: &Op| matches!(op, Op::LoopIndex(l, _) if *l == plan.parallel);
    source.visit(inner.body, &mut |v, inst| varying.extend((!is_given(&inst.op)).then_some(v)));
    let mut invariant = Vec::new();
    for &v in source.block(inner.body) {
        let op = &source.inst(v).op;
        let is_steady = match op {
            Op::LoopIndex(..) | Op::LocalAddr(_) => false,
            Op::Load(a) => matches!(trace_address(source, *a), Place::Buffer(_)),
            op => op.is_pure(),
        };
        let mut follows_none = true;
        op.for_each_operand(|u| follows_none &= !varying.contains(&u));
        if is_steady && follows_none {
            varying.remove(&v);
            invariant.push(v);
        }
    }
    invariant
}

fn unrolled(factor: u32) -> LoopHints {
    LoopHints { unroll: Some(Unroll { factor, remainder_factor: None }), ..LoopHints::default() }
}

/// A serial loop from zero.
fn push_loop(b: &mut Builder, end: ValueId, hints: LoopHints, inside: impl FnOnce(&mut Builder, ValueId)) {
    let ty = b.ty(end).clone();
    let begin = b.int(0, ty.scalar().expect("compiler bug: a bound is not a scalar"));
    let body = b.body.add_block();
    let l = ForLoop { hints, ..ForLoop::serial(vec![Range { begin, end }], body) };
    let l = b.push(Op::For(Box::new(l)), Type::Unit);
    let back = b.set_cursor(body);
    let index = b.push(Op::LoopIndex(l, 0), ty);
    inside(b, index);
    b.set_cursor(back);
}

/// The quotient of two numbers that are not negative, rounded up.
fn divide_up(b: &mut Builder, number: ValueId, by: ValueId) -> ValueId {
    let one = b.int(1, Scalar::I64);
    let less = b.binary(BinaryOp::Sub, by, one);
    let sum = b.binary(BinaryOp::Add, number, less);
    b.binary(BinaryOp::Div, sum, by)
}
