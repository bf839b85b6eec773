//! A session: configuration, compilation and devices, as one value that the Python binding owns.
//!
//! Reading order: [`backend`] (the kinds of machine), [`config`] (the options), `option_values` (their checks),
//! `accepted_options` (options without effect), `current_config`, [`environment`] (the one place that reads environment
//! variables), [`artifact_cache`] (compiled kernels on disk), [`trace`] (finding artifacts without running the front
//! end), [`compile_times`], `open_device`, [`session`] (compile, load, launch), [`machine`] and [`inspect`] (code for
//! people to read), [`error`].
//!
//! Nothing here is global: several sessions may coexist. The binding decides which one is current.

mod accepted_options;
mod arch;
pub mod artifact_cache;
pub mod backend;
pub mod compile_times;
pub mod config;
mod current_config;
mod driver_cache;
pub mod environment;
pub mod error;
mod gradient_store;
pub mod inspect;
mod known_results;
mod list_devices;
pub mod machine;
mod open_device;
mod option_values;
pub mod session;
mod shared_code;
mod suggest;
pub mod trace;

pub use backend::{Backend, Backends, CodeForm, CodeGenerator, DeviceInfo, DeviceSettings};
pub use config::{Arch, Config, OptionValue};
pub use error::{CompileError, Error};
pub use inspect::Form;
pub use list_devices::{DevicesOfKind, list_devices};
pub use machine::Machine;
pub use octants_passes::Alias;
pub use session::{Executable, Lowering, Session};
pub use suggest::nearest;

pub use octants_artifact as artifact;
pub use octants_diag as diag;
pub use octants_frontend as frontend;
pub use octants_ir as ir;
pub use octants_runtime as runtime;
