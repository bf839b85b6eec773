//! Grid-stride loops, run on the CPU: GPU code is compiled for the CPU and called once per thread of a grid. Each
//! iteration must run exactly once for every grid.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod programs;
mod scheduled;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use octants_artifact::{CodeTarget, DeviceContext};
use octants_codegen_llvm::{CodegenOptions, Listing};
use octants_ir::*;
use programs::*;
use scheduled::list;

/// Blocks, and threads of each.
type Grid = (u32, u32);
const GRIDS: [Grid; 5] = [(1, 32), (3, 64), (7, 96), (40, 32), (2, 256)];

/// The thread's position and the grid's size, as in the device's registers.
const REGISTERS: &str = "
@where = internal global [4 x i32] zeroinitializer
define void @enter(i32 %b, i32 %bs, i32 %t, i32 %ts) {
  store i32 %b, ptr @where
  store i32 %bs, ptr getelementptr (i32, ptr @where, i32 1)
  store i32 %t, ptr getelementptr (i32, ptr @where, i32 2)
  store i32 %ts, ptr getelementptr (i32, ptr @where, i32 3)
  ret void
}
define i32 @read_ctaid() {\n %v = load i32, ptr @where\n ret i32 %v\n}
define i32 @read_nctaid() {\n %v = load i32, ptr getelementptr (i32, ptr @where, i32 1)\n ret i32 %v\n}
define i32 @read_tid() {\n %v = load i32, ptr getelementptr (i32, ptr @where, i32 2)\n ret i32 %v\n}
define i32 @read_ntid() {\n %v = load i32, ptr getelementptr (i32, ptr @where, i32 3)\n ret i32 %v\n}
";

/// The text of a device's code as code of this machine.
fn as_host_code(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        // There is no work before a task here.
        let waits = line.contains("griddepcontrol.wait");
        if !line.starts_with("target ") && !line.starts_with("declare noundef range") && !waits {
            out += line;
            out += "\n";
        }
    }
    let mut out = out.replace("ptx_kernel ", "");
    for register in ["ctaid", "nctaid", "tid", "ntid"] {
        out = out.replace(&format!("@llvm.nvvm.read.ptx.sreg.{register}.x("), &format!("@read_{register}("));
    }
    while let Some(at) = out.find("byval(") {
        let end = out[at..].find(')').unwrap();
        out.replace_range(at..=at + end, "");
    }
    out + REGISTERS
}

/// Before a task has waited for the work before it, it touches no memory but its parameter.
fn check_waits_first(text: &str) {
    let functions: Vec<&str> = text.split("\ndefine ").skip(1).filter(|f| f.contains("ptx_kernel")).collect();
    assert!(!functions.is_empty());
    for function in functions {
        let (before, _) = function.split_once("griddepcontrol.wait").unwrap();
        assert!(!before.contains(", ptr addrspace("), "{before}");
    }
}

/// Enters the task `symbol` once for each thread of each grid, between `before` and `after`.
fn run_on_grids(p: &Program, symbol: &str, args: &[u64], before: &mut dyn FnMut(), after: &mut dyn FnMut(Grid)) {
    let target =
        CodeTarget::Device { triple: "nvptx64-nvidia-cuda".into(), cpu: "sm_90".into(), features: "+ptx80".into() };
    let text = list(p, &CodegenOptions::default(), &target, Listing::Optimized).unwrap();
    check_waits_first(&text);
    let text = as_host_code(&text);
    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "device");
    let module = context.create_module_from_ir(buffer).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let engine = module.create_jit_execution_engine(OptimizationLevel::Default).unwrap();
    let mut parameter = vec![0u64; DeviceContext::BYTES as usize / 8];
    parameter.extend(args);
    // SAFETY: the functions have these types, and the task stays within the arrays that `args` name.
    unsafe {
        let enter = engine.get_function::<unsafe extern "C" fn(u32, u32, u32, u32)>("enter").unwrap();
        let task = engine.get_function::<unsafe extern "C" fn(*const u64)>(symbol).unwrap();
        for (blocks, threads) in GRIDS {
            before();
            for block in 0..blocks {
                for thread in 0..threads {
                    enter.call(block, blocks, thread, threads);
                    task.call(parameter.as_ptr());
                }
            }
            after((blocks, threads));
        }
    }
}

/// A loop over the interior of an array, without `edges` (before, behind) of each axis. It adds the result of `more` to
/// each element.
fn inside_of(s: Scalar, edges: &[(i64, i64)], more: impl FnOnce(&mut Builder, &[ValueId]) -> ValueId) -> Program {
    let mut b = Builder::new();
    let dims = edges
        .iter()
        .enumerate()
        .map(|(axis, (before, behind))| {
            let begin = b.int(*before, s);
            let extent = b.push(Op::Shape(BufferId(0), axis as u32), s.into());
            let behind = b.int(*behind, s);
            (begin, b.binary(BinaryOp::Sub, extent, behind))
        })
        .collect();
    for_loop(&mut b, dims, true, vec![], |b, l| {
        let at_loop: Vec<ValueId> =
            (0..edges.len()).map(|axis| b.push(Op::LoopIndex(l, axis as u32), s.into())).collect();
        let a = at(b, 0, Scalar::F32, &at_loop);
        let old = b.load(a);
        let more = more(b, &at_loop);
        let new = b.binary(BinaryOp::Add, old, more);
        b.store(a, new);
    });
    let n = edges.len() as u32;
    program(vec![array("y", Scalar::F32, n), array("x", Scalar::F32, n)], vec![], Type::Unit, true, b.body)
}

/// Runs a variant of the loop of [`inside_of`] on arrays of some extents. Each interior element must increase by
/// `wanted` of its position.
fn check(p: &Program, symbol: &str, extents: &[usize], edges: &[(i64, i64)], wanted: &dyn Fn(usize) -> f32) {
    let n: usize = extents.iter().product();
    // Aligned for the vectorized variant.
    let mut y = vec![0u128; n / 4 + 1];
    let x: Vec<u128> =
        (0..n / 4 + 1).map(|_| u128::from_ne_bytes([[0, 0, 0x80, 0x3f]; 4].concat().try_into().unwrap())).collect();
    let at = y.as_mut_ptr().cast::<f32>();
    let extents64 = extents.iter().map(|e| *e as u64);
    let mut args = vec![at as u64];
    args.extend(extents64.clone());
    args.push(x.as_ptr() as u64);
    args.extend(extents64);
    // SAFETY: `y` has that many elements.
    let elements = || unsafe { std::slice::from_raw_parts_mut(at, n) };
    run_on_grids(p, symbol, &args, &mut || elements().fill(0.0), &mut |grid| {
        for (k, value) in elements().iter().enumerate() {
            let mut rest = k;
            let inside = extents.iter().zip(edges).rev().all(|(extent, (before, behind))| {
                let i = (rest % extent) as i64;
                rest /= extent;
                *before <= i && i < *extent as i64 - behind
            });
            let wanted = if inside { wanted(k) } else { 0.0 };
            assert_eq!(*value, wanted, "element {k} of {extents:?} without {edges:?} on a grid {grid:?} of {symbol}");
        }
    });
}

fn one(b: &mut Builder, _: &[ValueId]) -> ValueId {
    b.float(1.0, Scalar::F32)
}

#[test]
fn every_iteration_runs_once_on_any_grid() {
    for s in [Scalar::I32, Scalar::I64] {
        for edges in [&[(0, 0)][..], &[(0, 0), (0, 0)], &[(1, 2), (0, 5)], &[(2, 0), (1, 1), (0, 3)]] {
            let p = inside_of(s, edges, one);
            for extents in [[700, 1, 1], [29, 31, 6], [5, 200, 7], [40, 1, 9], [3, 8, 64]] {
                check(&p, "kernel_0", &extents[..edges.len()], edges, &|_| 1.0);
            }
        }
    }
}

#[test]
fn the_coarsened_variant_runs_its_part_of_the_loop() {
    for edges in [&[(0, 0)][..], &[(3, 2)], &[(4, 4)], &[(1, 1), (1, 1)], &[(0, 0), (2, 7)], &[(1, 0), (2, 1), (5, 3)]]
    {
        let p = inside_of(if edges.len() == 2 { Scalar::I64 } else { Scalar::I32 }, edges, one);
        for extents in [[1000, 1, 1], [20, 64, 1], [3, 44, 1], [3, 5, 48]] {
            let extents = &extents[..edges.len()];
            // If there are several rows, their length is a multiple of the lanes.
            if extents.len() == 1 || extents[extents.len() - 1] % 4 == 0 {
                check(&p, "kernel_0_wide", extents, edges, &|_| 1.0);
            }
        }
    }
    // One row need not be a multiple.
    let p = inside_of(Scalar::I32, &[(1, 1)], one);
    check(&p, "kernel_0_wide", &[1003], &[(1, 1)], &|_| 1.0);
}

#[test]
fn stencils_run_in_tiles() {
    let edges = [(1, 1), (1, 1)];
    let p = inside_of(Scalar::I32, &edges, |b, at_loop| {
        let one = b.int(1, Scalar::I32);
        let (up, down) = (b.binary(BinaryOp::Sub, at_loop[0], one), b.binary(BinaryOp::Add, at_loop[0], one));
        let (up, down) = (at(b, 1, Scalar::F32, &[up, at_loop[1]]), at(b, 1, Scalar::F32, &[down, at_loop[1]]));
        let (up, down) = (b.load(up), b.load(down));
        b.binary(BinaryOp::Add, up, down)
    });
    for extents in [[30, 512], [67, 260], [3, 1024], [300, 64]] {
        for symbol in ["kernel_0", "kernel_0_wide"] {
            check(&p, symbol, &extents, &edges, &|_| 2.0);
        }
    }
}

#[test]
fn empty_loops_run_nothing() {
    for edges in [&[(0, 7)][..], &[(0, 0), (7, 7)], &[(7, 7), (0, 0)]] {
        let p = inside_of(Scalar::I32, edges, one);
        check(&p, "kernel_0", &[7, 6][..edges.len()], edges, &|_| 1.0);
    }
}
