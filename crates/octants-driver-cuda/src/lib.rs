//! NVIDIA GPUs as a device, through the driver library that comes with the graphics driver. Neither building nor
//! running needs a toolkit.
//!
//! The library is looked up when a device is opened ([`open()`]). Without it, a device, or a driver new enough,
//! opening fails with a reason for the user, and nothing else happens. `octants_driver_gpu` holds the logic. This
//! crate holds the names of the library's functions, the parts specific to CUDA, and the choice of the target.
//!
//! Reading order: [`symbols`], [`cuda`], [`early_launches`], [`graph_handles`], [`graphs`], [`graph_loops`],
//! [`assembler`], [`spare_registers`], [`cudss_functions`], [`cudss`], [`sparse_libraries`], [`mod@open`],
//! [`choose_target`], [`mod@find_device_library`]; [`external`], [`importer`].

pub mod assembler;
pub mod choose_target;
pub mod cuda;
pub mod cudss;
pub mod cudss_functions;
pub mod early_launches;
pub mod external;
pub mod find_device_library;
pub mod graph_captures;
pub mod graph_handles;
pub mod graph_loops;
pub mod graphs;
pub mod importer;
pub mod open;
mod spare_registers;
pub mod sparse_libraries;
pub mod symbols;

pub use find_device_library::{HOME_VARIABLES, find_device_library};
pub use importer::find_importer;
pub use open::{list, open};
