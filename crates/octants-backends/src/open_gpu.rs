//! [`open_gpu`]: a GPU by its vendor's driver, as a user asks for it.

use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_engine::DeviceSettings;
use octants_runtime::Driver;

/// Opens a GPU by the function of its vendor's crate.
pub(crate) fn open_gpu(
    settings: &DeviceSettings,
    open: fn(&GpuConfig) -> Result<GpuDriver, Unavailable>,
) -> Result<Box<dyn Driver>, String> {
    let (device, library) = (settings.device, settings.driver_library.clone());
    match open(&GpuConfig { device, library, ..GpuConfig::default() }) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(Unavailable(reason)) => Err(reason),
    }
}
