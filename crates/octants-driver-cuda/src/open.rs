//! Finds the driver library and a device, or says why that cannot be.

use std::fmt;

use libloading::Library;

use crate::calls::Calls;
use crate::choose_target::{OLDEST_CHIP, OLDEST_DRIVER};
use crate::context::Context;
use crate::symbols::{Symbols, code};

/// Settings of an NVIDIA GPU as a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaConfig {
    /// Which GPU, counted as CUDA counts those that the process may see (`CUDA_VISIBLE_DEVICES`); the first for `None`.
    pub device: Option<u32>,
    /// Bytes of freed memory kept for later; an eighth of the device's for `None`.
    pub keep_bytes: Option<u64>,
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

#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvcuda.dll"];
// The name with a version is the driver's own; the one without may be a stand-in of a toolkit, which can only be linked to.
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// `12.4` for `12040`.
fn version(cuda: i32) -> String {
    format!("{}.{}", cuda / 1000, cuda % 1000 / 10)
}

/// Opens a device.
pub fn open_context(config: CudaConfig) -> Result<Context, Unavailable> {
    let no = |reason: String| Err(Unavailable(reason));
    let Some(library) = LIBRARIES.iter().find_map(|name| {
        // SAFETY: loading NVIDIA's driver has no effect on anything else.
        unsafe { Library::new(*name) }.ok()
    }) else {
        return no(format!("no NVIDIA driver is installed ({} was not found)", LIBRARIES[0]));
    };
    // SAFETY: the library is CUDA's by its name, and stays loaded: it cannot be unloaded safely once it has threads.
    let found = unsafe { Symbols::find(&library) };
    std::mem::forget(library);
    let calls = match found {
        Ok(symbols) => Calls::new(symbols),
        Err(name) => {
            let needed = version(OLDEST_DRIVER);
            return no(format!(
                "the NVIDIA driver is too old: it has no {name}; a driver for CUDA {needed} or newer is needed"
            ));
        }
    };
    if let Some(reason) = why_not_started(calls.init(), |c| calls.describe(c)) {
        return no(reason);
    }
    let driver = calls.driver_version().map_err(|e| Unavailable(e.to_string()))?;
    if driver < OLDEST_DRIVER {
        return no(format!(
            "the NVIDIA driver is too old: it supports CUDA {}, and {} or newer is needed",
            version(driver),
            version(OLDEST_DRIVER)
        ));
    }
    let count = match calls.device_count() {
        Ok(count) => count.max(0) as u32,
        Err(code::NO_DEVICE) => 0,
        Err(c) => return no(format!("the GPUs cannot be counted: {}", calls.describe(c))),
    };
    let ordinal = config.device.unwrap_or(0);
    if let Some(reason) = why_no_such_device(ordinal, count) {
        return no(reason);
    }
    let context =
        Context::new(calls, ordinal, driver).map_err(|e| Unavailable(format!("GPU {ordinal} cannot be used: {e}")))?;
    let (major, minor) = context.capability;
    if major * 10 + minor < OLDEST_CHIP {
        return no(format!(
            "{} has compute capability {major}.{minor}, and {}.{} or newer is needed",
            context.name,
            OLDEST_CHIP / 10,
            OLDEST_CHIP % 10
        ));
    }
    Ok(context)
}

/// The reason for a code of `cuInit`.
fn why_not_started(c: i32, describe: impl Fn(i32) -> String) -> Option<String> {
    Some(match c {
        code::SUCCESS => return None,
        code::NO_DEVICE => "no NVIDIA GPU was found".into(),
        code::STUB_LIBRARY => {
            "the CUDA library that was found is a toolkit's stand-in: no NVIDIA driver is installed".into()
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            "the NVIDIA driver in the kernel has another version than its library: reboot, or reinstall the driver"
                .into()
        }
        c => format!("the NVIDIA driver cannot be started: cuInit failed with code {c} ({})", describe(c)),
    })
}

fn why_no_such_device(ordinal: u32, count: u32) -> Option<String> {
    match count {
        0 => Some("no NVIDIA GPU was found (CUDA_VISIBLE_DEVICES may hide those that there are)".into()),
        n if ordinal >= n => Some(format!("there is no GPU {ordinal}: this process sees {n}, counted from 0")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version(12040), "12.4");
        assert_eq!(version(11080), "11.8");
        assert_eq!(version(13000), "13.0");
    }

    #[test]
    fn reasons_say_what_is_missing() {
        let why = |c| why_not_started(c, |_| "CUDA_ERROR_UNKNOWN".into());
        assert_eq!(why(0), None);
        assert!(why(code::NO_DEVICE).is_some_and(|t| t.contains("no NVIDIA GPU")));
        assert!(why(code::STUB_LIBRARY).is_some_and(|t| t.contains("stand-in")));
        assert!(why(999).is_some_and(|t| t.contains("code 999 (CUDA_ERROR_UNKNOWN)")));
        assert!(why_no_such_device(0, 0).is_some_and(|t| t.contains("CUDA_VISIBLE_DEVICES")));
        assert!(why_no_such_device(2, 2).is_some_and(|t| t.contains("no GPU 2") && t.contains("sees 2")));
        assert_eq!(why_no_such_device(1, 2), None);
    }
}
