//! The driver of every pipeline: runs the passes of a table in order, and verifies the IR between them.

use crate::kernel::Kernel;
use crate::schedule::Scheduled;
use crate::verify::{assert_kernel, assert_scheduled};

/// A row of a table of passes over IR of the type `I`. `S` is the state that the passes share: options, and their
/// findings.
pub struct Pass<I, S> {
    /// The name of the pass's function.
    pub name: &'static str,
    /// Whether the pass runs.
    pub runs: fn(&I, &S) -> bool,
    /// The pass.
    pub run: fn(&mut I, &mut S),
}

/// IR that the verifier has rules for.
pub trait Verified {
    /// Panics if a rule is broken; `after` says which step made the IR.
    fn assert_rules(&self, after: &str);
}

impl Verified for Kernel {
    fn assert_rules(&self, after: &str) {
        assert_kernel(self, after);
    }
}

impl Verified for Scheduled {
    fn assert_rules(&self, after: &str) {
        assert_scheduled(self, after);
    }
}

/// The state that the passes of a table share, besides the IR.
pub trait PassState {
    /// Whether a pass has found a user error. No further passes run, and the IR is invalid.
    fn has_failed(&self) -> bool {
        false
    }
}

/// For rows of passes that always run.
pub fn always<I, S>(_: &I, _: &S) -> bool {
    true
}

/// Runs a table on a kernel or a scheduled program. In debug builds the verifier runs before it and after each pass.
pub fn run_pipeline<I: Verified, S: PassState>(table: &[Pass<I, S>], ir: &mut I, state: &mut S) {
    run_pipeline_with(table, ir, state, |_| ());
}

/// As [`run_pipeline`]; calls `after` with a pass's name when it has run.
pub fn run_pipeline_with<I: Verified, S: PassState>(
    table: &[Pass<I, S>],
    ir: &mut I,
    state: &mut S,
    mut after: impl FnMut(&'static str),
) {
    verify(ir, "the step before");
    for pass in table {
        if !(pass.runs)(ir, state) {
            continue;
        }
        (pass.run)(ir, state);
        if state.has_failed() {
            return;
        }
        verify(ir, pass.name);
        after(pass.name);
    }
}

/// Runs the first pass of this name in a table; false when there is none.
pub fn run_pass<I: Verified, S: PassState>(table: &[Pass<I, S>], name: &str, ir: &mut I, state: &mut S) -> bool {
    let Some(pass) = table.iter().find(|p| p.name == name) else { return false };
    (pass.run)(ir, state);
    if !state.has_failed() {
        verify(ir, name);
    }
    true
}

fn verify(ir: &impl Verified, after: &str) {
    if cfg!(debug_assertions) {
        ir.assert_rules(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of the pass that fails.
    struct Failing(&'static str, bool);

    impl PassState for Failing {
        fn has_failed(&self) -> bool {
            self.1
        }
    }

    const TABLE: &[Pass<Kernel, Failing>] = &[
        Pass { name: "first", runs: always, run: |_, f| f.1 = f.0 == "first" },
        Pass { name: "never", runs: |_, _| false, run: |_, _| panic!("it does not run") },
        Pass { name: "second", runs: always, run: |_, f| f.1 = f.0 == "second" },
        Pass { name: "third", runs: always, run: |_, f| f.1 = f.0 == "third" },
    ];

    fn passes_until(failing: &'static str) -> Vec<&'static str> {
        let mut done = Vec::new();
        run_pipeline_with(TABLE, &mut Kernel::default(), &mut Failing(failing, false), |pass| done.push(pass));
        done
    }

    #[test]
    fn no_pass_runs_after_a_failed_one() {
        assert_eq!(passes_until("none"), ["first", "second", "third"]);
        assert_eq!(passes_until("second"), ["first"]);
    }
}
