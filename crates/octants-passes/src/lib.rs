//! From the front end's kernel to a program of tasks: checks, simplification, reductions, and offloading.
//!
//! [`PIPELINE`] is the table of the passes that every kernel goes through. [`offload()`] turns the result into a
//! [`octants_ir::Program`]. Each pass is a function named by what it does, in a file of the same name.
//!
//! Reading order: [`pipeline`], the passes in the order of its table, [`find_overlaps()`], [`resolve_block_dims()`],
//! [`find_divergence()`], [`find_partial_products()`], [`find_carried_locals()`], [`find_races`], [`mod@fuse_kernels`],
//! [`offload()`], [`mod@guard_iterations`]. `octants_ir::insert_code` serves several of them.
//!
//! Differentiation has its own pass table, in octants-autodiff, and shares the simplification passes. Three entry
//! points here are used by that table only: [`inline_calls::inline_all_calls`],
//! [`make_updates_atomic::make_sums_atomic`] and [`demote_atomics::demote_unshared_atomics`].

mod check_bounds;
mod check_convergence;
mod check_overflow;
pub mod check_races;
pub mod demote_atomics;
pub mod eliminate_dead_code;
mod evaluate;
mod find_carried_locals;
mod find_divergence;
mod find_overlaps;
mod find_partial_products;
pub mod find_races;
pub mod fold_constants;
pub mod fuse_kernels;
mod gather_updates;
pub mod guard_iterations;
pub mod hoist_invariants;
pub mod inline_calls;
pub mod make_updates_atomic;
pub mod merge_aliased_buffers;
mod name_call_sites;
mod normalize_loop_direction;
mod offload;
mod pass_options;
pub mod pipeline;
mod privatize_reductions;
mod promote_inner_sums;
mod race_watch;
mod resolve_block_dims;
mod restrict_loops;
mod return_at_end;
mod share_reciprocals;
pub mod simplify_locals;
mod split_loops;
mod split_rows;
mod synchronization;

pub use find_carried_locals::{CarriedLocal, find_carried_locals};
pub use find_divergence::find_divergence;
pub use find_overlaps::{Alias, Overlap, conflicting_groups, find_overlaps};
pub use find_partial_products::find_partial_products;
pub use guard_iterations::guard_iterations;
pub use offload::offload;
pub use pass_options::PassOptions;
pub use pipeline::PIPELINE;
pub use race_watch::RaceWatch;
pub use resolve_block_dims::resolve_block_dims;
pub use restrict_loops::{restrict_loops, split_tasks, unwrap_rows};
pub use split_loops::{Halo, LocalRows, SplitLoop, WrappedRows};
pub use split_rows::RowBound;
