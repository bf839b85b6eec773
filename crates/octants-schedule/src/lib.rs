//! Scheduling: how the tasks of a program run on a kind of machine. [`schedule_program()`] decides; code generators
//! carry out the decisions.
//!
//! The first step computes a [`Schedule`](octants_ir::Schedule), which is separate from the program: each task has
//! variants, each with its own body. Then the passes of [`PASSES`] rewrite these bodies, and functions. Both steps
//! query the capabilities in a [`TargetInfo`](octants_ir::TargetInfo), and never the vendor of a machine.
//!
//! Reading order: [`mod@schedule_program`], `decide_schedule`, `schedule_task`, `facts`, `scheduling`; for tasks
//! `shape_launches`; for fragments of matrices `lay_out_fragments`, `load_matrices`; for blocks of threads
//! `form_thread_loops`, [`mod@block_memory`]; for parallel loops `find_unroll_and_jam`, `unroll_and_jam`,
//! `scatter_privatization`, `privatize_scatter`, `merge_copies`, `privatize_in_shared_memory`, `reduce_in_blocks`,
//! `find_tiling`, `tile_in_shared_memory`, `find_coarsening`, `coarsen_threads`, `merge_accesses`, `iteration_groups`,
//! `intra_iteration_dependence`; for serial loops `hint_loops`, `prefetch`, `narrow_ranges`, `split_remainders`,
//! `unroll_arrays`, `full_unroll`, `find_converged_loops`, `converge_loops`, `subgroup_steps`, `reduce_in_subgroups`,
//! `software_pipelining`; for single instructions `balance_threads`, `narrow_barriers`, `demote_atomics`,
//! `freeze_conditional_loads`, `copy_asynchronously`. `clone_code`, `index_offsets` and `shared_buffers` serve several
//! of them; [`describe_schedule()`] prints a schedule for users and tests.

mod balance_threads;
pub mod block_memory;
mod clone_code;
mod coarsen_threads;
mod converge_loops;
mod copy_asynchronously;
pub mod decide_schedule;
mod demote_atomics;
mod describe_schedule;
mod facts;
mod find_coarsening;
mod find_converged_loops;
mod find_tiling;
mod find_unroll_and_jam;
mod form_thread_loops;
mod freeze_conditional_loads;
mod full_unroll;
mod hint_loops;
mod index_offsets;
mod intra_iteration_dependence;
mod iteration_groups;
mod lay_out_fragments;
mod load_matrices;
mod merge_accesses;
mod merge_copies;
mod narrow_barriers;
mod narrow_ranges;
mod prefetch;
mod privatize_in_shared_memory;
mod privatize_scatter;
mod reduce_in_blocks;
mod reduce_in_subgroups;
mod scatter_privatization;
pub mod schedule_program;
mod schedule_task;
mod scheduling;
mod shape_launches;
mod shared_buffers;
mod software_pipelining;
mod split_remainders;
mod subgroup_steps;
mod tile_in_shared_memory;
mod unroll_and_jam;
mod unroll_arrays;

pub use block_memory::block_memory;
pub use decide_schedule::decide_schedule;
pub use describe_schedule::describe_schedule;
pub use schedule_program::{PASSES, schedule_program};
pub use scheduling::Scheduling;
