//! The back ends of this build: [`backends`] is the table that the outer binding passes to the engine.
//!
//! A back end is an entry with a file of its own: the names that users give, the code generator, how the driver is
//! opened, and the targets whose code can be inspected. Everything independent of the back end is in the engine.
//!
//! Reading order: [`llvm`] (the code generator of most entries), [`host`], `open_gpu` (shared by GPUs), [`cuda`],
//! [`hip`]; [`vulkan`].

pub mod cuda;
pub mod hip;
pub mod host;
pub mod llvm;
mod open_gpu;
pub mod vulkan;

use octants_engine::{Backend, Backends};

#[cfg(feature = "recording")]
pub use octants_driver_recording as recording;

/// The back ends, in the order of preference. Call it once and keep the table: entries own objects that outlive
/// programs, such as driver libraries that can be loaded only a few times, and live until the process ends.
pub fn backends() -> Backends {
    let vulkan: &'static dyn Backend = Box::leak(Box::<vulkan::Vulkan>::default());
    let entries: Vec<&'static dyn Backend> = vec![&host::Host, &cuda::Cuda, &hip::Hip, vulkan];
    Backends { entries: entries.leak(), unsupported: &["metal"] }
}
