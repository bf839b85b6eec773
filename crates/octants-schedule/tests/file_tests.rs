//! Runs the file tests: `tests/file/<pass>/<case>.oir`, the folder naming the pass that decides.
//!
//! A case holds a program, after `; run: schedule_program`, and its schedule as text. Its options are `cpu` or `gpu`,
//! the kind of machine, and `arrays_may_alias`.

#![allow(clippy::unwrap_used)]

use octants_file_tests::{Case, check_cases};
use octants_ir::verify::assert_program;
use octants_ir::{CostTable, Program, ScheduleOptions, TargetInfo};
use octants_schedule::{describe_schedule, schedule_program};

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
    assert_eq!(case.passes, ["schedule_program"], "{}", case.path.display());
    let target = match (case.has("cpu"), case.has("gpu")) {
        (true, false) => CPU,
        (false, true) => GPU,
        _ => panic!("{}: one of `cpu` and `gpu`", case.path.display()),
    };
    let program: Program = case.parse();
    assert_program(&program, "parsing");
    let options = ScheduleOptions { arrays_may_alias: case.has("arrays_may_alias"), ..ScheduleOptions::default() };
    describe_schedule(&schedule_program(program, &target, options))
}

#[test]
fn files() {
    check_cases(CRATE, run);
}
