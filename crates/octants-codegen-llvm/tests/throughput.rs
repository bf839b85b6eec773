//! How fast the code runs on one thread: `cargo test --test throughput -- --ignored --nocapture`.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use std::time::Instant;

use jit::*;
use octants_codegen_llvm::CodegenOptions;
use octants_ir::*;
use programs::*;

const F32: Type = Type::Scalar(Scalar::F32);

fn f32_array(name: &str, ndim: u32) -> Buffer {
    array(name, Scalar::F32, ndim)
}

fn whole(b: &mut Builder) -> Vec<(ValueId, ValueId)> {
    let zero = b.int(0, Scalar::I32);
    let n = shape(b, 0, 0);
    vec![(zero, n)]
}

fn triad() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    let s = b.push(Op::Param(0), F32);
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let i = index(b, l, 0);
        let x = get(b, 0, Scalar::F32, &[i]);
        let y = get(b, 1, Scalar::F32, &[i]);
        let v = b.binary(BinaryOp::Mul, s, y);
        let v = b.binary(BinaryOp::Add, x, v);
        set(b, 2, Scalar::F32, &[i], v);
    });
    let buffers = vec![f32_array("a", 1), f32_array("b", 1), f32_array("c", 1)];
    program(buffers, vec![("s", F32)], Type::Unit, true, b.body)
}

fn stencil() -> Program {
    let mut b = Builder::new();
    let one = b.int(1, Scalar::I32);
    let (n, m) = (shape(&mut b, 0, 0), shape(&mut b, 0, 1));
    let (n, m) = (b.binary(BinaryOp::Sub, n, one), b.binary(BinaryOp::Sub, m, one));
    for_loop(&mut b, vec![(one, n), (one, m)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let (up, down) = (b.binary(BinaryOp::Sub, i, one), b.binary(BinaryOp::Add, i, one));
        let (left, right) = (b.binary(BinaryOp::Sub, j, one), b.binary(BinaryOp::Add, j, one));
        let mut sum = get(b, 0, Scalar::F32, &[i, j]);
        for at in [[up, j], [down, j], [i, left], [i, right]] {
            let v = get(b, 0, Scalar::F32, &at);
            sum = b.binary(BinaryOp::Add, sum, v);
        }
        let c = b.float(0.2, Scalar::F32);
        let v = b.binary(BinaryOp::Mul, c, sum);
        set(b, 1, Scalar::F32, &[i, j], v);
    });
    program(vec![f32_array("a", 2), f32_array("b", 2)], vec![], Type::Unit, true, b.body)
}

fn map() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let i = index(b, l, 0);
        let x = get(b, 0, Scalar::F32, &[i]);
        let n = b.unary(UnaryOp::Neg, x);
        let (s, e, r) = (b.unary(UnaryOp::Sin, x), b.unary(UnaryOp::Exp, n), b.unary(UnaryOp::Sqrt, x));
        let v = b.binary(BinaryOp::Mul, s, e);
        let v = b.binary(BinaryOp::Add, v, r);
        set(b, 1, Scalar::F32, &[i], v);
    });
    program(vec![f32_array("a", 1), f32_array("b", 1)], vec![], Type::Unit, true, b.body)
}

fn reduce() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    let zero = b.int(0, Scalar::I32);
    let target = at(&mut b, 1, F32, &[zero]);
    for_loop(&mut b, dims, true, vec![Reduction { op: AtomicOp::Add, target, plain: false }], |b, l| {
        let i = index(b, l, 0);
        let v = get(b, 0, Scalar::F32, &[i]);
        b.push(Op::Reduce(0, v), Type::Unit);
    });
    program(vec![f32_array("a", 1), f32_array("s", 1)], vec![], Type::Unit, true, b.body)
}

fn max() -> Program {
    let mut p = reduce();
    for inst in &mut p.tasks[0].body.insts {
        if let Op::For(l) = &mut inst.op {
            l.reductions[0].op = AtomicOp::Max;
        }
    }
    p
}

fn hist() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let i = index(b, l, 0);
        let bin = get(b, 0, Scalar::I32, &[i]);
        let one = b.int(1, Scalar::I32);
        let a = at(b, 1, Scalar::I32, &[bin]);
        b.push(Op::Atomic(AtomicOp::Add, a, one), Type::I32);
    });
    program(vec![array("x", Scalar::I32, 1), array("h", Scalar::I32, 1)], vec![], Type::Unit, true, b.body)
}

fn nbody() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    let sums: Vec<LocalId> = ["sx", "sy", "sz"].iter().map(|n| b.body.add_local(*n, F32)).collect();
    for_loop(&mut b, dims.clone(), true, vec![], |b, l| {
        let i = index(b, l, 0);
        let p: Vec<_> = (0..3).map(|k| get(b, k, Scalar::F32, &[i])).collect();
        let zero = b.float(0.0, Scalar::F32);
        let addresses: Vec<_> = sums.iter().map(|s| b.local_addr(*s)).collect();
        for a in &addresses {
            b.store(*a, zero);
        }
        for_loop(b, dims, false, vec![], |b, l| {
            let j = index(b, l, 0);
            let d: Vec<_> = (0..3)
                .map(|k| {
                    let q = get(b, k, Scalar::F32, &[j]);
                    b.binary(BinaryOp::Sub, q, p[k as usize])
                })
                .collect();
            let mut r2 = b.binary(BinaryOp::Mul, d[0], d[0]);
            for d in &d[1..] {
                let s = b.binary(BinaryOp::Mul, *d, *d);
                r2 = b.binary(BinaryOp::Add, r2, s);
            }
            let eps = b.float(1e-3, Scalar::F32);
            let r2 = b.binary(BinaryOp::Add, r2, eps);
            let root = b.unary(UnaryOp::Sqrt, r2);
            let one = b.float(1.0, Scalar::F32);
            let inv = b.binary(BinaryOp::Div, one, root);
            let inv2 = b.binary(BinaryOp::Mul, inv, inv);
            let inv3 = b.binary(BinaryOp::Mul, inv2, inv);
            for (d, a) in d.iter().zip(&addresses) {
                let f = b.binary(BinaryOp::Mul, *d, inv3);
                let old = b.load(*a);
                let new = b.binary(BinaryOp::Add, old, f);
                b.store(*a, new);
            }
        });
        for (k, a) in (3..).zip(&addresses) {
            let v = b.load(*a);
            set(b, k, Scalar::F32, &[i], v);
        }
    });
    let buffers = ["x", "y", "z", "ax", "ay", "az"].iter().map(|n| f32_array(n, 1)).collect();
    program(buffers, vec![], Type::Unit, true, b.body)
}

fn mandel() -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    let (zx, zy, it) = (b.body.add_local("zx", F32), b.body.add_local("zy", F32), b.body.add_local("it", Type::I32));
    for_loop(&mut b, vec![(zero, n), (zero, n)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let nf = b.cast(n, Scalar::F32);
        let coordinate = |b: &mut Builder, i, base| {
            let f = b.cast(i, Scalar::F32);
            let (three, base) = (b.float(3.0, Scalar::F32), b.float(base, Scalar::F32));
            let v = b.binary(BinaryOp::Mul, three, f);
            let v = b.binary(BinaryOp::Div, v, nf);
            b.binary(BinaryOp::Add, base, v)
        };
        let (cx, cy) = (coordinate(b, j, -2.0), coordinate(b, i, -1.5));
        let (zxa, zya, ita) = (b.local_addr(zx), b.local_addr(zy), b.local_addr(it));
        let body = b.body.add_block();
        b.push(Op::Loop(body), Type::Unit);
        let here = b.set_cursor(body);
        let (x, y, k) = (b.load(zxa), b.load(zya), b.load(ita));
        let (xx, yy) = (b.binary(BinaryOp::Mul, x, x), b.binary(BinaryOp::Mul, y, y));
        let r = b.binary(BinaryOp::Add, xx, yy);
        let (four, limit) = (b.float(4.0, Scalar::F32), b.int(256, Scalar::I32));
        let (near, few) = (b.binary(BinaryOp::Lt, r, four), b.binary(BinaryOp::Lt, k, limit));
        let go = b.binary(BinaryOp::And, near, few);
        if_else(
            b,
            go,
            |_| {},
            |b| {
                b.push(Op::Break, Type::Unit);
            },
        );
        let t = b.binary(BinaryOp::Sub, xx, yy);
        let t = b.binary(BinaryOp::Add, t, cx);
        let (two, one) = (b.float(2.0, Scalar::F32), b.int(1, Scalar::I32));
        let y2 = b.binary(BinaryOp::Mul, two, x);
        let y2 = b.binary(BinaryOp::Mul, y2, y);
        let y2 = b.binary(BinaryOp::Add, y2, cy);
        b.store(zya, y2);
        b.store(zxa, t);
        let k = b.binary(BinaryOp::Add, k, one);
        b.store(ita, k);
        b.set_cursor(here);
        let k = b.load(ita);
        set(b, 0, Scalar::I32, &[i, j], k);
    });
    program(vec![array("o", Scalar::I32, 2)], vec![], Type::Unit, true, b.body)
}

/// Draws a number per element.
fn draw() -> Program {
    let mut b = Builder::new();
    let dims = whole(&mut b);
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let i = index(b, l, 0);
        let v = b.push(Op::Random, F32);
        set(b, 0, Scalar::F32, &[i], v);
    });
    program(vec![f32_array("a", 1)], vec![], Type::Unit, true, b.body)
}

#[test]
#[ignore = "a measurement"]
fn measure() {
    let n = 1usize << 24;
    let mut memory: Vec<Vec<f32>> =
        (0..6).map(|k| (0..n).map(|i| ((i * (2 * k + 7919)) % 1_000_003) as f32 / 1_000_003.0).collect()).collect();
    let mut bins: Vec<i32> = (0..1 << 23).map(|i: i64| (i * 7919 % 1_000_003 % 256) as i32).collect();
    let p: Vec<u64> = memory.iter_mut().map(|m| ptr(m)).collect();
    let x = ptr(&mut bins);
    let (n, s) = (n as u64, 4096u64);
    let vectors: Vec<u64> = p.iter().flat_map(|p| [*p, 4096]).collect();
    let three = u64::from(3f32.to_bits());
    let cases: Vec<(&str, Program, Vec<u64>, f64, &str)> = vec![
        ("triad", triad(), vec![p[0], n, p[1], n, p[2], n, three], 12.0 * n as f64 / 1e9, "GB/s"),
        ("stencil", stencil(), vec![p[0], s, s, p[1], s, s], 8.0 * (s * s) as f64 / 1e9, "GB/s"),
        ("map", map(), vec![p[0], 1 << 22, p[1], 1 << 22], f64::from(1 << 22) / 1e9, "Gelem/s"),
        ("reduce", reduce(), vec![p[0], n, p[3], 1], 4.0 * n as f64 / 1e9, "GB/s"),
        ("max", max(), vec![p[0], n, p[3], 1], 4.0 * n as f64 / 1e9, "GB/s"),
        ("hist", hist(), vec![x, 1 << 23, p[4], 256], f64::from(1 << 23) / 1e9, "Gelem/s"),
        ("nbody", nbody(), vectors, 20.0 * 4096.0 * 4096.0 / 1e9, "GFLOP/s"),
        ("mandel", mandel(), vec![p[5], 768, 768], 768.0 * 768.0 / 1e6, "Mpix/s"),
        ("draw", draw(), vec![p[5], 1 << 22], f64::from(1 << 22) / 1e9, "Gelem/s"),
    ];
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, program, args, work, unit) in cases {
        if !name.contains(&only) {
            continue;
        }
        let mut line = format!("{name:8}");
        for bits in [256, 512] {
            let options = CodegenOptions { vector_bits: Some(bits), ..CodegenOptions::default() };
            let start = Instant::now();
            let loaded = build_with(&program, &options);
            let compile = start.elapsed().as_secs_f64() * 1e3;
            for single in [false, true] {
                let mut best = f64::MAX;
                for _ in 0..7 {
                    let start = Instant::now();
                    loaded.run(&args, Run { single, ..Run::default() });
                    best = best.min(start.elapsed().as_secs_f64());
                }
                line += &format!("  {bits}{} {:8.2}", if single { "s" } else { " " }, work / best);
            }
            line += &format!("  ({compile:.0} ms)");
        }
        println!("{line} {unit}");
    }
}
