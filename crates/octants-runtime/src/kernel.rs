//! [`LoadedKernel`]: compiled code on a device, ready to launch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use octants_artifact::TaskMeta;

use crate::cores::DeviceCore;
use crate::driver::{ModuleHandle, TaskHandle};
use crate::kernel_meta::KernelMeta;
use crate::scratch::Room;

/// An argument slot that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// The slot.
    pub slot: u32,
    /// Some task writes to the memory.
    pub written: bool,
}

/// Compiled code on a device. Made by [`crate::Device::load`]; unloaded when dropped.
pub struct LoadedKernel {
    pub(crate) core: Arc<DeviceCore>,
    pub(crate) meta: Arc<KernelMeta>,
    pub(crate) module: ModuleHandle,
    /// Someone has captured a launch of it into a graph.
    pub(crate) in_graph: AtomicBool,
    pub(crate) tasks: Box<[TaskHandle]>,
    pub(crate) pointers: Box<[Pointer]>,
    /// Its code makes numbers of addresses, which may go anywhere.
    pub(crate) tells_addresses: bool,
    /// Its code prints or asserts, and cannot call back to say so.
    pub(crate) speaks: bool,
    /// Bytes of frame, those for arguments that do not travel by value among them.
    pub(crate) frame_bytes: u64,
    /// Where in the frame the arguments lie, if they do not travel by value.
    pub(crate) spilled_at: Option<u64>,
    /// How the tasks follow one another on a device that works asynchronously; empty where all do in order.
    pub(crate) sections: Box<[Section]>,
}

/// A stretch of a kernel's tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Section {
    /// One after the other.
    InOrder(Range<usize>),
    /// At least two groups, each in order, independent of one another.
    Groups(Box<[Range<usize>]>),
}

/// The sections of a kernel; none where there is nothing to fork.
pub(crate) fn sections(tasks: &[TaskMeta]) -> Box<[Section]> {
    let mut runs: Vec<(Option<u32>, Range<usize>)> = Vec::new();
    for (i, task) in tasks.iter().enumerate() {
        match runs.last_mut() {
            Some((group, run)) if *group == task.group => run.end = i + 1,
            _ => runs.push((task.group, i..i + 1)),
        }
    }
    let mut out = Vec::new();
    for same in runs.chunk_by(|a, b| a.0.is_some() && b.0.is_some()) {
        match same {
            [(_, run)] => out.push(Section::InOrder(run.clone())),
            groups => out.push(Section::Groups(groups.iter().map(|(_, run)| run.clone()).collect())),
        }
    }
    let forks = out.iter().any(|s| matches!(s, Section::Groups(_)));
    if forks { out.into_boxed_slice() } else { Box::default() }
}

impl LoadedKernel {
    /// What is known of the kernel.
    pub fn meta(&self) -> &Arc<KernelMeta> {
        &self.meta
    }

    /// Says which argument slots hold addresses. On a device that works asynchronously launches note who uses which
    /// buffer; memory that is not the device's makes a launch wait for its work.
    pub fn with_pointers(self, pointers: Vec<Pointer>) -> LoadedKernel {
        let mut kernel = self;
        kernel.pointers = pointers.into_boxed_slice();
        kernel
    }

    /// Says whether the code makes numbers of addresses, by which others may then write to the memory.
    pub fn telling_addresses(self, tells_addresses: bool) -> LoadedKernel {
        let mut kernel = self;
        kernel.tells_addresses = tells_addresses;
        kernel
    }

    /// How many threads the device runs at once of the task that it runs the fewest of; `None` where there is no limit
    /// to their number.
    pub fn threads_at_once(&self) -> Option<u64> {
        // SAFETY: the module is loaded while this value lives.
        self.tasks.iter().filter_map(|t| unsafe { self.core.driver.threads_at_once(*t) }).min()
    }

    /// Its frame and result slots.
    #[inline]
    pub(crate) fn room(&self) -> Room {
        Room { frame_bytes: self.frame_bytes, result_bytes: 8 * self.meta.result.len() as u64 }
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

impl Drop for LoadedKernel {
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
