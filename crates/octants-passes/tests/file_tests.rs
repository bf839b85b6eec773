//! Runs the file tests: `tests/file/<pass>/<case>.oir`.
//!
//! Options of a case are `check_bounds`, `debug`, `fast_math`, `arrays_may_alias`, `launches_in_order`,
//! `merges_aliased_buffers`, `inlines_cooperation`, `shared` (blocks may share memory) and `gather`. A pass is a name
//! of the pipeline's table, `pipeline` (all of it), `renumber`, `offload` (the expected text is a program),
//! `guard_iterations`, `print` (the printed input), `access_sets` (the elements that a program's tasks touch) or
//! `verify` (the violations, one per line).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use octants_analysis::describe_access;
use octants_file_tests::{Case, cases, check_cases, check_passes_have_cases};
use octants_ir::verify::{Rule, assert_kernel, assert_program, verify_kernel, verify_program};
use octants_ir::{Kernel, Program, renumber, run_pass, run_pipeline};
use octants_passes::{PIPELINE, PassOptions, guard_iterations, offload};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Passes of cases in addition to the rows of the pipeline's table.
const OTHERS: &[&str] = &["access_sets", "guard_iterations", "offload", "pipeline", "print", "renumber"];

fn run(case: &Case) -> String {
    match case.passes[0].as_str() {
        "print" if case.is_program() => case.text(&case.parse::<Program>()),
        "print" => case.text(&case.parse::<Kernel>()),
        "access_sets" => describe_access(&case.parse()),
        "verify" => {
            let violations =
                if case.is_program() { verify_program(&case.parse()) } else { verify_kernel(&case.parse()) };
            violations.iter().map(|v| format!("{v}\n")).collect()
        }
        "offload" => {
            let program = offload(case.kernel());
            assert_program(&program, "offload");
            case.text(&program)
        }
        "guard_iterations" => {
            let mut program = case.parse();
            guard_iterations(&mut program);
            assert_program(&program, "guard_iterations");
            case.text(&program)
        }
        _ => run_rows(case),
    }
}

/// Runs rows of the table, or all.
fn run_rows(case: &Case) -> String {
    let mut options = PassOptions {
        check_bounds: case.has("check_bounds"),
        debug: case.has("debug"),
        fast_math: case.has("fast_math"),
        arrays_may_alias: case.has("arrays_may_alias"),
        launches_in_order: case.has("launches_in_order"),
        merges_aliased_buffers: case.has("merges_aliased_buffers"),
        inlines_cooperation: case.has("inlines_cooperation"),
        gather: case.has("gather").then_some(4),
        shared_bytes: if case.has("shared") { 1 << 12 } else { 0 },
        ..PassOptions::default()
    };
    let mut kernel = case.kernel();
    for pass in &case.passes {
        match pass.as_str() {
            "pipeline" => run_pipeline(PIPELINE, &mut kernel, &mut options),
            "renumber" => renumber(&mut kernel.body),
            _ => {
                let found = run_pass(PIPELINE, pass, &mut kernel, &mut options);
                assert!(found, "{}: no pass `{pass}`", case.path.display());
            }
        }
        assert_kernel(&kernel, pass);
    }
    // Unreachable code has no text.
    kernel.functions.iter_mut().for_each(|f| renumber(&mut f.body));
    renumber(&mut kernel.body);
    case.text(&kernel)
}

#[test]
fn files() {
    check_cases(CRATE, run);
}

#[test]
fn every_pass_and_every_rule_has_a_case() {
    check_passes_have_cases(CRATE, PIPELINE.iter().map(|p| p.name).chain(OTHERS.iter().copied()));
    let broken: BTreeSet<String> = cases(CRATE)
        .iter()
        .filter(|c| c.runs("verify"))
        .flat_map(|c| c.expected.lines())
        .filter_map(|l| Some(l.strip_prefix("rule ")?.split(' ').next()?.to_string()))
        .collect();
    for rule in Rule::ALL {
        let number = (*rule as u32).to_string();
        assert!(broken.contains(&number), "no file test breaks rule {number}: {}", rule.text());
    }
}
