//! [`open_gpu`]: opens the GPU that a user names, through its vendor's driver. [`list_gpus`]: lists all of them.

use octants_driver_gpu::open::Listed;
use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_engine::{DeviceInfo, DeviceSettings};
use octants_runtime::Driver;

/// Opens a GPU by the function of its vendor's crate. `config` has what only the vendor knows.
pub(crate) fn open_gpu(
    settings: &DeviceSettings,
    config: GpuConfig,
    open: fn(&GpuConfig) -> Result<GpuDriver, Unavailable>,
) -> Result<Box<dyn Driver>, String> {
    let (device, library) = (settings.device, settings.driver_library.clone());
    let packages = settings.packages.clone();
    match open(&GpuConfig { device, library, packages, ..config }) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(Unavailable(reason)) => Err(reason),
    }
}

/// All GPUs of a vendor, by the function of its crate. `config` has what only the vendor knows.
pub(crate) fn list_gpus(
    settings: &DeviceSettings,
    config: GpuConfig,
    list: fn(&GpuConfig) -> Result<Vec<Listed>, Unavailable>,
) -> Result<Vec<DeviceInfo>, String> {
    let found = list(&GpuConfig { library: settings.driver_library.clone(), ..config });
    let info = |gpu: Listed| DeviceInfo { name: gpu.name, memory_bytes: Some(gpu.memory_bytes), note: None };
    found.map(|all| all.into_iter().map(info).collect()).map_err(|Unavailable(reason)| reason)
}
