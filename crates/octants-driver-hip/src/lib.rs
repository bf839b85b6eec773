//! AMD GPUs as a device, through HIP's library (ROCm), as it is installed with the graphics driver. Nothing of it is
//! needed to build.
//!
//! The library is looked up when a device is opened ([`open()`]); without it, a device, or a version new enough, that
//! fails with a reason for the user, and nothing else happens. What is done with the library is `octants_driver_gpu`'s:
//! here are its functions' names, what is HIP's alone, and which code the chips take.
//!
//! Reading order: [`symbols`], [`hip`], [`sparse_libraries`], [`mod@open`], [`choose_target`],
//! [`mod@find_device_library`].

pub mod choose_target;
pub mod find_device_library;
pub mod hip;
pub mod open;
pub mod sparse_libraries;
pub mod symbols;

pub use find_device_library::{HOME_VARIABLES, find_device_library};
pub use open::{list, open};
