//! Programs of several modules: how they are split, that they link, and that the result does not depend on the number
//! of threads.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod jit;
mod programs;
mod scheduled;

use jit::*;
use octants_artifact::CodeTarget;
use octants_codegen_llvm::CodegenOptions;
use octants_diag::Span;
use octants_ir::*;
use programs::*;
use scheduled::{compile, compile_host};

/// `x = x * 3 + k`, `statements` times.
fn statements(b: &mut Builder, mut x: ValueId, statements: usize) -> ValueId {
    for k in 0..statements {
        let (three, k) = (b.int(3, Scalar::I32), b.int(k as i64, Scalar::I32));
        let x3 = b.binary(BinaryOp::Mul, x, three);
        x = b.binary(BinaryOp::Add, x3, k);
    }
    x
}

fn expected(x: i32, statements: usize) -> i32 {
    (0..statements as i32).fold(x, |x, k| x.wrapping_mul(3).wrapping_add(k))
}

/// The previous value.
fn before(x: i32, statements: usize) -> i32 {
    const THIRD: i32 = 0xaaaa_aaab_u32 as i32;
    (0..statements as i32).rev().fold(x, |x, k| x.wrapping_sub(k).wrapping_mul(THIRD))
}

/// Tasks over one array, one after the other. Task `t` asserts that no element is `100 + t`, notes the largest in
/// another array, and applies `change` to each element.
fn tasks(count: usize, change: impl Fn(&mut Builder, ValueId) -> ValueId) -> Program {
    let task = |t: usize| {
        let mut b = Builder::new();
        let zero = b.int(0, Scalar::I32);
        let n = shape(&mut b, 0, 0);
        for_loop(&mut b, vec![(zero, n)], true, vec![], |b, l| {
            let i = index(b, l, 0);
            let a = at(b, 0, Scalar::I32, &[i]);
            let x = b.load(a);
            let bad = b.int(100 + t as i64, Scalar::I32);
            let good = b.binary(BinaryOp::Ne, x, bad);
            b.span = Span { start: t as u32, ..Span::default() };
            b.push(Op::Assert(good, vec![TextPart::Value(x, None)]), Type::Unit);
            let sum = at(b, 1, Scalar::I32, &[zero]);
            b.push(Op::Atomic(AtomicOp::Max, sum, x), Type::I32);
            let x = change(b, x);
            b.store(a, x);
        });
        b.body
    };
    let buffers = vec![array("x", Scalar::I32, 1), array("most", Scalar::I32, 1)];
    let mut p = program(buffers, vec![], Type::Unit, true, task(0));
    let first = p.tasks[0].clone();
    p.tasks = (0..count).map(|t| Task { name: format!("kernel_{t}"), body: task(t), ..first.clone() }).collect();
    p.graph = TaskGraph::in_order(&p.tasks);
    p
}

fn threads(threads: usize) -> CodegenOptions {
    CodegenOptions { threads, ..CodegenOptions::default() }
}

fn place(span: Span) -> String {
    format!("test.py:{}", span.start)
}

#[test]
fn the_code_is_the_same_with_any_number_of_threads() {
    let program = tasks(12, |b, x| statements(b, x, 60));
    let one = compile_host(&program, &place, &threads(1)).unwrap();
    assert!(one.modules.len() > 3, "{} modules", one.modules.len());
    for n in [2, 5, 64] {
        assert!(compile_host(&program, &place, &threads(n)).unwrap() == one, "{n} threads");
    }
}

#[test]
fn tasks_of_several_modules_run_in_order_with_their_own_sites() {
    let program = tasks(12, |b, x| statements(b, x, 60));
    let loaded = load(compile_host(&program, &place, &threads(3)).unwrap());
    assert_eq!(loaded.artifact.tasks.iter().map(|t| t.name.clone()).collect::<Vec<_>>(), names(&program));
    // The seventh task reads 106 in the second element.
    let start = (0..6).fold(106, |x, _| before(x, 60));
    for single in [false, true] {
        let (mut x, mut most) = (vec![1i32, start, 2], vec![i32::MIN]);
        let run = loaded.run(&[ptr(&mut x), 3, ptr(&mut most), 1], Run { single, ..Run::default() });
        let after = |x: i32| (0..12).fold(x, |x, _| expected(x, 60));
        assert_eq!((x[0], x[2]), (after(1), after(2)));
        let places = run.failed.iter().map(|m| loaded.artifact.sites[m.site as usize].location.as_str());
        assert_eq!(places.collect::<Vec<_>>(), ["test.py:6"]);
        assert_eq!(run.failed[0].values, [106]);
    }
}

fn names(program: &Program) -> Vec<String> {
    program.tasks.iter().map(|t| t.name.clone()).collect()
}

#[test]
fn small_programs_and_programs_with_shared_code_are_one_module() {
    let small = compile_host(&tasks(2, |b, x| statements(b, x, 5)), &place, &threads(4)).unwrap();
    assert_eq!(small.modules.len(), 1);
    let sharing = compile_host(&sharing(12), &place, &threads(4)).unwrap();
    assert_eq!(sharing.modules.len(), 1);
}

/// Tasks that do all their work by calling one function.
fn sharing(count: usize) -> Program {
    let mut f = Builder::new();
    let x = f.push(Op::Param(0), Type::I32);
    let x = statements(&mut f, x, 600);
    f.push(Op::Return(Some(x)), Type::Unit);
    let long = Function { name: "long".into(), params: vec![Type::I32], ret: Type::I32, body: f.body };
    let mut program = tasks(count, |b, x| b.push(Op::Call(FuncId(0), vec![x]), Type::I32));
    program.functions.push(long);
    program
}

fn hopper() -> CodeTarget {
    CodeTarget::Device { triple: "nvptx64-nvidia-cuda".into(), cpu: "sm_90".into(), features: "+ptx80".into() }
}

#[test]
fn a_long_function_is_assembled_with_each_of_its_callers() {
    let artifact = compile(&sharing(4), &place, &threads(4), &hopper()).unwrap();
    assert_eq!(artifact.modules.len(), 4);
}

#[test]
fn artifacts_name_the_module_of_each_task() {
    let program = tasks(12, |b, x| statements(b, x, 60));
    let artifact = compile(&program, &place, &threads(2), &hopper()).unwrap();
    assert!(artifact.modules.len() > 3);
    for task in &artifact.tasks {
        let entry = format!(".entry {}(", task.symbol);
        let holding: Vec<_> = artifact.modules.iter().map(|m| String::from_utf8_lossy(m).contains(&entry)).collect();
        assert!(holding[task.module as usize], "{} is in {holding:?}", task.symbol);
    }
}
