//! Random numbers of threads that become loops: each draw names the thread's iteration and the number of words that the
//! thread has drawn so far, which a local counts. The numbers therefore match those on a GPU, where each thread has its
//! own sequence, although one CPU thread runs all threads of the block.

use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{BinaryOp, BlockId, Body, Builder, GridValue, Op, Scalar, Type, ValueId};

/// Numbers the draws in the body of the parallel loop at the end of a task.
pub(super) fn number_draws(body: &mut Body, block_dim: u32) {
    let Some(Op::For(l)) = body.block(body.root).last().map(|v| &body.inst(*v).op) else { return };
    let inside = l.body;
    let mut draws = false;
    body.visit(inside, &mut |_, inst| draws |= inst.op == Op::Random);
    if !draws {
        return;
    }
    let drawn = body.add_local("drawn", Type::I32);
    let iteration = start(body, inside, block_dim, |b| {
        let zero = b.int(0, Scalar::I32);
        b.store_local(drawn, zero);
    });
    rebuild_blocks(body, |b, v| {
        if b.body.inst(v).op != Op::Random {
            return b.place(v);
        }
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
        b.place(v);
    });
}

/// Inserts the linear index of the thread's iteration, an i64, and other code at the start of a block; yields the
/// index.
fn start(body: &mut Body, block: BlockId, block_dim: u32, more: impl FnOnce(&mut Builder)) -> ValueId {
    let mut b = Builder::new();
    b.body = std::mem::take(body);
    let code = std::mem::take(&mut b.body.blocks[block.index()]);
    b.set_cursor(block);
    let [number, thread] = [GridValue::Block, GridValue::Thread].map(|value| {
        let value = b.push(Op::Grid(value), Type::I32);
        b.cast(value, Scalar::I64)
    });
    let dim = b.int(block_dim.into(), Scalar::I64);
    let first = b.binary(BinaryOp::Mul, number, dim);
    let iteration = b.binary(BinaryOp::Add, first, thread);
    more(&mut b);
    b.body.blocks[block.index()].extend(code);
    *body = b.body;
    iteration
}
