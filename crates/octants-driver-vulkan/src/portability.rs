//! For tests: reduces a device to what Vulkan offers on Metal, where all Vulkan devices are of the portability subset.
//!
//! The features and limits are those that MoltenVK 1.4 reports for Apple GPUs: no 64-bit floats, no atomic operations
//! on 64-bit integers, no shader clock, one queue per family, blocks of up to 1024 threads with 32 KiB of shared
//! memory, and subgroups of varying sizes of which none can be requested. Features are only removed, so the device must
//! have the others itself.

use ash::vk;

use crate::features::{Features, Properties};

/// Queues of a family.
pub(crate) const QUEUES: u32 = 1;
const BLOCK_THREADS: u32 = 1024;
const SHARED_BYTES: u32 = 32 << 10;
const PUSH_BYTES: u32 = 4 << 10;

/// Removes the features that Vulkan on Metal lacks.
pub(crate) fn reduce_features(features: &mut Features) {
    features.core.shader_float64 = vk::FALSE;
    features.twelve.shader_buffer_int64_atomics = vk::FALSE;
    features.twelve.shader_shared_int64_atomics = vk::FALSE;
    features.floats.shader_buffer_float64_atomic_add = vk::FALSE;
    features.clock.shader_subgroup_clock = vk::FALSE;
    features.has_clock = false;
}

/// The same for properties and limits.
pub(crate) fn reduce_limits(properties: &mut Properties, limits: &mut vk::PhysicalDeviceLimits) {
    properties.varies = true;
    properties.takes_sizes = false;
    properties.shape = None;
    properties.floats.shader_signed_zero_inf_nan_preserve_float64 = vk::FALSE;
    limits.max_compute_work_group_invocations = limits.max_compute_work_group_invocations.min(BLOCK_THREADS);
    limits.max_compute_work_group_size = limits.max_compute_work_group_size.map(|n| n.min(BLOCK_THREADS));
    limits.max_compute_shared_memory_size = limits.max_compute_shared_memory_size.min(SHARED_BYTES);
    limits.max_push_constants_size = limits.max_push_constants_size.min(PUSH_BYTES);
}
