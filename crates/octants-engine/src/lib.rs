//! A session: configuration, compilation and devices behind one value that the Python binding owns.
//!
//! Reading order: [`config`] (every option), `option_values` (their checks), [`environment`] (the one place that reads environment variables),
//! [`artifact_cache`] (compiled kernels on disk), [`trace`] (compilations that need not be repeated), [`compile_times`], `open_gpu`,
//! [`session`] (compile, load, launch), [`inspect`] (code for people to read), [`error`] (what can go wrong).
//!
//! Nothing here is global: two sessions may live side by side. The outer binding decides which one is current.

mod arch;
pub mod artifact_cache;
pub mod compile_times;
pub mod config;
pub mod environment;
pub mod error;
mod gradient_store;
pub mod inspect;
mod known_results;
mod open_gpu;
mod option_values;
pub mod session;
mod suggest;
pub mod trace;

pub use config::{Arch, Config, OptionValue};
pub use error::{CompileError, Error};
pub use inspect::{FORMS, Form, Machine, code_targets};
pub use octants_passes::Alias;
pub use session::{Executable, Lowering, Session};
pub use suggest::nearest;

pub use octants_artifact as artifact;
pub use octants_diag as diag;
#[cfg(feature = "recording")]
pub use octants_driver_recording as recording;
pub use octants_frontend as frontend;
pub use octants_ir as ir;
pub use octants_runtime as runtime;
