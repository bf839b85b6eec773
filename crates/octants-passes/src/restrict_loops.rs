//! Restricts a kernel on split arrays to a range of rows that each launch passes.
//!
//! Two parameters are appended: the first row, and the row after the last one. A parallel loop that touches split
//! arrays runs the iterations that own these rows: one of its axes is restricted. Other loops are unchanged.

use std::collections::BTreeMap;

use octants_diag::Diagnostic;
use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{BinaryOp, BufferId, Builder, Kernel, Op, Param, Program, Range, Scalar, Type, ValueId};

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
    rebuild_blocks(&mut kernel.body, |b, v| {
        if let Some((_, found)) = loops.iter().find(|(at, _)| *at == v) {
            restrict(b, v, found, first);
        }
        b.place(v);
    });
    Ok(())
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
