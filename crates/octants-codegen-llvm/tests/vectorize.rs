//! Loops become vector code, with no run-time check of aliasing in front of them.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_codegen_llvm::{CodegenOptions, Listing};
use octants_ir::*;
use programs::*;
use scheduled::list_host;

/// out[i, j] = f(neighbors) on the interior of a plane.
fn stencil(make: impl Fn(&str) -> Buffer) -> Program {
    let mut b = Builder::new();
    let one = b.int(1, Scalar::I32);
    let (n, m) = (shape(&mut b, 0, 0), shape(&mut b, 0, 1));
    let (n1, m1) = (b.binary(BinaryOp::Sub, n, one), b.binary(BinaryOp::Sub, m, one));
    for_loop(&mut b, vec![(one, n1), (one, m1)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        // By way of a variable, as user code does.
        let up = b.body.add_local("up", Type::I32);
        let up_addr = b.local_addr(up);
        let above = b.binary(BinaryOp::Sub, i, one);
        b.store(up_addr, above);
        let above = b.load(up_addr);
        let below = b.binary(BinaryOp::Add, i, one);
        let (left, right) = (b.binary(BinaryOp::Sub, j, one), b.binary(BinaryOp::Add, j, one));
        let mut sum = None;
        for (p, q) in [(above, j), (below, j), (i, left), (i, right)] {
            let a = at(b, 0, Scalar::F32, &[p, q]);
            let v = b.load(a);
            sum = Some(sum.map_or(v, |s| b.binary(BinaryOp::Add, s, v)));
        }
        let quarter = b.float(0.25, Scalar::F32);
        let v = b.binary(BinaryOp::Mul, sum.unwrap(), quarter);
        let a = at(b, 1, Scalar::F32, &[i, j]);
        b.store(a, v);
    });
    program(vec![make("in"), make("out")], vec![], Type::Unit, true, b.body)
}

fn optimized(p: &Program) -> String {
    let text = list_host(p, &CodegenOptions::default(), Listing::Optimized).unwrap();
    if std::env::var_os("SHOW_CODE").is_some() {
        println!("{text}");
    }
    text
}

/// A vector of at least four floats, for any vector width.
fn has_vectors_of(text: &str, scalar: &str) -> bool {
    ["4", "8", "16"].iter().any(|n| text.contains(&format!("<{n} x {scalar}>")))
}

#[test]
fn stencils_on_arrays_and_fields_need_no_alias_checks() {
    for p in
        [stencil(|name| array(name, Scalar::F32, 2)), stencil(|name| plane(name, u32::from(name == "out"), [512, 384]))]
    {
        let text = optimized(&p);
        assert!(has_vectors_of(&text, "float"), "{text}");
        assert!(!text.contains("memcheck") && !text.contains("scevcheck"), "{text}");
    }
}

#[test]
fn math_uses_vector_functions() {
    let text = optimized(&map(&[UnaryOp::Sin, UnaryOp::Exp, UnaryOp::Sqrt], Scalar::F32));
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("v_sinf(<") && text.contains("v_expf(<"), "{text}");
    }
    let text = optimized(&map(&[UnaryOp::Tanh], Scalar::F64));
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("v_tanh(<"), "{text}");
    }
}

#[test]
fn strict_math_uses_libm() {
    let options = CodegenOptions { fast_math: false, ..CodegenOptions::default() };
    let text = list_host(&map(&[UnaryOp::Sin], Scalar::F32), &options, Listing::Optimized).unwrap();
    assert!(!text.contains("_ZGV"), "{text}");
}

#[test]
fn float_sums_vectorize() {
    for (s, name) in [(Scalar::F32, "float"), (Scalar::F64, "double")] {
        let text = optimized(&reduction(AtomicOp::Add, s));
        assert!(has_vectors_of(&text, name), "{text}");
    }
}

#[test]
fn vector_math_matches_scalar_math() {
    let ops = [
        (UnaryOp::Sin, f64::sin as fn(f64) -> f64),
        (UnaryOp::Cos, f64::cos),
        (UnaryOp::Tan, f64::tan),
        (UnaryOp::Asin, f64::asin),
        (UnaryOp::Acos, f64::acos),
        (UnaryOp::Atan, f64::atan),
        (UnaryOp::Sinh, f64::sinh),
        (UnaryOp::Cosh, f64::cosh),
        (UnaryOp::Tanh, f64::tanh),
        (UnaryOp::Exp, f64::exp),
        (UnaryOp::Exp2, f64::exp2),
        (UnaryOp::Log, f64::ln),
        (UnaryOp::Log2, f64::log2),
        (UnaryOp::Sqrt, f64::sqrt),
    ];
    for (op, reference) in ops {
        let loaded = build(&map(&[op], Scalar::F32));
        let mut x: Vec<f32> = (0..103).map(|i| 0.005 + i as f32 / 110.0).collect();
        let mut y = vec![0f32; 103];
        loaded.run(&[ptr(&mut x), 103, ptr(&mut y), 103], Run::default());
        for (x, y) in x.iter().zip(&y) {
            let expected = reference(f64::from(*x));
            assert!(
                (f64::from(*y) - expected).abs() <= 1e-6 * expected.abs().max(0.1),
                "{op:?}({x}) = {y}, not {expected}"
            );
        }
    }
}

/// In vectors and in the remainder, for exponentials that underflow, overflow or are undefined.
#[test]
fn exponentials_handle_extreme_arguments() {
    let nan = f32::NAN;
    let x = [-1e30, -87.4, -87.0, 0.0, 88.0, 89.0, f32::INFINITY, f32::NEG_INFINITY, nan, -126.5, 1.0];
    for (op, reference) in [(UnaryOp::Exp, f64::exp as fn(f64) -> f64), (UnaryOp::Exp2, f64::exp2)] {
        for count in 1..=40 {
            let mut given: Vec<f32> = x.iter().cycle().take(count).copied().collect();
            let mut y = vec![-1f32; count];
            let slots = [ptr(&mut given), count as u64, ptr(&mut y), count as u64];
            build(&map(&[op], Scalar::F32)).run(&slots, Run::default());
            for (x, y) in given.iter().zip(&y) {
                let expected = reference(f64::from(*x)) as f32;
                let flushed = if expected.is_subnormal() { 0.0 } else { expected };
                let near = (y - flushed).abs() <= 2e-6 * flushed || *y == flushed;
                assert!(near || (y.is_nan() && flushed.is_nan()), "{op:?}({x}) = {y}, not {flushed}");
            }
        }
    }
}

/// libmvec's exponentials call the scalar function for each lane outside their range.
#[test]
fn vector_exponentials_receive_no_underflowing_arguments() {
    let text = optimized(&map(&[UnaryOp::Exp], Scalar::F32));
    let arguments = text.split("v_expf(<").skip(1).filter_map(|call| call.split_once("> %")?.1.split_once(')'));
    let mut arguments = arguments.map(|(name, _)| name).filter(|name| name.parse::<u32>().is_ok()).peekable();
    assert!(arguments.peek().is_some() == cfg!(target_arch = "x86_64"), "{text}");
    assert!(arguments.all(|name| text.contains(&format!("%{name} = select"))), "{text}");
}

/// x[i] = the sum of exp(x[i] - points[k]) over few k, three times over, on pairs: once inner loops are unrolled,
/// points are loaded again in each iteration.
#[test]
fn loops_that_read_the_same_few_elements_vectorize() {
    let pair = Type::Vector(Scalar::F32, 2);
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let x = at(b, 0, pair.clone(), &[i]);
        let mut v = b.load(x);
        for round in ["first", "second", "third"] {
            let sum = b.body.add_local(round, pair.clone());
            let sum = b.local_addr(sum);
            let zero = b.float(0.0, Scalar::F32);
            let zeros = b.push(Op::MakeTensor(vec![zero, zero]), pair.clone());
            b.store(sum, zeros);
            let (begin, end) = (b.int(0, Scalar::I32), b.int(4, Scalar::I32));
            for_loop(b, vec![(begin, end)], false, vec![], |b, l| {
                let k = index(b, l, 0);
                let point = at(b, 1, pair.clone(), &[k]);
                let point = b.load(point);
                let away = b.binary(BinaryOp::Sub, v, point);
                let near = b.unary(UnaryOp::Exp, away);
                let before = b.load(sum);
                let after = b.binary(BinaryOp::Add, before, near);
                b.store(sum, after);
            });
            v = b.load(sum);
        }
        b.store(x, v);
    });
    let buffers = vec![array("x", pair.clone(), 1), array("points", pair.clone(), 1)];
    let text = optimized(&program(buffers, vec![], Type::Unit, true, b.body));
    assert!(["8", "16", "32"].iter().any(|n| text.contains(&format!("load <{n} x float>"))), "{text}");
}

/// LLVM plans vector code in time that grows with the square of the loop.
#[test]
fn very_long_loops_are_not_vectorized() {
    let forbids = |statements: usize| {
        let program = map(&vec![UnaryOp::Sqrt; statements], Scalar::F32);
        let text = list_host(&program, &CodegenOptions::default(), Listing::Lowered).unwrap();
        text.contains("!\"llvm.loop.vectorize.enable\", i1 false")
    };
    assert!(!forbids(1000) && forbids(6000));
}

/// The back end's time grows with the square of a function, too.
#[test]
fn very_long_functions_are_optnone() {
    let plainly = |statements: usize| {
        let program = map(&vec![UnaryOp::Sqrt; statements], Scalar::F32);
        let text = list_host(&program, &CodegenOptions::default(), Listing::Optimized).unwrap();
        text.contains("optnone")
    };
    assert!(!plainly(15_000) && plainly(45_000));
}

/// p[i] = a[i]², s[i] = a[i]² + b[i], d[i] = b[i] - a[i]², e[i] = a[i]² - b[i].
#[test]
fn sums_fuse_products_that_have_other_uses() {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let load = |b: &mut Builder, buffer| {
            let a = at(b, buffer, Scalar::F32, &[i]);
            b.load(a)
        };
        let (a, c) = (load(b, 0), load(b, 1));
        let square = b.binary(BinaryOp::Mul, a, a);
        let sum = b.binary(BinaryOp::Add, square, c);
        let (less, more) = (b.binary(BinaryOp::Sub, c, square), b.binary(BinaryOp::Sub, square, c));
        for (buffer, value) in [(2, square), (3, sum), (4, less), (5, more)] {
            let a = at(b, buffer, Scalar::F32, &[i]);
            b.store(a, value);
        }
    });
    let arrays = ["a", "b", "p", "s", "d", "e"].map(|name| array(name, Scalar::F32, 1));
    let p = program(arrays.to_vec(), vec![], Type::Unit, true, b.body);
    #[cfg(target_arch = "x86_64")]
    let fused = std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let fused = true;
    assert_eq!(optimized(&p).contains("@llvm.fma"), fused);
    let exact = CodegenOptions { fast_math: false, ..CodegenOptions::default() };
    assert!(!list_host(&p, &exact, Listing::Optimized).unwrap().contains("@llvm.fma"));
    let loaded = build(&p);
    for n in [1usize, 50] {
        let mut of = [3.0f32, 5.0, 0.0, 0.0, 0.0, 0.0].map(|v| vec![v; n]);
        let args: Vec<u64> = of.iter_mut().flat_map(|v| [ptr(v), n as u64]).collect();
        loaded.run(&args, Run::default());
        assert_eq!(of[2..].concat(), [vec![9.0f32; n], vec![14.0; n], vec![-4.0; n], vec![4.0; n]].concat());
    }
}
