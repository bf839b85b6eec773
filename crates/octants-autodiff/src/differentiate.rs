//! The differentiation pipeline: one pass table for all modes, with the modes that each pass applies to.

use std::collections::HashSet;

use octants_diag::{Diagnostic, Sources};
use octants_ir::expand_matrix_products::{Form, expand_matrix_products};
use octants_ir::insert_code::bodies;
use octants_ir::{AutodiffMode, Kernel, Pass, PassState, ValueId, always, run_pipeline};
use octants_passes::Alias;
use octants_passes::demote_atomics::demote_unshared_atomics;
use octants_passes::eliminate_dead_code::eliminate_dead_code;
use octants_passes::fold_constants::fold_constants;
use octants_passes::hoist_invariants::hoist_invariants;
use octants_passes::inline_calls::{inline_all_calls, inline_calls};
use octants_passes::make_updates_atomic::{make_sums_atomic, make_updates_atomic};
use octants_passes::merge_aliased_buffers::merge_aliased_buffers;
use octants_passes::simplify_locals::simplify_locals;

use crate::demote_volatile_loads::demote_volatile_loads;
use crate::differentiate_forward::differentiate_forward;
use crate::differentiate_reverse::record_trip_counts::{Recorded, record_trip_counts};
use crate::differentiate_reverse::{Keeping, StoreNeed, differentiate_reverse, refuse_recursion};
use crate::join_conflicting_groups::join_conflicting_groups;
use crate::loop_trips::{LoopTrips, replay_loop_trips};
use crate::promote_counters::promote_counters;
use crate::refuse_cooperation::refuse_cooperation;
use crate::refuse_shared_writes::refuse_shared_writes;
use crate::structure_exits::structure_exits;
use crate::validate_reads::validate_reads;
use crate::warn_of_stored_bits::warn_of_stored_bits;

/// The options of differentiation, and its results besides the kernel.
#[derive(Debug, Clone, Default)]
pub struct Differentiation {
    /// The mode of differentiation.
    pub mode: AutodiffMode,
    /// How many times reverse mode keeps the state of a loop.
    pub keeping: Keeping,
    /// The arrays that share memory in the call.
    pub aliases: Vec<Alias>,
    /// The user's files, for lines that checking modes report at run time.
    pub sources: Sources,
    /// Warnings about code that makes a derivative wrong, but may be intended.
    pub warnings: Vec<Diagnostic>,
    /// The store that an adjoint needs.
    pub store: Option<StoreNeed>,
    /// An adjoint reads the trip counts that a launch recorded, for loops that it cannot repeat otherwise.
    pub replays_trips: bool,
    /// The trip counts that the adjoint reads.
    pub trips: Option<LoopTrips>,
    /// Loads of the old values that atomic operations overwrote.
    found: HashSet<ValueId>,
    errors: Vec<Diagnostic>,
}

impl Differentiation {
    /// The options for arrays that share no memory.
    pub fn new(mode: AutodiffMode, keeping: Keeping) -> Differentiation {
        Differentiation { mode, keeping, replays_trips: true, ..Differentiation::default() }
    }

    /// Returns the errors of the passes.
    ///
    /// # Errors
    /// Those of the passes, if any.
    pub fn finish(&mut self) -> Result<(), Vec<Diagnostic>> {
        if self.errors.is_empty() { Ok(()) } else { Err(std::mem::take(&mut self.errors)) }
    }

    /// Records the diagnostic of a pass that may reject the kernel.
    fn note<T>(&mut self, result: Result<T, Box<Diagnostic>>) -> Option<T> {
        result.map_err(|e| self.errors.push(*e)).ok()
    }
}

impl PassState for Differentiation {
    fn has_failed(&self) -> bool {
        !self.errors.is_empty()
    }
}

fn is_forward(_: &Kernel, d: &Differentiation) -> bool {
    d.mode == AutodiffMode::Forward
}

fn is_reverse(_: &Kernel, d: &Differentiation) -> bool {
    d.mode == AutodiffMode::Reverse
}

fn replays_trips(k: &Kernel, d: &Differentiation) -> bool {
    is_reverse(k, d) && d.replays_trips
}

fn is_validation(_: &Kernel, d: &Differentiation) -> bool {
    d.mode == AutodiffMode::Validation
}

/// The mode records the loops that the adjoint would run.
fn records_trip_counts(_: &Kernel, d: &Differentiation) -> bool {
    matches!(d.mode, AutodiffMode::Trips | AutodiffMode::Reads)
}

/// Brings the kernel into the form that the planner of reverse mode requires.
fn is_planned(k: &Kernel, d: &Differentiation) -> bool {
    is_reverse(k, d) || records_trip_counts(k, d)
}

/// Functions may stay functions.
fn keeps_calls(k: &Kernel, d: &Differentiation) -> bool {
    !is_planned(k, d)
}

fn is_simplified(k: &Kernel, d: &Differentiation) -> bool {
    !is_validation(k, d)
}

fn has_derivatives(k: &Kernel, d: &Differentiation) -> bool {
    is_forward(k, d) || is_reverse(k, d)
}

/// The table, in order.
///
/// Loops with recorded trip counts are found in the code that recorded them, before anything changes it. Products of
/// matrices become exchanges and sums, which have derivatives. Then aliased buffers are merged: all later passes
/// distinguish memory by buffer number. Updates of shared variables become atomic before the modes run, which recognize
/// them by this. Locals and constants are simplified so that there is less to differentiate. Counters of rounds become
/// locals while all that writes to them is in one body. Reverse mode needs structured code without calls, in which sums
/// are atomic and do not ask for the old value; after that more updates may be of variables that iterations share.
pub const DIFFERENTIATE: &[Pass<Kernel, Differentiation>] = &[
    Pass { name: "replay_loop_trips", runs: replays_trips, run: |k, d| d.trips = replay_loop_trips(k) },
    Pass {
        name: "expand_matrix_products",
        runs: always,
        run: |k, _| bodies(k).for_each(|body| expand_matrix_products(body, |_| Form::Plain)),
    },
    Pass { name: "merge_aliased_buffers", runs: always, run: |k, d| merge_aliased_buffers(k, &d.aliases) },
    Pass {
        name: "refuse_shared_writes",
        runs: is_reverse,
        run: |k, d| _ = d.note(refuse_shared_writes(k, &d.aliases)),
    },
    Pass { name: "refuse_cooperation", runs: has_derivatives, run: |k, d| _ = d.note(refuse_cooperation(k)) },
    Pass { name: "demote_volatile_loads", runs: is_planned, run: |k, _| demote_volatile_loads(k) },
    Pass { name: "structure_exits", runs: is_planned, run: |k, _| structure_exits(k) },
    Pass { name: "inline_all_calls", runs: is_planned, run: |k, _| inline_all_calls(k) },
    Pass { name: "promote_counters", runs: is_planned, run: |k, _| promote_counters(k) },
    Pass { name: "inline_calls", runs: keeps_calls, run: |k, _| inline_calls(k) },
    Pass { name: "make_updates_atomic", runs: is_simplified, run: |k, _| make_updates_atomic(k) },
    Pass { name: "simplify_locals", runs: is_simplified, run: |k, _| simplify_locals(k) },
    Pass { name: "fold_constants", runs: is_simplified, run: |k, _| fold_constants(k, false) },
    Pass { name: "hoist_invariants", runs: is_planned, run: |k, _| hoist_invariants(k) },
    Pass { name: "make_sums_atomic", runs: is_planned, run: |k, _| make_sums_atomic(k) },
    Pass { name: "eliminate_dead_code", runs: is_simplified, run: |k, _| eliminate_dead_code(k) },
    Pass { name: "make_updates_atomic", runs: is_planned, run: |k, _| make_updates_atomic(k) },
    Pass { name: "demote_unshared_atomics", runs: is_planned, run: |k, d| d.found = demote_unshared_atomics(k) },
    Pass { name: "refuse_recursion", runs: is_reverse, run: |k, d| _ = d.note(refuse_recursion(k)) },
    Pass { name: "warn_of_stored_bits", runs: has_derivatives, run: |k, d| d.warnings.extend(warn_of_stored_bits(k)) },
    Pass { name: "validate_reads", runs: is_validation, run: |k, d| validate_reads(k, &d.sources) },
    Pass {
        name: "record_trip_counts",
        runs: records_trip_counts,
        run: |k, d| record_trip_counts(k, recorded(d.mode), &d.sources),
    },
    Pass { name: "differentiate_forward", runs: is_forward, run: |k, _| differentiate_forward(k) },
    Pass { name: "differentiate_reverse", runs: is_reverse, run: reverse },
    Pass { name: "join_conflicting_groups", runs: is_reverse, run: |k, _| join_conflicting_groups(k) },
];

fn recorded(mode: AutodiffMode) -> Recorded {
    if mode == AutodiffMode::Reads { Recorded::Reads } else { Recorded::Loops }
}

fn reverse(kernel: &mut Kernel, d: &mut Differentiation) {
    let Differentiation { keeping, found, warnings, .. } = d;
    let made = differentiate_reverse(kernel, *keeping, found, &mut |w| warnings.push(w));
    d.store = d.note(made).flatten();
}

/// Applies the mode to a kernel.
///
/// # Errors
/// Code that the mode cannot differentiate, with its location. The kernel is invalid then.
pub fn differentiate(kernel: &mut Kernel, asked: &mut Differentiation) -> Result<(), Vec<Diagnostic>> {
    if asked.mode != AutodiffMode::None {
        run_pipeline(DIFFERENTIATE, kernel, asked);
    }
    asked.finish()
}
