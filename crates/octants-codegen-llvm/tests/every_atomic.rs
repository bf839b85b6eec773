//! Compiles each atomic operation on each type for each kind of target, alone and with others in one loop.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod scheduled;

use octants_artifact::CodeTarget;
use octants_codegen_llvm::CodegenOptions;
use octants_ir::*;
use programs::*;
use scheduled::compile_as_one;

const SCALARS: [Scalar; 12] = [
    Scalar::U1,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F16,
    Scalar::F32,
    Scalar::F64,
];

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

/// Whether the operation has a meaning on the type.
fn fits(op: AtomicOp, s: Scalar) -> bool {
    match op {
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => !s.is_float(),
        AtomicOp::Exchange => true,
        _ => s != Scalar::U1,
    }
}

/// Whether a parallel loop can fold with it.
fn folds(op: AtomicOp, s: Scalar) -> bool {
    op != AtomicOp::Exchange && s != Scalar::U1 && fits(op, s)
}

/// Updates `a[i]` of each type by each operation, and by a compare-and-swap, in one loop.
fn scatters() -> Program {
    let mut b = Builder::new();
    for_each(&mut b, |b, i| {
        let x = get(b, 0, Scalar::F32, &[i]);
        for (n, s) in SCALARS.into_iter().enumerate() {
            let v = b.cast(x, s);
            for op in OPS.into_iter().filter(|op| fits(*op, s)) {
                let a = at(b, n as u32 + 1, s, &[i]);
                b.push(Op::Atomic(op, a, v), s.into());
            }
            let a = at(b, n as u32 + 1, s, &[i]);
            b.push(Op::AtomicCas(a, v, v), s.into());
        }
    });
    let arrays = SCALARS.iter().map(|s| array(&format!("a{s}"), *s, 1));
    program([array("x", Scalar::F32, 1)].into_iter().chain(arrays).collect(), vec![], Type::Unit, true, b.body)
}

/// A parallel loop that folds with two operations.
fn folding(first: (AtomicOp, Scalar), second: (AtomicOp, Scalar)) -> Program {
    let mut b = Builder::new();
    let zero = b.int(0, Scalar::I32);
    let n = shape(&mut b, 0, 0);
    let both = [first, second];
    let targets = [at(&mut b, 1, first.1, &[zero]), at(&mut b, 2, second.1, &[zero])];
    let reductions =
        both.iter().zip(targets).map(|((op, _), target)| Reduction { op: *op, target, plain: false }).collect();
    for_loop(&mut b, vec![(zero, n)], true, reductions, |b, l| {
        let i = index(b, l, 0);
        let x = get(b, 0, Scalar::F32, &[i]);
        for (slot, (_, s)) in both.into_iter().enumerate() {
            let v = b.cast(x, s);
            b.push(Op::Reduce(slot as u32, v), Type::Unit);
        }
    });
    let buffers = vec![array("x", Scalar::F32, 1), array("y", first.1, 1), array("z", second.1, 1)];
    program(buffers, vec![], Type::Unit, true, b.body)
}

/// Each operation with each type in a loop with another one.
fn foldings() -> Vec<Program> {
    let all: Vec<(AtomicOp, Scalar)> =
        SCALARS.into_iter().flat_map(|s| OPS.map(|op| (op, s))).filter(|(op, s)| folds(*op, *s)).collect();
    let half = all.len().div_ceil(2);
    (0..half).map(|i| folding(all[i], all[all.len() - half + i])).collect()
}

/// Minima and maxima of floats, of two types in a loop.
fn extrema() -> Vec<Program> {
    let types = [(Scalar::F16, Scalar::F32), (Scalar::F16, Scalar::F64), (Scalar::F32, Scalar::F64)];
    let ops = [AtomicOp::Min, AtomicOp::Max];
    let pairs = types.into_iter().flat_map(|types| ops.into_iter().flat_map(move |a| ops.map(|b| (types, a, b))));
    pairs.map(|((first, second), a, b)| folding((a, first), (b, second))).collect()
}

fn check(triple: &str, cpu: &str, features: &str) {
    let target = CodeTarget::Device { triple: triple.into(), cpu: cpu.into(), features: features.into() };
    let compile = |fast_math: bool, programs: &[Program]| {
        let options = CodegenOptions { fast_math, ..CodegenOptions::default() };
        for program in programs {
            assert_program(&scheduled::with_access(program), "every_atomic");
            let code = compile_as_one(program, &options, &target);
            assert!(code.as_ref().is_ok_and(|code| !code.is_empty()), "{code:?}\n{program}");
        }
    };
    compile(true, &[scatters()]);
    compile(true, &foldings());
    compile(true, &extrema());
    compile(false, &extrema());
}

const X86: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";

#[test]
fn on_baseline_x86_64() {
    check(X86, "x86-64", "");
}

#[test]
fn on_x86_with_256_bit_vectors() {
    check(X86, "x86-64-v3", "");
}

#[test]
fn on_x86_with_mask_registers() {
    check(X86, "znver5", "");
}

#[test]
fn on_arm() {
    check(ARM, "generic", "");
}

#[test]
fn on_arm_with_scalable_vectors() {
    check(ARM, "neoverse-v2", "");
}

#[test]
fn on_nvidia() {
    check("nvptx64-nvidia-cuda", "sm_90", "+ptx80");
}

#[test]
fn on_amd() {
    check("amdgcn-amd-amdhsa", "gfx90a", "");
}
