//! A driver for tests: records every call, checks the order of streams, and fails calls on request.
//!
//! Nothing runs. Each stream has a vector clock; an event carries the clock at the time of recording. Memory records
//! its uses and their streams, which proves that every use comes after the allocation and before the free, and that
//! two launches that share a frame are ordered. Mistakes, including leaks, are collected in [`Log::mistakes`].
//!
//! Reading order: [`clock`], [`log`], [`recording_driver`], [`device`](mod@device).

pub mod clock;
pub mod device;
pub mod log;
pub mod recording_driver;

pub use device::{device, device_that, finish};
pub use log::{Launched, Log, Message};
pub use recording_driver::RecordingDriver;
