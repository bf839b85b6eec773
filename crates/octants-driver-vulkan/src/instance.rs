//! [`Instances`]: Vulkan's library and its instance, created once and kept.
//!
//! An instance loads the drivers of all devices, and unloads them when it is destroyed. Some drivers can be loaded
//! only about thirty times in a process, and some leave threads behind, so instances are never destroyed.

use std::ffi::c_char;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use octants_driver_gpu::Unavailable;

/// The version of Vulkan that code is written for.
pub(crate) const VERSION: u32 = vk::API_VERSION_1_2;

pub(crate) fn why(what: &str, code: vk::Result) -> Unavailable {
    Unavailable(format!("Vulkan cannot be used: {what} failed ({code:?})"))
}

/// An instance, with its library.
pub struct Instance {
    pub(crate) calls: ash::Instance,
    /// Keeps the library loaded.
    _entry: ash::Entry,
    /// The process that made it: a forked one cannot use it.
    process: u32,
}

/// The instances of a process, one for each library.
#[derive(Default)]
pub struct Instances(Mutex<Vec<(Option<PathBuf>, Arc<Instance>)>>);

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(made.iter().map(|(library, _)| library)).finish()
    }
}

impl Instances {
    /// The instance of a library, by default of the system's.
    pub(crate) fn of(&self, library: Option<&Path>) -> Result<Arc<Instance>, Unavailable> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let known = made.iter().find(|(of, instance)| of.as_deref() == library && instance.process == process);
        if let Some((_, instance)) = known {
            return Ok(instance.clone());
        }
        let instance = Arc::new(Instance::new(library)?);
        made.push((library.map(Path::to_owned), instance.clone()));
        Ok(instance)
    }
}

impl Instance {
    fn new(library: Option<&Path>) -> Result<Instance, Unavailable> {
        // SAFETY: loading the library has no effect on anything else.
        let entry = unsafe {
            match library {
                Some(path) => ash::Entry::load_from(path),
                None => ash::Entry::load(),
            }
        };
        let entry = entry.map_err(|e| Unavailable(format!("there is no Vulkan library on this machine ({e})")))?;
        let info = vk::ApplicationInfo::default().api_version(VERSION).engine_name(c"octants");
        // Devices of the portability subset are listed only on request.
        let portability = vk::KHR_PORTABILITY_ENUMERATION_NAME;
        // SAFETY: the library is loaded.
        let known = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
        let shows_all = known.iter().any(|e| e.extension_name_as_c_str() == Ok(portability));
        let extensions: Vec<*const c_char> = shows_all.then_some(portability.as_ptr()).into_iter().collect();
        let flags = match shows_all {
            true => vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR,
            false => vk::InstanceCreateFlags::empty(),
        };
        let create =
            vk::InstanceCreateInfo::default().application_info(&info).enabled_extension_names(&extensions).flags(flags);
        // SAFETY: the structures are whole.
        let calls = unsafe { entry.create_instance(&create, None) }.map_err(|c| why("vkCreateInstance", c))?;
        Ok(Instance { calls, _entry: entry, process: std::process::id() })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: the last owner; all objects of the instance are destroyed.
            unsafe { self.calls.destroy_instance(None) }
        }
    }
}
