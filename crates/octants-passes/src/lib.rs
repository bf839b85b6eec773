//! From the front end's kernel to a program of tasks: checks, simplification, reductions, and the cut into tasks.
//!
//! [`run_pipeline`] takes a [`octants_ir::Kernel`] through the table in [`pipeline`]; [`offload`] makes a
//! [`octants_ir::Program`] of the result. Each pass is a function named by what it does, in a file of the same name.

pub mod compute_access;
pub mod copy_code;
pub mod offload;
pub mod pipeline;
pub mod trace_address;

pub use compute_access::compute_access;
pub use copy_code::renumber;
pub use offload::offload;
pub use pipeline::{PassOptions, run_pipeline};
pub use trace_address::{Place, trace_address};
