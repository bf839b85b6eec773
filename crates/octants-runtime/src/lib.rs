//! What every back end shares at run time: devices, streams, memory, loaded kernels, and the one launcher.
//!
//! # Invariants
//!
//! - Nothing here knows a vendor or the IR. A back end is an implementation of [`Driver`].
//! - A launch shares nothing with launches on other streams but the number it is given: arguments travel by value, the
//!   frame and the result slots belong to the stream.
//! - The hot path ([`Stream::launch`]) looks up no name, allocates nothing once the stream's frame is large enough, and
//!   makes one driver call per task.
//! - Every object holds a reference to its device, so no handle outlives the driver that made it. After
//!   [`Device::close`] each use of an object of that device is an error that says so.
//!
//! Reading order: [`driver`], [`device`], [`buffer`], [`kernel`], [`stream`], [`event`], [`fork`], [`pattern`],
//! `transfer`, `foreign`, `host_work`, `assemble`, [`profile`], `measure`, [`report`], [`render_site`], [`nesting`],
//! [`renewable`], [`error`]. A stream is `scratch`, `staging`, `stage_arguments`, `channel`, `listen` and `adopted`
//! besides.

mod adopted;
mod assemble;
pub mod buffer;
mod channel;
pub mod device;
pub mod driver;
pub mod error;
pub mod event;
mod foreign;
pub mod fork;
mod host_work;
pub mod kernel;
mod listen;
mod measure;
pub mod nesting;
pub mod pattern;
pub mod profile;
pub mod render_site;
pub mod renewable;
pub mod report;
mod scratch;
mod stage_arguments;
mod staging;
pub mod stream;
mod transfer;

pub use buffer::{Buffer, HostAccess, PinnedBuffer, Version};
pub use device::{Device, DeviceConfig};
pub use driver::{
    Caller, Contents, DevicePtr, Driver, EventHandle, Launch, ModuleHandle, Patient, StreamHandle, TaskHandle,
};
pub use error::{DeviceError, ErrorKind, Result};
pub use event::Event;
pub use fork::PoolStats;
pub use kernel::{KernelMeta, LoadedKernel, Pointer};
pub use pattern::Pattern;
pub use profile::{KernelTotal, Lane, Profiler, Span, SpanId, Total};
pub use renewable::Renewable;
pub use report::{Failure, Failures, Printer, TextSink};
pub use stage_arguments::HostArray;
pub use stream::{Results, Stream};
