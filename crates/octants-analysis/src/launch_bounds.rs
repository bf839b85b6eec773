//! [`launch_bound`]: the bounds of a parallel loop in terms of a launch's arguments, so that the launcher counts
//! iterations without running code.

use octants_ir::schedule::{LaunchBound, LocalUses};
use octants_ir::{Affine, BinaryOp, Body, Buffer, Const, Layout, Op, Scalar, Term, Type, ValueId};

/// A value of a task that the launcher can compute.
///
/// Unlike [`Sums`](crate::Sums), which are exact, it follows the program's arithmetic and may wrap around.
pub fn launch_bound(buffers: &[Buffer], body: &Body, locals: &LocalUses, v: ValueId) -> LaunchBound {
    use LaunchBound::{Computed, Known, Larger, Smaller, Sum};
    let v = locals.source(v);
    let bound = |v| launch_bound(buffers, body, locals, v);
    let Some(own) = body.ty(v).scalar().filter(|s| s.is_int()) else { return Computed };
    let is_index = matches!(own, Scalar::I32 | Scalar::I64);
    match &body.inst(v).op {
        Op::Const(Const::Int(value)) => Known(*value),
        Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if is_index => match (bound(*a), bound(*b), op) {
            (Sum(sum, s), Known(more), BinaryOp::Add) | (Known(more), Sum(sum, s), BinaryOp::Add) if s == own => {
                Sum(moved(sum, more), s)
            }
            (Sum(sum, s), Known(less), BinaryOp::Sub) if s == own => Sum(moved(sum, less.wrapping_neg()), s),
            _ => Computed,
        },
        Op::Binary(op @ (BinaryOp::Max | BinaryOp::Min), a, b) if is_index => match (bound(*a), bound(*b), op) {
            (a @ (Known(_) | Sum(..)), b @ (Known(_) | Sum(..)), BinaryOp::Max) => Larger(Box::new([a, b])),
            (a @ (Known(_) | Sum(..)), b @ (Known(_) | Sum(..)), _) => Smaller(Box::new([a, b])),
            _ => Computed,
        },
        Op::Cast(of) if is_index => match bound(*of) {
            Larger(_) | Smaller(_) if body.ty(*of).scalar().is_none_or(|s| s.bytes() > own.bytes()) => Computed,
            // A cast that does not widen keeps the low bytes.
            Sum(sum, s) if s.bytes() >= own.bytes() => Sum(sum, own),
            Known(value) if own == Scalar::I32 => Known(i64::from(value as i32)),
            other => other,
        },
        Op::Shape(b, axis) => match &buffers[b.index()].layout {
            Layout::Dense { shape, .. } => Known(shape[*axis as usize] as i64),
            // An i32 is only requested if the extent fits.
            Layout::Contiguous | Layout::Strided => Sum(Affine::from(Term::Extent(*b, *axis)), own),
            // A product of extents.
            Layout::Flat(_) => Computed,
        },
        Op::Param(p) if matches!(body.ty(v), Type::Scalar(_)) => Sum(Affine::from(Term::Param(*p)), own),
        _ => Computed,
    }
}

fn moved(mut sum: Affine, by: i64) -> Affine {
    sum.constant = sum.constant.wrapping_add(by);
    sum
}

#[cfg(test)]
mod tests {
    use octants_ir::Builder;

    use super::*;

    #[test]
    fn a_parameter_and_a_constant_are_a_bound() {
        let mut b = Builder::new();
        let n = b.push(Op::Param(0), Type::I32);
        let one = b.int(1, Scalar::I32);
        let less = b.binary(BinaryOp::Sub, n, one);
        let wide = b.cast(less, Scalar::I64);
        let twice = b.binary(BinaryOp::Add, n, n);
        let of = |v| launch_bound(&[], &b.body, &LocalUses::default(), v);
        let sum = Affine { constant: -1, ..Affine::from(Term::Param(0)) };
        assert_eq!(of(less), LaunchBound::Sum(sum.clone(), Scalar::I32));
        assert_eq!(of(one), LaunchBound::Known(1));
        assert_eq!(of(twice), LaunchBound::Computed);
        // It was computed as an i32, and may have wrapped there.
        assert_eq!(of(wide), LaunchBound::Sum(sum, Scalar::I32));
    }

    #[test]
    fn a_restricted_loop_has_the_larger_begin_and_the_smaller_end() {
        let mut b = Builder::new();
        let (n, row) = (b.push(Op::Param(0), Type::I32), b.push(Op::Param(1), Type::I32));
        let one = b.int(1, Scalar::I32);
        let shifted = b.binary(BinaryOp::Sub, row, one);
        let begin = b.binary(BinaryOp::Max, one, shifted);
        let end = b.binary(BinaryOp::Min, n, shifted);
        let wide = b.cast(begin, Scalar::I64);
        let both = b.binary(BinaryOp::Max, begin, n);
        let of = |v| launch_bound(&[], &b.body, &LocalUses::default(), v);
        let param = |p| Affine::from(Term::Param(p));
        let row = LaunchBound::Sum(Affine { constant: -1, ..param(1) }, Scalar::I32);
        assert_eq!(of(begin), LaunchBound::Larger(Box::new([LaunchBound::Known(1), row.clone()])));
        assert_eq!(of(end), LaunchBound::Smaller(Box::new([LaunchBound::Sum(param(0), Scalar::I32), row])));
        assert_eq!(of(wide), of(begin));
        assert_eq!(of(both), LaunchBound::Computed);
    }
}
