//! Bounds checks: inserts an `assert` before every access that could be out of bounds, for elements of buffers and for
//! components of vectors and matrices at run-time indices.
//!
//! The message names the buffer, the indices and the bounds. An index that is provably in bounds (a constant, or the
//! index of a loop with constant bounds) is not checked. A negative index is out of bounds.

use octants_ir::{BinaryOp, Body, Buffer, Builder, Const, Kernel, Layout, Op, Scalar, TextPart, Type, ValueId};

use crate::evaluate;
use octants_ir::insert_code::{and, bodies, rebuild_blocks, widen};

/// Checks indices at run time, in the kernel and its functions.
pub fn check_bounds(kernel: &mut Kernel) {
    let buffers = std::mem::take(&mut kernel.buffers);
    for body in bodies(kernel) {
        rebuild_blocks(body, |b, v| {
            match b.body.inst(v).op.clone() {
                Op::BufferAddr(buffer, indices) => check_buffer(b, &buffers[buffer.index()], buffer, &indices),
                Op::ElementAddr(base, indices) => {
                    let ty = b.pointee(base).clone();
                    check_tensor(b, &ty, &indices);
                }
                Op::ExtractDyn(a, indices) => {
                    let ty = b.ty(a).clone();
                    check_tensor(b, &ty, &indices);
                }
                _ => {}
            }
            b.place(v);
        });
    }
    kernel.buffers = buffers;
}

fn check_buffer(b: &mut Builder, buffer: &Buffer, id: octants_ir::BufferId, indices: &[ValueId]) {
    let mut condition = None;
    let mut extents = Vec::new();
    let mut checked = false;
    for (axis, &index) in indices.iter().enumerate() {
        let (extent, offset) = match &buffer.layout {
            Layout::Dense { shape, offset, .. } => (Some(shape[axis] as i64), offset[axis]),
            _ => (None, 0),
        };
        if let (Some(n), Some((low, high))) = (extent, index_range(&b.body, index))
            && low >= offset
            && high < offset + n
        {
            extents.push(TextPart::Text(n.to_string()));
            continue;
        }
        checked = true;
        let mut index = widen(b, index);
        // The extent of an array, or a field's bounds, may be more than i32 holds.
        let narrow = extent.is_some_and(|n| i32::try_from(offset).is_ok() && i32::try_from(offset + n).is_ok());
        if !narrow {
            index = b.cast(index, Scalar::I64);
        }
        let s = b.ty(index).scalar().unwrap_or(Scalar::I32);
        let low = b.int(offset, s);
        let high = match extent {
            Some(n) => {
                extents.push(TextPart::Text(n.to_string()));
                b.int(offset + n, s)
            }
            None => {
                let n = b.push(Op::Shape(id, axis as u32), s.into());
                extents.push(TextPart::Value(n, None));
                n
            }
        };
        let above = b.binary(BinaryOp::Ge, index, low);
        let below = b.binary(BinaryOp::Lt, index, high);
        let inside = and(b, Some(above), below);
        condition = Some(and(b, condition, inside));
    }
    let (true, Some(condition)) = (checked, condition) else { return };
    let name = if buffer.name.is_empty() { "a field".to_string() } else { format!("buffer `{}`", buffer.name) };
    let mut text = vec![TextPart::Text(format!("Out of bound access to {name} at ["))];
    push_list(&mut text, indices.iter().map(|i| TextPart::Value(*i, None)));
    text.push(TextPart::Text("] with bounds [".into()));
    push_list(&mut text, extents);
    if let Layout::Dense { offset, .. } = &buffer.layout
        && offset.iter().any(|o| *o != 0)
    {
        text.push(TextPart::Text("] and offset [".into()));
        push_list(&mut text, offset.iter().map(|o| TextPart::Text(o.to_string())));
    }
    text.push(TextPart::Text("]".into()));
    b.push(Op::Assert(condition, join_text(text)), Type::Unit);
}

fn check_tensor(b: &mut Builder, ty: &Type, indices: &[ValueId]) {
    let mut condition = None;
    for (&index, &extent) in indices.iter().zip(&ty.shape()) {
        if index_range(&b.body, index).is_some_and(|(low, high)| low >= 0 && high < i64::from(extent)) {
            continue;
        }
        let index = widen(b, index);
        let s = b.ty(index).scalar().unwrap_or(Scalar::I32);
        let (low, high) = (b.int(0, s), b.int(i64::from(extent), s));
        let above = b.binary(BinaryOp::Ge, index, low);
        let below = b.binary(BinaryOp::Lt, index, high);
        let inside = and(b, Some(above), below);
        condition = Some(and(b, condition, inside));
    }
    let Some(condition) = condition else { return };
    let kind = if matches!(ty, Type::Vector(..)) { "vector" } else { "matrix" };
    let mut text = vec![TextPart::Text(format!("Out of bound access to a {kind} at ["))];
    push_list(&mut text, indices.iter().map(|i| TextPart::Value(*i, None)));
    text.push(TextPart::Text(format!("] with bounds {:?}", ty.shape())));
    b.push(Op::Assert(condition, join_text(text)), Type::Unit);
}

/// Inclusive bounds of an index, if known.
pub(crate) fn index_range(body: &Body, index: ValueId) -> Option<(i64, i64)> {
    let constant = |v: ValueId| {
        let s = body.ty(v).scalar()?;
        match body.as_const(v)? {
            Const::Int(i) => Some(evaluate::wrap(i128::from(i), s)),
            Const::Float(_) => None,
        }
    };
    match &body.inst(index).op {
        Op::LoopIndex(l, axis) => match &body.inst(*l).op {
            Op::For(l) => {
                let range = l.dims[*axis as usize];
                Some((constant(range.begin)?, constant(range.end)? - 1))
            }
            _ => None,
        },
        _ => constant(index).map(|i| (i, i)),
    }
}

fn push_list(text: &mut Vec<TextPart>, items: impl IntoIterator<Item = TextPart>) {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            text.push(TextPart::Text(", ".into()));
        }
        text.push(item);
    }
}

/// Neighboring pieces of text as one.
fn join_text(parts: Vec<TextPart>) -> Vec<TextPart> {
    let mut out: Vec<TextPart> = Vec::new();
    for part in parts {
        match (out.last_mut(), part) {
            (Some(TextPart::Text(before)), TextPart::Text(t)) => before.push_str(&t),
            (_, part) => out.push(part),
        }
    }
    out
}
