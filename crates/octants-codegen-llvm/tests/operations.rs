//! Every scalar operation on every scalar type, against the same computed in Rust.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_codegen_llvm::CodegenOptions;
use octants_ir::*;
use programs::*;

/// A serial kernel of scalar parameters `a`, `b` of type `s` that returns all the values built.
fn returns(s: Scalar, build: impl FnOnce(&mut Builder, ValueId, ValueId) -> Vec<ValueId>) -> Program {
    let mut b = Builder::new();
    let (x, y) = (b.push(Op::Param(0), s.into()), b.push(Op::Param(1), s.into()));
    let values = build(&mut b, x, y);
    let members: Vec<_> = values.iter().enumerate().map(|(i, v)| (format!("m{i}"), b.ty(*v).clone())).collect();
    let ret = Type::Struct(std::sync::Arc::new(StructType { name: "R".into(), members }));
    let all = b.push(Op::MakeStruct(values), ret.clone());
    b.push(Op::Return(Some(all)), Type::Unit);
    program(vec![], vec![("a", s.into()), ("b", s.into())], ret, false, b.body)
}

fn mask(s: Scalar) -> u64 {
    if s.bits() == 64 { u64::MAX } else { (1 << s.bits()) - 1 }
}

fn signed(v: i128, s: Scalar) -> i128 {
    let v = v & i128::from(mask(s));
    if s.is_signed() && v >> (s.bits() - 1) & 1 == 1 { v - (1 << s.bits()) } else { v }
}

const INT_OPS: [BinaryOp; 22] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::FloorDiv,
    BinaryOp::Mod,
    BinaryOp::Rem,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::UShr,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
    BinaryOp::Pow,
];

fn int_reference(op: BinaryOp, a: i128, b: i128, s: Scalar) -> i128 {
    let shift = (b & i128::from(s.bits() - 1)) as u32;
    let floor = |a: i128, b: i128| a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0);
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a / b,
        BinaryOp::FloorDiv => floor(a, b),
        BinaryOp::Mod => a - b * floor(a, b),
        BinaryOp::Rem => a % b,
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << shift,
        BinaryOp::Shr => a >> shift,
        BinaryOp::UShr => (a & i128::from(mask(s))) >> shift,
        BinaryOp::Eq => i128::from(a == b),
        BinaryOp::Ne => i128::from(a != b),
        BinaryOp::Lt => i128::from(a < b),
        BinaryOp::Le => i128::from(a <= b),
        BinaryOp::Gt => i128::from(a > b),
        BinaryOp::Ge => i128::from(a >= b),
        BinaryOp::Pow if b < 0 => match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        },
        BinaryOp::Pow => {
            let mut r: i128 = 1;
            for _ in 0..b {
                r = signed(r.wrapping_mul(a), s);
            }
            r
        }
        BinaryOp::Atan2 => unreachable!(),
    }
}

const INTS: [Scalar; 8] =
    [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64, Scalar::U8, Scalar::U16, Scalar::U32, Scalar::U64];

#[test]
fn integer_operations_wrap_and_follow_python_and_c() {
    let values: [i128; 9] = [0, 1, -1, 2, 7, -7, 13, 100, i128::MIN];
    for s in INTS {
        let loaded = build(&returns(s, |b, x, y| INT_OPS.iter().map(|op| b.binary(*op, x, y)).collect()));
        for a in values {
            for b in values {
                // The last entry is replaced by the smallest signed, or the largest unsigned value.
                let fix = |v: i128| match v {
                    i128::MIN if s.is_signed() => -(1i128 << (s.bits() - 1)),
                    i128::MIN => i128::from(mask(s)),
                    v => signed(v, s),
                };
                let (a, b) = (fix(a), fix(b));
                let out = loaded.run(&[a as u64 & mask(s), b as u64 & mask(s)], Run::default());
                for (op, got) in INT_OPS.iter().zip(&out.result) {
                    let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::Rem);
                    if divides && b == 0 || *op == BinaryOp::Pow && b > 1000 {
                        continue;
                    }
                    let expected = int_reference(*op, a, b, s);
                    let expected = if op.is_comparison() { expected as u64 } else { expected as u64 & mask(s) };
                    assert_eq!(*got, expected, "{a} {op:?} {b} in {s}");
                }
            }
        }
    }
}

#[test]
fn constant_divisors_and_exponents_keep_results() {
    for c in [1, 2, 3, 8, -1, -3, -8] {
        let ops = [BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod, BinaryOp::Rem];
        let loaded = build(&returns(Scalar::I32, |b, x, _| {
            let k = b.int(c, Scalar::I32);
            ops.iter().map(|op| b.binary(*op, x, k)).collect()
        }));
        for a in [-17, -16, -1, 0, 5, 16, i128::from(i32::MIN)] {
            let out = loaded.run(&[a as u32 as u64, 0], Run::default());
            for (op, got) in ops.iter().zip(&out.result) {
                let expected = int_reference(*op, a, i128::from(c), Scalar::I32) as u32;
                assert_eq!(*got as u32, expected, "{a} {op:?} {c}");
            }
        }
    }
    let exponents = [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, 7.0, 2.5];
    let loaded = build(&returns(Scalar::F64, |b, x, _| {
        exponents
            .iter()
            .map(|e| {
                let e = b.float(*e, Scalar::F64);
                b.binary(BinaryOp::Pow, x, e)
            })
            .collect()
    }));
    let out = loaded.run(&[1.7f64.to_bits(), 0], Run::default());
    for (e, got) in exponents.iter().zip(&out.result) {
        assert!((f64::from_bits(*got) - 1.7f64.powf(*e)).abs() < 1e-12, "{e}");
    }
}

#[test]
fn division_by_zero_does_not_trap() {
    for s in INTS {
        let ops = [BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod, BinaryOp::Rem];
        let loaded = build(&returns(s, |b, x, y| ops.iter().map(|op| b.binary(*op, x, y)).collect()));
        loaded.run(&[5, 0], Run::default());
    }
}

#[test]
fn bit_counts_are_i32() {
    for s in INTS {
        let ops =
            [UnaryOp::Popcnt, UnaryOp::Clz, UnaryOp::Ffs, UnaryOp::BitNot, UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sgn];
        let loaded = build(&returns(s, |b, x, _| ops.iter().map(|op| b.unary(*op, x)).collect()));
        for v in [0i128, 1, -1, 6, 96, -128] {
            let bits = v as u64 & mask(s);
            let v = signed(v, s);
            let out = loaded.run(&[bits, 0], Run::default()).result;
            let clz = bits.leading_zeros() - (64 - s.bits());
            let ffs = if bits == 0 { 0 } else { bits.trailing_zeros() + 1 };
            let expected = [
                u64::from(bits.count_ones()),
                u64::from(clz),
                u64::from(ffs),
                !bits & mask(s),
                (-v) as u64 & mask(s),
                v.unsigned_abs() as u64 & mask(s),
                v.signum() as u64 & mask(s),
            ];
            assert_eq!(out, expected, "{v} in {s}");
        }
    }
}

#[test]
fn float_operations() {
    for s in [Scalar::F32, Scalar::F64, Scalar::F16] {
        for fast_math in [false, true] {
            let binary = [
                BinaryOp::Add,
                BinaryOp::Sub,
                BinaryOp::Mul,
                BinaryOp::Div,
                BinaryOp::FloorDiv,
                BinaryOp::Mod,
                BinaryOp::Rem,
                BinaryOp::Pow,
                BinaryOp::Atan2,
                BinaryOp::Min,
                BinaryOp::Max,
            ];
            let unary = [
                UnaryOp::Neg,
                UnaryOp::Abs,
                UnaryOp::Sgn,
                UnaryOp::Floor,
                UnaryOp::Ceil,
                UnaryOp::Round,
                UnaryOp::Trunc,
                UnaryOp::Sin,
                UnaryOp::Exp,
                UnaryOp::Rsqrt,
            ];
            let p = returns(s, |b, x, y| {
                let mut out: Vec<_> = binary.iter().map(|op| b.binary(*op, x, y)).collect();
                out.extend(unary.iter().map(|op| b.unary(*op, x)));
                out.into_iter().map(|v| b.cast(v, Scalar::F64)).collect()
            });
            let loaded = build_with(&p, &CodegenOptions { fast_math, ..CodegenOptions::default() });
            for (x, y) in [(7.5f64, 2.0f64), (2.5, -0.75), (0.5, 3.0), (3.5, 3.5)] {
                let bits = |v: f64| match s {
                    Scalar::F32 => u64::from((v as f32).to_bits()),
                    Scalar::F16 => half_bits(v),
                    _ => v.to_bits(),
                };
                let out = loaded.run(&[bits(x), bits(y)], Run::default()).result;
                let floor = (x / y).floor();
                let expected = [
                    x + y,
                    x - y,
                    x * y,
                    x / y,
                    floor,
                    x - y * floor,
                    x % y,
                    x.powf(y),
                    x.atan2(y),
                    x.min(y),
                    x.max(y),
                    -x,
                    x.abs(),
                    x.signum(),
                    x.floor(),
                    x.ceil(),
                    x.round(),
                    x.trunc(),
                    x.sin(),
                    x.exp(),
                    1.0 / x.sqrt(),
                ];
                let tolerance = if s == Scalar::F16 {
                    2e-3
                } else if s == Scalar::F32 {
                    2e-6
                } else {
                    1e-14
                };
                for (i, (got, want)) in out.iter().zip(expected).enumerate() {
                    let got = f64::from_bits(*got);
                    assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{s} {x} {y} #{i}: {got} {want}");
                }
            }
        }
    }
}

/// Bits of a number that f16 holds exactly.
fn half_bits(v: f64) -> u64 {
    let bits = (v as f32).to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    u64::from(bits >> 16 & 0x8000 | (exponent as u32) << 10 | bits >> 13 & 0x3ff)
}

#[test]
fn nan_and_infinity_are_recognized_under_fast_math() {
    let p = returns(Scalar::F32, |b, x, y| {
        let q = b.binary(BinaryOp::Div, x, y);
        let (n, i) = (b.unary(UnaryOp::IsNan, q), b.unary(UnaryOp::IsInf, q));
        let ne = b.binary(BinaryOp::Ne, q, q);
        vec![n, i, ne]
    });
    let loaded = build(&p);
    let run = |x: f32, y: f32| loaded.run(&[x.to_bits().into(), y.to_bits().into()], Run::default()).result;
    assert_eq!(run(0.0, 0.0), [1, 0, 1]);
    assert_eq!(run(1.0, 0.0), [0, 1, 0]);
    assert_eq!(run(-1.0, 0.0), [0, 1, 0]);
    assert_eq!(run(1.0, 2.0), [0, 0, 0]);
}

#[test]
fn casts_between_all_scalars() {
    for from in Scalar::ALL {
        let loaded = build(&returns(from, |b, x, _| Scalar::ALL.iter().map(|to| b.cast(x, *to)).collect()));
        for v in [0i64, 1, 100, -3] {
            if v < 0 && from.is_unsigned() || from == Scalar::U1 && v > 1 {
                continue;
            }
            let bits = match from {
                Scalar::F64 => (v as f64).to_bits(),
                Scalar::F32 => u64::from((v as f32).to_bits()),
                Scalar::F16 => {
                    if v == 0 {
                        0
                    } else {
                        half_bits(v as f64)
                    }
                }
                s => v as u64 & mask(s),
            };
            let out = loaded.run(&[bits, 0], Run::default()).result;
            for (to, got) in Scalar::ALL.iter().zip(out) {
                let expected = match to {
                    Scalar::F64 => (v as f64).to_bits(),
                    Scalar::F32 => u64::from((v as f32).to_bits()),
                    Scalar::F16 => {
                        if v == 0 {
                            0
                        } else {
                            half_bits(v as f64)
                        }
                    }
                    Scalar::U1 => u64::from(v != 0),
                    // Out of range for floats: any number.
                    s if v < 0 && s.is_unsigned() && from.is_float() => continue,
                    s => v as u64 & mask(*s),
                };
                assert_eq!(got, expected, "{v}: {from} to {to}");
            }
        }
    }
    let loaded = build(&returns(Scalar::F64, |b, x, y| {
        let (i, u) = (b.cast(x, Scalar::I32), b.cast(y, Scalar::U1));
        vec![i, u]
    }));
    assert_eq!(loaded.run(&[(-2.9f64).to_bits(), 0.5f64.to_bits()], Run::default()).result, [-2i32 as u32 as u64, 1]);
}

#[test]
fn bitcast_keeps_bits_and_select_selects() {
    let p = returns(Scalar::F32, |b, x, y| {
        let i = b.push(Op::Bitcast(x), Type::I32);
        let back = b.push(Op::Bitcast(i), Scalar::F32.into());
        let less = b.binary(BinaryOp::Lt, x, y);
        let not = b.unary(UnaryOp::LogicNot, less);
        let s = b.push(Op::Select(not, x, y), Scalar::F32.into());
        vec![i, back, s]
    });
    let (x, y) = (1.5f32.to_bits(), 2.5f32.to_bits());
    let out = build(&p).run(&[x.into(), y.into()], Run::default()).result;
    assert_eq!(out, [u64::from(x), x.into(), y.into()]);
}

#[test]
fn denormals_are_flushed_only_under_fast_math() {
    let p = returns(Scalar::F32, |b, x, y| {
        let c = b.float(1e-45, Scalar::F32);
        let product = b.binary(BinaryOp::Mul, x, y);
        vec![c, product]
    });
    let args = [u64::from(1e-20f32.to_bits()), u64::from(1e-20f32.to_bits())];
    if cfg!(target_arch = "x86_64") {
        assert_eq!(build(&p).run(&args, Run::default()).result, [0, 0]);
        // The caller's own arithmetic is as it was.
        assert!(std::hint::black_box(1e-20f32) * std::hint::black_box(1e-20f32) > 0.0);
    }
    let strict = CodegenOptions { fast_math: false, ..CodegenOptions::default() };
    let out = build_with(&p, &strict).run(&args, Run::default()).result;
    assert_eq!(out, [1, u64::from((1e-20f32 * 1e-20f32).to_bits())]);
}

#[test]
fn only_code_that_computes_with_floats_changes_the_processors_mode() {
    let flushes = |p: &Program| build(p).artifact.tasks.iter().any(|t| t.flushes_denormals);
    let copies = returns(Scalar::F32, |b, x, y| {
        let one = b.float(1.0, Scalar::F32);
        let pair = b.push(Op::MakeTensor(vec![x, y]), Type::Vector(Scalar::F32, 2));
        vec![one, x, b.push(Op::Extract(pair, 1), Scalar::F32.into())]
    });
    let adds = returns(Scalar::F32, |b, x, y| vec![b.binary(BinaryOp::Add, x, y)]);
    let compares = returns(Scalar::F32, |b, x, y| vec![b.binary(BinaryOp::Lt, x, y)]);
    let integers = returns(Scalar::I32, |b, x, y| vec![b.binary(BinaryOp::Add, x, y)]);
    assert!(!flushes(&copies) && !flushes(&integers));
    assert_eq!((flushes(&adds), flushes(&compares)), (cfg!(target_arch = "x86_64"), cfg!(target_arch = "x86_64")));
}
