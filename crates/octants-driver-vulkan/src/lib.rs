//! GPUs of any vendor, through Vulkan 1.2. Vulkan is not needed to build.
//!
//! The loader's library is looked up when a device is opened ([`open()`]). Without it, or without a device that has
//! the required features (buffer addresses, timeline semaphores, Vulkan's memory model, 64-bit integers), opening
//! fails with a reason for the user.
//!
//! # Invariants
//!
//! - Each queue of the device has a timeline semaphore. The work of its streams is recorded into batches; each batch is
//!   one submission and one value of the semaphore. An event is a value. A wait first submits what is recorded.
//! - A batch is submitted before another batch may wait for it, so one queue can serve all streams. Barriers within a
//!   batch order the work of each stream, and not that of different streams.
//! - Device memory is addressed by device addresses, pinned memory by host addresses. A launch translates the latter.
//! - While memory is shared with another interface to the device, each submission of the default stream is ordered
//!   with the work there.
//! - A captured graph of steps in sequence is a secondary command buffer: recorded once, executed by each launch.
//! - Every error names the call and the operation. Once the device is lost, every call returns that error.
//!
//! Reading order: [`checked`], [`instance`], [`gpu`], [`features`], [`portability`], `exports`, [`mod@open`],
//! [`memory`], [`timeline`], [`sharing`], [`follower`], [`recorded`], [`queue`], [`stream`], [`event`], [`foreign`],
//! [`module`], [`dispatch`], [`graph`], [`driver`].

pub mod checked;
pub mod dispatch;
pub mod driver;
pub mod event;
mod exports;
pub mod features;
pub mod follower;
pub mod foreign;
pub mod gpu;
pub mod graph;
pub mod instance;
pub mod memory;
pub mod module;
pub mod open;
pub mod portability;
pub mod queue;
pub mod recorded;
pub mod sharing;
pub mod stream;
pub mod timeline;

pub use driver::VulkanDriver;
pub use instance::Instances;
pub use open::{Listed, Request, list, open, usual};
