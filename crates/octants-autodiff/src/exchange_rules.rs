//! Differentiation rules for values that move between the threads of a subgroup. In forward mode, tangents move as
//! values do. In reverse mode, adjoints move the other way: each thread gets the adjoints of all threads that took its
//! value.
//!
//! Assumes that the threads of a subgroup execute the operation, and therefore its reverse, together.

use octants_ir::insert_code::zero;
use octants_ir::{BinaryOp, Builder, Const, ForLoop, GridValue, Op, Range, Scalar, SubgroupOp, Type, ValueId};

/// The tangent of the received value, from the tangents of the threads' values.
pub(crate) fn push_exchange(b: &mut Builder, op: SubgroupOp, other: ValueId, tangent: ValueId) -> ValueId {
    let ty = b.ty(tangent).clone();
    b.push(Op::Subgroup(op, vec![tangent, other]), ty)
}

/// The adjoint of the sent value, from the adjoints of the received values.
pub(crate) fn pull_exchange(b: &mut Builder, op: SubgroupOp, other: ValueId, adjoint: ValueId) -> ValueId {
    let distance = match b.body.as_const(other) {
        Some(Const::Int(n)) if n >= 0 => Some(n),
        _ => None,
    };
    match (op, distance) {
        // Threads exchange in pairs.
        (SubgroupOp::ShuffleXor, Some(_)) => push_exchange(b, op, other, adjoint),
        (SubgroupOp::ShuffleUp, Some(n)) => pull_shift(b, SubgroupOp::ShuffleDown, n, adjoint),
        (SubgroupOp::ShuffleDown, Some(n)) => pull_shift(b, SubgroupOp::ShuffleUp, n, adjoint),
        _ => pull_from_all(b, op, other, adjoint),
    }
}

/// The adjoint of a shift by a known distance. A thread without a source at that distance received its own value.
fn pull_shift(b: &mut Builder, back: SubgroupOp, distance: i64, adjoint: ValueId) -> ValueId {
    let lane = grid(b, GridValue::Lane);
    let threads = threads_of_subgroup(b, lane);
    let far = b.int(distance, Scalar::I32);
    let moved = push_exchange(b, back, far, adjoint);
    let rest = b.binary(BinaryOp::Sub, threads, far);
    // Values moved down the lanes: those from `threads - distance` on kept their own; up: those below `distance` did.
    let (has_taker, kept) = if back == SubgroupOp::ShuffleUp {
        (b.binary(BinaryOp::Ge, lane, far), b.binary(BinaryOp::Ge, lane, rest))
    } else {
        (b.binary(BinaryOp::Lt, lane, rest), b.binary(BinaryOp::Lt, lane, far))
    };
    let [taken, own] = [(has_taker, moved), (kept, adjoint)].map(|(c, x)| where_it_holds(b, c, x));
    b.binary(BinaryOp::Add, taken, own)
}

/// The adjoint of any other exchange: iterates over the threads of the subgroup, and adds the adjoints of those that
/// received from this one.
fn pull_from_all(b: &mut Builder, op: SubgroupOp, other: ValueId, adjoint: ValueId) -> ValueId {
    let lane = grid(b, GridValue::Lane);
    let end = threads_of_subgroup(b, lane);
    let source = source_lane(b, op, other, lane, end);
    let ty = b.ty(adjoint).clone();
    let sum = b.body.add_local("moved_back", ty.clone());
    let nothing = zero(b, &ty);
    b.store_local(sum, nothing);
    let (begin, body) = (b.int(0, Scalar::I32), b.body.add_block());
    let over = b.push(Op::For(Box::new(ForLoop::serial(vec![Range { begin, end }], body))), Type::Unit);
    let back = b.set_cursor(body);
    let taker = b.push(Op::LoopIndex(over, 0), Type::I32);
    let taken = push_exchange(b, SubgroupOp::Shuffle, taker, adjoint);
    let from = push_exchange(b, SubgroupOp::Shuffle, taker, source);
    let is_ours = b.binary(BinaryOp::Eq, from, lane);
    let taken = where_it_holds(b, is_ours, taken);
    let before = b.load_local(sum);
    let after = b.binary(BinaryOp::Add, before, taken);
    b.store_local(sum, after);
    b.set_cursor(back);
    b.load_local(sum)
}

/// How many threads the subgroup has. A block may end within it.
fn threads_of_subgroup(b: &mut Builder, lane: ValueId) -> ValueId {
    let (thread, threads) = (grid(b, GridValue::Thread), grid(b, GridValue::BlockSize));
    let first = b.binary(BinaryOp::Sub, thread, lane);
    let rest = b.binary(BinaryOp::Sub, threads, first);
    let size = grid(b, GridValue::SubgroupSize);
    b.binary(BinaryOp::Min, size, rest)
}

/// The lane that an exchange takes from: the thread's own one if there is no such thread.
fn source_lane(b: &mut Builder, op: SubgroupOp, other: ValueId, lane: ValueId, threads: ValueId) -> ValueId {
    let source = match op {
        SubgroupOp::ShuffleXor => b.binary(BinaryOp::Xor, lane, other),
        SubgroupOp::ShuffleUp => b.binary(BinaryOp::Sub, lane, other),
        SubgroupOp::ShuffleDown => b.binary(BinaryOp::Add, lane, other),
        _ => other,
    };
    // As an unsigned number, an index below zero is also beyond the last one.
    let [number, count] = [source, threads].map(|v| b.cast(v, Scalar::U32));
    let is_there = b.binary(BinaryOp::Lt, number, count);
    b.push(Op::Select(is_there, source, lane), Type::I32)
}

fn grid(b: &mut Builder, value: GridValue) -> ValueId {
    b.push(Op::Grid(value), Type::I32)
}

/// The value if a condition holds, else zero.
fn where_it_holds(b: &mut Builder, condition: ValueId, value: ValueId) -> ValueId {
    let ty = b.ty(value).clone();
    let nothing = zero(b, &ty);
    b.push(Op::Select(condition, value, nothing), ty)
}
