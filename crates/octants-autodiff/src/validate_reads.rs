//! Instruments a kernel to check that it overwrites no element that was read before, because gradients will read
//! memory again.
//!
//! The shadow buffer of a buffer holds an i32 mark per element: zero, or the line that has read the element. A load
//! sets the mark to its line. A store or an update asserts that the mark is zero. The gradient of an atomic minimum
//! reads the element's final value, so only further minima may follow: its mark is the line times -2, and that of a
//! maximum is one less. An atomic product reads what it overwrites if its operand may have a derivative, because that
//! derivative uses the old value. The recorder of the launches clears the marks once, before the first launch: a later
//! kernel may overwrite what the gradient of an earlier one needs. Not checked are elements of buffers without marks,
//! and elements whose address was passed to a function that is not inlined.

use octants_diag::Sources;
use octants_ir::{AtomicOp, BinaryOp, Buffer, BufferId, Builder, Kernel, Op, Scalar, TextPart, Type, UnaryOp, ValueId};

use crate::differentiate_reverse::varied_values;
use crate::memory_use::{MemoryUse, memory_use};
use octants_analysis::trace_element;
use octants_ir::insert_code::{bodies, rebuild_blocks};

/// Checks at run time that memory that a kernel has read is not overwritten.
pub fn validate_reads(kernel: &mut Kernel, sources: &Sources) {
    let (buffers, shadow_buffers) = (std::mem::take(&mut kernel.buffers), std::mem::take(&mut kernel.shadow_buffers));
    for body in bodies(kernel) {
        let varied = varied_values(body, &|b| shadow_buffers.contains_key(&b));
        rebuild_blocks(body, |b, v| {
            let marked = |b: &Builder, addr: ValueId| {
                let (buffer, element) = trace_element(&b.body, addr)?;
                let Op::BufferAddr(_, indices) = &b.body.inst(element).op else { return None };
                Some((buffer, *shadow_buffers.get(&buffer)?, indices.clone()))
            };
            match memory_use(&b.body.inst(v).op) {
                MemoryUse::Load(addr) | MemoryUse::VolatileLoad(addr) => {
                    if let Some((_, marks, indices)) = marked(b, addr) {
                        leave_line(b, marks, indices, sources);
                    }
                }
                MemoryUse::Update { op: AtomicOp::Mul, address: addr, operand } if varied[operand.index()] => {
                    if let Some((buffer, marks, indices)) = marked(b, addr) {
                        check(b, &buffers[buffer.index()], marks, indices.clone(), None);
                        leave_line(b, marks, indices.clone(), sources);
                        check(b, &buffers[buffer.index()], marks, indices, None);
                    }
                }
                MemoryUse::Update { op: op @ (AtomicOp::Min | AtomicOp::Max), address: addr, .. } => {
                    if let Some((buffer, marks, indices)) = marked(b, addr) {
                        let is_max = i64::from(op == AtomicOp::Max);
                        check(b, &buffers[buffer.index()], marks, indices.clone(), Some(is_max));
                        let line = sources.position(b.span).map_or(1, |p| p.line);
                        let line = b.int(-2 * i64::from(line) - is_max, Scalar::I32);
                        let mark = b.push(Op::BufferAddr(marks, indices), Type::Ref(Box::new(Type::I32)));
                        b.push(Op::Atomic(AtomicOp::Exchange, mark, line), Type::I32);
                    }
                }
                MemoryUse::Store { address: addr, .. }
                | MemoryUse::Update { address: addr, .. }
                | MemoryUse::CompareAndSwap { address: addr, .. } => {
                    if let Some((buffer, marks, indices)) = marked(b, addr) {
                        check(b, &buffers[buffer.index()], marks, indices, None);
                    }
                }
                MemoryUse::Nothing => {}
            }
            b.place(v);
        });
    }
    (kernel.buffers, kernel.shadow_buffers) = (buffers, shadow_buffers);
}

/// Marks an element with the line that reads it.
fn leave_line(b: &mut Builder, marks: BufferId, indices: Vec<ValueId>, sources: &Sources) {
    let line = sources.position(b.span).map_or(1, |p| p.line);
    let line = b.int(i64::from(line), Scalar::I32);
    let mark = b.push(Op::BufferAddr(marks, indices), Type::Ref(Box::new(Type::I32)));
    b.push(Op::Atomic(AtomicOp::Exchange, mark, line), Type::I32);
}

/// Asserts that an element has no mark, or, for an atomic minimum (0) or maximum (1), the mark of such an update.
fn check(b: &mut Builder, buffer: &Buffer, marks: BufferId, indices: Vec<ValueId>, extreme: Option<i64>) {
    let zero = b.int(0, Scalar::I32);
    let mark = b.push(Op::BufferAddr(marks, indices.clone()), Type::Ref(Box::new(Type::I32)));
    // Other iterations may be marking it.
    let found = b.push(Op::Atomic(AtomicOp::Or, mark, zero), Type::I32);
    let mut unread = b.binary(BinaryOp::Eq, found, zero);
    let (is_extreme, one) = (b.binary(BinaryOp::Lt, found, zero), b.int(1, Scalar::I32));
    if let Some(is_max) = extreme {
        let (which, is_max) = (b.binary(BinaryOp::And, found, one), b.int(is_max, Scalar::I32));
        let same = b.binary(BinaryOp::Eq, which, is_max);
        let same = b.binary(BinaryOp::And, same, is_extreme);
        unread = b.binary(BinaryOp::Or, unread, same);
    }
    let line = b.unary(UnaryOp::Neg, found);
    let line = b.binary(BinaryOp::Shr, line, one);
    let line = b.push(Op::Select(is_extreme, line, found), Type::I32);
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
        " has read it: the gradient of that line would see the new value. Write to other memory, or save the value \
         and use `@qd.ad.grad_replaced`"
            .into(),
    ));
    b.push(Op::Assert(unread, text), Type::Unit);
}
