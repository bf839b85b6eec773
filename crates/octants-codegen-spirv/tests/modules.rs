//! Modules of programs. Khronos' validator checks each of them if it is installed. The text of one is compared with a
//! file.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

#[path = "../../octants-codegen-llvm/tests/programs/mod.rs"]
mod programs;
#[path = "../../octants-codegen-llvm/tests/thread_programs/mod.rs"]
mod thread_programs;

use std::io::Write;
use std::process::{Command, Stdio};

use octants_codegen_spirv::{DeviceFeatures, compile, list};
use octants_ir::*;
use octants_schedule::schedule_program;
use programs::*;
use thread_programs::*;

fn scheduled(program: &Program, features: DeviceFeatures) -> Scheduled {
    let mut program = program.clone();
    octants_analysis::compute_access(&mut program);
    schedule_program(program, &features.info(), ScheduleOptions::default())
}

/// Validates a module, if the validator is installed.
fn validate(module: &[u8], text: &str) {
    let spawned = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        return eprintln!("not validated: spirv-val (package spirv-tools) is not installed");
    };
    child.stdin.take().unwrap().write_all(module).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
}

/// The text of a program's modules, each of which is valid.
fn modules(program: &Program, features: DeviceFeatures, fast_math: bool) -> String {
    let (scheduled, options) =
        (scheduled(program, features), CodegenOptions { fast_math, ..CodegenOptions::default() });
    let text = list(&scheduled, &options, &features.code_target()).unwrap();
    let artifact = compile(&scheduled, &|_| String::new(), &options, &features.code_target()).unwrap();
    artifact.modules.iter().for_each(|module| validate(module, &text));
    text
}

const LAVAPIPE: DeviceFeatures = DeviceFeatures {
    subgroup_size: 8,
    shared_bytes: 32 << 10,
    atomic_float64: false,
    fences_wait: true,
    ..DeviceFeatures::ALL
};

#[test]
fn math_functions_are_valid() {
    let functions: Vec<UnaryOp> = UnaryOp::ALL
        .iter()
        .copied()
        .filter(|op| !matches!(op, UnaryOp::BitNot | UnaryOp::LogicNot | UnaryOp::Popcnt | UnaryOp::Clz | UnaryOp::Ffs))
        .filter(|op| !matches!(op, UnaryOp::IsNan | UnaryOp::IsInf))
        .collect();
    for s in [Scalar::F16, Scalar::F32, Scalar::F64] {
        for fast_math in [false, true] {
            modules(&map(&functions, s), LAVAPIPE, fast_math);
        }
    }
}

#[test]
fn reductions_and_atomics_are_valid_on_devices_of_all_kinds() {
    let without_sums = DeviceFeatures { atomic_float32: false, shared_atomic_float32: false, ..LAVAPIPE };
    for features in [DeviceFeatures::ALL, LAVAPIPE, without_sums] {
        for s in [Scalar::I32, Scalar::U64, Scalar::F32, Scalar::F64] {
            for op in [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::Mul] {
                modules(&reduction(op, s), features, true);
            }
        }
        for s in [Scalar::I8, Scalar::U16, Scalar::F16, Scalar::I64, Scalar::F32, Scalar::F64] {
            for op in [AtomicOp::Add, AtomicOp::Max, AtomicOp::Exchange] {
                let value = |b: &mut Builder, _: ValueId| if s.is_float() { b.float(1.5, s) } else { b.int(1, s) };
                modules(&scatter(op, array("h", s, 1), s, value), features, false);
            }
        }
    }
}

#[test]
fn a_sum_has_several_loads_in_flight() {
    let text = modules(&reduction(AtomicOp::Add, Scalar::F32), DeviceFeatures::ALL, true);
    let main = text.split("OpFunctionEnd").next().unwrap();
    // Four steps together, and one step when fewer are left.
    assert_eq!(main.lines().filter(|line| line.contains("OpLoad") && line.contains("Aligned")).count(), 5, "{main}");
}

#[test]
fn assertions_and_many_parameters_are_valid() {
    modules(&checked_copy(), LAVAPIPE, true);
    let text = modules(&many_parameters(), LAVAPIPE, true);
    // Too many for push constants: they are read at an address.
    assert!(text.contains("PhysicalStorageBuffer"), "{text}");
}

#[test]
fn thread_operations_are_valid() {
    for scope in ["subgroup", "block"] {
        modules(&barrier(scope), LAVAPIPE, true);
    }
    for features in [DeviceFeatures::ALL, LAVAPIPE] {
        // An atomic operation replaces a memory barrier in a loop that waits for other threads.
        let has_barrier = |program: &Program, name: &str| modules(program, features, true).contains(name);
        for scope in ["block", "device"] {
            assert_eq!(has_barrier(&fence(scope), "OpMemoryBarrier"), !features.fences_wait);
            assert_eq!(has_barrier(&fence(scope), "OpAtomicOr"), features.fences_wait);
        }
        assert_eq!(has_barrier(&checked_copy(), "OpMemoryBarrier"), !features.fences_wait);
        assert_eq!(has_barrier(&barrier("subgroup"), "OpControlBarrier"), !features.fences_wait);
        assert!(has_barrier(&barrier("block"), "OpControlBarrier"));
    }
    for operation in ["shuffle(%17, %15)", "shuffle_xor(%17, %13)", "shuffle_up(%17, %13)", "shuffle_down(%17, %13)"] {
        modules(&subgroup(operation), LAVAPIPE, true);
    }
    for operation in ["ballot(%18)", "any(%18)", "all(%18)", "all_here(%18)", "is_whole()"] {
        modules(&subgroup(operation), LAVAPIPE, true);
    }
}

#[test]
fn matrix_products_are_valid() {
    for kind in octants_ir::ProductKind::ALL.iter().copied() {
        for features in [DeviceFeatures::ALL, LAVAPIPE] {
            modules(&matrix_product(kind, features.info().subgroup_size), features, true);
        }
    }
}

#[test]
fn missing_device_features_are_errors() {
    let least = DeviceFeatures::NONE;
    let refused = |program: &Program| {
        let scheduled = scheduled(program, least);
        let location = |_| String::from("k.py:7");
        let made = compile(&scheduled, &location, &CodegenOptions::default(), &least.code_target());
        made.expect_err("the device lacks what the program needs").to_string()
    };
    let wide = refused(&map(&[UnaryOp::Sqrt], Scalar::F64));
    assert!(wide.contains("no 64-bit floats") && wide.contains("k.py:7"), "{wide}");
    let half = refused(&map(&[UnaryOp::Sqrt], Scalar::F16));
    assert!(half.contains("no 16-bit floats"), "{half}");
    let votes = refused(&subgroup("any(%18)"));
    assert!(votes.contains("no votes and shuffles"), "{votes}");
    // Without any of the optional features the rest works.
    modules(&map(&[UnaryOp::Sin, UnaryOp::Exp], Scalar::F32), least, true);
}

#[test]
fn the_assembly_of_a_map_matches_its_golden_text() {
    let text = modules(&map(&[UnaryOp::Neg], Scalar::F32), LAVAPIPE, true);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/map.spvasm");
    if std::env::var_os("OCTANTS_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "OCTANTS_BLESS=1 writes {path}");
}

#[test]
fn coarsened_variants_have_vector_accesses() {
    for (s, bytes) in
        [(Scalar::F32, 16), (Scalar::F64, 16), (Scalar::F16, 16), (Scalar::I8, 8), (Scalar::U16, 16), (Scalar::I64, 16)]
    {
        let program = copy_of_arrays(s);
        let text = modules(&program, LAVAPIPE, true);
        let (scheduled, options) = (scheduled(&program, LAVAPIPE), CodegenOptions::default());
        let artifact = compile(&scheduled, &|_| String::new(), &options, &LAVAPIPE.code_target()).unwrap();
        let form = artifact.tasks[0].parallel.as_ref().and_then(|p| p.wide.as_ref()).expect("a coarsened variant");
        validate(&form.code, &text);
        let wide =
            |op: &str| text.lines().filter(|l| l.contains(op) && l.ends_with(&format!("Aligned {bytes}"))).count();
        assert_eq!((wide("OpLoad"), wide("OpStore")), (1, 1), "{s:?}\n{text}");
    }
}

/// `y[i] = x[i]` over arrays.
fn copy_of_arrays(s: Scalar) -> Program {
    let text = format!(
        "program copy -> unit {{
  param e: i32
  buffer @0 x: {s}[1] contiguous
  buffer @1 y: {s}[1] contiguous
  task copy_0_range parallel reads [@0] writes [@1] {{
    %0: i32 = const 0
    %1: i32 = param 0
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: ref {s} = buffer_addr @0[%3]
      %5: {s} = load %4
      %6: ref {s} = buffer_addr @1[%3]
      store %6, %5
    }}
  }}
}}",
        s = s.name()
    );
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}
