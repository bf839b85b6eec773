//! [`open()`]: finds Vulkan's library and a device, or reports why there is none.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use ash::vk;
use octants_artifact::CodeTarget;
use octants_driver_gpu::importer::FindImporter;
use octants_driver_gpu::{GpuConfig, Unavailable};

use crate::driver::VulkanDriver;
use crate::exports::{Exportable, Exports};
use crate::features::{Features, features, is, properties};
use crate::gpu::{Gpu, PUSH_BYTES, queue_priority};
use crate::instance::{Instance, Instances, VERSION, why};
use crate::memory::BUFFER_USAGE;
use crate::portability;

/// The maximum number of queues, and so of streams that run concurrently.
const MOST_QUEUES: u32 = 16;

/// The requested device.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Its number, and the path of Vulkan's library.
    pub gpu: GpuConfig,
    /// A software device is used if there is no other.
    pub takes_processor: bool,
    /// For tests: features and limits are reduced to those of Vulkan on Metal.
    pub portable: bool,
    /// Find other interfaces to the device, with which its memory can be shared.
    pub finders: Vec<FindImporter>,
}

/// Opens a device: the one with the given number, or else the best one, preferring discrete to integrated GPUs.
pub fn open(instances: &Instances, request: &Request) -> Result<VulkanDriver, Unavailable> {
    let instance = instances.of(request.gpu.library.as_deref())?;
    let found = choose(&instance.calls, request)?;
    let parts = make_device(&instance.calls, found, request.portable)?;
    VulkanDriver::new(into_gpu(instance, parts), &request.finders)
}

/// The number of the default device of [`open`].
pub fn usual(instances: &Instances, request: &Request) -> Result<u32, Unavailable> {
    let gpu = GpuConfig { device: None, ..request.gpu.clone() };
    let instance = instances.of(gpu.library.as_deref())?;
    Ok(choose(&instance.calls, &Request { gpu, ..request.clone() })?.ordinal)
}

/// A device in a list of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Bytes of device-local memory.
    pub memory_bytes: u64,
    /// Version of Vulkan, in its usual form.
    pub version: String,
    /// A software device on the CPU.
    pub is_processor: bool,
    /// Why it cannot be used, if it cannot.
    pub lacks: Option<String>,
}

/// All devices, in the order of their numbers.
pub fn list(instances: &Instances, config: &GpuConfig) -> Result<Vec<Listed>, Unavailable> {
    let instance = instances.of(config.library.as_deref())?;
    let describe = |f: Found| {
        let version = f.properties.api_version;
        let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
        // SAFETY: the device is the instance's.
        let memory = unsafe { instance.calls.get_physical_device_memory_properties(f.device) };
        Listed {
            name: device_name(&f.properties),
            memory_bytes: own_memory(&memory),
            version: format!("{major}.{minor}.{}", vk::api_version_patch(version)),
            is_processor: f.properties.device_type == vk::PhysicalDeviceType::CPU,
            lacks: usable_features(&instance.calls, &f).err().map(|Unavailable(reason)| reason),
        }
    };
    Ok(devices(&instance.calls)?.into_iter().map(describe).collect())
}

/// A device that can run code.
struct Found {
    device: vk::PhysicalDevice,
    properties: vk::PhysicalDeviceProperties,
    ordinal: u32,
}

fn rank(kind: vk::PhysicalDeviceType) -> u32 {
    match kind {
        vk::PhysicalDeviceType::DISCRETE_GPU => 0,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        vk::PhysicalDeviceType::CPU => 4,
        _ => 3,
    }
}

/// All devices, in the order of their numbers: discrete GPUs first.
fn devices(instance: &ash::Instance) -> Result<Vec<Found>, Unavailable> {
    // SAFETY: the instance is alive.
    let all = unsafe { instance.enumerate_physical_devices() }.map_err(|c| why("vkEnumeratePhysicalDevices", c))?;
    let describe = |device: vk::PhysicalDevice| {
        // SAFETY: the device is the instance's.
        let properties = unsafe { instance.get_physical_device_properties(device) };
        Found { device, properties, ordinal: 0 }
    };
    let mut found: Vec<Found> = all.into_iter().map(describe).collect();
    found.sort_by_key(|f| rank(f.properties.device_type));
    for (number, f) in found.iter_mut().enumerate() {
        f.ordinal = number as u32;
    }
    Ok(found)
}

fn choose(instance: &ash::Instance, request: &Request) -> Result<Found, Unavailable> {
    let found = devices(instance)?;
    if found.is_empty() {
        return Err(Unavailable("Vulkan found no device on this machine".into()));
    }
    let count = found.len();
    let chosen = match request.gpu.device {
        Some(number) => found.into_iter().nth(number as usize).ok_or_else(|| {
            Unavailable(format!("there is no Vulkan device {number}: {count} were found, counted from 0"))
        })?,
        // An unsuitable device is named in the error only if no other can be used.
        None => match found.iter().position(|f| usable_features(instance, f).is_ok()) {
            Some(first) => found.into_iter().nth(first),
            None => found.into_iter().next(),
        }
        .expect("compiler bug: no device"),
    };
    if !request.takes_processor && chosen.properties.device_type == vk::PhysicalDeviceType::CPU {
        return Err(Unavailable("the only Vulkan device is emulated by the CPU".into()));
    }
    Ok(chosen)
}

/// Creates the logical device.
struct Parts {
    device: ash::Device,
    found: Found,
    family: u32,
    queues: Vec<vk::Queue>,
    memory_types: vk::PhysicalDeviceMemoryProperties,
    target: CodeTarget,
    subgroup: u32,
    asks_subgroup: bool,
    whole_subgroups: bool,
    shape: Option<(u32, u32)>,
    has_timestamps: bool,
    exports: Option<Exports>,
    layout: vk::PipelineLayout,
    cache: vk::PipelineCache,
}

/// A device's features and extensions, or the required feature that it lacks.
fn usable_features(instance: &ash::Instance, found: &Found) -> Result<(Features, Vec<CString>), Unavailable> {
    let name = device_name(&found.properties);
    if found.properties.api_version < VERSION {
        return Err(Unavailable(format!("{name} has no Vulkan 1.2")));
    }
    // SAFETY: the device is the instance's.
    let known = unsafe { instance.enumerate_device_extension_properties(found.device) }
        .map_err(|c| why("vkEnumerateDeviceExtensionProperties", c))?;
    let names: Vec<CString> =
        known.iter().filter_map(|e| e.extension_name_as_c_str().ok()).map(CStr::to_owned).collect();
    let features = features(instance, found.device, &names);
    match features.lacks() {
        Some(what) => Err(Unavailable(format!("{name} has no {what}"))),
        None => Ok((features, names)),
    }
}

fn make_device(instance: &ash::Instance, mut found: Found, portable: bool) -> Result<Parts, Unavailable> {
    let (mut features, names) = usable_features(instance, &found)?;
    let name = device_name(&found.properties);
    let mut p = properties(instance, found.device, features.has_sizes, &names);
    if portable {
        portability::reduce_features(&mut features);
        portability::reduce_limits(&mut p, &mut found.properties.limits);
    }
    // SAFETY: as above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(found.device) };
    let family = families
        .iter()
        .enumerate()
        .filter(|(_, f)| f.queue_flags.contains(vk::QueueFlags::COMPUTE))
        .max_by_key(|(_, f)| {
            // Queues that also draw may run in turns: on NVIDIA GPUs, only the others run concurrently.
            let computes_only = !f.queue_flags.contains(vk::QueueFlags::GRAPHICS);
            (computes_only && f.queue_count > 1, f.queue_count.min(MOST_QUEUES))
        })
        .map(|(i, _)| i as u32)
        .ok_or_else(|| Unavailable(format!("{name} has no compute queue")))?;
    let most = if portable { portability::QUEUES } else { MOST_QUEUES };
    let count = families[family as usize].queue_count.min(most);
    let priorities: Vec<f32> = (0..count).map(|number| queue_priority(number, count)).collect();
    let queue_info = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
    let subset = c"VK_KHR_portability_subset";
    let exportable = Exportable::of(instance, found.device, &names, BUFFER_USAGE).filter(|_| !portable);
    let exported = exportable.as_ref().map(Exportable::extensions);
    let wanted = [
        (features.has_floats, vk::EXT_SHADER_ATOMIC_FLOAT_NAME),
        (features.has_sizes, vk::EXT_SUBGROUP_SIZE_CONTROL_NAME),
        (features.has_clock, vk::KHR_SHADER_CLOCK_NAME),
        (names.iter().any(|n| n.as_c_str() == subset), subset),
    ];
    let wanted = wanted.iter().chain(exported.iter().flatten());
    let extensions: Vec<*const c_char> = wanted.filter(|(has, _)| *has).map(|(_, n)| n.as_ptr()).collect();
    let words = features.words(&p, found.properties.limits.max_compute_shared_memory_size);
    let (asks_subgroup, whole_subgroups) = (
        p.varies && p.takes_sizes && is(features.sizes.subgroup_size_control),
        is(features.sizes.compute_full_subgroups),
    );
    let Features { core, ref mut eleven, ref mut twelve, ref mut floats, ref mut sizes, ref mut clock, .. } = features;
    let mut create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queue_info)
        .enabled_extension_names(&extensions)
        .enabled_features(&core)
        .push_next(eleven)
        .push_next(twelve);
    if features.has_floats {
        create = create.push_next(floats);
    }
    if features.has_sizes {
        create = create.push_next(sizes);
    }
    if features.has_clock {
        create = create.push_next(clock);
    }
    // SAFETY: the structures are complete, and request only features that the device has.
    let device =
        unsafe { instance.create_device(found.device, &create, None) }.map_err(|c| why("vkCreateDevice", c))?;
    // SAFETY: the queues were made with the device.
    let queues = unsafe { (0..count).map(|n| device.get_device_queue(family, n)).collect() };
    let (layout, cache) = layout_and_cache(&device)?;
    let exports = exportable.map(|e| e.with(instance, &device));
    let target = CodeTarget::Device {
        triple: "spirv64-vulkan1.2".into(),
        cpu: format!("subgroup{}", p.subgroup),
        features: words,
    };
    // SAFETY: the device is the instance's.
    let memory_types = unsafe { instance.get_physical_device_memory_properties(found.device) };
    let has_timestamps = families[family as usize].timestamp_valid_bits > 0;
    let subgroup = p.subgroup;
    Ok(Parts {
        device,
        found,
        family,
        queues,
        memory_types,
        target,
        subgroup,
        asks_subgroup,
        whole_subgroups,
        shape: p.shape,
        has_timestamps,
        exports,
        layout,
        cache,
    })
}

/// The layout of all pipelines, and the cache that they are made with.
fn layout_and_cache(device: &ash::Device) -> Result<(vk::PipelineLayout, vk::PipelineCache), Unavailable> {
    let range = [vk::PushConstantRange { stage_flags: vk::ShaderStageFlags::COMPUTE, offset: 0, size: PUSH_BYTES }];
    let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&range);
    // SAFETY: the structures are whole.
    unsafe {
        let layout = device.create_pipeline_layout(&info, None).map_err(|c| why("vkCreatePipelineLayout", c))?;
        let cache = device
            .create_pipeline_cache(&vk::PipelineCacheCreateInfo::default(), None)
            .map_err(|c| why("vkCreatePipelineCache", c))?;
        Ok((layout, cache))
    }
}

fn device_name(p: &vk::PhysicalDeviceProperties) -> String {
    p.device_name_as_c_str().map_or_else(|_| "a Vulkan device".into(), |n| n.to_string_lossy().into_owned())
}

/// Bytes of the largest memory of the device's own.
fn own_memory(memory: &vk::PhysicalDeviceMemoryProperties) -> u64 {
    let heaps = memory.memory_heaps_as_slice().iter();
    heaps.filter(|h| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)).map(|h| h.size).max().unwrap_or(0)
}

fn into_gpu(instance: Arc<Instance>, parts: Parts) -> Gpu {
    let Parts { device, found, memory_types, target, subgroup, exports, layout, cache, .. } = parts;
    let limits = &found.properties.limits;
    Gpu {
        name: device_name(&found.properties),
        ordinal: found.ordinal,
        version: found.properties.api_version,
        is_processor: found.properties.device_type == vk::PhysicalDeviceType::CPU,
        max_blocks: limits.max_compute_work_group_count[0],
        max_threads: limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]),
        tick: if parts.has_timestamps { f64::from(limits.timestamp_period) } else { 0.0 },
        memory_bytes: own_memory(&memory_types),
        queues: parts.queues.into_iter().map(Mutex::new).collect(),
        family: parts.family,
        asks_subgroup: parts.asks_subgroup,
        whole_subgroups: parts.whole_subgroups,
        shape: parts.shape,
        _instance: instance,
        device,
        memory_types,
        target,
        subgroup,
        exports,
        shared: Arc::default(),
        linking: Mutex::new(()),
        layout,
        cache,
        cache_name: cache_name(&found.properties),
        found_in_cache: Mutex::default(),
        has_pipelines: AtomicBool::new(false),
    }
}

/// The device and its driver, as the header of a pipeline cache names them.
fn cache_name(p: &vk::PhysicalDeviceProperties) -> String {
    let identity: String = p.pipeline_cache_uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("pipelines of {:x}:{:x}, driver {:x}, {identity}", p.vendor_id, p.device_id, p.driver_version)
}
