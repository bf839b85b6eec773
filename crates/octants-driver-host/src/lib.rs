//! The CPU as a device: links compiled object files into the process, allocates memory, and runs tasks on a thread
//! pool.
//!
//! # Invariants
//!
//! - Without streams, every call returns after its work is done ([`octants_runtime::Driver::is_immediate`]). With
//!   streams, work is queued, and a waiting queue occupies no thread.
//! - A task too small for several threads runs on the caller. Threads are started by the first task that needs them.
//! - A pool thread never waits for another task, so nesting cannot deadlock. The caller waits only for threads that
//!   have joined its task, so missing threads (after a `fork`) only reduce speed.
//! - No panic crosses into compiled code.
//!
//! Reading order: [`host_driver`], [`run_task`], [`enter`], [`plan_chunks`], [`pool`], `job_slot`, `lane`,
//! `lane_state`, `ranges`, `watch`, `apart`, [`copies`], [`queues`], `peers`, [`schedule`], [`linker`], [`memory`],
//! `arena`, `map_pages`, [`separate_memory`].

mod apart;
mod arena;
pub mod copies;
mod cost_estimate;
mod enter;
pub mod host_driver;
mod job_slot;
mod lane;
mod lane_state;
pub mod linker;
mod map_pages;
pub mod memory;
mod peers;
pub mod plan_chunks;
pub mod pool;
pub mod queues;
mod ranges;
pub mod run_task;
pub mod schedule;
pub mod separate_memory;
mod watch;

pub use host_driver::{HostConfig, HostDriver};
