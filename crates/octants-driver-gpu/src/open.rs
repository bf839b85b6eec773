//! The common part of finding a vendor's library and a device, and of the errors when there is none.

use std::fmt;
use std::path::PathBuf;

use libloading::Library as Loaded;

use crate::context::Context;
use crate::library::Library;
use crate::symbols::code;

/// Settings of a GPU as a device.
#[derive(Debug, Clone, Default)]
pub struct GpuConfig {
    /// The GPU's number among those visible to the process, as the vendor counts; `None` for the first.
    pub device: Option<u32>,
    /// Maximum bytes of cached freed memory; an eighth of the device's for `None`.
    pub keep_bytes: Option<u64>,
    /// Path of the driver's library; `None` to search by name.
    pub library: Option<PathBuf>,
    /// Installations of the vendor's that the user names.
    pub homes: Vec<PathBuf>,
    /// Folders of installed packages for Python.
    pub packages: Vec<PathBuf>,
    /// Manages memory as on devices without memory pools.
    pub plain_memory: bool,
}

/// Why there is no device: a sentence for the user, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Loads a driver's library: the configured one, or the first of `names` that exists. It stays loaded: it cannot be
/// unloaded safely once it has threads.
pub fn load(config: &GpuConfig, names: &[&str], nothing: &str) -> Result<&'static Loaded, Unavailable> {
    // SAFETY: loading a driver has no effect on anything else.
    let open = |name: &std::ffi::OsStr| unsafe { Loaded::new(name) };
    let library = match &config.library {
        Some(path) => open(path.as_os_str()).map_err(|e| {
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Unavailable(format!("the driver library {} cannot be opened: {why}", path.display()))
        })?,
        None => names
            .iter()
            .find_map(|name| open(name.as_ref()).ok())
            .ok_or_else(|| Unavailable(format!("{nothing} ({} was not found)", names[0])))?,
    };
    Ok(Box::leak(Box::new(library)))
}

fn count(library: &Library) -> Result<u32, Unavailable> {
    match library.device_count() {
        Ok(count) => Ok(count.max(0) as u32),
        Err(code::NO_DEVICE) => Ok(0),
        Err(c) => Err(Unavailable(format!("the GPUs cannot be counted: {}", library.describe(c)))),
    }
}

/// A GPU in a list of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
}

/// All GPUs visible to the process, by number. The library has been initialized.
pub fn list_gpus(library: &Library) -> Result<Vec<Listed>, Unavailable> {
    let describe = |ordinal| {
        let device = library.device(ordinal)?;
        Ok(Listed { name: library.device_name(device)?, memory_bytes: library.device_memory(device)? })
    };
    let all: octants_runtime::Result<Vec<Listed>> = (0..count(library)?).map(describe).collect();
    all.map_err(|e| Unavailable(format!("the GPUs cannot be listed: {e}")))
}

/// The context of the requested device. The library has been initialized.
pub fn open_context(library: Library, config: &GpuConfig) -> Result<Context, Unavailable> {
    let facts = library.facts();
    let count = count(&library)?;
    let ordinal = config.device.unwrap_or(0);
    if let Some(reason) = missing_device(ordinal, count, (facts.gpu, facts.visible)) {
        return Err(Unavailable(reason));
    }
    Context::new(library, ordinal).map_err(|e| Unavailable(format!("GPU {ordinal} cannot be used: {e}")))
}

fn missing_device(ordinal: u32, count: u32, (gpu, visible): (&str, &str)) -> Option<String> {
    match count {
        0 => Some(format!("no {gpu} was found ({visible} may hide existing ones)")),
        n if ordinal >= n => Some(format!("there is no GPU {ordinal}: this process sees {n}, counted from 0")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_missing_part() {
        let why = |ordinal, count| missing_device(ordinal, count, ("Acme GPU", "ACME_VISIBLE"));
        assert!(why(0, 0).is_some_and(|t| t.contains("no Acme GPU") && t.contains("ACME_VISIBLE")));
        assert!(why(2, 2).is_some_and(|t| t.contains("no GPU 2") && t.contains("sees 2")));
        assert_eq!(why(1, 2), None);
    }

    #[test]
    fn a_missing_library_is_named() {
        let none = load(&GpuConfig::default(), &["libacme-gpu.so.1"], "no Acme driver is installed").unwrap_err();
        assert_eq!(none.0, "no Acme driver is installed (libacme-gpu.so.1 was not found)");
        let asked = GpuConfig { library: Some("/nowhere/libacme.so".into()), ..GpuConfig::default() };
        assert!(load(&asked, &[], "").unwrap_err().0.contains("/nowhere/libacme.so"));
    }
}
