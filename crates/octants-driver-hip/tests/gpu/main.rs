//! The device suite on a stand-in for HIP's library, and what is HIP's alone: libraries that lack functions, or see no
//! device.
//!
//! Its streams sleep between pieces of work, and what must not be done fails the test in which it is.

#![allow(clippy::unwrap_used)]

mod missing;
#[path = "../../../octants-driver-gpu/suite/mod.rs"]
mod suite;
mod vendor;
