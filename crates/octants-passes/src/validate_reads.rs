//! Lets a kernel check that it overwrites nothing that it has read: its gradient will read memory again.
//!
//! The companion of a buffer holds a mark for each element, an i32: zero, or the line that has read the element. A launch begins by
//! clearing the marks; a load leaves its line, and a store or an update asserts that there is none. Elements of buffers without
//! marks, and of those whose address went to a function that is not put in the place of its call, are not checked.

use octants_diag::Sources;
use octants_ir::{
    AtomicOp, BinaryOp, Buffer, BufferId, Builder, ForLoop, Kernel, Layout, LoopConfig, Op, Range, Scalar, TextPart,
    Type, ValueId,
};

use crate::inline_calls::inline_calls;
use crate::insert_code::{bodies, rebuild_blocks};

/// Checks at run time that what a kernel has read stays as it is.
pub fn validate_reads(kernel: &mut Kernel, sources: &Sources) {
    inline_calls(kernel);
    let (buffers, companions) = (std::mem::take(&mut kernel.buffers), std::mem::take(&mut kernel.companions));
    for body in bodies(kernel) {
        rebuild_blocks(body, |b, v| {
            let marked = |b: &Builder, addr: ValueId| {
                let (buffer, indices) = element(b, addr)?;
                Some((buffer, *companions.get(&buffer)?, indices))
            };
            match b.body.inst(v).op {
                Op::Load(addr) => {
                    if let Some((_, marks, indices)) = marked(b, addr) {
                        let line = sources.position(b.span).map_or(1, |p| p.line);
                        let line = b.int(i64::from(line), Scalar::I32);
                        let mark = b.push(Op::BufferAddr(marks, indices), Type::Ref(Box::new(Type::I32)));
                        b.push(Op::Atomic(AtomicOp::Exchange, mark, line), Type::I32);
                    }
                }
                Op::Store(addr, _) | Op::Atomic(_, addr, _) | Op::AtomicCas(addr, ..) => {
                    if let Some((buffer, marks, indices)) = marked(b, addr) {
                        check(b, &buffers[buffer.index()], marks, indices);
                    }
                }
                _ => {}
            }
            b.place(v);
        });
    }
    clear_marks(kernel, &buffers, companions.values().copied());
    (kernel.buffers, kernel.companions) = (buffers, companions);
}

/// The element of a buffer that an address is a part of.
fn element(b: &Builder, addr: ValueId) -> Option<(BufferId, Vec<ValueId>)> {
    match &b.body.inst(addr).op {
        Op::BufferAddr(buffer, indices) => Some((*buffer, indices.clone())),
        Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => element(b, *base),
        _ => None,
    }
}

fn check(b: &mut Builder, buffer: &Buffer, marks: BufferId, indices: Vec<ValueId>) {
    let zero = b.int(0, Scalar::I32);
    let mark = b.push(Op::BufferAddr(marks, indices.clone()), Type::Ref(Box::new(Type::I32)));
    // Other iterations may be marking it.
    let line = b.push(Op::Atomic(AtomicOp::Or, mark, zero), Type::I32);
    let unread = b.binary(BinaryOp::Eq, line, zero);
    let name = if buffer.name.is_empty() { "a field".to_string() } else { format!("`{}`", buffer.name) };
    let mut text = vec![TextPart::Text(format!("{name}["))];
    for (i, index) in indices.into_iter().enumerate() {
        if i > 0 {
            text.push(TextPart::Text(", ".into()));
        }
        text.push(TextPart::Value(index, None));
    }
    text.push(TextPart::Text("] is overwritten after line ".into()));
    text.push(TextPart::Value(line, None));
    text.push(TextPart::Text(
        " has read it in the same launch: the kernel's gradient would see the new value. Read and overwrite in different \
         kernels, or write to memory of its own"
            .into(),
    ));
    b.push(Op::Assert(unread, text), Type::Unit);
}

/// Puts loops that clear the marks before all else.
fn clear_marks(kernel: &mut Kernel, buffers: &[Buffer], marks: impl Iterator<Item = BufferId>) {
    let mut b = Builder::new();
    b.body = std::mem::take(&mut kernel.body);
    let root = b.body.root;
    let rest = std::mem::take(&mut b.body.blocks[root.index()]);
    b.set_cursor(root);
    for id in marks {
        let mut dims = Vec::new();
        let mut offsets = Vec::new();
        for axis in 0..buffers[id.index()].ndim {
            let begin = b.int(0, Scalar::I32);
            let end = match &buffers[id.index()].layout {
                Layout::Dense { shape, offset, .. } => {
                    offsets.push(offset[axis as usize]);
                    b.int(shape[axis as usize] as i64, Scalar::I32)
                }
                _ => b.push(Op::Shape(id, axis), Type::I32),
            };
            dims.push(Range { begin, end });
        }
        if dims.is_empty() {
            clear(&mut b, id, Vec::new());
            continue;
        }
        let (axes, body) = (dims.len() as u32, b.body.add_block());
        let config = Some(LoopConfig::default());
        let each =
            b.push(Op::For(Box::new(ForLoop { dims, body, parallel: config, reductions: Vec::new() })), Type::Unit);
        let back = b.set_cursor(body);
        let indices = (0..axes).map(|axis| {
            let index = b.push(Op::LoopIndex(each, axis), Type::I32);
            match offsets.get(axis as usize) {
                Some(&offset) if offset != 0 => {
                    let offset = b.int(offset, Scalar::I32);
                    b.binary(BinaryOp::Add, index, offset)
                }
                _ => index,
            }
        });
        let indices = indices.collect();
        clear(&mut b, id, indices);
        b.set_cursor(back);
    }
    b.body.blocks[root.index()].extend(rest);
    kernel.body = b.body;
}

fn clear(b: &mut Builder, marks: BufferId, indices: Vec<ValueId>) {
    let addr = b.push(Op::BufferAddr(marks, indices), Type::Ref(Box::new(Type::I32)));
    let zero = b.int(0, Scalar::I32);
    b.store(addr, zero);
}
