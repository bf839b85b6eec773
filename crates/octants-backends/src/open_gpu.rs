//! [`open_gpu`]: a GPU by its vendor's driver, as the configuration asks for it.

use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_engine::Config;
use octants_engine::config::given_path;
use octants_runtime::Driver;

/// Opens a GPU by the function of its vendor's crate.
pub(crate) fn open_gpu(
    config: &Config,
    open: fn(&GpuConfig) -> Result<GpuDriver, Unavailable>,
) -> Result<Box<dyn Driver>, String> {
    let library = given_path(&config.driver_library);
    match open(&GpuConfig { device: config.device, library, ..GpuConfig::default() }) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(Unavailable(reason)) => Err(reason),
    }
}
