//! Runs the file tests: `tests/file/<pass>/<case>.oir`, the folder naming the pass that decides.
//!
//! A case holds a program, after `; run: schedule_program`, and its schedule as text; or it runs passes of the table
//! [`PASSES`], and holds the program of a variant. Its options are `cpu` or `gpu`, the kind of machine,
//! `arrays_may_alias`, and which variant is shown.

#![allow(clippy::unwrap_used)]

use octants_file_tests::{Case, check_cases, check_passes_have_cases};
use octants_ir::schedule::Role;
use octants_ir::verify::assert_program;
use octants_ir::{CostTable, Program, ScheduleOptions, TargetInfo, run_pass};
use octants_schedule::{PASSES, Scheduling, decide_schedule, describe_schedule, schedule_program};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Vectors, and threads with copies of what they scatter to.
const CPU: TargetInfo = TargetInfo {
    has_grid: false,
    subgroup_size: 0,
    max_shared_bytes: 0,
    has_vectors: true,
    shared_bytes: 0,
    private_bytes: 4 << 20,
    waits_for_loads: false,
    counts_in_32_bits: false,
    has_constant_loads: false,
    costs: CostTable::GENERIC,
};

/// Blocks of threads with memory of their own.
const GPU: TargetInfo = TargetInfo {
    has_grid: true,
    subgroup_size: 32,
    max_shared_bytes: 48 << 10,
    has_vectors: false,
    shared_bytes: 32 << 10,
    private_bytes: 0,
    waits_for_loads: true,
    counts_in_32_bits: true,
    has_constant_loads: true,
    costs: CostTable::GENERIC,
};

fn run(case: &Case) -> String {
    let target = match (case.has("cpu"), case.has("gpu")) {
        (true, false) => CPU,
        (false, true) => GPU,
        _ => panic!("{}: one of `cpu` and `gpu`", case.path.display()),
    };
    let program: Program = case.parse();
    assert_program(&program, "parsing");
    let options = ScheduleOptions { arrays_may_alias: case.has("arrays_may_alias"), ..ScheduleOptions::default() };
    if case.runs("schedule_program") {
        return describe_schedule(&schedule_program(program, &target, options));
    }
    let mut scheduled = decide_schedule(program, &target, options);
    for pass in &case.passes {
        assert!(run_pass(PASSES, pass, &mut scheduled, &mut Scheduling { target, options }), "no pass `{pass}`");
    }
    let shown: Vec<Role> = Role::ALL.iter().copied().filter(|role| case.has(role.name())).collect();
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
