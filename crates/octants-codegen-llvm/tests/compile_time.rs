//! Compile-time benchmarks: `cargo nextest run --run-ignored all -E 'binary(compile_time)' --no-capture`.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod scheduled;

use std::time::Instant;

use octants_codegen_llvm::{CodegenOptions, Listing};
use octants_ir::*;
use programs::*;
use scheduled::{compile_host, list_host};

/// y[i] = k * x[i] + i
fn small(k: i64) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let a = at(b, 0, Scalar::F32, &[i]);
        let x = b.load(a);
        let k = b.float(k as f64, Scalar::F32);
        let v = b.binary(BinaryOp::Mul, x, k);
        let f = b.cast(i, Scalar::F32);
        let v = b.binary(BinaryOp::Add, v, f);
        let a = at(b, 1, Scalar::F32, &[i]);
        b.store(a, v);
    });
    program(vec![array("x", Scalar::F32, 1), array("y", Scalar::F32, 1)], vec![], Type::Unit, true, b.body)
}

/// A loop body of `n` dependent statements, with a branch now and then.
fn long(n: usize) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let count = shape(&mut b, 0, 0);
    let locals: Vec<LocalId> = (0..8).map(|i| b.body.add_local(format!("v{i}"), Scalar::F32.into())).collect();
    for_loop(&mut b, vec![(zero, count)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let a = at(b, 0, Scalar::F32, &[i]);
        let x = b.load(a);
        for (k, local) in locals.iter().enumerate() {
            let c = b.float(k as f64, Scalar::F32);
            let v = b.binary(BinaryOp::Add, x, c);
            let a = b.local_addr(*local);
            b.store(a, v);
        }
        for k in 0..n {
            let (p, q, r) = (locals[k % 8], locals[(k * 3 + 1) % 8], locals[(k * 5 + 2) % 8]);
            let statement = |b: &mut Builder| {
                let (pa, qa, ra) = (b.local_addr(p), b.local_addr(q), b.local_addr(r));
                let (pv, qv) = (b.load(pa), b.load(qa));
                let c = b.float(0.5 + k as f64, Scalar::F32);
                let v = b.binary(BinaryOp::Mul, pv, c);
                let v = b.binary(BinaryOp::Add, v, qv);
                let v = if k % 10 == 3 { b.unary(UnaryOp::Sin, v) } else { v };
                b.store(ra, v);
            };
            if k % 7 == 2 {
                let pa = b.local_addr(p);
                let pv = b.load(pa);
                let one = b.float(1.0, Scalar::F32);
                let c = b.binary(BinaryOp::Gt, pv, one);
                if_else(b, c, statement, |_| {});
            } else {
                statement(b);
            }
        }
        let a = b.local_addr(locals[0]);
        let v = b.load(a);
        let a = at(b, 0, Scalar::F32, &[i]);
        b.store(a, v);
    });
    program(vec![array("x", Scalar::F32, 1)], vec![], Type::Unit, true, b.body)
}

#[test]
#[ignore = "a measurement"]
fn measure() {
    let options = CodegenOptions::default();
    let time = |p: &Program, o: &CodegenOptions| {
        let start = Instant::now();
        compile_host(p, &|_| String::new(), o).unwrap();
        start.elapsed().as_secs_f64() * 1e3
    };
    println!("first kernel {:.2} ms", time(&small(0), &options));
    for level in [0, 1, 2, 3] {
        let options = CodegenOptions { opt_level: level, ..options.clone() };
        let start = Instant::now();
        for k in 0..50 {
            time(&small(k), &options);
        }
        println!("O{level}: 50 small kernels {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        println!("O{level}: 200 statements {:.1} ms", time(&long(200), &options));
    }
    let start = Instant::now();
    for k in 0..50 {
        list_host(&small(k), &options, Listing::Lowered).unwrap();
    }
    println!("lowering alone, 50 small kernels {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    for k in 0..50 {
        list_host(&small(k), &options, Listing::Optimized).unwrap();
    }
    println!("with passes {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for bits in [128, 256, 512] {
        let options = CodegenOptions { vector_bits: Some(bits), ..options.clone() };
        println!(
            "{bits} bits: 200 statements {:.1} ms, small {:.2} ms",
            time(&long(200), &options),
            time(&small(1), &options)
        );
    }
}
