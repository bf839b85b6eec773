//! [`Exports`]: whether the device's memory and semaphores can be exported to another interface to the device.

use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, OwnedFd};

use ash::khr::{external_memory_fd, external_semaphore_fd};
use ash::vk;
use octants_runtime::Result;

use crate::checked::failed;

/// The kind of handle: a file that only the same driver understands.
const MEMORY: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
const SEMAPHORE: vk::ExternalSemaphoreHandleTypeFlags = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

/// What a device can export, before it is created.
pub(crate) struct Exportable {
    /// An exported allocation must be for one buffer.
    dedicated: bool,
    timelines: bool,
    uuid: [u8; 16],
}

/// What a device exports.
pub(crate) struct Exports {
    memory: external_memory_fd::Device,
    semaphores: Option<external_semaphore_fd::Device>,
    /// An exported allocation must be for one buffer.
    pub(crate) dedicated: bool,
    /// The physical device, as other interfaces name it too.
    pub(crate) uuid: [u8; 16],
}

impl Exportable {
    /// Asks a device. `None` if it cannot export buffers of this usage.
    pub(crate) fn of(
        instance: &ash::Instance,
        device: vk::PhysicalDevice,
        extensions: &[CString],
        usage: vk::BufferUsageFlags,
    ) -> Option<Exportable> {
        let has = |name: &CStr| extensions.iter().any(|e| e.as_c_str() == name);
        if !has(vk::KHR_EXTERNAL_MEMORY_FD_NAME) {
            return None;
        }
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(usage).handle_type(MEMORY);
        let mut buffers = vk::ExternalBufferProperties::default();
        let mut timeline = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let asked = vk::PhysicalDeviceExternalSemaphoreInfo::default().handle_type(SEMAPHORE).push_next(&mut timeline);
        let mut semaphores = vk::ExternalSemaphoreProperties::default();
        let mut identity = vk::PhysicalDeviceIDProperties::default();
        let mut query = vk::PhysicalDeviceProperties2::default().push_next(&mut identity);
        // SAFETY: the device is the instance's; the structures are whole.
        unsafe {
            instance.get_physical_device_external_buffer_properties(device, &info, &mut buffers);
            instance.get_physical_device_external_semaphore_properties(device, &asked, &mut semaphores);
            instance.get_physical_device_properties2(device, &mut query);
        }
        let features = buffers.external_memory_properties.external_memory_features;
        if !features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE) {
            return None;
        }
        Some(Exportable {
            dedicated: features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY),
            timelines: has(vk::KHR_EXTERNAL_SEMAPHORE_FD_NAME)
                && semaphores.external_semaphore_features.contains(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE),
            uuid: identity.device_uuid,
        })
    }

    /// The extensions to enable.
    pub(crate) fn extensions(&self) -> [(bool, &'static CStr); 2] {
        [(true, vk::KHR_EXTERNAL_MEMORY_FD_NAME), (self.timelines, vk::KHR_EXTERNAL_SEMAPHORE_FD_NAME)]
    }

    /// The functions of the created device.
    pub(crate) fn with(self, instance: &ash::Instance, device: &ash::Device) -> Exports {
        Exports {
            memory: external_memory_fd::Device::new(instance, device),
            semaphores: self.timelines.then(|| external_semaphore_fd::Device::new(instance, device)),
            dedicated: self.dedicated,
            uuid: self.uuid,
        }
    }
}

impl Exports {
    /// For the creation of a buffer in exported memory.
    pub(crate) fn buffer_info() -> vk::ExternalMemoryBufferCreateInfo<'static> {
        vk::ExternalMemoryBufferCreateInfo::default().handle_types(MEMORY)
    }

    /// For the allocation of exported memory.
    pub(crate) fn memory_info() -> vk::ExportMemoryAllocateInfo<'static> {
        vk::ExportMemoryAllocateInfo::default().handle_types(MEMORY)
    }

    /// For the creation of an exported semaphore.
    pub(crate) fn semaphore_info() -> vk::ExportSemaphoreCreateInfo<'static> {
        vk::ExportSemaphoreCreateInfo::default().handle_types(SEMAPHORE)
    }

    /// Whether timeline semaphores can be exported.
    pub(crate) fn has_timelines(&self) -> bool {
        self.semaphores.is_some()
    }

    /// A new file that refers to exported memory.
    ///
    /// # Safety
    /// The memory is alive and was allocated for export.
    pub(crate) unsafe fn memory_file(&self, memory: vk::DeviceMemory) -> Result<OwnedFd> {
        let info = vk::MemoryGetFdInfoKHR::default().memory(memory).handle_type(MEMORY);
        // SAFETY: the contract above; the file is new, and this value's.
        unsafe {
            let file = self.memory.get_memory_fd(&info);
            file.map(|fd| OwnedFd::from_raw_fd(fd))
                .map_err(|code| failed("vkGetMemoryFdKHR", code, "sharing memory with other libraries"))
        }
    }

    /// A new file that refers to an exported semaphore; `None` if semaphores cannot be exported.
    ///
    /// # Safety
    /// The semaphore is alive and was created for export.
    pub(crate) unsafe fn semaphore_file(&self, semaphore: vk::Semaphore) -> Result<Option<OwnedFd>> {
        let Some(semaphores) = &self.semaphores else { return Ok(None) };
        let info = vk::SemaphoreGetFdInfoKHR::default().semaphore(semaphore).handle_type(SEMAPHORE);
        // SAFETY: as above.
        unsafe {
            let file = semaphores.get_semaphore_fd(&info);
            file.map(|fd| Some(OwnedFd::from_raw_fd(fd)))
                .map_err(|code| failed("vkGetSemaphoreFdKHR", code, "sharing a semaphore with other libraries"))
        }
    }
}
