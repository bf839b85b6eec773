//! The CPU as a device: links compiled object files into the process, gives out memory, and runs tasks on a thread
//! pool.
//!
//! # Invariants
//!
//! - Without streams every call returns after its work is done ([`octants_runtime::Driver::is_immediate`]); with them,
//!   work is queued, and a queue that waits holds no thread.
//! - A task too small to be worth threads runs on the caller alone. Threads are started by the first task that is worth
//!   them.
//! - A thread of the pool never waits for another task, so nesting cannot deadlock; the caller waits only for threads
//!   that have joined its task, so threads that are gone (after a `fork`) cost speed alone.
//! - No panic crosses into compiled code.
//!
//! Reading order: [`host_driver`], [`run_task`], [`enter`], [`plan_chunks`], [`pool`], `job_slot`, `lane`,
//! `lane_state`, `ranges`, `watch`, `apart`, [`copies`], [`queues`], `peers`, [`schedule`], [`linker`], [`memory`], `arena`,
//! `map_pages`, [`separate_memory`].

mod apart;
mod arena;
pub mod copies;
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
