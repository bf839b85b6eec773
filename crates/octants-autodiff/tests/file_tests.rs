//! Runs the file tests: `tests/file/<pass>/<case>.oir`.
//!
//! A pass is a name of the table of differentiation, or a mode, which runs all of its rows: `forward_mode`,
//! `reverse_mode`, `validation`, `record_loops` or `record_reads`; or `record_loop_trips`, which changes the kernel
//! itself. The output of an adjoint is simplified, and followed by the kernel that computes the size of its store.
//! Options of a case are `blocks` (states are stored once per block of iterations), `reads` (reads of memory are
//! recorded, too) and `shared` (the first two buffers share a part of their memory). If a pass warns or refuses, its
//! message replaces the kernel.

#![allow(clippy::unwrap_used)]

use octants_autodiff::{DIFFERENTIATE, Differentiation, Keeping, differentiate, record_loop_trips};
use octants_diag::Diagnostic;
use octants_file_tests::{Case, check_cases, check_passes_have_cases};
use octants_ir::verify::assert_kernel;
use octants_ir::{AutodiffMode, BufferId, renumber, run_pass};
use octants_passes::eliminate_dead_code::eliminate_dead_code;
use octants_passes::{Alias, PIPELINE};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The launch of a kernel records trip counts for its gradient.
const RECORDER: &str = "record_loop_trips";

const MODES: &[(&str, AutodiffMode)] = &[
    ("forward_mode", AutodiffMode::Forward),
    ("reverse_mode", AutodiffMode::Reverse),
    ("validation", AutodiffMode::Validation),
    ("record_loops", AutodiffMode::Trips),
    ("record_reads", AutodiffMode::Reads),
];

fn run(case: &Case) -> String {
    let [pass] = &case.passes[..] else { panic!("{}: several passes", case.path.display()) };
    let mode = MODES.iter().find(|(name, _)| name == pass).map(|(_, mode)| *mode);
    let shared = Alias { first: BufferId(0), second: BufferId(1), same: false };
    let keeping = if case.has("blocks") { Keeping::Blocks } else { Keeping::Iterations };
    let none = if case.has("reads") { AutodiffMode::Reads } else { AutodiffMode::None };
    let mut asked = Differentiation::new(mode.unwrap_or(none), keeping);
    asked.aliases.extend(case.has("shared").then_some(shared));
    let mut kernel = case.kernel();
    let made = match mode {
        Some(_) => differentiate(&mut kernel, &mut asked),
        None if pass == RECORDER => {
            assert!(record_loop_trips(&mut kernel).is_some());
            Ok(())
        }
        None => {
            let found = run_pass(DIFFERENTIATE, pass, &mut kernel, &mut asked);
            assert!(found, "{}: no pass `{pass}`", case.path.display());
            asked.finish()
        }
    };
    let lines =
        |kind: &str, all: &[Diagnostic]| -> String { all.iter().map(|d| format!("{kind}: {}\n", d.message)).collect() };
    if let Err(errors) = made {
        return lines("error", &errors);
    }
    assert_kernel(&kernel, pass);
    if !asked.warnings.is_empty() {
        return lines("warning", &asked.warnings);
    }
    if mode == Some(AutodiffMode::Reverse) {
        eliminate_dead_code(&mut kernel);
    }
    if let Some(store) = asked.store {
        let mut count = store.count;
        assert_kernel(&count, pass);
        eliminate_dead_code(&mut count);
        return case.text(&kernel) + &case.text(&count);
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
fn every_pass_has_a_case() {
    let is_elsewhere = |name: &str| PIPELINE.iter().any(|p| p.name == name);
    check_passes_have_cases(CRATE, DIFFERENTIATE.iter().map(|p| p.name).filter(|name| !is_elsewhere(name)));
}
