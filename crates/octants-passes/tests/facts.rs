//! Facts are computed once per version of the code, however many passes ask for them.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use octants_ir::{Kernel, run_pipeline};
use octants_passes::{PIPELINE, PassOptions};

const TEXT: &str = include_str!("file/inline_calls/stays_a_call.oir");

#[test]
fn effects_of_functions_are_computed_once_per_version() {
    let kernel = TEXT.split("----").next().unwrap();
    let kernel: String = kernel.lines().filter(|l| !l.starts_with(';')).map(|l| format!("{l}\n")).collect();
    let mut kernel: Kernel = kernel.parse().unwrap();
    let mut options = PassOptions::default();
    run_pipeline(PIPELINE, &mut kernel, &mut options);
    assert!(!kernel.functions.is_empty());
    // Dead code is eliminated twice, and two passes in between ask too. Only the first elimination changes a function.
    assert!(options.facts.computations() <= 2, "{}", options.facts.computations());
}
