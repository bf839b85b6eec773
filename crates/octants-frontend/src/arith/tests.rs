//! The table of result types, conversions of stored values, and errors.

use std::sync::Arc;

use octants_ir::{AutodiffMode, Builder, Op, Scalar, StructType, Type, ValueId};

use super::*;
use crate::world::Options;

fn options(default_fp: Scalar, debug: bool) -> Options {
    Options {
        subgroup_size: 32,
        shared_bytes: 48 << 10,
        default_fp,
        default_ip: Scalar::I32,
        debug,
        short_circuit: true,
        unrolling_limit: 32,
        graph_max_iterations: 0,
        mode: AutodiffMode::None,
        keeps_packed: false,
    }
}

fn f32_options() -> Options {
    options(Scalar::F32, false)
}

fn value(b: &mut Builder, ty: Type) -> ValueId {
    let index = b.body.insts.len() as u32;
    b.push(Op::Param(index), ty)
}

/// The type of `op` on values of the two types, or the message.
fn result(op: Operator, l: impl Into<Type>, r: impl Into<Type>) -> Result<Type, String> {
    let mut b = Builder::new();
    let (l, r) = (value(&mut b, l.into()), value(&mut b, r.into()));
    binary(&mut b, &f32_options(), op, l, r).map(|v| b.ty(v).clone()).map_err(|e| e.message)
}

fn apply(name: &str, args: &[Type]) -> Result<Type, String> {
    let mut b = Builder::new();
    let args: Vec<_> = args.iter().map(|t| value(&mut b, t.clone())).collect();
    let r = math(&mut b, &f32_options(), name, &args).unwrap_or_else(|| panic!("{name} is not known"));
    r.map(|v| b.ty(v).clone()).map_err(|e| e.message)
}

const ARITHMETIC: [Operator; 5] = [Operator::Add, Operator::Sub, Operator::Mul, Operator::FloorDiv, Operator::Mod];

#[test]
fn arithmetic_follows_the_promotion_table() {
    // Rows: left operand; columns: right operand; both in the order of `Scalar::ALL`.
    let table = "
        u1  i8  i16 i32 i64 u8  u16 u32 u64 f16 f32 f64
        i8  i8  i16 i32 i64 u8  u16 u32 u64 f16 f32 f64
        i16 i16 i16 i32 i64 i16 u16 u32 u64 f16 f32 f64
        i32 i32 i32 i32 i64 i32 i32 u32 u64 f16 f32 f64
        i64 i64 i64 i64 i64 i64 i64 i64 u64 f16 f32 f64
        u8  u8  i16 i32 i64 u8  u16 u32 u64 f16 f32 f64
        u16 u16 u16 i32 i64 u16 u16 u32 u64 f16 f32 f64
        u32 u32 u32 u32 i64 u32 u32 u32 u64 f16 f32 f64
        u64 u64 u64 u64 u64 u64 u64 u64 u64 f16 f32 f64
        f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f64
        f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
        f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64";
    let rows: Vec<Vec<Scalar>> = table
        .trim()
        .lines()
        .map(|l| l.split_whitespace().map(|n| Scalar::from_name(n).expect("a scalar")).collect())
        .collect();
    for (i, l) in Scalar::ALL.into_iter().enumerate() {
        for (j, r) in Scalar::ALL.into_iter().enumerate() {
            let expected = Type::Scalar(rows[i][j]);
            for op in ARITHMETIC {
                assert_eq!(result(op, l, r), Ok(expected.clone()), "{l} {} {r}", op.symbol());
            }
            for name in ["max", "min", "raw_div", "raw_mod"] {
                assert_eq!(apply(name, &[l.into(), r.into()]), Ok(expected.clone()), "{name}({l}, {r})");
            }
            let bits = result(Operator::BitAnd, l, r);
            if l.is_float() || r.is_float() {
                assert_eq!(bits, Err(format!("unsupported operand type(s) for '&': '{l}' and '{r}'")));
            } else {
                assert_eq!(bits, Ok(expected));
            }
        }
    }
}

#[test]
fn division_yields_floats() {
    assert_eq!(result(Operator::Div, Scalar::I64, Scalar::U8), Ok(Scalar::F32.into()));
    assert_eq!(result(Operator::Div, Scalar::I32, Scalar::F16), Ok(Scalar::F32.into()));
    assert_eq!(result(Operator::Div, Scalar::F16, Scalar::F16), Ok(Scalar::F16.into()));
    assert_eq!(result(Operator::Div, Scalar::F64, Scalar::I32), Ok(Scalar::F64.into()));
    let mut b = Builder::new();
    let (l, r) = (value(&mut b, Type::I32), value(&mut b, Scalar::F32.into()));
    let v = binary(&mut b, &options(Scalar::F64, false), Operator::Div, l, r).expect("numbers divide");
    assert_eq!(b.ty(v), &Type::Scalar(Scalar::F64));
}

#[test]
fn powers_and_shifts_keep_the_left_type() {
    for l in Scalar::ALL {
        for r in Scalar::ALL {
            let power = match (l.is_float(), r.is_float()) {
                (_, false) => l,
                (false, true) => r,
                (true, true) => l.promote(r),
            };
            assert_eq!(result(Operator::Pow, l, r), Ok(power.into()), "{l} ** {r}");
            for op in [Operator::Shl, Operator::Shr] {
                let ty = result(op, l, r);
                if l.is_int() && r.is_int() {
                    assert_eq!(ty, Ok(l.into()));
                } else {
                    assert!(ty.is_err(), "{l} {} {r}", op.symbol());
                }
            }
        }
    }
}

#[test]
fn constant_exponents_become_multiplications() {
    let mut b = Builder::new();
    let x = value(&mut b, Type::Vector(Scalar::F32, 3));
    let n = b.int(3, Scalar::I32);
    let v = binary(&mut b, &f32_options(), Operator::Pow, x, n).expect("a power");
    assert_eq!(b.ty(v), &Type::Vector(Scalar::F32, 3));
    assert!(!b.body.insts.iter().any(|i| matches!(i.op, Op::Binary(octants_ir::BinaryOp::Pow, ..))));
    let n = b.int(-1, Scalar::I32);
    let i = value(&mut b, Type::I32);
    binary(&mut b, &f32_options(), Operator::Pow, i, n).expect("a power");
    assert!(b.body.insts.iter().any(|i| matches!(i.op, Op::Binary(octants_ir::BinaryOp::Pow, ..))));
}

#[test]
fn debug_refuses_negative_integer_exponents() {
    let mut b = Builder::new();
    let (l, r) = (value(&mut b, Type::I32), value(&mut b, Type::Vector(Scalar::I32, 2)));
    binary(&mut b, &options(Scalar::F32, true), Operator::Pow, l, r).expect("a power");
    assert!(b.body.insts.iter().any(|i| matches!(i.op, Op::Assert(..))));
}

#[test]
fn tensors_broadcast_with_scalars_only() {
    let v3 = Type::Vector(Scalar::I32, 3);
    assert_eq!(result(Operator::Add, v3.clone(), Scalar::F32), Ok(Type::Vector(Scalar::F32, 3)));
    assert_eq!(result(Operator::Sub, Scalar::I64, v3.clone()), Ok(Type::Vector(Scalar::I64, 3)));
    assert_eq!(
        result(Operator::Add, v3.clone(), Type::Matrix(Scalar::I32, 3, 1)),
        Err("unsupported operand type(s) for '+': '[Tensor (3) i32]' and '[Tensor (3, 1) i32]'".into())
    );
    let mut b = Builder::new();
    let (l, r) = (value(&mut b, v3.clone()), value(&mut b, Scalar::F32.into()));
    let c = compare(&mut b, &f32_options(), Comparison::Le, l, r).expect("comparable");
    assert_eq!(b.ty(c), &Type::Vector(Scalar::U1, 3));
}

#[test]
fn matmul_shapes() {
    let (m23, m34) = (Type::Matrix(Scalar::I32, 2, 3), Type::Matrix(Scalar::F32, 3, 4));
    let v3 = Type::Vector(Scalar::I32, 3);
    assert_eq!(result(Operator::MatMul, m23.clone(), m34.clone()), Ok(Type::Matrix(Scalar::F32, 2, 4)));
    assert_eq!(result(Operator::MatMul, m23.clone(), v3.clone()), Ok(Type::Vector(Scalar::I32, 2)));
    assert_eq!(result(Operator::MatMul, v3.clone(), m34.clone()), Ok(Type::Vector(Scalar::F32, 4)));
    assert_eq!(result(Operator::MatMul, v3.clone(), v3.clone()), Ok(Type::I32));
    assert!(result(Operator::MatMul, m34, m23).is_err());
    assert!(result(Operator::MatMul, v3, Scalar::F32).is_err());
}

#[test]
fn functions_by_name() {
    let f = |s: Scalar| Type::Scalar(s);
    for name in ["sin", "tanh", "exp", "log", "sqrt", "rsqrt", "rcp"] {
        assert_eq!(apply(name, &[f(Scalar::I64)]), Ok(f(Scalar::F32)), "{name}");
        assert_eq!(apply(name, &[f(Scalar::F64)]), Ok(f(Scalar::F64)), "{name}");
    }
    for name in ["floor", "ceil", "round"] {
        assert_eq!(apply(name, &[f(Scalar::F16)]), Ok(f(Scalar::F16)));
        assert_eq!(
            apply(name, &[f(Scalar::I32)]),
            Err(format!("'{name}' takes real inputs only, however 'i32' is provided"))
        );
    }
    for name in ["popcnt", "clz", "ffs"] {
        assert_eq!(apply(name, &[f(Scalar::U64)]), Ok(Type::I32));
        assert!(apply(name, &[f(Scalar::F32)]).is_err_and(|m| m.contains("takes integral inputs only")));
    }
    assert_eq!(apply("isnan", &[Type::Vector(Scalar::F32, 2)]), Ok(Type::Vector(Scalar::U1, 2)));
    assert_eq!(apply("atan2", &[f(Scalar::F16), f(Scalar::F16)]), Ok(f(Scalar::F32)));
    assert_eq!(apply("atan2", &[f(Scalar::I32), f(Scalar::F64)]), Ok(f(Scalar::F64)));
    assert_eq!(apply("abs", &[f(Scalar::U8)]), Ok(f(Scalar::U8)));
    assert_eq!(
        apply("max", &[Type::I32, Type::Vector(Scalar::I32, 2), f(Scalar::F32)]),
        Ok(Type::Vector(Scalar::F32, 2))
    );
    assert_eq!(apply("logical_and", &[Type::I32, Type::U1]), Ok(Type::I32));
    assert_eq!(apply("logical_not", &[Type::I32]), Ok(Type::U1));
    assert!(apply("max", &[]).is_err());
    assert_eq!(apply("sin", &[Type::I32, Type::I32]), Err("`sin` takes 1 argument, 2 given".into()));
    assert!(math(&mut Builder::new(), &f32_options(), "no_such_function", &[]).is_none());
    assert!(matches!(apply("frexp", &[f(Scalar::F64)]), Ok(Type::Struct(s)) if s.members[1].1 == Type::I32));
}

#[test]
fn selects() {
    let (v2, v3) = (Type::Vector(Scalar::I32, 2), Type::Vector(Scalar::F32, 3));
    assert_eq!(apply("select", &[Type::I32, Type::I32, Scalar::F64.into()]), Ok(Scalar::F64.into()));
    assert_eq!(apply("select", &[v2.clone(), Type::I32, Type::I32]), Ok(v2.clone()));
    assert_eq!(apply("select", &[Type::U1, v3.clone(), Type::I32]), Ok(v3.clone()));
    assert!(apply("select", &[Type::U1, v2.clone(), v3.clone()]).is_err_and(|m| m.contains("Cannot broadcast")));
    assert!(apply("select", &[v2, v3.clone(), v3]).is_err());
    assert!(apply("select", &[Scalar::F32.into(), Type::I32, Type::I32]).is_err());
}

#[test]
fn unary_operators() {
    let of = |op, ty: Type| {
        let mut b = Builder::new();
        let v = value(&mut b, ty);
        unary(&mut b, &f32_options(), op, v).map(|r| b.ty(r).clone()).map_err(|e| e.message)
    };
    for s in Scalar::ALL {
        assert_eq!(of(UnaryOperator::Neg, s.into()), Ok(s.into()));
        assert_eq!(of(UnaryOperator::Pos, s.into()), Ok(s.into()));
        if s.is_int() {
            assert_eq!(of(UnaryOperator::Invert, s.into()), Ok(s.into()));
            assert_eq!(of(UnaryOperator::Not, s.into()), Ok(Type::U1));
        } else {
            assert!(of(UnaryOperator::Invert, s.into()).is_err_and(|m| m.contains("takes integral inputs only")));
            assert!(of(UnaryOperator::Not, s.into()).is_err_and(|m| m.contains("takes integral inputs only")));
        }
    }
}

#[test]
fn conditions_are_integers() {
    let mut b = Builder::new();
    for (ty, ok) in
        [(Type::I32, true), (Type::U1, true), (Scalar::F32.into(), false), (Type::Vector(Scalar::I32, 2), false)]
    {
        let v = value(&mut b, ty.clone());
        let c = to_condition(&mut b, "if", v);
        assert_eq!(c.is_ok(), ok, "{ty}");
        if let Ok(c) = c {
            assert_eq!(b.ty(c), &Type::U1);
        }
    }
}

#[test]
fn stores_convert() {
    let mut b = Builder::new();
    let f = value(&mut b, Scalar::F64.into());
    let v2 = value(&mut b, Type::Vector(Scalar::F32, 2));
    let to_vector = Type::Vector(Scalar::I32, 2);
    for (v, to) in [(f, Type::I32), (f, to_vector.clone()), (v2, to_vector.clone())] {
        let r = assign_cast(&mut b, v, &to).expect("converts");
        assert_eq!(b.ty(r), &to);
    }
    let error = assign_cast(&mut b, v2, &Type::Vector(Scalar::I32, 3)).expect_err("shapes differ");
    assert_eq!(error.message, "cannot assign '[Tensor (2) f32]' to '[Tensor (3) i32]'");
    assert!(assign_cast(&mut b, v2, &Type::I32).is_err());

    let named = |name: &str, s: Scalar| {
        Type::Struct(Arc::new(StructType { name: name.into(), members: vec![("x".into(), s.into())] }))
    };
    let v = value(&mut b, named("A", Scalar::F64));
    let to = named("B", Scalar::F32);
    let r = assign_cast(&mut b, v, &to).expect("members agree");
    assert_eq!(b.ty(r), &to);
}

#[test]
fn bit_casts_require_equal_widths() {
    let mut b = Builder::new();
    let v = value(&mut b, Type::Vector(Scalar::F32, 2));
    let r = bit_cast(&mut b, v, Scalar::U32).expect("32 bits each");
    assert_eq!(b.ty(r), &Type::Vector(Scalar::U32, 2));
    assert!(bit_cast(&mut b, v, Scalar::U64).is_err());
}

#[test]
fn overflow_is_checked_for_integer_scalars() {
    let o = [Operator::Add, Operator::Sub, Operator::Mul, Operator::Shl];
    for s in Scalar::ALL {
        for op in o {
            let mut b = Builder::new();
            let (l, r) = (value(&mut b, s.into()), value(&mut b, s.into()));
            let flag = overflow(&mut b, op, l, r);
            assert_eq!(flag.is_some(), s.is_int() && s != Scalar::U1, "{} {s}", op.symbol());
            if let Some((flag, _)) = flag {
                assert_eq!(b.ty(flag), &Type::U1);
            }
        }
    }
    let mut b = Builder::new();
    let (l, r) = (value(&mut b, Type::I32), value(&mut b, Type::I32));
    assert!(overflow(&mut b, Operator::Mod, l, r).is_none());
}
