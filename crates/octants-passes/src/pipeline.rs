//! The pipeline: one table of what runs on a kernel, in which order and when.

use octants_diag::Sources;
use octants_ir::Kernel;

/// What the pipeline is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassOptions<'a> {
    /// Check indices at run time.
    pub check_bounds: bool,
    /// Report integer overflow at run time.
    pub debug: bool,
    /// Floats may be reassociated, contracted, and assumed finite.
    pub fast_math: bool,
    /// The user's files, for lines quoted in run-time messages.
    pub sources: Option<&'a Sources>,
}

/// A row of the table.
struct Pass {
    name: &'static str,
    runs: fn(&PassOptions) -> bool,
    run: fn(&mut Kernel, &PassOptions),
}

const fn always(_: &PassOptions) -> bool {
    true
}

/// The pipeline, in order.
const PIPELINE: &[Pass] =
    &[Pass { name: "renumber", runs: always, run: |k, _| crate::copy_code::renumber(&mut k.body) }];

/// Runs the pipeline on a kernel.
pub fn run_pipeline(kernel: &mut Kernel, options: &PassOptions) {
    for pass in PIPELINE.iter().filter(|p| (p.runs)(options)) {
        (pass.run)(kernel, options);
        let _ = pass.name;
    }
}
