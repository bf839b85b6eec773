//! How the tasks of a program run on a kind of machine: [`schedule_program`] decides, code generators carry out.
//!
//! Passes here look at a program, with what [`TargetInfo`](octants_ir::TargetInfo) says of the machine, and leave it as
//! it is: what they decide is data beside it, a [`Schedule`](octants_ir::Schedule). None asks which maker's machine it
//! is.
//!
//! Reading order: [`mod@schedule_program`], `schedule_task`, `facts`; for parallel loops `find_jam`, `find_scatter`,
//! `find_grouping`, `find_returns`; for loops in order `read_ahead`, `unroll_arrays`, `find_short_loops`,
//! `find_alignment`, `find_early_loads`; for single instructions `hold_loads`; [`describe_schedule`] for people and
//! tests.

mod describe_schedule;
mod facts;
mod find_alignment;
mod find_early_loads;
mod find_grouping;
mod find_jam;
mod find_returns;
mod find_scatter;
mod find_short_loops;
mod hold_loads;
mod read_ahead;
pub mod schedule_program;
mod schedule_task;
mod unroll_arrays;

pub use describe_schedule::describe_schedule;
pub use schedule_program::schedule_program;
