//! Atomics, printing, assertions, random numbers.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_artifact::{ScalarKind, SiteKind, SitePart};
use octants_ir::*;
use programs::*;

fn atomics(op: AtomicOp, s: Scalar) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let a = at(b, 0, s, &[i]);
        let v = b.load(a);
        let three = b.int(3, Scalar::I32);
        let bin = b.binary(BinaryOp::Mod, i, three);
        let target = at(b, 1, s, &[bin]);
        let old = b.push(Op::Atomic(op, target, v), s.into());
        let a = at(b, 2, s, &[i]);
        b.store(a, old);
    });
    let buffers = vec![array("x", s, 1), array("bins", s, 1), array("old", s, 1)];
    program(buffers, vec![], Type::Unit, true, b.body)
}

const OPS: [AtomicOp; 9] = [
    AtomicOp::Add,
    AtomicOp::Sub,
    AtomicOp::Mul,
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::And,
    AtomicOp::Or,
    AtomicOp::Xor,
    AtomicOp::Exchange,
];

macro_rules! check_atomics {
    ($ty:ty, $scalar:expr, $ops:expr, $apply:expr) => {
        for op in $ops {
            let loaded = build(&atomics(op, $scalar));
            assert!(loaded.artifact.tasks[0].single_thread_symbol.is_some());
            for single in [false, true] {
                let mut x: Vec<$ty> = (0..50).map(|i| (i * 37 % 11 + 1) as $ty).collect();
                let mut bins: Vec<$ty> = vec![5 as $ty; 3];
                let mut old: Vec<$ty> = vec![0 as $ty; 50];
                let args = [ptr(&mut x), 50, ptr(&mut bins), 3, ptr(&mut old), 50];
                loaded.run(&args, Run { single, ..Run::default() });
                let mut expected = vec![5 as $ty; 3];
                for i in 0..50 {
                    assert_eq!(old[i], expected[i % 3], "{op:?} {} {i}", $scalar);
                    expected[i % 3] = $apply(op, expected[i % 3], x[i]);
                }
                assert_eq!(bins, expected, "{op:?} {}", $scalar);
            }
        }
    };
}

macro_rules! int_atomics {
    ($ty:ty, $scalar:expr) => {
        check_atomics!($ty, $scalar, OPS, |op, a: $ty, b: $ty| match op {
            AtomicOp::Add => a.wrapping_add(b),
            AtomicOp::Sub => a.wrapping_sub(b),
            AtomicOp::Mul => a.wrapping_mul(b),
            AtomicOp::Min => a.min(b),
            AtomicOp::Max => a.max(b),
            AtomicOp::And => a & b,
            AtomicOp::Or => a | b,
            AtomicOp::Xor => a ^ b,
            AtomicOp::Exchange => b,
        })
    };
}

#[test]
fn integer_atomics_yield_the_old_value() {
    int_atomics!(i32, Scalar::I32);
    int_atomics!(u32, Scalar::U32);
    int_atomics!(i64, Scalar::I64);
    int_atomics!(u64, Scalar::U64);
    int_atomics!(i8, Scalar::I8);
    int_atomics!(u8, Scalar::U8);
    int_atomics!(i16, Scalar::I16);
    int_atomics!(u16, Scalar::U16);
}

#[test]
fn float_atomics_yield_the_old_value() {
    let ops = [AtomicOp::Add, AtomicOp::Sub, AtomicOp::Mul, AtomicOp::Min, AtomicOp::Max, AtomicOp::Exchange];
    let exact = [AtomicOp::Add, AtomicOp::Sub, AtomicOp::Min, AtomicOp::Max, AtomicOp::Exchange];
    macro_rules! apply {
        ($ty:ty) => {
            |op, a: $ty, b: $ty| match op {
                AtomicOp::Add => a + b,
                AtomicOp::Sub => a - b,
                AtomicOp::Mul => a * b,
                AtomicOp::Min => a.min(b),
                AtomicOp::Max => a.max(b),
                _ => b,
            }
        };
    }
    check_atomics!(f64, Scalar::F64, ops, apply!(f64));
    check_atomics!(f32, Scalar::F32, exact, apply!(f32));
}

#[test]
fn atomics_from_many_threads_lose_nothing() {
    for s in [Scalar::I32, Scalar::F32] {
        let loaded = build(&atomics(AtomicOp::Add, s));
        let mut x: Vec<u32> = vec![if s == Scalar::I32 { 1 } else { 1f32.to_bits() }; 30_000];
        let mut bins = [0u32; 3];
        let (xp, bp) = (ptr(&mut x), ptr(&mut bins));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let loaded = &loaded;
                scope.spawn(move || {
                    let mut old = vec![0u32; 30_000];
                    loaded.run_unsynchronized(&[xp, 30_000, bp, 3, ptr(&mut old), 30_000]);
                });
            }
        });
        let expected = if s == Scalar::I32 { 20_000 } else { 20_000f32.to_bits() };
        assert_eq!(bins, [expected; 3]);
    }
}

#[test]
fn compare_and_swap_stores_on_a_match() {
    for s in [Scalar::I32, Scalar::F32, Scalar::U8] {
        let mut b = Builder::new();
        let zero = b.int(0, Scalar::I32);
        let a = at(&mut b, 0, s, &[zero]);
        let (x, y, z) = (b.int(0, s), b.int(7, s), b.int(9, s));
        let first = b.push(Op::AtomicCas(a, x, y), s.into());
        let second = b.push(Op::AtomicCas(a, x, z), s.into());
        let (first, second) = (b.cast(first, Scalar::I32), b.cast(second, Scalar::I32));
        let v = b.push(Op::MakeTensor(vec![first, second]), Type::Vector(Scalar::I32, 2));
        b.push(Op::Return(Some(v)), Type::Unit);
        let loaded = build(&program(vec![array("x", s, 1)], vec![], Type::Vector(Scalar::I32, 2), false, b.body));
        for single in [false, true] {
            let mut memory = [0u64];
            let out = loaded.run(&[ptr(&mut memory), 1], Run { single, ..Run::default() });
            assert_eq!(out.result, [0, 7], "{s}");
        }
    }
}

#[test]
fn prints_pass_raw_bits_and_describe_them() {
    let mut b = Builder::new();
    b.span = octants_diag::Span { file: 0, start: 12, end: 14, call: 0 };
    let (x, v) = (b.float(1.5, Scalar::F32), b.int(-2, Scalar::I64));
    let t = b.int(1, Scalar::U1);
    let v = b.push(Op::MakeTensor(vec![v, v]), Type::Vector(Scalar::I64, 2));
    let parts = vec![
        TextPart::Text("x=".into()),
        TextPart::Value(x, Some(".3f".into())),
        TextPart::Value(v, None),
        TextPart::Value(t, None),
    ];
    b.push(Op::Print(parts), Type::Unit);
    b.push(Op::Print(vec![TextPart::Text("no values".into())]), Type::Unit);
    let loaded = build(&program(vec![], vec![], Type::Unit, false, b.body));
    let out = loaded.run(&[], Run::default());
    let minus_two = (-2i64) as u64;
    assert_eq!(out.printed[0], Message { site: 0, values: vec![1.5f32.to_bits().into(), minus_two, minus_two, 1] });
    assert_eq!(out.printed[1], Message { site: 1, values: vec![] });
    let site = &loaded.artifact.sites[0];
    assert_eq!((site.kind, site.location.as_str()), (SiteKind::Print, "test.py:12"));
    assert_eq!(site.parts[1], SitePart::Value { kind: ScalarKind::F32, shape: vec![], format: Some(".3f".into()) });
    assert_eq!(site.parts[2], SitePart::Value { kind: ScalarKind::I64, shape: vec![2], format: None });
}

#[test]
fn nothing_after_a_failed_assertion_runs() {
    // fn check(i) -> i32 { assert i < 5 | i == 7; return i }
    let mut f = Builder::new();
    let i = f.push(Op::Param(0), Type::I32);
    let (five, seven) = (f.int(5, Scalar::I32), f.int(7, Scalar::I32));
    let (below, is_seven) = (f.binary(BinaryOp::Lt, i, five), f.binary(BinaryOp::Eq, i, seven));
    let ok = f.binary(BinaryOp::Or, below, is_seven);
    f.push(Op::Assert(ok, vec![TextPart::Text("too large: ".into()), TextPart::Value(i, None)]), Type::Unit);
    f.push(Op::Return(Some(i)), Type::Unit);
    let check = Function { name: "check".into(), params: vec![Type::I32], ret: Type::I32, body: f.body };

    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let v = b.push(Op::Call(FuncId(0), vec![i]), Type::I32);
        let a = at(b, 0, Scalar::I32, &[i]);
        b.store(a, v);
    });
    let mut p = program(vec![array("out", Scalar::I32, 1)], vec![], Type::Unit, true, b.body);
    p.functions.push(check);
    let loaded = build(&p);
    // Iterations that share a call with one that fails are executed all the same, before and after it.
    for (chunk, single) in [(1, false), (3, false), (8, false), (8, true)] {
        let mut out = vec![-1i32; 8];
        let run = loaded.run(&[ptr(&mut out), 8], Run { chunk, single, ..Run::default() });
        assert_eq!(out, [0, 1, 2, 3, 4, -1, -1, 7], "{chunk}");
        let mut values: Vec<u64> = run.failed.iter().map(|m| m.values[0]).collect();
        values.sort_unstable();
        assert_eq!(values, [5, 6]);
    }
    assert_eq!(loaded.artifact.sites[0].kind, SiteKind::Assert);
}

/// Two draws per iteration, one of them in a function, of types with one and two words.
fn draws() -> Program {
    let mut f = Builder::new();
    let v = f.push(Op::Random, Scalar::F64.into());
    f.push(Op::Return(Some(v)), Type::Unit);
    let draw = Function { name: "draw".into(), params: vec![], ret: Scalar::F64.into(), body: f.body };
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let (n, m) = (shape(&mut b, 0, 0), shape(&mut b, 0, 1));
    for_loop(&mut b, vec![(zero, n), (zero, m)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let f = b.push(Op::Random, Scalar::F32.into());
        let d = b.push(Op::Call(FuncId(0), vec![]), Scalar::F64.into());
        let f = b.cast(f, Scalar::F64);
        let v = b.push(Op::MakeTensor(vec![f, d]), Type::Vector(Scalar::F64, 2));
        let a = at(b, 0, Type::Vector(Scalar::F64, 2), &[i, j]);
        b.store(a, v);
    });
    let out = array("out", Type::Vector(Scalar::F64, 2), 2);
    let mut p = program(vec![out], vec![], Type::Unit, true, b.body);
    p.functions.push(draw);
    p
}

#[test]
fn random_numbers_depend_only_on_seed_launch_and_iteration() {
    let loaded = build(&draws());
    let (n, m) = (50usize, 37usize);
    let run = |how: Run| {
        let mut out = vec![0f64; n * m * 2];
        loaded.run(&[ptr(&mut out), n as u64, m as u64], how);
        out
    };
    let first = run(Run::default());
    for chunk in [1, 10, 37, 111] {
        assert_eq!(first, run(Run { chunk, ..Run::default() }));
    }
    assert_ne!(first, run(Run { seed: 2, ..Run::default() }));
    assert_ne!(first, run(Run { launch: 2, ..Run::default() }));
    assert!(first.iter().all(|v| (0.0..1.0).contains(v)));
    let mean = first.iter().sum::<f64>() / first.len() as f64;
    assert!((mean - 0.5).abs() < 0.02, "{mean}");
    let mut sorted = first.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    assert!(sorted.len() > first.len() - 5, "numbers repeat");
}

#[test]
fn every_scalar_can_be_drawn() {
    let mut b = Builder::new();
    let values: Vec<_> = Scalar::ALL.iter().map(|s| b.push(Op::Random, (*s).into())).collect();
    let members = Scalar::ALL.iter().map(|s| (s.name().to_owned(), Type::from(*s))).collect();
    let ret = Type::Struct(std::sync::Arc::new(StructType { name: "R".into(), members }));
    let all = b.push(Op::MakeStruct(values), ret.clone());
    b.push(Op::Return(Some(all)), Type::Unit);
    let loaded = build(&program(vec![], vec![], ret, false, b.body));
    let mut ones = [0u64; 12];
    for launch in 0..64 {
        let out = loaded.run(&[], Run { launch, ..Run::default() }).result;
        for (seen, v) in ones.iter_mut().zip(&out) {
            *seen |= v;
        }
        assert!((0.0..1.0).contains(&f32::from_bits(out[10] as u32)) && (0.0..1.0).contains(&f64::from_bits(out[11])));
    }
    for (s, seen) in Scalar::ALL.iter().zip(ones).take(9) {
        let all = if s.bits() == 64 { u64::MAX } else { (1 << s.bits()) - 1 };
        assert_eq!(seen, all, "{s}");
    }
}

#[test]
fn several_threads_compile_concurrently() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    build(&draws());
                }
            });
        }
    });
}

/// h[x[i]] += 1; f[x[i]] += (i, 2 i), where f's components are apart in a root after other data.
fn scatter() -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let a = at(b, 0, Scalar::I32, &[i]);
        let bin = b.load(a);
        let one = b.int(1, Scalar::I32);
        let a = at(b, 1, Scalar::I32, &[bin]);
        b.push(Op::Atomic(AtomicOp::Add, a, one), Type::I32);
        let v = b.cast(i, Scalar::F64);
        let w = b.binary(BinaryOp::Add, v, v);
        let pair = Type::Vector(Scalar::F64, 2);
        let v = b.push(Op::MakeTensor(vec![v, w]), pair.clone());
        let a = at(b, 2, pair.clone(), &[bin]);
        b.push(Op::Atomic(AtomicOp::Sub, a, v), pair);
    });
    let component = |base| ComponentLayout { root: 0, place: Placement::row_major(base, &[20], 8) };
    let field = Buffer {
        name: "f".into(),
        elem: Type::Vector(Scalar::F64, 2),
        ndim: 1,
        layout: Layout::Dense { shape: vec![20], offset: vec![0], components: vec![component(400), component(80)] },
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    };
    let buffers = vec![array("x", Scalar::I32, 1), array("h", Scalar::I32, 1), field];
    program(buffers, vec![], Type::Unit, true, b.body)
}

#[test]
fn scattered_sums_are_the_same_with_private_copies() {
    let in_order = build(&scatter());
    let concurrent = build_concurrent(&scatter());
    let scatter = in_order.artifact.tasks[0].parallel.as_ref().unwrap().scatter.as_ref().unwrap();
    assert_eq!((scatter.regions.len(), scatter.updates), (2, 3));
    let n = 1000usize;
    for (loaded, chunk, single, copies) in [
        (&in_order, 1, false, false),
        (&in_order, 1, false, true),
        (&in_order, 7, false, true),
        (&in_order, 1000, false, true),
        (&in_order, 1000, false, false),
        (&in_order, 1000, true, false),
        (&concurrent, 7, false, true),
        (&concurrent, 7, false, false),
    ] {
        let mut x: Vec<i32> = (0..n as i32).map(|i| i * 7 % 20).collect();
        let mut h = vec![3i32; 20];
        let mut root: Vec<f64> = (0..80).map(f64::from).collect();
        let args = [ptr(&mut root), ptr(&mut x), n as u64, ptr(&mut h), 20];
        loaded.run(&args, Run { chunk, single, copies, ..Run::default() });
        assert_eq!(h, [53; 20]);
        let mut expected: Vec<f64> = (0..80).map(f64::from).collect();
        for i in 0..n {
            expected[50 + i * 7 % 20] -= i as f64;
            expected[10 + i * 7 % 20] -= 2.0 * i as f64;
        }
        assert_eq!(root, expected, "chunk {chunk}, single {single}, copies {copies}");
    }
}

#[test]
fn a_buffer_that_is_also_read_is_not_privatized() {
    let mut p = scatter();
    // The old value of the sum is stored, and a private copy does not have it.
    let body = &mut p.tasks[0].body;
    let l = body.block(body.root).last().copied().unwrap();
    let Op::For(f) = body.inst(l).op.clone() else { panic!() };
    let sum = *body.block(f.body).iter().find(|v| matches!(body.inst(**v).op, Op::Atomic(..))).unwrap();
    let index = body.block(f.body)[0];
    let span = body.inst(sum).span;
    let reference = Type::Ref(Box::new(Type::I32));
    let address = body.add_inst(Op::BufferAddr(BufferId(0), vec![index]), reference, span);
    let store = body.add_inst(Op::Store(address, sum), Type::Unit, span);
    body.blocks[f.body.index()].extend([address, store]);
    let loaded = build(&p);
    assert_eq!(loaded.artifact.tasks[0].parallel.as_ref().unwrap().scatter, None);
}

/// Each of 24 functions calls the previous one six times. Functions must be analyzed once, not once per call path,
/// because the number of paths is exponential.
#[test]
fn a_deep_tree_of_calls_is_compiled_function_by_function() {
    let functions = (0..24u32).map(|level| {
        let mut f = Builder::new();
        let mut v = f.push(Op::Param(0), Type::I32);
        for _ in 0..6 {
            let three = f.int(3, Scalar::I32);
            v = f.binary(BinaryOp::Mul, v, three);
            if level > 0 {
                v = f.push(Op::Call(FuncId(level - 1), vec![v]), Type::I32);
            }
        }
        f.push(Op::Return(Some(v)), Type::Unit);
        Function { name: format!("level{level}"), params: vec![Type::I32], ret: Type::I32, body: f.body }
    });
    let functions: Vec<Function> = functions.collect();
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let v = b.push(Op::Call(FuncId(23), vec![i]), Type::I32);
        let a = at(b, 0, Scalar::I32, &[i]);
        b.store(a, v);
    });
    let mut p = program(vec![array("out", Scalar::I32, 1)], vec![], Type::Unit, true, b.body);
    p.functions = functions;
    let cost = build(&p).artifact.tasks[0].parallel.as_ref().unwrap().cost_per_iteration;
    assert!(cost.is_finite() && cost > 1e6, "{cost}");
}
