//! Restricts a kernel on split arrays to a range of rows that each launch passes.
//!
//! Two parameters are appended: the first row, and the row after the last one. A parallel loop that touches split
//! arrays runs the iterations that own these rows: one of its axes is restricted. Other loops are unchanged.

use std::collections::{BTreeMap, HashSet};

use octants_diag::Diagnostic;
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{BinaryOp, Body, BufferId, Builder, Kernel, Op, Param, Program, Range, Scalar, Type, ValueId};

use crate::split_loops::{SplitCode, SplitLoop, runs_in_parallel};

/// Cuts the loops of a kernel whose split arrays these are.
///
/// # Errors
/// Code that cannot run in parts.
pub fn restrict_loops(kernel: &mut Kernel, split: &BTreeMap<BufferId, u32>) -> Result<(), Box<Diagnostic>> {
    let code = SplitCode::new(&kernel.buffers, &kernel.functions, split);
    code.check_serial(kernel)?;
    let mut loops = Vec::new();
    let mut refused = None;
    kernel.body.visit(kernel.body.root, &mut |v, inst| {
        if matches!(&inst.op, Op::For(l) if runs_in_parallel(l)) {
            match code.split_loop(&kernel.body, v) {
                Ok(Some(found)) => loops.push((v, found)),
                Ok(None) => {}
                Err(error) => refused = refused.take().or(Some(error)),
            }
        }
    });
    if let Some(error) = refused {
        return Err(error);
    }
    let first = kernel.params.len() as u32;
    for name in ["first row", "end of rows"] {
        kernel.params.push(Param { name: name.into(), ty: Type::I32 });
    }
    loops.iter().for_each(|(at, _)| number_draws(&mut kernel.body, *at));
    rebuild_blocks(&mut kernel.body, |b, v| {
        if let Some((_, found)) = loops.iter().find(|(at, _)| *at == v) {
            restrict(b, v, found, first);
        }
        b.place(v);
    });
    Ok(())
}

/// Makes the random numbers of a loop those of its iterations, whichever of them a rank runs: each draw names the
/// iteration, and the number of words that the iteration has drawn so far. To be called before the loop is cut.
fn number_draws(body: &mut Body, at: ValueId) {
    let Op::For(of) = &body.inst(at).op else { return };
    let (inside, dims) = (of.body, of.dims.clone());
    let mut draws = HashSet::new();
    body.visit(inside, &mut |v, inst| _ = (inst.op == Op::Random).then(|| draws.insert(v)));
    if draws.is_empty() {
        return;
    }
    let drawn = body.add_local("drawn", Type::I32);
    let mut b = Builder::new();
    b.body = std::mem::take(body);
    let code = std::mem::take(&mut b.body.blocks[inside.index()]);
    b.set_cursor(inside);
    let iteration = linear_index(&mut b, at, &dims);
    let zero = b.int(0, Scalar::I32);
    b.store_local(drawn, zero);
    b.body.blocks[inside.index()].extend(code);
    *body = b.body;
    rebuild_blocks(body, |b, v| {
        if draws.contains(&v) {
            let is_wide = b.ty(v).scalar().is_some_and(|s| s.bits() == 64);
            let mut word = b.load_local(drawn);
            if is_wide {
                // Two words of one block of the generator.
                let (one, even) = (b.int(1, Scalar::I32), b.int(-2, Scalar::I32));
                let above = b.binary(BinaryOp::Add, word, one);
                word = b.binary(BinaryOp::And, above, even);
            }
            let words = b.int(if is_wide { 2 } else { 1 }, Scalar::I32);
            let next = b.binary(BinaryOp::Add, word, words);
            b.store_local(drawn, next);
            b.body.inst_mut(v).op = Op::RandomAt(iteration, word);
        }
        b.place(v);
    });
}

/// The number of an iteration of a loop that has not been cut, an i64: the last axis varies fastest.
fn linear_index(b: &mut Builder, at: ValueId, dims: &[Range]) -> ValueId {
    let mut linear = b.int(0, Scalar::I64);
    for (axis, &Range { begin, end }) in (0..).zip(dims) {
        let ty = b.ty(begin).clone();
        let index = b.push(Op::LoopIndex(at, axis), ty);
        let [index, begin, end] = [index, begin, end].map(|v| b.cast(v, Scalar::I64));
        let (place, extent) = (b.binary(BinaryOp::Sub, index, begin), b.binary(BinaryOp::Sub, end, begin));
        let before = b.binary(BinaryOp::Mul, linear, extent);
        linear = b.binary(BinaryOp::Add, before, place);
    }
    linear
}

/// How each task of a program runs whose loops were cut.
///
/// # Panics
/// A task cannot run in parts: nothing after [`restrict_loops`] moves accesses into another loop.
pub fn split_tasks(program: &Program, split: &BTreeMap<BufferId, u32>) -> Vec<Option<SplitLoop>> {
    let code = SplitCode::new(&program.buffers, &program.functions, split);
    let of_task = |body: &octants_ir::Body| {
        let root = body.block(body.root).iter();
        let mut found = root.filter_map(|&v| {
            let is_loop = matches!(&body.inst(v).op, Op::For(l) if runs_in_parallel(l));
            is_loop.then(|| code.split_loop(body, v).expect("compiler bug: a loop that must not be split was split"))
        });
        found.next().flatten()
    };
    program.tasks.iter().map(|task| of_task(&task.body)).collect()
}

/// Unwraps row indices: `(i + 1) % n` becomes `i + 1`, a ghost row at the end of the array. Requires the split of each
/// task, which cannot be derived afterwards.
pub fn unwrap_rows(program: &mut Program, split: &BTreeMap<BufferId, u32>) {
    if split.is_empty() {
        return;
    }
    let Program { buffers, functions, tasks, .. } = program;
    let code = SplitCode::new(buffers, functions, split);
    for body in tasks.iter_mut().map(|task| &mut task.body) {
        let root = body.block(body.root).iter().copied();
        let loops = root.filter(|&v| matches!(&body.inst(v).op, Op::For(l) if runs_in_parallel(l)));
        for at in loops.collect::<Vec<_>>() {
            let wrapped = code.wrapped_addresses(body, at);
            if wrapped.is_empty() {
                continue;
            }
            rebuild_blocks(body, |b, v| {
                if let Some(&(axis, distance)) = wrapped.get(&v) {
                    go_on(b, v, (at, axis), distance, split);
                }
                b.place(v);
            });
        }
    }
}

/// Replaces the row of an address by the index of an axis plus a distance.
fn go_on(
    b: &mut Builder,
    address: ValueId,
    (at, axis): (ValueId, u32),
    distance: i64,
    split: &BTreeMap<BufferId, u32>,
) {
    let Op::For(of) = &b.body.inst(at).op else { return };
    let ty = b.ty(of.dims[axis as usize].begin).clone();
    let index = b.push(Op::LoopIndex(at, axis), ty.clone());
    let distance = b.int(distance, ty.scalar().expect("compiler bug: an index is not a scalar"));
    let row = b.binary(BinaryOp::Add, index, distance);
    if let Op::BufferAddr(buffer, indices) = &mut b.body.inst_mut(address).op
        && let Some(&axis) = split.get(buffer)
    {
        indices[axis as usize] = row;
    }
}

/// Inserts the bounds before a loop.
fn restrict(b: &mut Builder, at: ValueId, found: &SplitLoop, first: u32) {
    let Op::For(of) = &b.body.inst(at).op else { return };
    let Range { begin, end } = of.dims[found.axis as usize];
    let bound = |b: &mut Builder, param: u32, op: BinaryOp, other: ValueId| {
        let row = b.push(Op::Param(param), Type::I32);
        let row = match b.ty(other).scalar() {
            Some(Scalar::I64) => b.cast(row, Scalar::I64),
            _ => row,
        };
        let scalar = b.ty(row).scalar().expect("compiler bug: a bound is not a scalar");
        let shift = b.int(found.shift, scalar);
        let index = b.binary(BinaryOp::Sub, row, shift);
        b.binary(op, other, index)
    };
    let begin = bound(b, first, BinaryOp::Max, begin);
    let end = bound(b, first + 1, BinaryOp::Min, end);
    if let Op::For(of) = &mut b.body.inst_mut(at).op {
        of.dims[found.axis as usize] = Range { begin, end };
    }
}
