//! [`Features`] and [`Properties`]: what a device offers to code, asked of the device.

use std::ffi::{CStr, CString};

use ash::vk;

/// The enabled features, in one chain.
#[derive(Default)]
pub(crate) struct Features {
    pub(crate) core: vk::PhysicalDeviceFeatures,
    pub(crate) eleven: vk::PhysicalDeviceVulkan11Features<'static>,
    pub(crate) twelve: vk::PhysicalDeviceVulkan12Features<'static>,
    pub(crate) floats: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
    pub(crate) sizes: vk::PhysicalDeviceSubgroupSizeControlFeatures<'static>,
    pub(crate) clock: vk::PhysicalDeviceShaderClockFeaturesKHR<'static>,
    pub(crate) has_floats: bool,
    pub(crate) has_sizes: bool,
    pub(crate) has_clock: bool,
}

pub(crate) fn is(feature: vk::Bool32) -> bool {
    feature != 0
}

/// The device features that code may use.
pub(crate) fn features(instance: &ash::Instance, device: vk::PhysicalDevice, extensions: &[CString]) -> Features {
    let has = |name: &CStr| extensions.iter().any(|e| e.as_c_str() == name);
    let mut all = Features {
        has_floats: has(vk::EXT_SHADER_ATOMIC_FLOAT_NAME),
        has_sizes: has(vk::EXT_SUBGROUP_SIZE_CONTROL_NAME),
        has_clock: has(vk::KHR_SHADER_CLOCK_NAME),
        ..Features::default()
    };
    let (mut eleven, mut twelve) =
        (vk::PhysicalDeviceVulkan11Features::default(), vk::PhysicalDeviceVulkan12Features::default());
    let mut floats = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default();
    let mut sizes = vk::PhysicalDeviceSubgroupSizeControlFeatures::default();
    let mut clock = vk::PhysicalDeviceShaderClockFeaturesKHR::default();
    let mut query = vk::PhysicalDeviceFeatures2::default().push_next(&mut eleven).push_next(&mut twelve);
    if all.has_floats {
        query = query.push_next(&mut floats);
    }
    if all.has_sizes {
        query = query.push_next(&mut sizes);
    }
    if all.has_clock {
        query = query.push_next(&mut clock);
    }
    // SAFETY: the chain is whole.
    unsafe { instance.get_physical_device_features2(device, &mut query) };
    let core = query.features;
    all.core = vk::PhysicalDeviceFeatures {
        shader_int64: core.shader_int64,
        shader_int16: core.shader_int16,
        shader_float64: core.shader_float64,
        ..Default::default()
    };
    all.eleven.storage_buffer16_bit_access = eleven.storage_buffer16_bit_access;
    all.twelve.shader_int8 = twelve.shader_int8;
    all.twelve.storage_buffer8_bit_access = twelve.storage_buffer8_bit_access;
    all.twelve.shader_float16 = twelve.shader_float16;
    all.twelve.shader_buffer_int64_atomics = twelve.shader_buffer_int64_atomics;
    all.twelve.shader_shared_int64_atomics = twelve.shader_shared_int64_atomics;
    all.twelve.buffer_device_address = twelve.buffer_device_address;
    all.twelve.timeline_semaphore = twelve.timeline_semaphore;
    all.twelve.vulkan_memory_model = twelve.vulkan_memory_model;
    all.twelve.vulkan_memory_model_device_scope = twelve.vulkan_memory_model_device_scope;
    all.floats.shader_buffer_float32_atomic_add = floats.shader_buffer_float32_atomic_add;
    all.floats.shader_shared_float32_atomic_add = floats.shader_shared_float32_atomic_add;
    all.floats.shader_buffer_float64_atomic_add = floats.shader_buffer_float64_atomic_add;
    all.sizes.subgroup_size_control = sizes.subgroup_size_control;
    all.sizes.compute_full_subgroups = sizes.compute_full_subgroups;
    all.clock.shader_subgroup_clock = clock.shader_subgroup_clock;
    all
}

impl Features {
    /// The first required feature that the device lacks.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        let twelve = &self.twelve;
        let needed = [
            (twelve.buffer_device_address, "addresses of buffers (bufferDeviceAddress)"),
            (twelve.timeline_semaphore, "timeline semaphores (timelineSemaphore)"),
            (twelve.vulkan_memory_model, "Vulkan's memory model (vulkanMemoryModel)"),
            (twelve.vulkan_memory_model_device_scope, "the device's scope (vulkanMemoryModelDeviceScope)"),
            (self.core.shader_int64, "64-bit integers (shaderInt64)"),
        ];
        needed.into_iter().find(|(has, _)| !is(*has)).map(|(_, what)| what)
    }

    /// The words of a target's features.
    pub(crate) fn words(&self, p: &Properties, shared_bytes: u32) -> String {
        let twelve = &self.twelve;
        let preserves = |of: vk::Bool32| is(of);
        let subgroups =
            vk::SubgroupFeatureFlags::BALLOT | vk::SubgroupFeatureFlags::VOTE | vk::SubgroupFeatureFlags::SHUFFLE;
        let has = [
            (is(twelve.shader_int8) && is(twelve.storage_buffer8_bit_access), "int8"),
            (is(self.core.shader_int16) && is(self.eleven.storage_buffer16_bit_access), "int16"),
            (is(twelve.shader_float16) && is(self.eleven.storage_buffer16_bit_access), "float16"),
            (is(self.core.shader_float64), "float64"),
            (is(twelve.shader_buffer_int64_atomics), "atomic_int64"),
            (is(twelve.shader_shared_int64_atomics), "shared_atomic_int64"),
            (is(self.floats.shader_buffer_float32_atomic_add), "atomic_float32"),
            (is(self.floats.shader_shared_float32_atomic_add), "shared_atomic_float32"),
            (is(self.floats.shader_buffer_float64_atomic_add), "atomic_float64"),
            (preserves(p.floats.shader_signed_zero_inf_nan_preserve_float32), "special_float32"),
            (preserves(p.floats.shader_signed_zero_inf_nan_preserve_float64), "special_float64"),
            (preserves(p.floats.shader_signed_zero_inf_nan_preserve_float16), "special_float16"),
            (preserves(p.floats.shader_rounding_mode_rte_float16), "rounds_float16"),
            (p.subgroup_operations.contains(subgroups) && p.subgroup_in_compute, "subgroups"),
            (is(self.clock.shader_subgroup_clock), "clock"),
            // Seen in 22.3; later versions are untested. The replacement of fences is correct there too.
            (p.is_lavapipe, "fences_wait"),
            (p.is_lavapipe, "limits_loops"),
        ];
        let words = has.into_iter().filter(|(has, _)| *has).map(|(_, word)| word.to_owned());
        [format!("shared={shared_bytes}")].into_iter().chain(words).collect::<Vec<_>>().join(",")
    }
}

/// Properties that code depends on.
pub(crate) struct Properties {
    pub(crate) floats: vk::PhysicalDeviceFloatControlsProperties<'static>,
    pub(crate) subgroup: u32,
    pub(crate) subgroup_operations: vk::SubgroupFeatureFlags,
    pub(crate) subgroup_in_compute: bool,
    /// Sizes of subgroups differ.
    pub(crate) varies: bool,
    /// A pipeline for compute can request a size.
    pub(crate) takes_sizes: bool,
    /// Multiprocessors, and resident threads per multiprocessor, if known.
    pub(crate) shape: Option<(u32, u32)>,
    /// Mesa's software device.
    pub(crate) is_lavapipe: bool,
}

pub(crate) fn properties(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
    has_sizes: bool,
    extensions: &[CString],
) -> Properties {
    let has = |name: &CStr| extensions.iter().any(|e| e.as_c_str() == name);
    let (has_builtins, has_core) = (has(vk::NV_SHADER_SM_BUILTINS_NAME), has(vk::AMD_SHADER_CORE_PROPERTIES_NAME));
    let mut builtins = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut core = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
    let mut floats = vk::PhysicalDeviceFloatControlsProperties::default();
    let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut query =
        vk::PhysicalDeviceProperties2::default().push_next(&mut subgroup).push_next(&mut floats).push_next(&mut driver);
    if has_sizes {
        query = query.push_next(&mut sizes);
    }
    if has_builtins {
        query = query.push_next(&mut builtins);
    }
    if has_core {
        query = query.push_next(&mut core);
    }
    // SAFETY: the chain is whole.
    unsafe { instance.get_physical_device_properties2(device, &mut query) };
    let units = core.shader_engine_count * core.shader_arrays_per_engine_count * core.compute_units_per_shader_array;
    let waves = core.simd_per_compute_unit * core.wavefronts_per_simd;
    let shapes = [(builtins.shader_sm_count, builtins.shader_warps_per_sm), (units, waves)];
    let shape = shapes.into_iter().find(|(units, groups)| *units > 0 && *groups > 0);
    floats.p_next = std::ptr::null_mut();
    Properties {
        subgroup: subgroup.subgroup_size,
        subgroup_operations: subgroup.supported_operations,
        subgroup_in_compute: subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE),
        is_lavapipe: driver.driver_id == vk::DriverId::MESA_LLVMPIPE,
        shape: shape.map(|(units, groups)| (units, groups * subgroup.subgroup_size)),
        varies: has_sizes && sizes.min_subgroup_size != sizes.max_subgroup_size,
        takes_sizes: sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE),
        floats: vk::PhysicalDeviceFloatControlsProperties { _marker: std::marker::PhantomData, ..floats },
    }
}
