//! The driver of every pipeline: runs the passes of a table in order, and verifies the IR between them.

use octants_ir::{Kernel, verify::assert_kernel};

/// A row of a table of passes. `S` is what its passes share beside the kernel: options, and what they find.
pub struct Pass<S> {
    /// The name of the pass's function.
    pub name: &'static str,
    /// Whether the pass runs.
    pub runs: fn(&Kernel, &S) -> bool,
    /// The pass.
    pub run: fn(&mut Kernel, &mut S),
}

/// What passes of a table share beside the kernel.
pub trait PassState {
    /// A pass has found an error of the user's, behind which no pass runs and the kernel means nothing.
    fn has_failed(&self) -> bool {
        false
    }
}

/// For rows of passes that always run.
pub fn always<S>(_: &Kernel, _: &S) -> bool {
    true
}

/// Runs a table on a kernel. In debug builds the verifier runs before it and after each pass.
pub fn run_pipeline<S: PassState>(table: &[Pass<S>], kernel: &mut Kernel, state: &mut S) {
    run_pipeline_with(table, kernel, state, |_| ());
}

/// As [`run_pipeline`]; calls `after` with a pass's name when it has run.
pub fn run_pipeline_with<S: PassState>(
    table: &[Pass<S>],
    kernel: &mut Kernel,
    state: &mut S,
    mut after: impl FnMut(&'static str),
) {
    verify(kernel, "lowering");
    for pass in table {
        if !(pass.runs)(kernel, state) {
            continue;
        }
        (pass.run)(kernel, state);
        if state.has_failed() {
            return;
        }
        verify(kernel, pass.name);
        after(pass.name);
    }
}

/// Runs the first pass of this name in a table; false when there is none.
pub fn run_pass<S: PassState>(table: &[Pass<S>], name: &str, kernel: &mut Kernel, state: &mut S) -> bool {
    let Some(pass) = table.iter().find(|p| p.name == name) else { return false };
    (pass.run)(kernel, state);
    if !state.has_failed() {
        verify(kernel, name);
    }
    true
}

fn verify(kernel: &Kernel, after: &str) {
    if cfg!(debug_assertions) {
        assert_kernel(kernel, after);
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

    const TABLE: &[Pass<Failing>] = &[
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
    fn no_pass_runs_behind_one_that_failed() {
        assert_eq!(passes_until("none"), ["first", "second", "third"]);
        assert_eq!(passes_until("second"), ["first"]);
    }
}
