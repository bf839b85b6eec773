//! Runs the file tests: `tests/file/<pass>/<case>.oir`.
//!
//! With `; run: schedule_program`, the expected text of a case is the schedule. Otherwise the case runs passes of the
//! table [`PASSES`], and the expected text is the program of a variant. Options are `cpu` or `gpu` (the kind of
//! machine), `sets_unroll_factors` (its compiler does not unroll parallel loops), `arrays_may_alias`,
//! `concurrent_launches`, and the variant to print. Calls of a schedule run all variants.

#![allow(clippy::unwrap_used)]

mod private_variant;
mod targets;

use octants_file_tests::{Case, check_cases, check_passes_have_cases};
use octants_ir::schedule::Role;
use octants_ir::verify::assert_program;
use octants_ir::{Program, ScheduleOptions, TargetInfo, run_pass};
use octants_schedule::{PASSES, Scheduling, decide_schedule, describe_schedule, schedule_program};
use private_variant::{runnable, with_copies};
use targets::{CPU, GPU};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn run(case: &Case) -> String {
    let target = match (case.has("cpu"), case.has("gpu")) {
        (true, false) => CPU,
        (false, true) => GPU,
        _ => panic!("{}: one of `cpu` and `gpu`", case.path.display()),
    };
    let target = TargetInfo { unrolls_parallel_loops: !case.has("sets_unroll_factors"), ..target };
    let program: Program = case.parse();
    assert_program(&program, "parsing");
    let options = ScheduleOptions {
        arrays_may_alias: case.has("arrays_may_alias"),
        concurrent_launches: case.has("concurrent_launches"),
        ..ScheduleOptions::default()
    };
    if case.runs("schedule_program") {
        let scheduled = schedule_program(program, &target, options);
        Role::OF_ITERATIONS.iter().for_each(|role| case.assert_calls(&runnable(&scheduled, *role).to_string()));
        if let Some(program) = with_copies(&scheduled, 3) {
            assert_program(&program, "making fields of copies");
            case.assert_calls(&program.to_string());
        }
        return describe_schedule(&scheduled);
    }
    let mut scheduled = decide_schedule(program, &target, options);
    for pass in &case.passes {
        assert!(run_pass(PASSES, pass, &mut scheduled, &mut Scheduling { target, options }), "no pass `{pass}`");
    }
    let all = Role::OF_ITERATIONS.iter().copied().chain([Role::Merge(0)]);
    let shown: Vec<Role> = all.filter(|role| case.has(role.name())).collect();
    let [role] = shown[..] else { panic!("{}: which variant is shown?", case.path.display()) };
    case.text(&scheduled.program_of(role))
}

#[test]
fn files() {
    check_cases(CRATE, run);
}

#[test]
fn every_pass_has_a_case() {
    check_passes_have_cases(CRATE, PASSES.iter().map(|p| p.name));
}
