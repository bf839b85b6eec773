//! [`open_gpu`]: the GPU that a configuration asks for.

use std::path::PathBuf;

use octants_codegen_llvm::{DeviceLibrary, check_target};
use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_runtime::Driver;

use crate::config::{Arch, Config};
use crate::environment::folders;

/// A maker of GPUs.
struct Maker {
    arch: Arch,
    open: fn(&GpuConfig) -> Result<GpuDriver, Unavailable>,
    /// Environment variables that name folders in which the maker's library of math functions may be.
    homes: &'static [&'static str],
    find_library: fn(&[PathBuf], &[PathBuf]) -> Option<PathBuf>,
}

const MAKERS: &[Maker] = &[
    Maker {
        arch: Arch::Cuda,
        open: octants_driver_cuda::open,
        homes: octants_driver_cuda::HOME_VARIABLES,
        find_library: octants_driver_cuda::find_device_library,
    },
    Maker {
        arch: Arch::Amdgpu,
        open: octants_driver_hip::open,
        homes: octants_driver_hip::HOME_VARIABLES,
        find_library: octants_driver_hip::find_device_library,
    },
];

/// A GPU with its kind and its maker's library, which is looked for in `packages` too; or why there is none.
pub(crate) fn open_gpu(config: &Config, packages: &[PathBuf]) -> Result<(Arch, GpuDriver, DeviceLibrary), String> {
    let given = |path: &str| Some(PathBuf::from(path)).filter(|_| !path.is_empty());
    let settings = GpuConfig { device: config.device, library: given(&config.driver_library), ..GpuConfig::default() };
    let mut reasons = Vec::new();
    for maker in MAKERS.iter().filter(|m| config.arch == Arch::Gpu || config.arch == m.arch) {
        let opened = (maker.open)(&settings).map_err(|e| e.0).and_then(|driver| {
            check_target(&driver.code_target()).map_err(|e| e.to_string())?;
            Ok(driver)
        });
        match opened {
            Ok(driver) => {
                let path =
                    given(&config.device_library).or_else(|| (maker.find_library)(&folders(maker.homes), packages));
                return Ok((maker.arch, driver, DeviceLibrary { path }));
            }
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}
