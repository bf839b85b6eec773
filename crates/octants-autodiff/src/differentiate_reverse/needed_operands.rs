//! The operand values that the differentiation rule of an operation reads.

use octants_ir::{BinaryOp, Op, ReduceOp, UnaryOp, ValueId};

/// Calls `f` on the operands whose values the adjoint of an operation is computed from, where `wanted` selects the
/// operands that get a contribution. If the rule uses the result, they include the operands of its computation.
pub(super) fn needed_operands(op: &Op, wanted: impl Fn(ValueId) -> bool, mut f: impl FnMut(ValueId)) {
    match op {
        Op::Unary(UnaryOp::Neg, _)
        | Op::Cast(_)
        | Op::MakeTensor(_)
        | Op::MakeStruct(_)
        | Op::Splat(_)
        | Op::Extract(..)
        | Op::Transpose(_)
        | Op::Fold(ReduceOp::Add, _)
        | Op::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => {}
        Op::Binary(BinaryOp::Mul, a, b) | Op::MatMul(a, b) => {
            if wanted(*a) {
                f(*b);
            }
            if wanted(*b) {
                f(*a);
            }
        }
        Op::Binary(BinaryOp::Div, a, b) => {
            f(*b);
            if wanted(*b) {
                f(*a);
            }
        }
        Op::Binary(BinaryOp::Mod | BinaryOp::Rem, _, b) if !wanted(*b) => {}
        Op::Select(c, ..) => f(*c),
        Op::Subgroup(_, vs) => vs[1..].iter().copied().for_each(f),
        Op::ExtractDyn(_, indices) => indices.iter().copied().for_each(f),
        op => op.for_each_operand(f),
    }
}
