//! The pipeline: one table of what runs on a kernel, in which order and when.

use octants_diag::Sources;
use octants_ir::{Kernel, verify::assert_kernel};

use crate::check_bounds::check_bounds;
use crate::check_overflow::check_overflow;
use crate::eliminate_dead_code::eliminate_dead_code;
use crate::fold_constants::fold_constants;
use crate::gather_updates::gather_updates;
use crate::inline_calls::inline_calls;
use crate::make_own_updates_plain::{make_own_updates_plain, make_updates_in_order_plain};
use crate::make_updates_atomic::make_updates_atomic;
use crate::privatize_reductions::privatize_reductions;
use crate::promote_inner_sums::promote_inner_sums;
use crate::run_loops_forwards::run_loops_forwards;
use crate::share_reciprocals::share_reciprocals;
use crate::simplify_locals::simplify_locals;

/// What the pipeline is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassOptions<'a> {
    /// Check indices at run time.
    pub check_bounds: bool,
    /// Report integer overflow at run time.
    pub debug: bool,
    /// Floats may be reassociated, contracted, and assumed finite.
    pub fast_math: bool,
    /// Two array arguments may be the same memory.
    pub arrays_may_alias: bool,
    /// No launch runs while another one does.
    pub launches_in_order: bool,
    /// Sums of gradients that inner loops scatter over at least so many elements are gathered instead.
    pub gather: Option<u32>,
    /// The user's files, for lines quoted in run-time messages.
    pub sources: Option<&'a Sources>,
}

/// A row of the table.
pub struct Pass {
    /// The name of the pass's function.
    pub name: &'static str,
    runs: fn(&PassOptions) -> bool,
    run: fn(&mut Kernel, &PassOptions),
}

fn always(_: &PassOptions) -> bool {
    true
}

/// The pipeline, in order.
///
/// Functions that need not be called come first, so that the rest sees what a loop does. Updates of shared sums are
/// recognized before anything else in debug mode, where the checks of overflow would hide them. Overflow is checked
/// next, while the operations are the user's own. Locals are simplified before reductions are looked for, which need to
/// see what an index is made of. Updates become plain behind the passes that look for atomic sums. Bounds are checked
/// last, so that a check is not in the way of a reduction.
pub const PIPELINE: &[Pass] = &[
    Pass { name: "inline_calls", runs: always, run: |k, _| inline_calls(k) },
    Pass { name: "make_updates_atomic", runs: |o| o.debug, run: |k, _| make_updates_atomic(k) },
    Pass { name: "check_overflow", runs: |o| o.debug, run: |k, o| check_overflow(k, o.sources) },
    Pass { name: "simplify_locals", runs: always, run: |k, _| simplify_locals(k) },
    Pass { name: "fold_constants", runs: always, run: |k, o| fold_constants(k, o.fast_math) },
    Pass { name: "eliminate_dead_code", runs: always, run: |k, _| eliminate_dead_code(k) },
    Pass { name: "make_updates_atomic", runs: always, run: |k, _| make_updates_atomic(k) },
    Pass { name: "run_loops_forwards", runs: |o| o.fast_math && !o.check_bounds && !o.debug, run: run_loops_forwards },
    Pass { name: "gather_updates", runs: |o| o.gather.is_some() && !o.check_bounds && !o.debug, run: gather_updates },
    Pass { name: "make_own_updates_plain", runs: always, run: make_own_updates_plain },
    Pass { name: "privatize_reductions", runs: always, run: privatize_reductions },
    Pass { name: "promote_inner_sums", runs: |o| !o.check_bounds && !o.debug, run: promote_inner_sums },
    Pass { name: "make_updates_in_order_plain", runs: |o| o.launches_in_order, run: make_updates_in_order_plain },
    Pass { name: "share_reciprocals", runs: |o| o.fast_math, run: |k, _| share_reciprocals(k) },
    Pass { name: "check_bounds", runs: |o| o.check_bounds, run: |k, _| check_bounds(k) },
    Pass { name: "eliminate_dead_code", runs: always, run: |k, _| eliminate_dead_code(k) },
];

/// Runs the pipeline on a kernel. In debug builds the verifier runs before it and after each pass.
pub fn run_pipeline(kernel: &mut Kernel, options: &PassOptions) {
    run_pipeline_with(kernel, options, |_| ());
}

/// As [`run_pipeline`]; calls `after` with a pass's name when it has run.
pub fn run_pipeline_with(kernel: &mut Kernel, options: &PassOptions, mut after: impl FnMut(&'static str)) {
    if cfg!(debug_assertions) {
        assert_kernel(kernel, "lowering");
    }
    for pass in PIPELINE.iter().filter(|p| (p.runs)(options)) {
        (pass.run)(kernel, options);
        if cfg!(debug_assertions) {
            assert_kernel(kernel, pass.name);
        }
        after(pass.name);
    }
}

/// Runs one pass of the pipeline by name; false when there is none.
pub fn run_pass(name: &str, kernel: &mut Kernel, options: &PassOptions) -> bool {
    match PIPELINE.iter().find(|p| p.name == name) {
        Some(pass) => {
            (pass.run)(kernel, options);
            true
        }
        None => false,
    }
}
