//! The device suite on a stand-in for HIP's library, and tests that are specific to HIP: libraries that lack functions,
//! or have no device.
//!
//! The stand-in's streams sleep between items of work, and a fault fails the test in which it occurs.

#![allow(clippy::unwrap_used)]

mod missing;
#[path = "../../../octants-driver-gpu/suite/mod.rs"]
mod suite;
mod vendor;
