//! The device suite on a real GPU, and what is CUDA's alone. Without one every test says why it does nothing, and
//! passes.

#![allow(clippy::unwrap_used)]

mod contexts;
#[path = "../../../octants-driver-gpu/suite/mod.rs"]
mod suite;
mod vendor;
