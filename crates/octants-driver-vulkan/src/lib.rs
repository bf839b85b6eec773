//! GPUs through Vulkan 1.2, whoever made them. Nothing of Vulkan is needed to build.
//!
//! The loader's library is looked up when a device is opened ([`open()`]); without it, or without a device that has
//! what code needs (addresses of buffers, timeline semaphores, Vulkan's memory model, 64-bit integers), that fails with
//! a reason for the user.
//!
//! # Invariants
//!
//! - A stream is a timeline semaphore; what is queued on it is recorded into batches, each of which is one submission
//!   and one value of the semaphore. An event is a value. Whoever waits submits what is recorded first.
//! - A batch is submitted before any other may wait for it, so that one queue can serve all streams.
//! - Memory of the device is addressed by numbers of the device, pinned memory by those of the host: what a launch
//!   passes of the latter is translated.
//! - Every error names the call and what was being done. Once the device is lost, every call says so.
//!
//! Reading order: [`checked`], [`instance`], [`gpu`], [`mod@open`], [`memory`], [`timeline`], [`stream`], [`follower`],
//! [`event`], [`module`], [`driver`].

pub mod checked;
pub mod driver;
pub mod event;
pub mod follower;
pub mod gpu;
pub mod instance;
pub mod memory;
pub mod module;
pub mod open;
pub mod stream;
pub mod timeline;

pub use driver::VulkanDriver;
pub use instance::Instances;
pub use open::{Listed, list, open, usual};
