//! A driver for tests: writes down every call, checks the order of streams, and fails calls on request.
//!
//! Nothing runs. Each stream has a vector clock; an event carries the clock of the moment it was recorded. Memory knows
//! when it was used and by whom, so that every use can be proved to come after its allocation and before its free, and
//! every two launches that share a frame to come one after the other. What is wrong is kept in [`Log::mistakes`], leaks
//! included.
//!
//! Reading order: [`clock`], [`log`], [`recording_driver`], [`device`](mod@device).

pub mod clock;
pub mod device;
pub mod log;
pub mod recording_driver;

pub use device::{device, device_that, finish};
pub use log::{Launched, Log, Said};
pub use recording_driver::RecordingDriver;
