//! [`Device`]: a driver, its default stream, and what the two share with every object made from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use octants_artifact::Artifact;

use crate::buffer::{Buffer, BufferCore};
use crate::driver::{Caller, Driver, StreamHandle};
use crate::error::{DeviceError, ErrorKind, Result};
use crate::kernel::{KernelMeta, LoadedKernel};
use crate::report::{Printer, TextSink, lock};
use crate::stream::Stream;

/// Settings of a program that the launcher needs.
#[derive(Clone)]
pub struct DeviceConfig {
    /// Seed of the program's random numbers.
    pub seed: u64,
    /// Where printed text goes.
    pub sink: TextSink,
}

impl fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfig").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// What streams, buffers and kernels hold of their device.
pub(crate) struct DeviceCore {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) immediate: bool,
    pub(crate) seed: AtomicU64,
    pub(crate) printer: Arc<Printer>,
    /// Launches so far; numbers are given in the order of submission, so that they do not depend on the schedule.
    pub(crate) launches: AtomicU64,
    /// Bytes that buffers hold.
    pub(crate) in_use: AtomicU64,
    closed: AtomicBool,
    buffers: Mutex<HashMap<u64, Weak<BufferCore>>>,
    next_buffer: AtomicU64,
}

impl DeviceCore {
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self, what: &'static str) -> Result<()> {
        if self.is_closed() { Err(ErrorKind::ProgramGone { what }.into()) } else { Ok(()) }
    }

    /// Adds what the driver cannot know to its out-of-memory error.
    pub(crate) fn explain(&self, error: DeviceError) -> DeviceError {
        match error.kind() {
            ErrorKind::OutOfMemory { device, requested, capacity, .. } => ErrorKind::OutOfMemory {
                device: device.clone(),
                requested: *requested,
                in_use: self.in_use.load(Ordering::Relaxed),
                capacity: *capacity,
            }
            .into(),
            _ => error,
        }
    }

    pub(crate) fn register(&self, buffer: &Arc<BufferCore>) {
        lock(&self.buffers).insert(buffer.id, Arc::downgrade(buffer));
    }

    pub(crate) fn forget(&self, id: u64) {
        lock(&self.buffers).remove(&id);
    }

    pub(crate) fn new_buffer_id(&self) -> u64 {
        self.next_buffer.fetch_add(1, Ordering::Relaxed)
    }
}

struct Inner {
    core: Arc<DeviceCore>,
    default: Stream,
}

/// A device and the program that uses it. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl Device {
    /// Takes over a driver.
    pub fn new(driver: impl Driver, config: DeviceConfig) -> Device {
        let core = Arc::new(DeviceCore {
            immediate: driver.is_immediate(),
            driver: Box::new(driver),
            seed: AtomicU64::new(config.seed),
            printer: Arc::new(Printer::new(config.sink)),
            launches: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            buffers: Mutex::default(),
            next_buffer: AtomicU64::new(0),
        });
        let default = Stream::over(core.clone(), StreamHandle(0));
        Device(Arc::new(Inner { core, default }))
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        self.0.core.driver.name()
    }

    /// The stream that launches use unless told otherwise.
    pub fn default_stream(&self) -> &Stream {
        &self.0.default
    }

    /// Memory of `bytes` bytes, zeroed. No bytes are fine.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer> {
        Buffer::allocate(&self.0.core, bytes)
    }

    /// Loads compiled code.
    pub fn load(&self, artifact: &Artifact) -> Result<LoadedKernel> {
        let core = &self.0.core;
        core.check_open("device")?;
        let (module, tasks) = core.driver.load(artifact)?;
        let kernel = LoadedKernel {
            core: core.clone(),
            meta: Arc::new(KernelMeta::of(artifact)),
            module,
            tasks: tasks.into_boxed_slice(),
        };
        if kernel.tasks.len() != artifact.tasks.len() {
            let what = format!("the driver gave {} of {} tasks", kernel.tasks.len(), artifact.tasks.len());
            return Err(ErrorKind::CompilerBug(what).into());
        }
        Ok(kernel)
    }

    /// Waits for all work of this program and writes out what it printed. Reports a failure that was not reported yet.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        self.0.default.synchronize(caller)
    }

    /// Sets the seed of random numbers of launches from now on and starts their sequence anew.
    pub fn set_seed(&self, seed: u64) {
        self.0.core.seed.store(seed, Ordering::Relaxed);
        self.0.core.launches.store(0, Ordering::Relaxed);
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        self.0.core.launches.load(Ordering::Relaxed)
    }

    /// Bytes that buffers hold.
    pub fn bytes_in_use(&self) -> u64 {
        self.0.core.in_use.load(Ordering::Relaxed)
    }

    /// False after [`Device::close`].
    pub fn alive(&self) -> bool {
        !self.0.core.is_closed()
    }

    /// Ends the program: waits for its work, after which every use of its objects is an error. Memory is given back at
    /// once, that of pinned buffers when the last pin goes; threads end. Closing twice is fine. An error is of work that was
    /// not waited for before; the program has ended all the same.
    pub fn close(&self, caller: &dyn Caller) -> Result<()> {
        let core = &self.0.core;
        let end = self.0.default.drain(caller, || core.closed.store(true, Ordering::Release));
        let buffers: Vec<_> = lock(&core.buffers).drain().filter_map(|(_, b)| b.upgrade()).collect();
        buffers.iter().for_each(|b| b.close());
        core.driver.close();
        end
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).field("alive", &self.alive()).finish()
    }
}
