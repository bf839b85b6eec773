//! The run-time layer that all back ends share: devices, streams, memory, loaded kernels, and the one launcher.
//!
//! # Invariants
//!
//! - Nothing here depends on a vendor or on the IR. A back end is an implementation of [`Driver`].
//! - A launch shares nothing with launches on other streams except the launch number: arguments are passed by value,
//!   and the frame and the result slots belong to the stream.
//! - The hot path ([`Stream::launch`]) looks up no name, allocates nothing once the stream's frame is large enough,
//!   and makes one driver call per task.
//! - Every object holds a reference to its device, so no handle outlives the driver that created it. After
//!   [`Device::close`], each use of an object of that device returns an error that says so.
//!
//! Reading order: [`error`], [`kernel_meta`], `handles`, [`foreign_api`], [`driver`], `cores` (the state behind all
//! handles), [`device`], [`buffer`], `free_after`, `sections`, [`kernel`], `host_step`, [`capture`],
//! [`captured_graph`], [`stream`], `update_order`, `track_uses`, [`event`], [`fusion`], [`concurrency`], `caller`,
//! `dispatcher`, [`counter_snapshot`], [`launch_order`], [`worker_pool`], `fork`, [`pattern`], `transfer`, [`sparse`],
//! `foreign`, `host_work`, `peer_waits`, `peer_copies`, `peer_exchange`, `mirrors`, `assemble`, [`race`],
//! `race_at_site`, [`races`], [`witness`], `watch_launches`, [`profile`], `measure`, [`profiler`], [`report`],
//! [`render_site`], `site_messages`, [`nesting`], `poll`, `interruptible_wait`, [`renewable`]. The modules `scratch`,
//! `staging`, `stage_arguments`, `channel`, `drain_log` and `adopted` also belong to streams.

mod adopted;
mod assemble;
pub mod buffer;
mod caller;
pub mod capture;
pub mod captured_graph;
mod channel;
pub mod concurrency;
mod cores;
pub mod counter_snapshot;
pub mod device;
mod dispatcher;
mod drain_log;
pub mod driver;
pub mod error;
pub mod event;
mod footprint;
mod foreign;
pub mod foreign_api;
mod fork;
mod free_after;
pub mod fusion;
mod handles;
mod host_step;
mod host_work;
mod interruptible_wait;
pub mod kernel;
pub mod kernel_meta;
pub mod launch_order;
mod measure;
mod mirrors;
pub mod nesting;
pub mod pattern;
mod peer_copies;
mod peer_exchange;
mod peer_waits;
mod poll;
pub mod profile;
pub mod profiler;
pub mod race;
mod race_at_site;
pub mod races;
pub mod render_site;
pub mod renewable;
pub mod report;
pub mod saved_graph;
mod scratch;
mod sections;
mod site_messages;
pub mod sparse;
mod stage_arguments;
mod staging;
pub mod stream;
mod track_uses;
mod transfer;
mod update_order;
mod watch_launches;
pub mod witness;
pub mod worker_pool;

pub use buffer::{Buffer, HostAccess, PinnedBuffer, Version};
pub use caller::{Caller, DispatchingCaller, Uninterruptible};
pub use capture::{Capture, CountedStore};
pub use captured_graph::CapturedGraph;
pub use concurrency::{Decision, Fusion};
pub use counter_snapshot::{CounterSnapshot, ExchangedCounters};
pub use device::{Device, DeviceConfig};
pub use dispatcher::{Dispatcher, Draw, OpenLaunch, not_lent};
pub use driver::{
    CheckpointWords, Contents, DevicePtr, Driver, EventHandle, Factors, GraphHandle, GraphPart, Launch, MatrixRows,
    ModuleHandle, PartWork, Peer, ProductCalls, RealType, SolverCalls, SparseWork, StreamHandle, TaskHandle,
};
pub use error::{DeviceError, ErrorKind, Result};
pub use event::Event;
pub use foreign_api::ForeignApi;
pub use fusion::{FusedLaunch, Fuser, FusionLaunch, FusionMemory, FusionRequest};
pub use host_step::HostStep;
pub use kernel::{LoadedKernel, Pointer};
pub use kernel_meta::KernelMeta;
pub use launch_order::LaunchOrder;
pub use mirrors::Mirrors;
pub use pattern::Pattern;
pub use peer_copies::CopiedRange;
pub use peer_exchange::{PeerCopy, PeerExchange, PeerRange};
pub use profile::{KernelTotal, Lane, Span, SpanId, Total};
pub use profiler::Profiler;
pub use race::{Race, RaceAccess, RaceKind, Touch};
pub use races::{RaceSink, Races};
pub use renewable::Renewable;
pub use report::{Failure, Failures, Printer, TextSink};
pub use saved_graph::{MovedPart, NamedMemory};
pub use sections::{DataDependentLoop, Section, checkpoint_labels, loops_of};
pub use sparse::{RowBuffers, SparseProduct, SparseSolver};
pub use stage_arguments::HostArray;
pub use stream::{Results, Stream};
pub use witness::{Touched, Witness};
pub use worker_pool::PoolStats;
