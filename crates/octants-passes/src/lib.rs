//! From the front end's kernel to a program of tasks: checks, simplification, reductions, and the cut into tasks.
//!
//! [`run_pipeline`] takes a [`octants_ir::Kernel`] through the table in [`pipeline`]; [`mod@offload`] makes a
//! [`octants_ir::Program`] of the result. Each pass is a function named by what it does, in a file of the same name. In debug
//! builds the IR is verified after each.
//!
//! Reading order: [`pipeline`], the passes in the order of its table, [`mod@find_overlaps`], [`mod@offload`];
//! [`copy_code`] serves several of them. [`mod@differentiate`] runs before the pipeline where derivatives are asked
//! for, behind [`mod@unite_buffers`]; both its modes use the table in [`derivative_rules`].

pub mod check_bounds;
pub mod check_overflow;
pub mod copy_code;
pub mod derivative_rules;
pub mod differentiate;
pub mod differentiate_forward;
pub mod differentiate_reverse;
pub mod eliminate_dead_code;
mod evaluate;
pub mod find_overlaps;
pub mod fold_constants;
pub mod gather_updates;
pub mod hoist_invariants;
pub mod inline_calls;
mod insert_code;
pub mod make_own_updates_plain;
pub mod make_updates_atomic;
pub mod offload;
pub mod pipeline;
pub mod privatize_reductions;
pub mod promote_inner_sums;
pub mod run_loops_forwards;
pub mod share_reciprocals;
pub mod simplify_locals;
pub mod structure_exits;
pub mod unite_buffers;
pub mod validate_reads;
mod warn_of_stored_bits;

pub use copy_code::renumber;
pub use differentiate::differentiate;
pub use differentiate_reverse::{
    Keeping, Kept, STORE_PARAMS, StoreArguments, StoreNeed, Tallied, may_tally_loops, tally_loops,
};
pub use find_overlaps::{Alias, Overlap, find_overlaps};
pub use offload::offload;
pub use pipeline::{PassOptions, run_pass, run_pipeline, run_pipeline_with};
pub use unite_buffers::{refuse_shared_writes, unite_buffers};
pub use validate_reads::validate_reads;
