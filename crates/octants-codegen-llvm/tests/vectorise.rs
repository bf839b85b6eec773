//! Loops become vector code, with no run-time check of aliasing in front of them.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;

use jit::*;
use octants_codegen_llvm::{CodegenOptions, Listing, list_host};
use octants_ir::*;
use programs::*;

/// out[i, j] = f(neighbours) on the interior of a plane.
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

fn field(name: &str, shape: [u64; 2]) -> Buffer {
    let root = u32::from(name == "out");
    let axes =
        vec![vec![Digit { extent: shape[0], stride: shape[1] * 4 }], vec![Digit { extent: shape[1], stride: 4 }]];
    let layout = Layout::Dense {
        shape: shape.to_vec(),
        offset: vec![0, 0],
        components: vec![ComponentLayout { root, base: 0, axes }],
    };
    Buffer { name: name.into(), elem: Scalar::F32.into(), ndim: 2, layout }
}

fn optimised(p: &Program) -> String {
    let text = list_host(p, &CodegenOptions::default(), Listing::Optimised).unwrap();
    if std::env::var_os("SHOW_CODE").is_some() {
        println!("{text}");
    }
    text
}

/// A vector of at least four floats, whatever the machine's width.
fn has_vectors_of(text: &str, scalar: &str) -> bool {
    ["4", "8", "16"].iter().any(|n| text.contains(&format!("<{n} x {scalar}>")))
}

#[test]
fn stencils_on_arrays_and_fields_need_no_alias_checks() {
    for p in [stencil(|name| array(name, Scalar::F32, 2)), stencil(|name| field(name, [512, 384]))] {
        let text = optimised(&p);
        assert!(has_vectors_of(&text, "float"), "{text}");
        assert!(!text.contains("memcheck") && !text.contains("scevcheck"), "{text}");
    }
}

#[test]
fn math_calls_vector_functions() {
    let text = optimised(&map(&[UnaryOp::Sin, UnaryOp::Exp, UnaryOp::Sqrt], Scalar::F32));
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("v_sinf(<") && text.contains("v_expf(<"), "{text}");
    }
    let text = optimised(&map(&[UnaryOp::Tanh], Scalar::F64));
    if cfg!(target_arch = "x86_64") {
        assert!(text.contains("v_tanh(<"), "{text}");
    }
}

#[test]
fn strict_math_calls_libm() {
    let options = CodegenOptions { fast_math: false, ..CodegenOptions::default() };
    let text = list_host(&map(&[UnaryOp::Sin], Scalar::F32), &options, Listing::Optimised).unwrap();
    assert!(!text.contains("_ZGV"), "{text}");
}

#[test]
fn float_sums_vectorise() {
    for (s, name) in [(Scalar::F32, "float"), (Scalar::F64, "double")] {
        let text = optimised(&reduction(AtomicOp::Add, s));
        assert!(has_vectors_of(&text, name), "{text}");
    }
}

#[test]
fn vector_math_gives_the_numbers_of_scalar_math() {
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

/// LLVM plans vector code in time that grows with the square of the loop.
#[test]
fn very_long_loops_are_not_planned_for_vectors() {
    let forbids = |statements: usize| {
        let program = map(&vec![UnaryOp::Sqrt; statements], Scalar::F32);
        let text = list_host(&program, &CodegenOptions::default(), Listing::Lowered).unwrap();
        text.contains("!\"llvm.loop.vectorize.enable\", i1 false")
    };
    assert!(!forbids(1000) && forbids(6000));
}

/// The back end's time grows with the square of a function, too.
#[test]
fn very_long_functions_are_emitted_plainly() {
    let plainly = |statements: usize| {
        let program = map(&vec![UnaryOp::Sqrt; statements], Scalar::F32);
        let text = list_host(&program, &CodegenOptions::default(), Listing::Optimised).unwrap();
        text.contains("optnone")
    };
    assert!(!plainly(5_000) && plainly(20_000));
}
