//! [`list_devices`]: all devices of all back ends.

use std::path::PathBuf;

use crate::backend::{Backend, DeviceInfo};
use crate::config::Config;

/// A kind of machine: its name, and its devices, or why there are none.
pub type DevicesOfKind = (&'static str, Result<Vec<DeviceInfo>, String>);

/// The devices of each back end, as `device` counts them. Their own libraries may be in `packages`.
pub fn list_devices(config: &Config, packages: &[PathBuf]) -> Vec<DevicesOfKind> {
    let settings = config.device_settings(packages);
    let of = |backend: &&'static dyn Backend| {
        let all = backend.devices(&settings)?;
        let visible = config.visible().filter(|_| !config.backends.is_host(*backend));
        let numbers = visible.unwrap_or_else(|| (0..all.len() as u32).collect());
        Ok(numbers.into_iter().filter_map(|n| all.get(n as usize).cloned()).collect())
    };
    config.backends.entries.iter().map(|backend| (backend.name(), of(backend))).collect()
}
