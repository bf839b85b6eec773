//! [`open_gpu`]: a GPU by its vendor's driver, as a user asks for it.

use std::path::PathBuf;

use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_engine::DeviceSettings;
use octants_runtime::Driver;

/// Opens a GPU by the function of its vendor's crate. `homes` are installations of the vendor's that the user names.
pub(crate) fn open_gpu(
    settings: &DeviceSettings,
    homes: Vec<PathBuf>,
    open: fn(&GpuConfig) -> Result<GpuDriver, Unavailable>,
) -> Result<Box<dyn Driver>, String> {
    let (device, library) = (settings.device, settings.driver_library.clone());
    let packages = settings.packages.clone();
    match open(&GpuConfig { device, library, homes, packages, ..GpuConfig::default() }) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(Unavailable(reason)) => Err(reason),
    }
}
