//! Unroll-and-jam: which parallel loops are transformed, and that their results are unchanged.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_ir::*;
use programs::*;

const F: Scalar = Scalar::F32;

/// The inner loop of an iteration `i` of the parallel loop, its body, and the code after it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// out[i] = sum over j of a[i, j] * x[j].
    Rows,
    /// out[i] = sum over j of a[j, i] * x[j].
    Columns,
    /// The same of `j < i`.
    Triangle,
    /// x[i] = sum over j of a[i, j] * x[j]: other iterations read x.
    InPlace,
    /// out[i] = sum over j of a[i, j]: iterations share no loads.
    Apart,
    /// out[j] += a[i, j] * x[i].
    Scattered,
}

fn program_of(form: Form) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let local = b.body.add_local("s", F.into());
        let s = b.local_addr(local);
        let nothing = b.float(0.0, F);
        b.store(s, nothing);
        let m = shape(b, 1, 0);
        let end = if form == Form::Triangle { i } else { m };
        for_loop(b, vec![(zero, end)], false, vec![], |b, l| {
            let j = index(b, l, 0);
            let place = if matches!(form, Form::Columns | Form::Triangle) { [j, i] } else { [i, j] };
            let a = get(b, 0, F, &place);
            let x = match form {
                Form::Apart => b.float(1.0, F),
                Form::Scattered => get(b, 1, F, &[i]),
                _ => get(b, 1, F, &[j]),
            };
            let product = b.binary(BinaryOp::Mul, a, x);
            if form == Form::Scattered {
                let out = at(b, 2, F, &[j]);
                b.push(Op::Atomic(AtomicOp::Add, out, product), F.into());
            } else {
                let before = b.load(s);
                let sum = b.binary(BinaryOp::Add, before, product);
                b.store(s, sum);
            }
        });
        if form != Form::Scattered {
            let sum = b.load(s);
            set(b, if form == Form::InPlace { 1 } else { 2 }, F, &[i], sum);
        }
    });
    let buffers = vec![array("a", F, 2), array("x", F, 1), array("out", F, 1)];
    program(buffers, vec![], Type::Unit, true, b.body)
}

fn interleave_factor(form: Form) -> u32 {
    build(&program_of(form)).artifact.tasks[0].parallel.as_ref().unwrap().interleave_factor
}

#[test]
fn iterations_that_share_elements_are_interleaved() {
    // Iterations with adjacent elements become vectors, so more of them are interleaved.
    assert_eq!(interleave_factor(Form::Columns), 64);
    assert_eq!(interleave_factor(Form::Rows), 8);
    assert_eq!(interleave_factor(Form::Scattered), 8);
}

#[test]
fn dependent_iterations_and_loops_without_reuse_are_not_interleaved() {
    assert_eq!(interleave_factor(Form::Triangle), 1);
    assert_eq!(interleave_factor(Form::InPlace), 1);
    assert_eq!(interleave_factor(Form::Apart), 1);
}

#[test]
fn results_are_the_same_for_all_trip_counts() {
    for form in [Form::Rows, Form::Columns, Form::Triangle, Form::Apart, Form::Scattered] {
        let loaded = build(&program_of(form));
        for (n, chunk) in [(1usize, 1), (7, 3), (8, 8), (31, 100), (40, 33), (100, 41), (150, 150)] {
            // Small integers, so that sums are exact in any order.
            let mut a: Vec<f32> = (0..n * n).map(|k| (k * 7 % 11) as f32 - 5.0).collect();
            let mut x: Vec<f32> = (0..n).map(|k| (k * 5 % 7) as f32 - 3.0).collect();
            let mut expected = vec![0.0f32; n];
            for i in 0..n {
                for j in 0..if form == Form::Triangle { i } else { n } {
                    let (down, along) = (a[j * n + i], a[i * n + j]);
                    match form {
                        Form::Columns | Form::Triangle => expected[i] += down * x[j],
                        Form::Apart => expected[i] += along,
                        Form::Scattered => expected[j] += along * x[i],
                        _ => expected[i] += along * x[j],
                    }
                }
            }
            for (copies, single) in [(false, false), (true, false), (false, true)] {
                let mut out = vec![0.0f32; n];
                let size = n as u64;
                let args = [ptr(&mut a), size, size, ptr(&mut x), size, ptr(&mut out), size];
                loaded.run(&args, Run { chunk, copies, single, ..Run::default() });
                assert_eq!(out, expected, "{form:?}, {n} iterations in chunks of {chunk}, copies {copies}");
            }
        }
    }
}
