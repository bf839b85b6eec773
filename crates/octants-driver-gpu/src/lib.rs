//! The common part of GPU drivers with streams: contexts, memory, streams, modules, launches, and errors of calls. A
//! vendor's crate consists of a table of its library's functions ([`Symbols`]), the few functions that differ in kind
//! ([`Vendor`]), and the search for its device.
//!
//! # Invariants
//!
//! - Three layers: [`symbols`] are a library's raw functions. [`library`] and [`calls`] check their results, so every
//!   error says which call failed, how, and during what. The rest is safe under the rules of
//!   `octants_runtime::Driver`.
//! - A function that works on "the thread's current device" is a method of [`Entered`], a value that exists only while
//!   the right device is the thread's current one. A call that forgets to switch does not compile.
//! - The device's primary context is used, so other libraries of the process work on the same memory and streams. If
//!   another library had set a thread's current context, it is restored.
//! - A launch takes no lock and allocates nothing.
//! - After an unrecoverable device error, every call reports that the device is lost, and frees are silent.
//!
//! Reading order: [`symbols`], [`vendor`], [`library`], [`open`], [`last_launches`], [`context`], [`calls`],
//! [`memory`], [`pinned`], [`streams`], [`plan_grid`], [`loaded_task`], [`loaded_loop`], [`loaded_code`], [`backlog`],
//! [`describe_graph`], [`graph`], [`module`], [`graph_of_parts`], [`sparse`], [`sparse_products`], [`gpu_driver`];
//! [`find_device_library`], [`mod@find_library`]; [`importer`].

pub mod add_to_capture;
pub mod backlog;
pub mod calls;
pub mod context;
pub mod describe_graph;
#[cfg(test)]
mod failing_calls;
pub mod find_device_library;
pub mod find_library;
pub mod gpu_driver;
pub mod graph;
pub mod graph_of_parts;
pub mod importer;
pub mod last_launches;
pub mod library;
pub mod loaded_code;
pub mod loaded_loop;
pub mod loaded_task;
pub mod memory;
pub mod module;
pub mod open;
pub mod pinned;
pub mod plan_grid;
pub mod sparse;
pub mod sparse_products;
pub mod streams;
pub mod symbols;
pub mod vendor;

pub use context::{Context, Entered};
pub use find_device_library::Places;
pub use find_library::find_library;
pub use gpu_driver::GpuDriver;
pub use library::Library;
pub use open::{GpuConfig, Unavailable};
pub use sparse::{SparseLibraries, VendorProduct, VendorSolver};
pub use sparse_products::{ProductLibrary, ProductNames};
pub use symbols::{Names, Symbols};
pub use vendor::{
    Assembler, Called, CopyNode, Decision, Facts, FillNode, GraphCaptures, GraphLoops, Graphs, GridShape, KernelNode,
    Located, Place, RawGraph, RawNode, ReadyGraph, Vendor,
};

// For the tables of vendors' functions.
#[doc(hidden)]
pub use libloading;
