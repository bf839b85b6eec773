//! NVIDIA GPUs as a device, through the driver library that comes with the graphics driver. Nothing of a toolkit is needed, neither to
//! build nor to run.
//!
//! # Invariants
//!
//! - The library is looked up when a device is opened ([`CudaDriver::open`]); without it, a device, or a driver new enough, that fails
//!   with a reason for the user ([`Unavailable`]), and nothing else happens.
//! - Three layers: [`symbols`] are the library's functions as they are; [`calls`] checks what they return, so that every error says which
//!   call failed, how, and what was being done; the rest is safe to use by the rules of `octants_runtime::Driver`.
//! - The device's primary context is used, so that other libraries of the process work on the same memory and streams. A thread's current
//!   context is put back where another library had set one.
//! - A launch takes no lock and allocates nothing.
//! - After an error that CUDA does not recover from, every call says that the device is lost, and frees are silent.
//!
//! Reading order: [`symbols`], [`calls`], [`last_launches`], [`context`], [`open`], [`choose_target`], [`memory`], [`pinned`], [`streams`], [`module`],
//! [`plan_grid`], [`cuda_driver`], [`find_device_library`].

pub mod calls;
pub mod choose_target;
pub mod context;
pub mod cuda_driver;
pub mod find_device_library;
pub mod last_launches;
pub mod memory;
pub mod module;
pub mod open;
pub mod pinned;
pub mod plan_grid;
pub mod streams;
pub mod symbols;

pub use cuda_driver::CudaDriver;
pub use find_device_library::{HOME_VARIABLES, find_device_library};
pub use open::{CudaConfig, Unavailable};
