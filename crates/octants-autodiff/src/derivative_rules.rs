//! The differentiation rules: the derivative of each operation, as code for both modes.
//!
//! The operation table says how an operation is differentiated (`octants_ir::Derivative`). Operations with a rule are
//! linear maps from the tangents of their operands to the tangent of their result. [`push_forward`] builds that map.
//! [`pull_back`] builds its transpose, which maps the adjoint of the result to contributions to the adjoints of the
//! operands. Component-wise operations state a [`Partial`] for each operand, once, and both functions use it. The
//! others (`MatMul`, `Extract`, ...) are linear, or nearly, and are in both functions.
//!
//! A tangent or adjoint has the type of its value. In a struct, members that are not floats have the tangent zero.
//! Integers have no derivative: a conversion to an integer ends it.
//!
//! If a derivative does not exist, one is chosen: zero for `Abs`, the second operand's for `Min` and `Max` of equals,
//! zero at the steps of `Floor` and similar functions. An infinite derivative, such as that of `Sqrt` at zero, stays
//! infinite. Components not selected by `Min`, `Max`, `Select` and folds contribute exactly zero, so an infinity in
//! them does not become NaN.
//!
//! The modes handle addresses, memory, control flow and calls.

use crate::exchange_rules::{pull_exchange, push_exchange};
use octants_ir::insert_code::zero;
use octants_ir::{BinaryOp, Builder, Const, Op, ReduceOp, Scalar, Type, UnaryOp, ValueId};

/// A value of this type has a derivative: it holds floats.
pub fn has_derivative(ty: &Type) -> bool {
    match ty {
        Type::Scalar(s) | Type::Vector(s, _) | Type::Matrix(s, _, _) => s.is_float(),
        Type::Struct(s) => s.members.iter().any(|(_, t)| has_derivative(t)),
        Type::Unit | Type::Ref(_) => false,
    }
}

/// The derivative of a result by one operand, component by component: the factor of a tangent or an adjoint.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Partial {
    One,
    MinusOne,
    /// The factor.
    Times(ValueId),
    /// One over this.
    Over(ValueId),
    /// One half over this.
    HalfOver(ValueId),
    /// One if the condition holds, else zero.
    If(ValueId),
    /// Zero if the condition holds, else one.
    Unless(ValueId),
}

/// The product of a partial derivative and a tangent or adjoint.
fn apply(b: &mut Builder, partial: Partial, x: ValueId) -> ValueId {
    match partial {
        Partial::One => x,
        Partial::MinusOne => b.unary(UnaryOp::Neg, x),
        Partial::Times(f) => b.binary(BinaryOp::Mul, x, f),
        Partial::Over(f) => b.binary(BinaryOp::Div, x, f),
        Partial::HalfOver(f) => {
            let half = number(b, 0.5, x);
            let x = b.binary(BinaryOp::Mul, x, half);
            b.binary(BinaryOp::Div, x, f)
        }
        Partial::If(c) => {
            let zero = zero_like(b, x);
            select(b, c, x, zero)
        }
        Partial::Unless(c) => {
            let zero = zero_like(b, x);
            select(b, c, zero, x)
        }
    }
}

/// d op(x) / dx, where y = op(x).
fn unary_partial(b: &mut Builder, op: UnaryOp, x: ValueId, y: ValueId) -> Partial {
    use BinaryOp::{Add, Mul, Sub};
    use Partial::{HalfOver, MinusOne, Over, Times};
    use UnaryOp::*;
    let one_minus_square = |b: &mut Builder| {
        let (one, square) = (number(b, 1.0, x), b.binary(Mul, x, x));
        b.binary(Sub, one, square)
    };
    match op {
        Neg => MinusOne,
        Abs => Times(b.unary(Sgn, x)),
        // The divisor is the result, by which programs often divide too.
        Sqrt => HalfOver(y),
        // -1/2 x^(-3/2)
        Rsqrt => {
            let (half, square) = (number(b, -0.5, x), b.binary(Mul, y, y));
            let cube = b.binary(Mul, square, y);
            Times(b.binary(Mul, half, cube))
        }
        Sin => Times(b.unary(Cos, x)),
        Cos => {
            let sin = b.unary(Sin, x);
            Times(b.unary(Neg, sin))
        }
        // 1 + tan(x)^2
        Tan => {
            let (one, square) = (number(b, 1.0, x), b.binary(Mul, y, y));
            Times(b.binary(Add, one, square))
        }
        Asin => {
            let c = one_minus_square(b);
            Over(b.unary(Sqrt, c))
        }
        Acos => {
            let c = one_minus_square(b);
            let root = b.unary(Sqrt, c);
            Over(b.unary(Neg, root))
        }
        Atan => {
            let (one, square) = (number(b, 1.0, x), b.binary(Mul, x, x));
            Over(b.binary(Add, one, square))
        }
        Sinh => Times(b.unary(Cosh, x)),
        Cosh => Times(b.unary(Sinh, x)),
        // 1 - tanh(x)^2
        Tanh => {
            let (one, square) = (number(b, 1.0, x), b.binary(Mul, y, y));
            Times(b.binary(Sub, one, square))
        }
        Exp => Times(y),
        Exp2 => {
            let ln2 = number(b, std::f64::consts::LN_2, x);
            Times(b.binary(Mul, y, ln2))
        }
        Log => Over(x),
        Log2 => {
            let ln2 = number(b, std::f64::consts::LN_2, x);
            Over(b.binary(Mul, x, ln2))
        }
        Sgn | Floor | Ceil | Round | Trunc | IsNan | IsInf | BitNot | LogicNot | Popcnt | Clz | Ffs | StopGrad => {
            panic!("compiler bug: {op:?} has no derivative rule")
        }
    }
}

/// d op(x0, x1) / dx for the operand of this number, where y = op(x0, x1).
fn binary_partial(b: &mut Builder, op: BinaryOp, operand: usize, [x0, x1]: [ValueId; 2], y: ValueId) -> Partial {
    use BinaryOp::*;
    use Partial::{If, MinusOne, One, Over, Times, Unless};
    let first = operand == 0;
    match op {
        Add => One,
        Sub if first => One,
        Sub => MinusOne,
        Mul => Times(if first { x1 } else { x0 }),
        Div if first => Over(x1),
        // -x0 / x1^2
        Div => {
            let q = b.binary(Div, y, x1);
            Times(b.unary(UnaryOp::Neg, q))
        }
        Mod | Rem if first => One,
        // x0 - x1 * floor(x0 / x1), and with trunc for `Rem`; between the steps the quotient is constant.
        Mod => {
            let q = b.binary(FloorDiv, x0, x1);
            Times(b.unary(UnaryOp::Neg, q))
        }
        Rem => {
            let q = b.binary(Div, x0, x1);
            let whole = b.unary(UnaryOp::Trunc, q);
            Times(b.unary(UnaryOp::Neg, whole))
        }
        // x1 * x0^(x1 - 1), and 0 where x1 is 0, also for x0 = 0.
        Pow if first => power_partial(b, x0, x1),
        // y * log(x0); 0 for x0 = 0, where y is constant if it is defined.
        Pow => {
            let (zero, log) = (zero_like(b, x0), b.unary(UnaryOp::Log, x0));
            let (product, at_zero) = (b.binary(Mul, y, log), b.binary(Eq, x0, zero));
            Times(select(b, at_zero, zero, product))
        }
        // (x1, -x0) / (x0^2 + x1^2)
        Atan2 => {
            let (s0, s1) = (b.binary(Mul, x0, x0), b.binary(Mul, x1, x1));
            let square = b.binary(Add, s0, s1);
            let part = if first { x1 } else { b.unary(UnaryOp::Neg, x0) };
            Times(b.binary(Div, part, square))
        }
        Min | Max => {
            let less = b.binary(if op == Min { Lt } else { Gt }, x0, x1);
            if first { If(less) } else { Unless(less) }
        }
        FloorDiv | Eq | Ne | Lt | Le | Gt | Ge | And | Or | Xor | Shl | Shr | UShr => {
            panic!("compiler bug: {op:?} has no derivative rule")
        }
    }
}

fn power_partial(b: &mut Builder, x: ValueId, exponent: ValueId) -> Partial {
    if let Some(Const::Float(c)) = constant_of(b, exponent) {
        let c1 = number(b, c - 1.0, x);
        let power = b.binary(BinaryOp::Pow, x, c1);
        // 0 * x^(-1) would be NaN at zero.
        return if c == 0.0 {
            Partial::Times(zero_like(b, x))
        } else {
            Partial::Times(b.binary(BinaryOp::Mul, exponent, power))
        };
    }
    let (one, zero) = (number(b, 1.0, x), zero_like(b, x));
    let less = b.binary(BinaryOp::Sub, exponent, one);
    let power = b.binary(BinaryOp::Pow, x, less);
    let product = b.binary(BinaryOp::Mul, exponent, power);
    let flat = b.binary(BinaryOp::Eq, exponent, zero);
    Partial::Times(select(b, flat, zero, product))
}

/// The constant that a value is, or that `Splat` repeats.
fn constant_of(b: &Builder, v: ValueId) -> Option<Const> {
    match b.body.inst(v).op {
        Op::Splat(a) => b.body.as_const(a),
        _ => b.body.as_const(v),
    }
}

/// The tangent of a result, from those of the operands (`None` for zero); `None` when it is zero. `op`, of
/// `Derivative::Rule` and with a result of a type that [`has_derivative`], was built as `y` in `b` before.
pub fn push_forward(b: &mut Builder, y: ValueId, tangents: &[Option<ValueId>]) -> Option<ValueId> {
    if tangents.iter().all(Option::is_none) {
        return None;
    }
    let (op, ty) = (b.body.inst(y).op.clone(), b.ty(y).clone());
    let mut terms: [Option<ValueId>; 2] = [None, None];
    match op {
        Op::Unary(op, x) => {
            let partial = unary_partial(b, op, x, y);
            return tangents[0].map(|t| apply(b, partial, t));
        }
        Op::Binary(op, x0, x1) => {
            for (i, &t) in tangents.iter().enumerate() {
                terms[i] = t.map(|t| {
                    let partial = binary_partial(b, op, i, [x0, x1], y);
                    let term = apply(b, partial, t);
                    // An exponent that does not vary: its partial derivative is NaN if the base is negative.
                    if op == BinaryOp::Pow && i == 1 {
                        let zero = zero_like(b, t);
                        let is_fixed = b.binary(BinaryOp::Eq, t, zero);
                        return select(b, is_fixed, zero, term);
                    }
                    term
                });
            }
        }
        Op::Select(c, ..) => {
            let [t0, t1] = [1, 2].map(|i| tangents[i].unwrap_or_else(|| zero(b, &ty)));
            return Some(select(b, c, t0, t1));
        }
        Op::Cast(_) => {
            let s = ty.scalar().expect("compiler bug: a cast to a type without scalars");
            return tangents[0].map(|t| b.cast(t, s));
        }
        Op::MakeTensor(xs) => {
            let component = Type::Scalar(ty.scalar().expect("compiler bug: a tensor type without scalars"));
            let parts = (0..xs.len()).map(|i| tangents[i].unwrap_or_else(|| zero(b, &component))).collect();
            return Some(b.push(Op::MakeTensor(parts), ty));
        }
        Op::MakeStruct(xs) => {
            let parts = xs.iter().enumerate().map(|(i, x)| {
                let member = b.ty(*x).clone();
                tangents[i].unwrap_or_else(|| zero(b, &member))
            });
            let parts = parts.collect();
            return Some(b.push(Op::MakeStruct(parts), ty));
        }
        Op::Splat(_) => return tangents[0].map(|t| b.push(Op::Splat(t), ty)),
        Op::Extract(_, i) => return tangents[0].map(|t| b.push(Op::Extract(t, i), ty)),
        Op::ExtractDyn(_, indices) => return tangents[0].map(|t| b.push(Op::ExtractDyn(t, indices), ty)),
        Op::Transpose(_) => return tangents[0].map(|t| b.push(Op::Transpose(t), ty)),
        Op::MatMul(x0, x1) => {
            terms[0] = tangents[0].map(|t| b.push(Op::MatMul(t, x1), ty.clone()));
            terms[1] = tangents[1].map(|t| b.push(Op::MatMul(x0, t), ty));
        }
        Op::Fold(op, x) => return tangents[0].map(|t| fold_tangent(b, op, x, y, t)),
        Op::Subgroup(op, vs) => return tangents[0].map(|t| push_exchange(b, op, vs[1], t)),
        op => panic!("compiler bug: {op:?} has no derivative rule"),
    }
    match terms {
        [Some(t0), Some(t1)] => Some(b.binary(BinaryOp::Add, t0, t1)),
        [t0, t1] => t0.or(t1),
    }
}

/// The part of an operand to whose adjoint a contribution belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// A component (row-major position) of a tensor or a member of a struct.
    At(u32),
    /// The component of a tensor at indices known at run time.
    AtIndices(Vec<ValueId>),
}

/// A contribution to the adjoint of an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// Which operand, in the order of [`Op::for_each_operand`].
    pub operand: usize,
    /// Its position in it.
    pub part: Part,
    /// The contribution.
    pub value: ValueId,
}

/// The contributions of a result's adjoint to the adjoints of the `wanted` operands. `op`, of `Derivative::Rule` and
/// with a result of a type that [`has_derivative`], was built as `y` in `b` before. Operands whose type has no
/// derivative get nothing.
pub fn pull_back(b: &mut Builder, y: ValueId, adjoint: ValueId, wanted: impl Fn(usize) -> bool) -> Vec<Contribution> {
    let mut out = Vec::new();
    let op = b.body.inst(y).op.clone();
    let mut operands = Vec::new();
    op.for_each_operand(|x| operands.push(x));
    if let Op::Binary(BinaryOp::Mul, x, again) = op
        && x == again
        && wanted(0)
    {
        // Both contributions of a square are the same; its adjoint often has equal components, and is cheap to double.
        let twice = b.binary(BinaryOp::Add, adjoint, adjoint);
        let value = b.binary(BinaryOp::Mul, twice, x);
        return vec![Contribution { operand: 0, part: Part::Whole, value }];
    }
    for (operand, &x) in operands.iter().enumerate() {
        let ty = b.ty(x).clone();
        if !wanted(operand) || !has_derivative(&ty) {
            continue;
        }
        let (part, value) = match &op {
            Op::Unary(op, x) => {
                let partial = unary_partial(b, *op, *x, y);
                (Part::Whole, apply(b, partial, adjoint))
            }
            Op::Binary(op, x0, x1) => {
                let partial = binary_partial(b, *op, operand, [*x0, *x1], y);
                (Part::Whole, apply(b, partial, adjoint))
            }
            Op::Select(c, ..) => {
                let zero = zero(b, &ty);
                let (yes, no) = if operand == 1 { (adjoint, zero) } else { (zero, adjoint) };
                (Part::Whole, select(b, *c, yes, no))
            }
            Op::Cast(_) => {
                let s = ty.scalar().expect("compiler bug: a cast from a type without scalars");
                (Part::Whole, b.cast(adjoint, s))
            }
            Op::MakeTensor(_) | Op::MakeStruct(_) => (Part::Whole, b.extract(adjoint, operand as u32)),
            Op::Splat(_) => (Part::Whole, b.push(Op::Fold(ReduceOp::Add, adjoint), ty)),
            Op::Extract(_, i) => (Part::At(*i), adjoint),
            Op::ExtractDyn(_, indices) => (Part::AtIndices(indices.clone()), adjoint),
            Op::Transpose(_) => (Part::Whole, b.push(Op::Transpose(adjoint), ty)),
            Op::MatMul(x0, x1) => (Part::Whole, matmul_adjoint(b, operand, [*x0, *x1], adjoint)),
            Op::Fold(op, x) => (Part::Whole, fold_adjoint(b, *op, *x, y, adjoint)),
            Op::Subgroup(op, vs) => (Part::Whole, pull_exchange(b, *op, vs[1], adjoint)),
            op => panic!("compiler bug: {op:?} has no derivative rule"),
        };
        out.push(Contribution { operand, part, value });
    }
    out
}

/// A contribution as a value of its operand's type, zero outside its part.
pub fn whole(b: &mut Builder, part: &Part, value: ValueId, ty: &Type) -> ValueId {
    match (part, ty) {
        (Part::Whole, _) => value,
        (Part::At(i), Type::Struct(s)) => {
            let members = s.members.clone();
            let parts = members.iter().enumerate().map(|(j, (_, t))| if j == *i as usize { value } else { zero(b, t) });
            let parts = parts.collect();
            b.push(Op::MakeStruct(parts), ty.clone())
        }
        (Part::At(i), _) => {
            let zero = b.int(0, ty.scalar().expect("compiler bug: the constant 0 of a type without scalars"));
            let parts = (0..ty.leaf_count()).map(|j| if j == *i as usize { value } else { zero }).collect();
            b.push(Op::MakeTensor(parts), ty.clone())
        }
        (Part::AtIndices(indices), _) => {
            let zero = zero(b, ty);
            let value = b.splat(value, ty);
            let mut condition: Option<ValueId> = None;
            let shape = ty.shape();
            for (axis, &index) in indices.iter().enumerate() {
                let s = b.ty(index).scalar().expect("compiler bug: an index that is not an integer");
                let stride: u32 = shape[axis + 1..].iter().product();
                let positions =
                    (0..ty.leaf_count() as u32).map(|j| b.int(i64::from(j / stride % shape[axis]), s)).collect();
                let positions = b.push(Op::MakeTensor(positions), ty.with_scalar(s));
                let index = b.splat(index, ty);
                let here = b.binary(BinaryOp::Eq, positions, index);
                condition = Some(condition.map_or(here, |c| b.binary(BinaryOp::And, c, here)));
            }
            let condition = condition.expect("compiler bug: a component without an index");
            select(b, condition, value, zero)
        }
    }
}

/// For y = A B: dA = dy B^T, dB = A^T dy, where a vector is a row before a matrix and a column after one.
fn matmul_adjoint(b: &mut Builder, operand: usize, [x0, x1]: [ValueId; 2], adjoint: ValueId) -> ValueId {
    let (t0, t1) = (b.ty(x0).clone(), b.ty(x1).clone());
    match (&t0, &t1, operand) {
        (Type::Matrix(..), Type::Vector(..), 0) => outer(b, adjoint, x1),
        (Type::Vector(..), Type::Matrix(..), 1) => outer(b, x0, adjoint),
        // The vector of the other operand is on the side of its transpose.
        (Type::Matrix(..), Type::Vector(..), _) => b.push(Op::MatMul(adjoint, x0), t1),
        (Type::Vector(..), Type::Matrix(..), _) => b.push(Op::MatMul(x1, adjoint), t0),
        (_, _, 0) => {
            let other = transpose(b, x1);
            b.push(Op::MatMul(adjoint, other), t0)
        }
        _ => {
            let other = transpose(b, x0);
            b.push(Op::MatMul(other, adjoint), t1)
        }
    }
}

fn transpose(b: &mut Builder, v: ValueId) -> ValueId {
    let Type::Matrix(s, n, m) = *b.ty(v) else { panic!("compiler bug: the transpose of a value that is not a matrix") };
    b.push(Op::Transpose(v), Type::Matrix(s, m, n))
}

/// The matrix of all products of a component of `column` and one of `row`.
fn outer(b: &mut Builder, column: ValueId, row: ValueId) -> ValueId {
    let (Type::Vector(s, n), Type::Vector(_, m)) = (b.ty(column).clone(), b.ty(row).clone()) else {
        panic!("compiler bug: an outer product of values that are not vectors")
    };
    let column = components(b, column);
    let row = components(b, row);
    let column = b.push(Op::MakeTensor(column), Type::Matrix(s, n, 1));
    let row = b.push(Op::MakeTensor(row), Type::Matrix(s, 1, m));
    b.push(Op::MatMul(column, row), Type::Matrix(s, n, m))
}

fn components(b: &mut Builder, tensor: ValueId) -> Vec<ValueId> {
    let n = b.ty(tensor).leaf_count() as u32;
    (0..n).map(|i| b.extract(tensor, i)).collect()
}

/// The tangent of a fold.
fn fold_tangent(b: &mut Builder, op: ReduceOp, x: ValueId, y: ValueId, t: ValueId) -> ValueId {
    let ty = b.ty(y).clone();
    match op {
        ReduceOp::Add => b.push(Op::Fold(ReduceOp::Add, t), ty),
        _ => {
            let rest = fold_gradient(b, op, x, y);
            let terms = apply(b, rest, t);
            b.push(Op::Fold(ReduceOp::Add, terms), ty)
        }
    }
}

/// The contribution of a fold's adjoint to its operand's.
fn fold_adjoint(b: &mut Builder, op: ReduceOp, x: ValueId, y: ValueId, adjoint: ValueId) -> ValueId {
    let ty = b.ty(x).clone();
    let adjoint = b.splat(adjoint, &ty);
    match op {
        ReduceOp::Add => adjoint,
        _ => {
            let rest = fold_gradient(b, op, x, y);
            apply(b, rest, adjoint)
        }
    }
}

/// The derivative of a fold by each component.
fn fold_gradient(b: &mut Builder, op: ReduceOp, x: ValueId, y: ValueId) -> Partial {
    let ty = b.ty(x).clone();
    let parts = components(b, x);
    let n = parts.len();
    if op == ReduceOp::Mul {
        // The product of the others, without a division, which zeros would corrupt.
        let one = one_of_component(b, &ty);
        let (mut before, mut after) = (vec![one; n], vec![one; n]);
        for i in 1..n {
            before[i] = b.binary(BinaryOp::Mul, before[i - 1], parts[i - 1]);
            after[n - 1 - i] = b.binary(BinaryOp::Mul, after[n - i], parts[n - i]);
        }
        let rest = before.into_iter().zip(after).map(|(p, q)| b.binary(BinaryOp::Mul, p, q)).collect();
        return Partial::Times(b.push(Op::MakeTensor(rest), ty));
    }
    // The last of the components that are the smallest (largest).
    let mut chosen = Vec::new();
    let mut earlier: Option<ValueId> = None;
    for &part in parts.iter().rev() {
        let equal = b.binary(BinaryOp::Eq, part, y);
        chosen.push(match earlier {
            None => equal,
            Some(e) => {
                let free = b.unary(UnaryOp::LogicNot, e);
                b.binary(BinaryOp::And, equal, free)
            }
        });
        earlier = Some(earlier.map_or(equal, |e| b.binary(BinaryOp::Or, e, equal)));
    }
    chosen.reverse();
    Partial::If(b.push(Op::MakeTensor(chosen), ty.with_scalar(Scalar::U1)))
}

fn one_of_component(b: &mut Builder, ty: &Type) -> ValueId {
    b.int(1, ty.scalar().expect("compiler bug: the constant 1 of a type without scalars"))
}

fn zero_like(b: &mut Builder, v: ValueId) -> ValueId {
    let ty = b.ty(v).clone();
    zero(b, &ty)
}

/// A constant of the type of `like`.
fn number(b: &mut Builder, value: f64, like: ValueId) -> ValueId {
    let ty = b.ty(like).clone();
    let c = b.float(value, ty.scalar().expect("compiler bug: a constant of a type without scalars"));
    b.splat(c, &ty)
}

fn select(b: &mut Builder, c: ValueId, yes: ValueId, no: ValueId) -> ValueId {
    let ty = b.ty(yes).clone();
    b.push(Op::Select(c, yes, no), ty)
}
