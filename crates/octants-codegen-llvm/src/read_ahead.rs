//! Which loops inside a task wait for memory, so that loads of several iterations should be under way at once.
//!
//! A processor finds such loads by itself. On a GPU the code must have them next to one another: where there are few threads, which is where
//! loops in a thread are long, no other thread computes meanwhile.

use octants_ir::{BinaryOp, BlockId, Body, Const, ForLoop, Op, UnaryOp};

/// Loops of at most so many iterations get code for each, if it is short, without being asked to.
const FEW_ITERATIONS: i64 = 64;
/// Bodies of at most so many operations on scalars are worth having so many times.
const WORTH: [(usize, u32); 3] = [(8, MOST_TIMES), (64, 16), (128, 4)];
/// Bodies that stand in the code so often are for long loops; [`REST_TIMES`] is for the iterations that are left over, and for short ones.
pub(crate) const MOST_TIMES: u32 = 32;
pub(crate) const REST_TIMES: u32 = 2;

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
/// get code of its own.
pub(crate) fn times_to_unroll(body: &Body, l: &ForLoop) -> Option<u32> {
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
    let is_simple = reads && straight && !few;
    is_simple.then(|| WORTH.iter().find(|(most, _)| size <= *most).map(|(_, times)| *times)).flatten()
}

/// Roughly how many instructions on scalars an operation is. Locals are registers.
fn operations(body: &Body, op: &Op) -> usize {
    match op {
        Op::Load(a) | Op::Store(a, _) if matches!(body.inst(*a).op, Op::LocalAddr(_)) => 0,
        Op::Const(_) | Op::LocalAddr(_) | Op::BufferAddr(..) | Op::ElementAddr(..) | Op::MemberAddr(..) => 0,
        Op::LoopIndex(..) | Op::Splat(_) | Op::Extract(..) | Op::MakeTensor(_) | Op::MakeStruct(_) => 0,
        Op::Unary(op, _) => match op {
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Log | UnaryOp::Log2 => 20,
            UnaryOp::Tan | UnaryOp::Asin | UnaryOp::Acos | UnaryOp::Atan => 30,
            UnaryOp::Sinh | UnaryOp::Cosh | UnaryOp::Tanh => 30,
            _ => 1,
        },
        Op::Binary(BinaryOp::Pow | BinaryOp::Atan2, ..) => 30,
        _ => 1,
    }
}
