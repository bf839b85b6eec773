//! [`LoadedKernel`]: compiled code on a device, ready to launch.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use octants_artifact::Key;
pub use octants_artifact::Pointer;

use crate::cores::DeviceCore;
use crate::driver::{CheckpointWords, DevicePtr, ModuleHandle, TaskHandle};
use crate::kernel_meta::KernelMeta;
use crate::scratch::Room;
use crate::sections::{Section, conditions_at_once};
use crate::witness::Witness;

/// Compiled code on a device. Made by [`crate::Device::load`]. Clones share the code, which is unloaded with the last
/// one.
#[derive(Clone)]
pub struct LoadedKernel {
    code: Arc<LoadedCode>,
    /// Some task runs on rows of split arrays.
    is_split: bool,
    pub(crate) pointers: Arc<[Pointer]>,
    /// Its code converts addresses to integers, which may escape.
    pub(crate) exposes_addresses: bool,
    /// The key of its code in the cache on disk, if cached.
    pub(crate) kept_under: Option<Key>,
    /// Determines what launches certainly access, if race checks are on.
    pub(crate) witness: Option<Arc<dyn Witness>>,
    /// What a [`crate::Fuser`] needs to know about it. Nothing here does.
    source: Option<Arc<dyn Any + Send + Sync>>,
    /// What reports need to know about it.
    pub(crate) reported: Arc<Reported>,
}

/// What reports need to know about a kernel.
#[derive(Clone)]
pub(crate) struct Reported {
    pub(crate) meta: Arc<KernelMeta>,
    /// The file and line of each access of each task.
    pub(crate) lines: Arc<Vec<Vec<String>>>,
}

/// The shared state of clones of a [`LoadedKernel`].
pub struct LoadedCode {
    pub(crate) core: Arc<DeviceCore>,
    pub(crate) meta: Arc<KernelMeta>,
    pub(crate) module: ModuleHandle,
    /// A launch of it was captured into a graph.
    pub(crate) in_graph: AtomicBool,
    pub(crate) tasks: Box<[TaskHandle]>,
    /// It updates memory without atomics where only other launches could interfere.
    pub(crate) assumes_order: bool,
    /// Its code prints or asserts, and cannot call the host.
    pub(crate) logs: bool,
    /// Bytes of frame, those for arguments that do not travel by value among them.
    pub(crate) frame_bytes: u64,
    /// Bytes of result slots, that for conditions among them.
    pub(crate) result_bytes: u64,
    /// The offset of the arguments in the frame, if they are not passed by value.
    pub(crate) spilled_at: Option<u64>,
    /// Its launches need the host or the order of the default stream, so they never run concurrently.
    pub(crate) stays_in_order: bool,
    /// The execution order of the tasks; empty if each runs once, in order.
    pub(crate) sections: Box<[Section]>,
    /// The frame offset at which the device counts rounds, if the code uses their number.
    pub(crate) rounds_at: Option<u64>,
    /// The frame offset at which the device stores the checkpoint that ends a launch, if the kernel has checkpoints.
    pub(crate) end_at: Option<u64>,
}

impl Deref for LoadedKernel {
    type Target = LoadedCode;

    #[inline]
    fn deref(&self) -> &LoadedCode {
        &self.code
    }
}

impl LoadedKernel {
    /// Whether it can be launched only if no other launch runs at the same time: see [`crate::Device::is_unordered`].
    #[inline]
    pub fn assumes_order(&self) -> bool {
        self.assumes_order
    }

    pub(crate) fn new(code: LoadedCode) -> LoadedKernel {
        LoadedKernel {
            is_split: code.meta.is_split(),
            reported: Arc::new(Reported { meta: code.meta.clone(), lines: Arc::default() }),
            code: Arc::new(code),
            pointers: Arc::default(),
            exposes_addresses: false,
            kept_under: None,
            witness: None,
            source: None,
        }
    }

    /// The kernel's metadata.
    pub fn meta(&self) -> &Arc<KernelMeta> {
        &self.meta
    }

    /// Sets the argument slots that hold addresses. On an asynchronous device, launches record which stream uses which
    /// buffer; memory that is not the device's makes a launch wait for its work.
    pub fn with_pointers(self, pointers: Vec<Pointer>) -> LoadedKernel {
        let mut kernel = self;
        kernel.pointers = pointers.into();
        kernel
    }

    /// Whether a slot holds the address of row zero of a split array, which may be outside of the array's memory.
    #[inline]
    pub(crate) fn holds_row_zero(&self, pointer: &Pointer) -> bool {
        self.is_split && pointer.buffer.is_some_and(|buffer| self.meta.splits(buffer))
    }

    /// Sets whether the code converts addresses to integers, through which other code may write to the memory.
    pub fn telling_addresses(self, exposes_addresses: bool) -> LoadedKernel {
        let mut kernel = self;
        kernel.exposes_addresses = exposes_addresses;
        kernel
    }

    /// Sets the witness, which determines what launches certainly access.
    pub fn with_witness(self, witness: Arc<dyn Witness>) -> LoadedKernel {
        LoadedKernel { witness: Some(witness), ..self }
    }

    /// Sets what a [`crate::Fuser`] needs to know about the kernel.
    pub fn with_source(self, source: Arc<dyn Any + Send + Sync>) -> LoadedKernel {
        LoadedKernel { source: Some(source), ..self }
    }

    /// What a [`crate::Fuser`] needs to know about the kernel.
    pub fn source(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.source.as_ref()
    }

    /// Sets the file and line of each access of each task, for reports.
    pub fn with_access_lines(self, lines: Arc<Vec<Vec<String>>>) -> LoadedKernel {
        let reported = Arc::new(Reported { meta: self.meta.clone(), lines });
        LoadedKernel { reported, ..self }
    }

    /// The file and line of each access of each task.
    pub fn access_lines(&self) -> &Arc<Vec<Vec<String>>> {
        &self.reported.lines
    }

    /// Sets the key under which the code is cached between processes.
    pub fn kept_under(self, key: Option<Key>) -> LoadedKernel {
        let mut kernel = self;
        kernel.kept_under = key;
        kernel
    }

    /// Maximum number of resident threads, for the task with the fewest; `None` if unlimited.
    pub fn max_resident_threads(&self) -> Option<u64> {
        // SAFETY: the module is loaded while this value lives.
        self.tasks.iter().filter_map(|t| unsafe { self.core.driver.max_resident_threads(*t) }).min()
    }

    /// Its frame and result slots; after the words for copied conditions, if the host needs copies.
    #[inline]
    pub(crate) fn room(&self) -> Room {
        Room { frame_bytes: self.frame_bytes, result_bytes: self.result_bytes }
    }

    /// The address of the copied condition with this number, in a launch with its results there.
    pub(crate) fn condition_at(&self, result: DevicePtr, word: u64) -> DevicePtr {
        DevicePtr(result.0 + 8 * (self.meta.result.len() as u64 + word))
    }

    /// The address of the device's iteration counts, in a launch with this frame.
    #[inline]
    pub(crate) fn rounds_in(&self, frame: DevicePtr) -> DevicePtr {
        self.rounds_at.map_or(DevicePtr(0), |at| DevicePtr(frame.0 + at))
    }

    /// The addresses at which the device stores the checkpoint that ends a launch, given its frame and results.
    #[inline]
    pub(crate) fn checkpoint_words(&self, frame: DevicePtr, result: DevicePtr) -> CheckpointWords {
        let words = |at| CheckpointWords { in_frame: DevicePtr(frame.0 + at), for_host: self.condition_at(result, 0) };
        self.end_at.map_or(CheckpointWords::NONE, words)
    }

    /// Bytes of result slots of a kernel with these sections, on this device.
    pub(crate) fn result_bytes(core: &DeviceCore, meta: &KernelMeta, sections: &[Section]) -> u64 {
        // On other devices, the host reads conditions in place.
        let copies = if core.host_addressable { 0 } else { conditions_at_once(sections) };
        8 * (meta.result.len() as u64 + copies)
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        &self.meta.name
    }

    /// False once the program it belongs to has ended.
    pub fn alive(&self) -> bool {
        !self.core.is_closed()
    }
}

impl fmt::Debug for LoadedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedKernel").field("name", &self.meta.name).field("tasks", &self.tasks.len()).finish()
    }
}

impl Drop for LoadedCode {
    fn drop(&mut self) {
        if self.core.is_abandoned() {
            return;
        }
        if *self.in_graph.get_mut() {
            return self.core.unload_at_end(self.module);
        }
        // SAFETY: the module came from this driver, which `core` keeps alive. A launch borrows the kernel; work that it
        // has queued is the driver's to wait for.
        unsafe { self.core.driver.unload(self.module) }
    }
}
