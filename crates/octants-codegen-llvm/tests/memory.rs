//! Aggregates, layouts of buffers, references and functions.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use std::sync::Arc;

use jit::*;
use octants_artifact::CodeTarget;
use octants_codegen_llvm::{CodegenOptions, compile_host, target_info};
use octants_ir::*;
use octants_schedule::schedule_program;
use programs::*;
use scheduled::with_access;

const F32: Type = Type::Scalar(Scalar::F32);

fn vec(s: Scalar, n: u32) -> Type {
    Type::Vector(s, n)
}

fn dense(name: &str, elem: Type, shape: &[u64], offset: &[i64], components: Vec<ComponentLayout>) -> Buffer {
    let layout = Layout::Dense { shape: shape.to_vec(), offset: offset.to_vec(), components };
    Buffer {
        name: name.into(),
        elem,
        ndim: shape.len() as u32,
        layout,
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    }
}

fn component(root: u32, base: u64, axes: &[&[(u64, u64)]]) -> ComponentLayout {
    let axes =
        axes.iter().map(|a| a.iter().map(|(extent, stride)| Digit { extent: *extent, stride: *stride }).collect());
    ComponentLayout { root, place: Placement { base, axes: axes.collect() } }
}

/// The byte offset of an index, by the definition of the layout.
fn offset_of(c: &ComponentLayout, index: &[u64]) -> usize {
    let mut at = c.place.base;
    for (digits, i) in c.place.axes.iter().zip(index) {
        let mut rest = *i;
        for d in digits.iter().rev() {
            at += rest % d.extent * d.stride;
            rest /= d.extent;
        }
    }
    at as usize
}

/// f[i, j] = (100 i + j) * (component + 1), over all indices.
fn fill(buffer: Buffer) -> Program {
    let Layout::Dense { shape, offset, .. } = buffer.layout.clone() else { panic!() };
    let mut b = Builder::new();
    let dims: Vec<_> =
        shape.iter().zip(&offset).map(|(n, o)| (b.int(*o, Scalar::I32), b.int(o + *n as i64, Scalar::I32))).collect();
    let elem = buffer.elem.clone();
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let h = b.int(100, Scalar::I32);
        let v = b.binary(BinaryOp::Mul, i, h);
        let v = b.binary(BinaryOp::Add, v, j);
        let v = b.cast(v, elem.scalar().unwrap());
        let parts: Vec<_> = (0..elem.leaf_count())
            .map(|k| {
                let k = b.int(k as i64 + 1, elem.scalar().unwrap());
                b.binary(BinaryOp::Mul, v, k)
            })
            .collect();
        let whole = if elem.is_tensor() { b.push(Op::MakeTensor(parts), elem.clone()) } else { parts[0] };
        let a = at(b, 0, elem.clone(), &[i, j]);
        b.store(a, whole);
    });
    program(vec![buffer], vec![], Type::Unit, true, b.body)
}

#[test]
fn dense_layouts_match_their_digits() {
    let aos = |base| component(0, base, &[&[(6, 8 * 12)], &[(8, 12)]]);
    let soa = |base| component(0, base, &[&[(6, 32)], &[(8, 4)]]);
    // Blocks of 2 x 4, each row-major, blocks row-major.
    let blocks = component(0, 64, &[&[(3, 2 * 32), (2, 16)], &[(2, 32), (4, 4)]]);
    let odd = component(0, 16, &[&[(2, 24 * 4), (3, 4)], &[(8, 12)]]);
    let cases = vec![
        dense("aos", vec(Scalar::F32, 3), &[6, 8], &[0, 0], vec![aos(0), aos(4), aos(8)]),
        dense("soa", vec(Scalar::F32, 3), &[6, 8], &[0, 0], vec![soa(0), soa(192), soa(384)]),
        dense("uneven", vec(Scalar::F32, 2), &[6, 8], &[0, 0], vec![soa(192), soa(0)]),
        dense("blocks", F32, &[6, 8], &[0, 0], vec![blocks.clone()]),
        dense("offset", F32, &[6, 8], &[-3, 10], vec![soa(0)]),
        dense("odd", F32, &[6, 8], &[0, 0], vec![odd]),
        dense("mixed", vec(Scalar::F32, 2), &[6, 8], &[0, 0], vec![soa(1024), blocks]),
    ];
    for buffer in cases {
        let Layout::Dense { offset, components, .. } = buffer.layout.clone() else { panic!() };
        let loaded = build(&fill(buffer.clone()));
        for chunk in [5, 1000] {
            let mut root = vec![0u8; 2048];
            loaded.run(&[ptr(&mut root)], Run { chunk, ..Run::default() });
            let mut written = 0;
            for i in 0..6u64 {
                for j in 0..8u64 {
                    for (k, c) in components.iter().enumerate() {
                        let at = offset_of(c, &[i, j]);
                        let got = f32::from_le_bytes(root[at..at + 4].try_into().unwrap());
                        let (i, j) = (i as i64 + offset[0], j as i64 + offset[1]);
                        assert_eq!(got, ((100 * i + j) * (k as i64 + 1)) as f32, "{} at {i}, {j}", buffer.name);
                        written += 1;
                    }
                }
            }
            assert_eq!(written, 48 * components.len());
        }
    }
}

#[test]
fn strided_arrays_and_arrays_of_vectors() {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let (n, m) = (shape(&mut b, 0, 0), shape(&mut b, 0, 1));
    let elem = vec(Scalar::I16, 2);
    for_loop(&mut b, vec![(zero, n), (zero, m)], true, vec![], |b, l| {
        let (i, j) = (index(b, l, 0), index(b, l, 1));
        let src = at(b, 0, elem.clone(), &[i, j]);
        let v = b.load(src);
        let x = b.push(Op::Fold(ReduceOp::Add, v), Scalar::I16.into());
        let dst = at(b, 1, Scalar::I16, &[j, i]);
        b.store(dst, x);
    });
    let strided = Buffer {
        name: "s".into(),
        elem: elem.clone(),
        ndim: 2,
        layout: Layout::Strided,
        space: Default::default(),
        short_offsets: false,
        is_metadata: false,
    };
    let p = program(vec![strided, array("out", Scalar::I16, 2)], vec![], Type::Unit, true, b.body);
    let loaded = build(&p);
    // A transposed, row-reversed view of a 4 x 3 plane of pairs.
    let mut plane: Vec<i16> = (0..24).collect();
    let mut out = vec![0i16; 12];
    let last_row = unsafe { plane.as_mut_ptr().add(3 * 6) } as u64;
    let args = [last_row, 3, 4, 4, (-12i64) as u64, ptr(&mut out), 4, 3];
    loaded.run(&args, Run::default());
    for i in 0..3 {
        for j in 0..4 {
            let at = (3 - j) * 6 + i * 2;
            assert_eq!(out[j * 3 + i], (at + at + 1) as i16);
        }
    }
}

#[test]
fn overlapping_arrays_are_allowed_when_declared() {
    let mut b = Builder::new();
    let (zero, one) = (b.int(0, Scalar::I32), b.int(1, Scalar::I32));
    let n = shape(&mut b, 1, 0);
    let config = LoopConfig { serialize: true, ..LoopConfig::default() };
    let l = for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let i1 = b.binary(BinaryOp::Add, i, one);
        let a = at(b, 0, Scalar::I32, &[i]);
        let v = b.load(a);
        let a = at(b, 1, Scalar::I32, &[i]);
        let v = b.binary(BinaryOp::Add, v, one);
        b.store(a, v);
        let _ = i1;
    });
    if let Op::For(f) = &mut b.body.inst_mut(l).op {
        f.parallel = Some(config.clone());
    }
    let mut p = program(vec![array("x", Scalar::I32, 1), array("y", Scalar::I32, 1)], vec![], Type::Unit, true, b.body);
    p.tasks[0].kind = TaskKind::Parallel(config);
    let asked = ScheduleOptions { arrays_may_alias: true, ..ScheduleOptions::default() };
    let schedule = schedule_program(with_access(&p), &target_info(&CodeTarget::Host), asked);
    let artifact = compile_host(&schedule, &|_| String::new(), &CodegenOptions::default()).unwrap();
    let loaded = load(artifact);
    // y is x moved by one: a serial loop counts up.
    let mut x = vec![0i32; 101];
    let base = ptr(&mut x);
    loaded.run(&[base, 101, base + 4, 100], Run::default());
    assert_eq!(x, (0..101).collect::<Vec<_>>());
}

fn pair() -> Type {
    Type::Struct(Arc::new(StructType {
        name: "Pair".into(),
        members: vec![
            ("flag".into(), Type::U1),
            ("m".into(), Type::Matrix(Scalar::F64, 2, 2)),
            ("n".into(), Type::I32),
        ],
    }))
}

#[test]
fn structs_matrices_and_dynamic_components() {
    let mut b = Builder::new();
    let local = b.body.add_local("p", pair());
    let base = b.local_addr(local);
    let m = b.member_addr(base, 1);
    let (i, j) = (b.push(Op::Param(0), Type::I32), b.push(Op::Param(1), Type::I32));
    let two = b.float(2.5, Scalar::F64);
    let e = b.element_addr(m, vec![i, j]);
    b.store(e, two);
    let flag = b.member_addr(base, 0);
    let yes = b.int(1, Scalar::U1);
    b.store(flag, yes);
    let whole = b.load(base);
    let mv = b.extract(whole, 1);
    let t = b.push(Op::Transpose(mv), Type::Matrix(Scalar::F64, 2, 2));
    let product = b.push(Op::MatMul(mv, t), Type::Matrix(Scalar::F64, 2, 2));
    let dynamic = b.push(Op::ExtractDyn(product, vec![i, i]), Scalar::F64.into());
    let nine: Vec<_> = (0..9).map(|k| b.int(k * k, Scalar::I32)).collect();
    let nine = b.push(Op::MakeTensor(nine), Type::Matrix(Scalar::I32, 3, 3));
    let spilled = b.push(Op::ExtractDyn(nine, vec![j, i]), Type::I32);
    let ones = b.float(1.0, Scalar::F64);
    let ones = b.splat(ones, &vec(Scalar::F64, 2));
    let mv1 = b.push(Op::MatMul(mv, ones), vec(Scalar::F64, 2));
    let v1m = b.push(Op::MatMul(ones, mv), vec(Scalar::F64, 2));
    let members: Vec<_> = [whole, dynamic, spilled, mv1, v1m].into();
    let ret = Type::Struct(Arc::new(StructType {
        name: "R".into(),
        members: members.iter().map(|v| (String::from("m"), b.ty(*v).clone())).collect(),
    }));
    let all = b.push(Op::MakeStruct(members), ret.clone());
    b.push(Op::Return(Some(all)), Type::Unit);
    let p = program(vec![], vec![("i", Type::I32), ("j", Type::I32)], ret, false, b.body);
    let loaded = build(&p);
    let out = loaded.run(&[0, 1], Run::default()).result;
    let f = |x: f64| x.to_bits();
    let m = [f(0.0), f(2.5), f(0.0), f(0.0)];
    assert_eq!(out[..6], [1, m[0], m[1], m[2], m[3], 0]);
    assert_eq!(out[6..8], [f(6.25), 9]);
    assert_eq!(out[8..], [f(2.5), f(0.0), f(0.0), f(2.5)]);
}

/// fn add(target: ref f32, by: vec2<f32>) -> f32: adds both to the target, returns the old value unless it is negative.
fn add_function() -> Function {
    let mut b = Builder::new();
    let reference = Type::Ref(Box::new(F32));
    let (target, by) = (b.push(Op::Param(0), reference.clone()), b.push(Op::Param(1), vec(Scalar::F32, 2)));
    let old = b.load(target);
    let zero = b.float(0.0, Scalar::F32);
    let negative = b.binary(BinaryOp::Lt, old, zero);
    if_else(
        &mut b,
        negative,
        |b| {
            b.push(Op::Return(Some(zero)), Type::Unit);
        },
        |_| {},
    );
    let (x, y) = (b.extract(by, 0), b.extract(by, 1));
    let v = b.binary(BinaryOp::Add, old, x);
    let v = b.binary(BinaryOp::Add, v, y);
    b.store(target, v);
    b.push(Op::Return(Some(old)), Type::Unit);
    Function { name: "add".into(), params: vec![reference, vec(Scalar::F32, 2)], ret: F32, body: b.body }
}

#[test]
fn functions_take_references_to_locals_elements_and_scattered_components() {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let (one, two) = (b.float(1.0, Scalar::F32), b.float(2.0, Scalar::F32));
    let by = b.push(Op::MakeTensor(vec![one, two]), vec(Scalar::F32, 2));
    let local = b.body.add_local("l", F32);
    let l = b.local_addr(local);
    b.store(l, one);
    let array_elem = at(&mut b, 0, F32, &[zero]);
    let field_elem = at(&mut b, 1, vec(Scalar::F32, 2), &[zero]);
    let component = b.element_addr(field_elem, vec![b.body.block(BlockId(0))[0]]);
    let mut olds = Vec::new();
    for target in [l, array_elem, component, l] {
        olds.push(b.push(Op::Call(FuncId(0), vec![target, by]), F32));
    }
    // A reference to a vector whose components are apart.
    olds.push(b.push(Op::Call(FuncId(1), vec![field_elem]), F32));
    olds.push(b.load(l));
    let ty = vec(Scalar::F32, olds.len() as u32);
    let all = b.push(Op::MakeTensor(olds), ty.clone());
    b.push(Op::Return(Some(all)), Type::Unit);

    // fn swap(v: ref vec2) -> f32: swaps the components by indices known at run time.
    let mut f = Builder::new();
    let reference = Type::Ref(Box::new(vec(Scalar::F32, 2)));
    let v = f.push(Op::Param(0), reference.clone());
    let whole = f.load(v);
    let (x, y) = (f.extract(whole, 0), f.extract(whole, 1));
    let i = f.body.add_local("i", Type::I32);
    let (i, zero, one) = (f.local_addr(i), f.int(0, Scalar::I32), f.int(1, Scalar::I32));
    for_loop(&mut f, vec![(zero, one)], false, vec![], |f, l| {
        let k = index(f, l, 0);
        f.store(i, k);
    });
    let first = f.load(i);
    let second = f.binary(BinaryOp::Add, first, one);
    let (a, c) = (f.element_addr(v, vec![first]), f.element_addr(v, vec![second]));
    f.store(a, y);
    f.store(c, x);
    f.push(Op::Return(Some(x)), Type::Unit);
    let swap = Function { name: "swap".into(), params: vec![reference], ret: F32, body: f.body };

    let scattered = |base| ComponentLayout { root: 0, place: Placement::row_major(base, &[4], 4) };
    let buffers = vec![
        array("a", Scalar::F32, 1),
        dense("f", vec(Scalar::F32, 2), &[4], &[0], vec![scattered(0), scattered(100)]),
    ];
    let mut p = program(buffers, vec![], ty, false, b.body);
    p.functions = vec![add_function(), swap];
    let loaded = build(&p);
    let mut root = vec![0f32; 64];
    root[0] = -1.0;
    root[25] = 8.0;
    let mut array = vec![10f32];
    let out = loaded.run(&[ptr(&mut root), ptr(&mut array), 1], Run::default()).result;
    let out: Vec<f32> = out.iter().map(|b| f32::from_bits(*b as u32)).collect();
    assert_eq!(out, [1.0, 10.0, 0.0, 4.0, -1.0, 7.0]);
    assert_eq!((array[0], root[0], root[25]), (13.0, 8.0, -1.0));
}

#[test]
fn tasks_share_the_frame() {
    let mut p = Program { name: "k".into(), ..Program::default() };
    p.frame = vec![Type::U1, Scalar::F64.into(), vec(Scalar::I32, 3)];
    p.params = vec![Param { name: "n".into(), ty: Type::I32 }];
    p.buffers = vec![array("out", Scalar::I32, 1)];
    let slot = |b: &mut Builder, i: u32, ty: Type| b.push(Op::FrameAddr(FrameSlot(i)), Type::Ref(Box::new(ty)));
    // Task 0 computes the bound of task 1's loop.
    let mut b = Builder::new();
    let v = slot(&mut b, 2, vec(Scalar::I32, 3));
    let two = b.int(2, Scalar::I32);
    let n = b.push(Op::Param(0), Type::I32);
    let bound = b.binary(BinaryOp::Mul, n, two);
    let e = b.element_addr(v, vec![two]);
    b.store(e, bound);
    let task = |name: &str, kind, body| Task { name: name.into(), kind, body, access: AccessSet::default() };
    p.tasks.push(task("bound", TaskKind::Serial, b.body));
    let mut b = Builder::new();
    let v = slot(&mut b, 2, vec(Scalar::I32, 3));
    let (zero, two) = (b.int(0, Scalar::I32), b.int(2, Scalar::I32));
    let e = b.element_addr(v, vec![two]);
    let end = b.load(e);
    for_loop(&mut b, vec![(zero, end)], true, vec![], |b, l| {
        let i = index(b, l, 0);
        let a = at(b, 0, Scalar::I32, &[i]);
        b.store(a, end);
    });
    p.tasks.push(task("fill", TaskKind::Parallel(LoopConfig::default()), b.body));
    p.graph = TaskGraph::in_order(&p.tasks);
    let loaded = build(&p);
    assert!(loaded.artifact.frame_bytes >= 28);
    let mut out = vec![0i32; 9];
    let run = loaded.run(&[ptr(&mut out), 9, 4], Run { chunk: 3, ..Run::default() });
    assert_eq!(run.counts, [8]);
    assert_eq!(out, [8, 8, 8, 8, 8, 8, 8, 8, 0]);
}

#[test]
fn an_iteration_over_a_field_without_axes_runs_once() {
    let mut b = Builder::new();
    for_loop(&mut b, vec![], true, vec![], |b, _| {
        let a = at(b, 0, Scalar::I32, &[]);
        let one = b.int(1, Scalar::I32);
        b.push(Op::Atomic(AtomicOp::Add, a, one), Type::I32);
    });
    let field = dense("f", Type::I32, &[], &[], vec![component(0, 8, &[])]);
    let loaded = build(&program(vec![field], vec![], Type::Unit, true, b.body));
    let mut root = vec![0i32; 4];
    assert_eq!(loaded.run(&[ptr(&mut root)], Run::default()).counts, [1]);
    assert_eq!(root, [0, 0, 1, 0]);
}
