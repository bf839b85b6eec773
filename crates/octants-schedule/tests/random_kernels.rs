//! Runs random kernels, split into tasks, before and after scheduling: each variant of the tasks must compute the same
//! memory.
//!
//! `OCTANTS_TEST_SEEDS` says how many kernels (default 100).

#![allow(clippy::unwrap_used)]

mod private_variant;
mod targets;

use octants_interpreter::kernel_variants::{Variant, random_memory};
use octants_interpreter::random_kernels::{Dice, random_kernel};
use octants_interpreter::shaped_loops::append_shaped_loop;
use octants_interpreter::{Interpreter, Leaf, Memory};
use octants_ir::schedule::Role;
use octants_ir::{BufferId, Kernel, Program, Scalar, ScheduleOptions, TaskKind, run_pipeline};
use octants_ir::{assert_program, assert_scheduled, verify::assert_kernel};
use octants_passes::{PIPELINE, PassOptions, offload};
use octants_schedule::schedule_program;
use private_variant::{runnable, with_copies};
use targets::{CPU, GPU};

fn run(program: &Program, kernel: &Kernel, seed: u64) -> Memory {
    let mut memory = random_memory(kernel, &mut Dice(seed));
    let outcome =
        Interpreter::default().run_program(program, &mut memory, &[]).unwrap_or_else(|e| panic!("{e}\n{program}"));
    assert_eq!(outcome.failure, None);
    memory
}

#[test]
fn variants_compute_what_the_program_computes() {
    let seeds = std::env::var("OCTANTS_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    let (mut variants, mut merged) = (0, 0);
    for seed in 0..seeds {
        let floats = [Scalar::F64, Scalar::F32][seed as usize % 2];
        let mut kernel = random_kernel(seed);
        append_shaped_loop(&mut kernel, seed);
        let mut kernel = Variant { floats, ints: Scalar::I32, fields: seed % 3 == 0 }.of(&kernel);
        assert_kernel(&kernel, "making it up");
        run_pipeline(PIPELINE, &mut kernel, &mut PassOptions { launches_in_order: true, ..PassOptions::default() });
        let program = offload(kernel.clone());
        let before = run(&program, &kernel, seed);
        for target in &[CPU, GPU] {
            let scheduled = schedule_program(program.clone(), target, ScheduleOptions::default());
            assert_scheduled(&scheduled, "scheduling it");
            let roles = Role::OF_ITERATIONS.iter().map(|role| (role.name(), runnable(&scheduled, *role)));
            let copies = with_copies(&scheduled, 1 + seed % 4).map(|program| ("merged", program));
            merged += usize::from(copies.is_some());
            for (role, variant) in roles.chain(copies) {
                if variant == program {
                    continue;
                }
                assert_program(&variant, role);
                variants += 1;
                let after = run(&variant, &kernel, seed);
                // Threads of a grid add up their sums in another order, as do merges of copies.
                let reorders = role == "merged" || variant.tasks.iter().any(|t| matches!(t.kind, TaskKind::Grid(_)));
                let error = if reorders { [1e-9, 1e-3][seed as usize % 2] } else { 0.0 };
                for b in (0..kernel.buffers.len() as u32).map(BufferId) {
                    let same = before.get(b).iter().zip(&after.get(b)).all(|(a, c)| match (a, c) {
                        (Leaf::Float(a), Leaf::Float(c)) => {
                            (a - c).abs() <= error * (1.0 + a.abs()) || a == c || (a.is_nan() && c.is_nan())
                        }
                        (a, c) => a == c,
                    });
                    assert!(same, "{b} differs in the {role} variant\n{program}\n----\n{variant}");
                }
            }
        }
    }
    assert!(merged > 0, "no kernel has copies");
    assert!(variants > seeds, "only {variants} variants of {seeds} kernels differ from them");
}
