//! [`open_device`]: opens the device that a configuration names.

use std::path::PathBuf;

use octants_ir::DeviceLibrary;
use octants_runtime::Driver;

use crate::arch::Arch;
use crate::config::{Config, given_path};
use crate::machine::Machine;

/// A driver and its code target, or the reason why there is none. The first back end that finds a device is used. Its
/// vendor's library is also searched in `packages`.
pub(crate) fn open_device(config: &Config, packages: &[PathBuf]) -> Result<(Box<dyn Driver>, Machine), String> {
    let mut reasons = Vec::new();
    let mut settings = config.device_settings(packages);
    if config.arch != Arch::CPU {
        settings.device = config.chosen_device()?;
    }
    for backend in config.backends.matching(config.arch) {
        let opened = backend.open(&settings).and_then(|driver| {
            let target = driver.code_target();
            backend.code_generator().check_target(&target).map_err(|e| e.to_string())?;
            Ok((driver, target))
        });
        match opened {
            Ok((driver, target)) => {
                let path = given_path(&config.device_library).or_else(|| backend.find_device_library(packages));
                return Ok((driver, Machine { backend, target, library: DeviceLibrary { path } }));
            }
            Err(reason) => reasons.push(reason),
        }
    }
    Err(if reasons.is_empty() { "this build does not support it".into() } else { reasons.join("; ") })
}
