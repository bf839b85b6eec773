//! How the tasks of a program run on a kind of machine: [`schedule_program`] decides, code generators carry out.
//!
//! First it is decided what runs how: data beside the program, a [`Schedule`](octants_ir::Schedule), in which each task
//! has variants with bodies of their own. Then the passes of [`PASSES`] rewrite these bodies, and functions. Both ask a
//! [`TargetInfo`](octants_ir::TargetInfo), and never for the vendor of a machine.
//!
//! Reading order: [`mod@schedule_program`], `schedule_task`, `facts`; for parallel loops `find_unroll_and_jam`,
//! `unroll_and_jam`, `scatter_privatization`, `privatize_scatter`, `coarsen_threads`, `intra_iteration_dependence`; for
//! serial loops `hint_loops`, `prefetch`, `unroll_arrays`, `full_unroll`, `converge_loops`, `software_pipelining`; for
//! single instructions `freeze_conditional_loads`, `demote_atomics`; [`describe_schedule`] for people and tests.

mod balance_threads;
mod clone_code;
mod coarsen_threads;
mod converge_loops;
mod demote_atomics;
mod describe_schedule;
mod facts;
mod find_converged_loops;
mod find_unroll_and_jam;
mod freeze_conditional_loads;
mod full_unroll;
mod hint_loops;
mod intra_iteration_dependence;
mod prefetch;
mod privatize_in_shared_memory;
mod privatize_scatter;
mod reduce_in_blocks;
mod reduce_in_subgroups;
mod scatter_privatization;
pub mod schedule_program;
mod schedule_task;
mod shared_buffers;
mod software_pipelining;
mod unroll_and_jam;
mod unroll_arrays;

pub use describe_schedule::describe_schedule;
pub use schedule_program::{PASSES, Scheduling, decide_schedule, schedule_program};
