//! Every rule of differentiation against finite differences, in both modes, on scalars, vectors and matrices.
//!
//! A case is one operation on given types, evaluated here in f64. The central difference at a random point along a
//! random direction must equal the tangent. The product of a random adjoint with that tangent must equal the product of
//! the direction with the contributions of `pull_back`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use octants_autodiff::derivative_rules::{has_derivative, pull_back, push_forward, whole};
use octants_ir::{
    BinaryOp, Builder, Const, Derivative, Op, ReduceOp, Scalar, StructType, Type, UnaryOp, ValueId, binary_type,
    unary_type,
};

/// The leaves of a value of any type, all as f64.
type Value = Vec<f64>;

/// The value of every instruction of a body without memory and control.
fn evaluate(b: &Builder, params: &[Value]) -> Vec<Value> {
    let body = &b.body;
    let mut values: Vec<Value> = vec![Vec::new(); body.insts.len()];
    for &v in body.block(body.root) {
        let inst = body.inst(v);
        let of = |u: &ValueId| &values[u.index()];
        let zip = |x: &ValueId, y: &ValueId, f: &dyn Fn(f64, f64) -> f64| -> Value {
            of(x).iter().zip(of(y)).map(|(x, y)| f(*x, *y)).collect()
        };
        let value = match &inst.op {
            Op::Const(Const::Float(c)) => vec![*c],
            Op::Const(Const::Int(c)) => vec![*c as f64],
            Op::Param(i) => params[*i as usize].clone(),
            Op::Unary(op, x) => of(x).iter().map(|x| unary(*op, *x)).collect(),
            Op::Binary(op, x, y) => zip(x, y, &|x, y| binary(*op, x, y)),
            Op::Select(c, x, y) => {
                let n = of(x).len();
                let c: Vec<f64> = if of(c).len() == n { of(c).clone() } else { vec![of(c)[0]; n] };
                (0..n).map(|i| if c[i] != 0.0 { of(x)[i] } else { of(y)[i] }).collect()
            }
            Op::Cast(x) => match inst.ty.scalar().unwrap() {
                Scalar::F32 => of(x).iter().map(|x| f64::from(*x as f32)).collect(),
                s if s.is_float() => of(x).clone(),
                _ => of(x).iter().map(|x| x.trunc()).collect(),
            },
            Op::MakeTensor(xs) | Op::MakeStruct(xs) => xs.iter().flat_map(|x| of(x).clone()).collect(),
            Op::Splat(x) => vec![of(x)[0]; inst.ty.leaf_count()],
            Op::Extract(x, i) => match body.ty(*x) {
                Type::Struct(s) => {
                    let start: usize = s.members[..*i as usize].iter().map(|(_, t)| t.leaf_count()).sum();
                    of(x)[start..start + inst.ty.leaf_count()].to_vec()
                }
                _ => vec![of(x)[*i as usize]],
            },
            Op::ExtractDyn(x, indices) => {
                let shape = body.ty(*x).shape();
                let at = indices.iter().zip(shape).fold(0, |at, (i, n)| at * n as usize + of(i)[0] as usize);
                vec![of(x)[at]]
            }
            Op::MatMul(x, y) => {
                let (n, k) = match body.ty(*x) {
                    Type::Matrix(_, n, k) => (*n as usize, *k as usize),
                    t => (1, t.leaf_count()),
                };
                let m = of(y).len() / k;
                let (x, y) = (of(x), of(y));
                let at = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * y[l * m + j]).sum();
                (0..n * m).map(|p| at(p / m, p % m)).collect()
            }
            Op::Transpose(x) => {
                let Type::Matrix(_, n, m) = *body.ty(*x) else { panic!() };
                let (n, m) = (n as usize, m as usize);
                (0..n * m).map(|p| of(x)[p % n * m + p / n]).collect()
            }
            Op::Fold(op, x) => {
                let fold = match op {
                    ReduceOp::Add => |x: f64, y: f64| x + y,
                    ReduceOp::Mul => |x: f64, y: f64| x * y,
                    ReduceOp::Min => f64::min,
                    ReduceOp::Max => f64::max,
                    ReduceOp::And | ReduceOp::Or => panic!("on integers only"),
                };
                vec![of(x).iter().copied().reduce(fold).unwrap()]
            }
            op => panic!("{op:?}"),
        };
        assert_eq!(value.len(), inst.ty.leaf_count(), "{op:?}: {}", inst.ty, op = inst.op);
        values[v.index()] = value;
    }
    values
}

fn unary(op: UnaryOp, x: f64) -> f64 {
    use UnaryOp::*;
    match op {
        Neg => -x,
        LogicNot => f64::from(x == 0.0),
        Abs => x.abs(),
        Sgn => f64::from(i32::from(x > 0.0) - i32::from(x < 0.0)),
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Log => x.ln(),
        Log2 => x.log2(),
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round(),
        Trunc => x.trunc(),
        IsNan => f64::from(x.is_nan()),
        IsInf => f64::from(x.is_infinite()),
        // It has no derivative: see `stop_grad_stops_a_derivative`.
        BitNot | Popcnt | Clz | Ffs | StopGrad => panic!("on integers only"),
    }
}

fn binary(op: BinaryOp, x: f64, y: f64) -> f64 {
    use BinaryOp::*;
    match op {
        Add => x + y,
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        FloorDiv => (x / y).floor(),
        Mod => x - y * (x / y).floor(),
        Rem => x % y,
        Pow => x.powf(y),
        Atan2 => x.atan2(y),
        Min => x.min(y),
        Max => x.max(y),
        Eq => f64::from(x == y),
        Ne => f64::from(x != y),
        Lt => f64::from(x < y),
        Le => f64::from(x <= y),
        Gt => f64::from(x > y),
        Ge => f64::from(x >= y),
        And => f64::from(x != 0.0 && y != 0.0),
        Or => f64::from(x != 0.0 || y != 0.0),
        Xor | Shl | Shr | UShr => panic!("on integers only"),
    }
}

/// Numbers of a linear congruential generator: the same in each run.
struct Numbers(u64);

impl Numbers {
    fn within(&mut self, (low, high): (f64, f64)) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        low + (high - low) * ((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }

    fn value(&mut self, ty: &Type, domain: (f64, f64)) -> Value {
        ty.leaves().iter().map(|s| if s.is_float() { self.within(domain) } else { 1.0 }).collect()
    }
}

const F64: Type = Type::Scalar(Scalar::F64);
const VEC: Type = Type::Vector(Scalar::F64, 3);
const MAT: Type = Type::Matrix(Scalar::F64, 2, 3);
const SHAPES: [Type; 3] = [F64, VEC, MAT];
/// The default domain, where an operation is smooth.
const POSITIVE: (f64, f64) = (0.1, 0.9);

/// The operation, on the values of the parameters.
type BuildOp = Box<dyn Fn(&mut Builder, &[ValueId]) -> Op>;

/// An operation on parameters of these types, whose values are in these domains.
struct Case {
    name: String,
    params: Vec<(Type, (f64, f64))>,
    ty: Type,
    op: BuildOp,
}

fn case(
    name: String,
    params: Vec<(Type, (f64, f64))>,
    ty: Type,
    op: impl Fn(&mut Builder, &[ValueId]) -> Op + 'static,
) -> Case {
    Case { name, params, ty, op: Box::new(op) }
}

fn on_integers(run: impl FnOnce() -> f64 + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(run).is_err()
}

/// Every operation with a rule or with the derivative zero, for each shape.
fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for ty in &SHAPES {
        for &op in UnaryOp::ALL {
            if !on_integers(move || unary(op, 0.5)) {
                for domain in [POSITIVE, (-0.9, -0.1)] {
                    let positive = matches!(op, UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Log | UnaryOp::Log2);
                    if domain == POSITIVE || !positive {
                        let result = unary_type(op, ty);
                        out.push(case(format!("{op:?} {ty}"), vec![(ty.clone(), domain)], result, move |_, p| {
                            Op::Unary(op, p[0])
                        }));
                    }
                }
            }
        }
        for &op in BinaryOp::ALL {
            if on_integers(move || binary(op, 0.5, 0.25)) || matches!(op, BinaryOp::And | BinaryOp::Or) {
                continue;
            }
            for domains in [[(2.1, 2.9), (0.81, 0.99)], [(0.1, 0.4), (0.5, 0.9)], [(-2.9, -2.1), (0.81, 0.99)]] {
                if op == BinaryOp::Pow && domains[0].0 < 0.0 {
                    continue;
                }
                let params = domains.map(|d| (ty.clone(), d)).to_vec();
                let result = binary_type(op, ty);
                out.push(case(format!("{op:?} {ty} {domains:?}"), params, result, move |_, p| {
                    Op::Binary(op, p[0], p[1])
                }));
            }
        }
        // A constant exponent has its own rule.
        for exponent in [-2.0, 0.0, 1.0, 2.5] {
            let params = vec![(ty.clone(), POSITIVE)];
            out.push(case(format!("Pow {ty} constant {exponent}"), params, ty.clone(), move |b, p| {
                let ty = b.ty(p[0]).clone();
                let c = b.float(exponent, Scalar::F64);
                Op::Binary(BinaryOp::Pow, p[0], b.splat(c, &ty))
            }));
        }
        let params: Vec<_> = vec![(F64, POSITIVE), (ty.clone(), POSITIVE), (ty.clone(), POSITIVE)];
        for bound in [0.0, 1.0] {
            out.push(case(format!("Select {ty} by a scalar"), params.clone(), ty.clone(), move |b, p| {
                let bound = b.float(bound, Scalar::F64);
                Op::Select(b.binary(BinaryOp::Lt, p[0], bound), p[1], p[2])
            }));
        }
        let params = vec![(ty.clone(), POSITIVE); 3];
        out.push(case(format!("Select {ty} by component"), params, ty.clone(), |b, p| {
            let ty = b.ty(p[0]).clone();
            let half = b.float(0.5, Scalar::F64);
            let half = b.splat(half, &ty);
            Op::Select(b.binary(BinaryOp::Lt, p[0], half), p[1], p[2])
        }));
        out.push(case(
            format!("Cast {ty} to i32"),
            vec![(ty.clone(), POSITIVE)],
            ty.with_scalar(Scalar::I32),
            |_, p| Op::Cast(p[0]),
        ));
    }
    for ty in [VEC, MAT] {
        let n = ty.leaf_count();
        for &op in ReduceOp::ALL {
            if op.binary().derivative() == Derivative::Rule {
                let params = vec![(ty.clone(), POSITIVE)];
                out.push(case(format!("Fold {op:?} {ty}"), params, F64, move |_, p| Op::Fold(op, p[0])));
            }
        }
        let parts = vec![(F64, POSITIVE); n];
        out.push(case(format!("MakeTensor {ty}"), parts, ty.clone(), |_, p| Op::MakeTensor(p.to_vec())));
        out.push(case(format!("Splat {ty}"), vec![(F64, POSITIVE)], ty.clone(), |_, p| Op::Splat(p[0])));
        let params = vec![(ty.clone(), POSITIVE)];
        out.push(case(format!("Extract {ty}"), params.clone(), F64, |_, p| Op::Extract(p[0], 1)));
        out.push(case(format!("ExtractDyn {ty}"), params, F64, |b, p| {
            let indices = if b.ty(p[0]).shape().len() == 1 { vec![2] } else { vec![1, 1] };
            Op::ExtractDyn(p[0], indices.into_iter().map(|i| b.int(i, Scalar::I32)).collect())
        }));
    }
    let params = vec![(MAT, POSITIVE)];
    out.push(case("Transpose".into(), params, Type::Matrix(Scalar::F64, 3, 2), |_, p| Op::Transpose(p[0])));
    let (tall, two) = (Type::Matrix(Scalar::F64, 3, 4), Type::Vector(Scalar::F64, 2));
    for (x, y, ty) in [(MAT, tall, Type::Matrix(Scalar::F64, 2, 4)), (MAT, VEC, two.clone()), (two, MAT, VEC)] {
        let params = vec![(x.clone(), POSITIVE), (y.clone(), POSITIVE)];
        out.push(case(format!("MatMul {x} {y}"), params, ty, |_, p| Op::MatMul(p[0], p[1])));
    }
    let members = vec![("x".into(), F64), ("n".into(), Type::I32), ("v".into(), VEC)];
    let ty = Type::Struct(Arc::new(StructType { name: "S".into(), members }));
    let params = vec![(F64, POSITIVE), (Type::I32, POSITIVE), (VEC, POSITIVE)];
    out.push(case("MakeStruct".into(), params, ty.clone(), |_, p| Op::MakeStruct(p.to_vec())));
    out.push(case("Extract of a struct".into(), vec![(ty.clone(), POSITIVE)], VEC, |_, p| Op::Extract(p[0], 2)));
    let params = vec![(F64, POSITIVE), (ty.clone(), POSITIVE), (ty.clone(), POSITIVE)];
    out.push(case("Select of structs".into(), params, ty, |b, p| {
        let half = b.float(0.5, Scalar::F64);
        Op::Select(b.binary(BinaryOp::Lt, p[0], half), p[1], p[2])
    }));
    out
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// `x` moved along a direction; integers are unchanged.
fn moved(x: &[Value], direction: &[Value], by: f64) -> Vec<Value> {
    let value = |(x, d): (&Value, &Value)| x.iter().zip(d).map(|(x, d)| x + by * d).collect();
    x.iter().zip(direction).map(value).collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
}

/// The code of a case, with the tangent of its result and the contributions to its parameters, as values of their
/// types.
struct Derived {
    b: Builder,
    y: ValueId,
    tangent: Option<ValueId>,
    contributions: Vec<(usize, ValueId)>,
}

/// Parameters of the code: those of the case, their tangents, the adjoint of the result.
fn derive(case: &Case) -> Derived {
    let mut b = Builder::new();
    let n = case.params.len();
    let types = case.params.iter().map(|(t, _)| t);
    let params: Vec<ValueId> =
        types.clone().chain(types).chain([&case.ty]).zip(0..).map(|(t, i)| b.push(Op::Param(i), t.clone())).collect();
    let op = (case.op)(&mut b, &params[..n]);
    let y = b.push(op.clone(), case.ty.clone());
    let position = |v: ValueId| params[..n].iter().position(|p| *p == v);
    let mut operands = Vec::new();
    op.for_each_operand(|v| operands.push(position(v)));
    if op.derivative() != Derivative::Rule || !has_derivative(&case.ty) {
        return Derived { b, y, tangent: None, contributions: Vec::new() };
    }
    let active = |i: &Option<usize>| i.filter(|i| has_derivative(&case.params[*i].0));
    let tangents: Vec<_> = operands.iter().map(|i| active(i).map(|i| params[n + i])).collect();
    let tangent = push_forward(&mut b, y, &tangents);
    let contributions = pull_back(&mut b, y, params[2 * n], |i| active(&operands[i]).is_some());
    let contributions = contributions.into_iter().map(|c| {
        let param = operands[c.operand].unwrap();
        (param, whole(&mut b, &c.part, c.value, &case.params[param].0))
    });
    let contributions = contributions.collect();
    Derived { b, y, tangent, contributions }
}

#[test]
fn rules_agree_with_finite_differences() {
    let mut numbers = Numbers(1);
    let all = cases();
    assert!(all.len() > 200, "{} cases", all.len());
    for case in &all {
        let Derived { b, y, tangent, contributions } = derive(case);
        for _ in 0..8 {
            let x: Vec<Value> = case.params.iter().map(|(t, domain)| numbers.value(t, *domain)).collect();
            let float = |t: &Type| t.leaves().iter().map(|s| f64::from(u8::from(s.is_float()))).collect::<Vec<_>>();
            let mut direction: Vec<Value> = Vec::new();
            for (t, _) in &case.params {
                direction.push(float(t).iter().map(|on| on * numbers.within((-1.0, 1.0))).collect());
            }
            let adjoint: Value = float(&case.ty).iter().map(|on| on * numbers.within((-1.0, 1.0))).collect();
            let run = |x: &[Value]| {
                let inputs: Vec<Value> = x.iter().chain(&direction).chain([&adjoint]).cloned().collect();
                evaluate(&b, &inputs)
            };
            let h = 1e-5;
            let (high, low) = (run(&moved(&x, &direction, h)), run(&moved(&x, &direction, -h)));
            let (high, low) = (&high[y.index()], &low[y.index()]);
            let slope: Value = high.iter().zip(low).map(|(a, b)| (a - b) / (2.0 * h)).collect();
            let values = run(&x);
            let got = tangent.map_or(vec![0.0; slope.len()], |t| values[t.index()].clone());
            let fits = slope.iter().zip(&got).all(|(a, b)| close(*a, *b));
            assert!(fits, "{}: at {x:?} along {direction:?} the difference is {slope:?}, the rule {got:?}", case.name);
            let pulled: f64 = contributions.iter().map(|(p, v)| dot(&values[v.index()], &direction[*p])).sum();
            let pushed = dot(&got, &adjoint);
            assert!(close(pulled, pushed), "{}: at {x:?}: {pushed} forward, {pulled} reverse", case.name);
        }
    }
}

/// The derivatives of `op` by its operands at a point, forward (one operand at a time) and reverse.
fn at(op: BinaryOp, x: [f64; 2]) -> [[f64; 2]; 2] {
    let case = case(String::new(), vec![(F64, POSITIVE); 2], F64, move |_, p| Op::Binary(op, p[0], p[1]));
    let Derived { b, tangent, contributions, .. } = derive(&case);
    let inputs = |d: [f64; 2]| [x[0], x[1], d[0], d[1], 1.0].map(|v| vec![v]);
    let forward = [[1.0, 0.0], [0.0, 1.0]].map(|d| evaluate(&b, &inputs(d))[tangent.unwrap().index()][0]);
    let values = evaluate(&b, &inputs([0.0, 0.0]));
    let reverse = [0, 1].map(|i| contributions.iter().find(|c| c.0 == i).map_or(0.0, |c| values[c.1.index()][0]));
    [forward, reverse]
}

#[test]
fn chosen_derivatives_where_none_exists() {
    for (op, x, expected) in [
        (BinaryOp::Min, [1.0, 1.0], [0.0, 1.0]),
        (BinaryOp::Max, [1.0, 1.0], [0.0, 1.0]),
        (BinaryOp::Pow, [0.0, 2.0], [0.0, 0.0]),
        (BinaryOp::Pow, [0.0, 1.0], [1.0, 0.0]),
    ] {
        let [forward, reverse] = at(op, x);
        assert_eq!(forward, expected, "{op:?} {x:?}");
        assert_eq!(reverse, expected, "{op:?} {x:?}");
    }
    let [forward, reverse] = at(BinaryOp::Pow, [0.0, 0.0]);
    assert_eq!((forward[0], reverse[0]), (0.0, 0.0));
}

/// One of several smallest components gets the entire derivative, and a product that contains a zero has a derivative.
#[test]
fn folds_of_equal_components_and_zeros() {
    for (op, x, expected) in [
        (ReduceOp::Min, [1.0, 1.0, 2.0], [0.0, 1.0, 0.0]),
        (ReduceOp::Max, [2.0, 2.0, 2.0], [0.0, 0.0, 1.0]),
        (ReduceOp::Mul, [0.0, 3.0, 5.0], [15.0, 0.0, 0.0]),
    ] {
        let case = case(String::new(), vec![(VEC, POSITIVE)], F64, move |_, p| Op::Fold(op, p[0]));
        let Derived { b, contributions, .. } = derive(&case);
        let values = evaluate(&b, &[x.to_vec(), vec![0.0; 3], vec![1.0]]);
        assert_eq!(values[contributions[0].1.index()], expected, "{op:?}");
    }
}

#[test]
fn unselected_values_contribute_no_nan() {
    let params = vec![(F64, POSITIVE); 2];
    let case = case(String::new(), params, F64, |b, p| {
        let no = b.int(0, Scalar::U1);
        Op::Select(no, p[0], p[1])
    });
    let Derived { b, tangent, .. } = derive(&case);
    let values = evaluate(&b, &[vec![1.0], vec![1.0], vec![f64::NAN], vec![2.0], vec![1.0]]);
    assert_eq!(values[tangent.unwrap().index()], [2.0]);
}

#[test]
fn stop_grad_stops_a_derivative() {
    assert_eq!(UnaryOp::StopGrad.derivative(), Derivative::Zero);
}

/// Integer operations have derivative zero.
#[test]
fn integer_operations_have_zero_derivatives() {
    for &op in UnaryOp::ALL {
        assert!(op.derivative() == Derivative::Zero || !on_integers(move || unary(op, 0.5)), "{op:?}");
    }
    for &op in BinaryOp::ALL {
        assert!(op.derivative() == Derivative::Zero || !on_integers(move || binary(op, 0.5, 0.25)), "{op:?}");
    }
}

#[test]
fn casts_between_floats_keep_the_derivative() {
    let f32_vec = Type::Vector(Scalar::F32, 3);
    let case = case(String::new(), vec![(VEC, POSITIVE)], f32_vec, |_, p| Op::Cast(p[0]));
    let Derived { b, tangent, contributions, .. } = derive(&case);
    assert_eq!(b.ty(tangent.unwrap()), &Type::Vector(Scalar::F32, 3));
    assert_eq!(b.ty(contributions[0].1), &VEC);
}
