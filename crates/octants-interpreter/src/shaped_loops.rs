//! A loop of the shapes that passes look for and random statements rarely produce: sums that an inner loop scatters
//! along its index or along its index reversed, updates of an iteration's own elements, several quotients by one
//! divisor.

use octants_diag::Span;
use octants_ir::{
    AtomicOp, BinaryOp, Body, BufferId, Builder, ForLoop, Kernel, LoopConfig, Op, Range, Scalar, Type, ValueId,
};

use crate::random_kernels::{Dice, F64, N, X};

/// Appends a parallel loop to a random kernel, and gives all instructions places in a source, so that checks of the
/// user's operations find them.
pub fn append_shaped_loop(kernel: &mut Kernel, seed: u64) {
    let mut dice = Dice(seed ^ 0x1357_9bdf);
    (0..8).for_each(|_| _ = dice.below(2));
    let gradient = kernel.shadow_buffers[&X];
    let mut b = Builder::new();
    b.body = std::mem::take(&mut kernel.body);
    b.set_cursor(b.body.root);
    shaped_loop(&mut b, gradient, &mut dice);
    kernel.body = b.body;
    let mark = |body: &mut Body| {
        body.insts.iter_mut().enumerate().for_each(|(i, inst)| {
            inst.span = Span { file: 0, start: i as u32, end: i as u32 + 1, call: 0 };
        });
    };
    kernel.functions.iter_mut().for_each(|f| mark(&mut f.body));
    mark(&mut kernel.body);
}

fn at(b: &mut Builder, buffer: BufferId, index: ValueId) -> ValueId {
    b.push(Op::BufferAddr(buffer, vec![index]), Type::Ref(Box::new(F64)))
}

fn read(b: &mut Builder, buffer: BufferId, index: ValueId) -> ValueId {
    let address = at(b, buffer, index);
    b.load(address)
}

/// Builds a loop from zero.
fn loop_below(b: &mut Builder, end: ValueId, parallel: bool, inside: impl FnOnce(&mut Builder, ValueId)) {
    let (begin, body) = (b.int(0, Scalar::I32), b.body.add_block());
    let parallel = parallel.then(LoopConfig::default);
    let l = ForLoop { parallel, ..ForLoop::serial(vec![Range { begin, end }], body) };
    let l = b.push(Op::For(Box::new(l)), Type::Unit);
    let back = b.set_cursor(body);
    let index = b.push(Op::LoopIndex(l, 0), Type::I32);
    inside(b, index);
    b.set_cursor(back);
}

fn shaped_loop(b: &mut Builder, gradient: BufferId, dice: &mut Dice) {
    let n = b.int(N, Scalar::I32);
    let (reversed, triangle, own, divides) =
        (dice.below(2) == 0, dice.below(3) == 0, dice.below(3) == 0, dice.below(2) == 0);
    let (op, factor) = ([AtomicOp::Add, AtomicOp::Sub][dice.below(2) as usize], dice.unit());
    loop_below(b, n, true, |b, i| {
        let (x, factor) = (read(b, X, i), b.float(factor, Scalar::F64));
        let mut a = b.binary(BinaryOp::Mul, x, factor);
        if divides {
            let (square, one) = (b.binary(BinaryOp::Mul, x, x), b.float(1.0, Scalar::F64));
            let divisor = b.binary(BinaryOp::Add, square, one);
            let (first, second) = (b.binary(BinaryOp::Div, a, divisor), b.binary(BinaryOp::Div, x, divisor));
            a = b.binary(BinaryOp::Add, first, second);
        }
        if own {
            let address = at(b, gradient, i);
            b.push(Op::Atomic(op, address, a), F64);
            return;
        }
        loop_below(b, if triangle { i } else { n }, false, |b, j| {
            let index = if reversed {
                let one = b.int(1, Scalar::I32);
                let last = b.binary(BinaryOp::Sub, if triangle { i } else { n }, one);
                b.binary(BinaryOp::Sub, last, j)
            } else {
                j
            };
            let other = read(b, X, index);
            let product = b.binary(BinaryOp::Mul, a, other);
            let address = at(b, gradient, index);
            b.push(Op::Atomic(op, address, product), F64);
        });
    });
}
