//! NVIDIA GPUs as a device, through the driver library that comes with the graphics driver. Nothing of a toolkit is
//! needed, neither to build nor to run.
//!
//! The library is looked up when a device is opened ([`open()`]); without it, a device, or a driver new enough, that
//! fails with a reason for the user, and nothing else happens. What is done with the library is `octants_driver_gpu`'s:
//! here are its functions' names, what is CUDA's alone, and which code the chips take.
//!
//! Reading order: [`symbols`], [`cuda`], [`graph_handles`], [`graphs`], [`graph_loops`], [`assembler`],
//! [`spare_registers`], [`cudss_functions`], [`cudss`], [`sparse_libraries`], [`mod@open`], [`choose_target`],
//! [`mod@find_device_library`].

pub mod assembler;
pub mod choose_target;
pub mod cuda;
pub mod cudss;
pub mod cudss_functions;
pub mod find_device_library;
pub mod graph_captures;
pub mod graph_handles;
pub mod graph_loops;
pub mod graphs;
pub mod open;
mod spare_registers;
pub mod sparse_libraries;
pub mod symbols;

pub use find_device_library::{HOME_VARIABLES, find_device_library};
pub use open::{list, open};
