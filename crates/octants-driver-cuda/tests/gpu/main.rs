//! The device suite on a real GPU, and tests that are specific to CUDA. Without a GPU, each test prints why it is
//! skipped, and passes.

#![allow(clippy::unwrap_used)]

mod contexts;
#[path = "../../../octants-driver-gpu/suite/mod.rs"]
mod suite;
mod vendor;
