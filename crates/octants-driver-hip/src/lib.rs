//! AMD GPUs as a device, through HIP's library (ROCm), as installed with the graphics driver. It is not needed to
//! build.
//!
//! The library is looked up when a device is opened ([`open()`]). Without it, a device, or a version new enough,
//! opening fails with a reason for the user, and nothing else happens. `octants_driver_gpu` holds the logic. This
//! crate holds the names of the library's functions, the parts specific to HIP, and the choice of the target.
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
