//! Parallel and serial loops over arrays: bounds, chunk boundaries, control flow, reductions.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_ir::*;
use programs::*;

const F32: Type = Type::Scalar(Scalar::F32);

/// y[i] = a * x[i] + y[i]
fn saxpy() -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    let a = b.push(Op::Param(0), F32);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let xa = at(b, 0, Scalar::F32, &[i]);
        let x = b.load(xa);
        let ya = at(b, 1, Scalar::F32, &[i]);
        let y = b.load(ya);
        let ax = b.binary(BinaryOp::Mul, a, x);
        let sum = b.binary(BinaryOp::Add, ax, y);
        b.store(ya, sum);
    });
    program(vec![array("x", Scalar::F32, 1), array("y", Scalar::F32, 1)], vec![("a", F32)], Type::Unit, true, b.body)
}

#[test]
fn saxpy_runs_for_every_chunk_size() {
    let loaded = build(&saxpy());
    for chunk in [1, 3, 7, 64, 1000] {
        let mut x: Vec<f32> = (0..1003).map(|i| i as f32).collect();
        let mut y = vec![1.0f32; 1003];
        let args = [ptr(&mut x), 1003, ptr(&mut y), 1003, u64::from(2.0f32.to_bits())];
        let out = loaded.run(&args, Run { chunk, ..Run::default() });
        assert_eq!(out.counts, [1003]);
        assert!(y.iter().enumerate().all(|(i, y)| *y == 2.0 * i as f32 + 1.0));
    }
}

/// out[i, j, k] = 10000 i + 100 j + k for ranges that do not start at zero.
#[test]
fn loops_over_boxes_decode_any_chunk() {
    let mut b = Builder::new();
    let c = |b: &mut Builder, v| b.int(v, Scalar::I32);
    let dims: Vec<_> = [(1, 6), (2, 9), (-3, 4)].into_iter().map(|(x, y)| (c(&mut b, x), c(&mut b, y))).collect();
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let (i, j, k) = (index(b, l, 0), index(b, l, 1), index(b, l, 2));
        let (h, t) = (c(b, 100), c(b, 3));
        let v = b.binary(BinaryOp::Mul, i, h);
        let v = b.binary(BinaryOp::Add, v, j);
        let v = b.binary(BinaryOp::Mul, v, h);
        let v = b.binary(BinaryOp::Add, v, k);
        let k = b.binary(BinaryOp::Add, k, t);
        let a = at(b, 0, Scalar::I32, &[i, j, k]);
        b.store(a, v);
    });
    let p = program(vec![array("out", Scalar::I32, 3)], vec![], Type::Unit, true, b.body);
    let loaded = build(&p);
    assert_eq!(loaded.artifact.tasks[0].parallel.as_ref().unwrap().inner_extent, Some(7));
    for chunk in [1, 2, 5, 6, 7, 8, 20, 49, 1000] {
        let mut out = vec![-1i32; 6 * 9 * 7];
        let run = loaded.run(&[ptr(&mut out), 6, 9, 7], Run { chunk, ..Run::default() });
        assert_eq!(run.counts, [5 * 7 * 7]);
        for (at, v) in out.iter().enumerate() {
            let (i, j, k) = (at as i32 / 63, at as i32 / 7 % 9, at as i32 % 7 - 3);
            let inside = i >= 1 && j >= 2;
            assert_eq!(*v, if inside { (i * 100 + j) * 100 + k } else { -1 });
        }
    }
}

#[test]
fn an_empty_axis_makes_the_loop_empty() {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let (n, m) = (shape(&mut b, 0, 0), shape(&mut b, 0, 1));
    for_loop(&mut b, vec![(zero, n), (zero, m)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let a = at(b, 0, Scalar::I32, &[i, j]);
        let one = b.int(1, Scalar::I32);
        b.store(a, one);
    });
    let loaded = build(&program(vec![array("out", Scalar::I32, 2)], vec![], Type::Unit, true, b.body));
    let mut out = vec![0i32; 4];
    assert_eq!(loaded.run(&[ptr(&mut out), 4, 0], Run::default()).counts, [0]);
    assert_eq!(loaded.run(&[ptr(&mut out), 2, 2], Run::default()).counts, [4]);
    assert_eq!(out, [1; 4]);
}

/// Serial: sum of odd i below n, leaving at 50, with continue, break, while-true and nested N-D loops.
#[test]
fn break_and_continue_apply_to_the_innermost_loop() {
    let mut b = Builder::new();
    let total = b.body.add_local("total", Type::I32);
    let steps = b.body.add_local("steps", Type::I32);
    let (zero, one, n) = (b.int(0, Scalar::I32), b.int(1, Scalar::I32), b.push(Op::Param(0), Type::I32));
    let add = |b: &mut Builder, l: LocalId, v: ValueId| {
        let a = b.local_addr(l);
        let old = b.load(a);
        let new = b.binary(BinaryOp::Add, old, v);
        b.store(a, new);
    };
    for_loop(&mut b, vec![(zero, n)], false, vec![], |b, l| {
        let i = index(b, l, 0);
        let (two, fifty) = (b.int(2, Scalar::I32), b.int(50, Scalar::I32));
        let odd = b.binary(BinaryOp::Mod, i, two);
        let even = b.binary(BinaryOp::Eq, odd, zero);
        if_else(
            b,
            even,
            |b| {
                b.push(Op::Continue, Type::Unit);
            },
            |_| {},
        );
        let late = b.binary(BinaryOp::Gt, i, fifty);
        if_else(
            b,
            late,
            |b| {
                b.push(Op::Break, Type::Unit);
            },
            |_| {},
        );
        add(b, total, i);
    });
    // A two-dimensional serial loop is one loop: break leaves both axes.
    let ten = b.int(10, Scalar::I32);
    for_loop(&mut b, vec![(zero, ten), (zero, ten)], false, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let sum = b.binary(BinaryOp::Add, i, j);
        let hit = b.binary(BinaryOp::Eq, sum, ten);
        if_else(
            b,
            hit,
            |b| {
                b.push(Op::Break, Type::Unit);
            },
            |_| {},
        );
        add(b, steps, one);
    });
    let forever = b.body.add_block();
    b.push(Op::Loop(forever), Type::Unit);
    let here = b.set_cursor(forever);
    add(&mut b, steps, one);
    let a = b.local_addr(steps);
    let s = b.load(a);
    let limit = b.int(100, Scalar::I32);
    let stop = b.binary(BinaryOp::Ge, s, limit);
    if_else(
        &mut b,
        stop,
        |b| {
            b.push(Op::Break, Type::Unit);
        },
        |_| {},
    );
    b.set_cursor(here);
    let (ta, sa) = (b.local_addr(total), b.local_addr(steps));
    let (t, s) = (b.load(ta), b.load(sa));
    let v = b.push(Op::MakeTensor(vec![t, s]), Type::Vector(Scalar::I32, 2));
    b.push(Op::Return(Some(v)), Type::Unit);
    let p = program(vec![], vec![("n", Type::I32)], Type::Vector(Scalar::I32, 2), false, b.body);
    let loaded = build(&p);
    assert_eq!(loaded.run(&[1000], Run::default()).result, [625, 100]);
    assert_eq!(loaded.run(&[6], Run::default()).result, [9, 100]);
}

#[test]
fn reductions_fold_into_the_target_once_per_chunk() {
    let cases: [(AtomicOp, i32); 7] = [
        (AtomicOp::Add, 5 + 500_500),
        (AtomicOp::Sub, 5 - 500_500),
        (AtomicOp::Min, 1),
        (AtomicOp::Max, 1000),
        (AtomicOp::And, 0),
        (AtomicOp::Or, 1023),
        (AtomicOp::Xor, 5 ^ 1000),
    ];
    for (op, expected) in cases {
        let loaded = build(&reduction(op, Scalar::I32));
        for single in [false, true] {
            let mut x: Vec<i32> = (1..=1000).collect();
            let mut out = [5i32];
            let args = [ptr(&mut x), 1000, ptr(&mut out), 1];
            loaded.run(&args, Run { chunk: 77, single, ..Run::default() });
            assert_eq!(out[0], expected, "{op:?}");
        }
    }
    for (op, expected) in [(AtomicOp::Add, 500_502.5f64), (AtomicOp::Min, 1.0), (AtomicOp::Max, 1000.0)] {
        let loaded = build(&reduction(op, Scalar::F64));
        let mut x: Vec<f64> = (1..=1000).map(f64::from).collect();
        let mut out = [2.5f64];
        loaded.run(&[ptr(&mut x), 1000, ptr(&mut out), 1], Run { chunk: 130, ..Run::default() });
        assert_eq!(out[0], expected, "{op:?}");
    }
}

#[test]
fn a_half_precision_sum_keeps_small_terms() {
    // In half precision the sum would stay at 2048, because 2049 is not representable.
    let (one, three_thousand) = (0x3c00u16, 0x69dcu16);
    let mut x = [one; 3000];
    for (op, wanted) in [(AtomicOp::Add, three_thousand), (AtomicOp::Sub, three_thousand | 0x8000)] {
        let loaded = build(&reduction(op, Scalar::F16));
        let mut out = [0u16];
        loaded.run(&[ptr(&mut x), 3000, ptr(&mut out), 1], Run::default());
        assert_eq!(out[0], wanted, "{op:?}");
    }
}

#[test]
fn locals_start_at_zero_in_every_iteration() {
    let mut b = Builder::new();
    let local = b.body.add_local("v", Type::Vector(Scalar::I32, 20));
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let base = b.local_addr(local);
        let twenty = b.int(20, Scalar::I32);
        let slot = b.binary(BinaryOp::Mod, i, twenty);
        let e = b.element_addr(base, vec![slot]);
        let old = b.load(e);
        let one = b.int(1, Scalar::I32);
        let new = b.binary(BinaryOp::Add, old, one);
        b.store(e, new);
        let all = b.load(base);
        let sum = b.push(Op::Fold(ReduceOp::Add, all), Type::I32);
        let a = at(b, 0, Scalar::I32, &[i]);
        b.store(a, sum);
    });
    let loaded = build(&program(vec![array("out", Scalar::I32, 1)], vec![], Type::Unit, true, b.body));
    let mut out = vec![0i32; 100];
    loaded.run(&[ptr(&mut out), 100], Run::default());
    assert_eq!(out, [1; 100]);
}
