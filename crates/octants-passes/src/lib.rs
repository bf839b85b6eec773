//! From the front end's kernel to a program of tasks: checks, simplification, reductions, and the cut into tasks.
//!
//! [`run_pipeline()`] takes a [`octants_ir::Kernel`] through a table of passes, and verifies the IR after each in debug
//! builds; [`PIPELINE`] is the table of every kernel. [`mod@offload`] makes a [`octants_ir::Program`] of the result.
//! Each pass is a function named by what it does, in a file of the same name.
//!
//! Reading order: [`mod@run_pipeline`], [`pipeline`], the passes in the order of its table, [`mod@find_overlaps`],
//! [`mod@offload`]. [`insert_code`] and [`copy_code`] serve several of them.
//!
//! Differentiation is a table of its own in another crate. It shares the passes that simplify, and [`insert_code`].
//! Three passes here are in its table alone, beside those that they share their code with:
//! [`inline_calls::inline_all_calls`], [`make_updates_atomic::make_sums_atomic`] and
//! [`make_own_updates_plain::make_unshared_updates_plain`].

pub mod check_bounds;
pub mod check_overflow;
mod copy_code;
pub mod eliminate_dead_code;
mod evaluate;
pub mod find_overlaps;
pub mod fold_constants;
pub mod gather_updates;
pub mod hoist_invariants;
pub mod inline_calls;
pub mod insert_code;
pub mod make_own_updates_plain;
pub mod make_updates_atomic;
pub mod offload;
mod pass_options;
pub mod pipeline;
pub mod privatize_reductions;
pub mod promote_inner_sums;
pub mod run_loops_forwards;
pub mod run_pipeline;
pub mod share_reciprocals;
pub mod simplify_locals;
pub mod unite_buffers;

pub use copy_code::renumber;
pub use find_overlaps::{Alias, Overlap, find_overlaps};
pub use offload::offload;
pub use pass_options::PassOptions;
pub use pipeline::PIPELINE;
pub use run_pipeline::{Pass, PassState, always, run_pass, run_pipeline, run_pipeline_with};
