//! [`Gpu`]: an opened device, with its queues and properties.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;
use octants_artifact::CodeTarget;
use octants_runtime::Result;

use crate::checked::failed;
use crate::exports::Exports;
use crate::instance::Instance;

/// Bytes of push constants that every device has, and code uses.
pub(crate) const PUSH_BYTES: u32 = 128;

/// A device. All its objects are destroyed before it is.
pub struct Gpu {
    /// Outlives the device.
    pub(crate) _instance: Arc<Instance>,
    pub(crate) device: ash::Device,
    pub(crate) memory_types: vk::PhysicalDeviceMemoryProperties,
    /// The queues' family.
    pub(crate) family: u32,
    pub(crate) queues: Vec<Mutex<vk::Queue>>,
    /// Its number among the library's devices.
    pub ordinal: u32,
    /// Name of the device.
    pub name: String,
    /// The target of its code.
    pub target: CodeTarget,
    /// Version of Vulkan, as the library writes it.
    pub version: u32,
    /// Threads of a subgroup.
    pub subgroup: u32,
    /// Pipelines must request subgroups of this size.
    pub(crate) asks_subgroup: bool,
    /// Pipelines can request full subgroups.
    pub(crate) whole_subgroups: bool,
    /// Maximum number of blocks of a grid.
    pub max_blocks: u32,
    /// Maximum number of threads of a block.
    pub max_threads: u32,
    /// Multiprocessors, and resident threads per multiprocessor, if known.
    pub shape: Option<(u32, u32)>,
    /// Nanoseconds of a tick of timestamps; zero without them.
    pub tick: f64,
    /// A software device on the CPU.
    pub is_processor: bool,
    /// Bytes of device-local memory.
    pub memory_bytes: u64,
    /// Memory and semaphores can be exported.
    pub(crate) exports: Option<Exports>,
    /// How many allocations are shared with another interface to the device.
    pub(crate) shared: Arc<AtomicUsize>,
    /// Locked while that sharing is set up.
    pub(crate) linking: Mutex<()>,
    pub(crate) layout: vk::PipelineLayout,
    pub(crate) cache: vk::PipelineCache,
    /// The device and its driver. The cache contents are valid only for them.
    pub(crate) cache_name: String,
    /// The cache contents of an earlier process.
    pub(crate) found_in_cache: Mutex<Vec<u8>>,
    /// Pipelines were made.
    pub(crate) has_pipelines: AtomicBool,
}

/// The priority of a queue: high for the last quarter of the device's queues.
pub(crate) fn queue_priority(number: u32, count: u32) -> f32 {
    if number >= count - count / 4 { 1.0 } else { 0.5 }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Has a queue for this thread only.
    pub(crate) fn queue(&self, number: usize) -> MutexGuard<'_, vk::Queue> {
        self.queues[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an earlier process's cache contents. A driver ignores another driver's.
    pub fn load_cache(&self, contents: &[u8]) {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(contents);
        // SAFETY: the structures are whole; the driver checks whether the contents are its own.
        unsafe {
            let Ok(found) = self.device.create_pipeline_cache(&info, None) else { return };
            let merged = self.device.merge_pipeline_caches(self.cache, &[found]);
            self.device.destroy_pipeline_cache(found, None);
            if merged.is_ok() {
                *self.found_in_cache.lock().unwrap_or_else(PoisonError::into_inner) = contents.to_vec();
            }
        }
    }

    /// The cache contents; `None` if unchanged since an earlier process.
    pub fn cache_contents(&self) -> Option<Vec<u8>> {
        if !self.has_pipelines.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the cache is alive.
        let contents = unsafe { self.device.get_pipeline_cache_data(self.cache) }.ok()?;
        let found = self.found_in_cache.lock().unwrap_or_else(PoisonError::into_inner);
        (*found != contents).then_some(contents)
    }

    /// Orders all later commands, with their memory accesses, behind all earlier ones.
    ///
    /// The accesses are named, not `MEMORY_READ`, which also stands for those of the fixed functions: NVIDIA's driver
    /// then takes 4.3 us between two dispatches instead of 1.8.
    ///
    /// # Safety
    /// The commands are being recorded.
    pub(crate) unsafe fn order(&self, commands: vk::CommandBuffer) {
        let writes = vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE;
        let all = writes | vk::AccessFlags::SHADER_READ | vk::AccessFlags::TRANSFER_READ;
        let barrier = [vk::MemoryBarrier::default().src_access_mask(writes).dst_access_mask(all)];
        let stages = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        let none = vk::DependencyFlags::empty();
        // SAFETY: the contract above.
        unsafe { self.device.cmd_pipeline_barrier(commands, stages, stages, none, &barrier, &[], &[]) };
    }

    /// Waits for all that was submitted.
    pub fn wait_idle(&self) -> Result<()> {
        let _all: Vec<_> = (0..self.queues.len()).map(|n| self.queue(n)).collect();
        // SAFETY: no other thread uses a queue meanwhile.
        unsafe { self.device.device_wait_idle() }
            .map_err(|code| failed("vkDeviceWaitIdle", code, "waiting for all work of the device"))
    }

    /// The first type of memory that has these properties, if any.
    pub(crate) fn memory_type(&self, allowed: u32, wanted: vk::MemoryPropertyFlags) -> Option<u32> {
        let types = self.memory_types.memory_types_as_slice();
        let fits = |(i, t): (usize, &vk::MemoryType)| {
            (allowed & (1 << i) != 0 && t.property_flags.contains(wanted)).then_some(i as u32)
        };
        types.iter().enumerate().find_map(fits)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: the last owner; all objects of the device are destroyed, its work is done or lost.
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_pipeline_cache(self.cache, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_device(None);
        }
    }
}
