//! Runs random kernels before and after each pass of the pipeline, and of all of it: memory must be the same.
//!
//! `OCTANTS_TEST_SEEDS` says how many kernels (default 120).

#![allow(clippy::unwrap_used)]

use octants_interpreter::kernel_variants::{Variant, random_memory};
use octants_interpreter::random_kernels::{Dice, random_kernel};
use octants_interpreter::shaped_loops::append_shaped_loop;
use octants_interpreter::{Interpreter, Leaf, Memory, Outcome};
use octants_ir::{BufferId, Kernel, Scalar, assert_kernel, run_pass, run_pipeline};
use octants_passes::{PIPELINE, PassOptions, offload};

/// Passes that compute sums in another order or quotients in another way.
const CHANGE_FLOATS: &[&str] =
    &["normalize_loop_direction", "gather_updates", "promote_inner_sums", "share_reciprocals"];

const VARIANTS: &[Variant] = &[
    Variant { floats: Scalar::F64, ints: Scalar::I32, fields: false },
    Variant { floats: Scalar::F32, ints: Scalar::I64, fields: false },
    Variant { floats: Scalar::F64, ints: Scalar::I64, fields: true },
    Variant { floats: Scalar::F16, ints: Scalar::I32, fields: true },
];

/// The kernel of a seed.
fn kernel(seed: u64, variant: Variant) -> Kernel {
    let mut kernel = random_kernel(seed);
    append_shaped_loop(&mut kernel, seed);
    let kernel = variant.of(&kernel);
    assert_kernel(&kernel, "making it up");
    kernel
}

/// Runs a kernel on memory from a seed. Returns the memory.
fn run(kernel: &Kernel, seed: u64) -> (Memory, Outcome) {
    let mut memory = random_memory(kernel, &mut Dice(seed));
    let outcome = Interpreter::default().run_kernel(kernel, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}"));
    (memory, outcome)
}

/// The first buffer that differs, and how.
fn difference(before: &Memory, after: &Memory, buffers: usize, exact: bool) -> Option<String> {
    let equal = |a: &Leaf, b: &Leaf| match (a, b) {
        (Leaf::Float(a), Leaf::Float(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (!exact && (a - b).abs() <= 1e-9 * (1.0 + a.abs()))
        }
        (a, b) => a == b,
    };
    (0..buffers as u32).map(BufferId).find_map(|b| {
        let (a, c) = (before.get(b), after.get(b));
        let same = a.len() == c.len() && a.iter().zip(&c).all(|(a, c)| equal(a, c));
        (!same).then(|| format!("{b} is {c:?} instead of {a:?}"))
    })
}

/// Runs a pass on a kernel and compares the results. Returns whether it changed the code.
fn check(kernel: &Kernel, seed: u64, pass: &str, options: &mut PassOptions, exact: bool) -> bool {
    let mut changed = kernel.clone();
    if pass == "pipeline" {
        run_pipeline(PIPELINE, &mut changed, options);
    } else {
        assert!(run_pass(PIPELINE, pass, &mut changed, options), "no pass `{pass}`");
    }
    assert_kernel(&changed, pass);
    let ((before, started), (after, ended)) = (run(kernel, seed), run(&changed, seed));
    assert_eq!(ended.failure, None, "an assertion of `{pass}` fails");
    if exact || started.finite {
        let wrong = difference(&before, &after, kernel.buffers.len(), exact);
        assert_eq!(wrong, None, "after `{pass}`\n{kernel}\n----\n{changed}");
    }
    // The final stage is a program.
    let mut memory = random_memory(kernel, &mut Dice(seed));
    let program = offload(changed.clone());
    let outcome = Interpreter::default().run_program(&program, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(outcome.failure, None);
    assert_eq!(difference(&after, &memory, kernel.buffers.len(), true), None, "{changed}\n----\n{program}");
    changed != *kernel
}

fn seeds() -> u64 {
    std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(120)
}

#[test]
fn each_pass_preserves_results() {
    // `check_races` adds arguments, which the launcher fills: Python's tests of races run it.
    let mut passes: Vec<&str> = PIPELINE.iter().map(|p| p.name).filter(|p| *p != "check_races").collect();
    passes.sort();
    passes.dedup();
    let mut changed = vec![0; passes.len()];
    for seed in 0..seeds() {
        let variant = VARIANTS[seed as usize % VARIANTS.len()];
        let kernel = kernel(seed, variant);
        for (pass, changed) in passes.iter().zip(&mut changed) {
            let exact = !CHANGE_FLOATS.contains(pass);
            if !exact && variant.floats != Scalar::F64 {
                continue;
            }
            let mut options = PassOptions { gather: Some(1), fast_math: !exact, ..PassOptions::default() };
            *changed += u64::from(check(&kernel, seed, pass, &mut options, exact));
        }
    }
    let idle: Vec<_> = passes.iter().zip(&changed).filter(|(_, n)| **n == 0).map(|(p, _)| *p).collect();
    // No threads meet, there are no groups, no two of the buffers share memory, and functions get values and have no
    // checks yet.
    let expected = [
        "check_convergence",
        "inline_calls_with_references",
        "inline_cooperating_calls",
        "inline_group_calls",
        "merge_aliased_buffers",
        "name_call_sites",
    ];
    assert_eq!(idle, expected, "passes that changed no kernel");
}

#[test]
fn the_pipeline_preserves_results() {
    for seed in 0..seeds() {
        let variant = VARIANTS[seed as usize % VARIANTS.len()];
        let kernel = kernel(seed, variant);
        let checked = PassOptions { debug: true, check_bounds: true, ..PassOptions::default() };
        let plain = PassOptions { launches_in_order: true, ..PassOptions::default() };
        for mut options in [plain, checked] {
            check(&kernel, seed, "pipeline", &mut options, true);
        }
        if variant.floats == Scalar::F64 {
            let mut fast = PassOptions { fast_math: true, launches_in_order: true, ..PassOptions::default() };
            check(&kernel, seed, "pipeline", &mut fast, false);
        }
    }
}
