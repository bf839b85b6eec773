//! Finds the driver library and a device, or reports why it cannot.

use octants_artifact::CodeTarget;
use octants_driver_gpu::open::{Listed, list_gpus, load, open_context};
use octants_driver_gpu::{Context, GpuConfig, GpuDriver, Library, Symbols, Unavailable};

use crate::assembler::DriverAssembler;
use crate::choose_target::{OLDEST_CHIP, OLDEST_DRIVER, choose_target};
use crate::cuda::Cuda;
use crate::early_launches::EarlyLaunches;
use crate::graph_captures::CudaCaptures;
use crate::graph_loops::CudaLoops;
use crate::graphs::{CudaGraphs, EdgeFunctions, GraphFunctions};
use crate::sparse_libraries::CudaSparse;
use crate::symbols::{NAMES, Own, code, number};

#[cfg(windows)]
pub(crate) const LIBRARIES: &[&str] = &["nvcuda.dll"];
// The name with a version is the driver's own. The one without may be a toolkit's stub, which is for linking only.
#[cfg(not(windows))]
pub(crate) const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// `12.4` for `12040`.
fn version(cuda: i32) -> String {
    format!("{}.{}", cuda / 1000, cuda % 1000 / 10)
}

/// The driver's library, initialized, and the version of CUDA that it supports.
pub(crate) fn start(config: &GpuConfig) -> Result<(Library, i32), Unavailable> {
    let no = |reason: String| Err(Unavailable(reason));
    let loaded = load(config, LIBRARIES, "no NVIDIA driver is installed")?;
    // SAFETY: the library is CUDA's by its name, and stays loaded.
    let found = unsafe {
        let graphs = GraphFunctions::find(loaded).ok();
        let loops = CudaLoops::find(loaded).ok();
        let edges = EdgeFunctions::find(loaded).ok();
        let captures = CudaCaptures::find(loaded).ok();
        let early = EarlyLaunches::find(loaded).ok();
        let graphs = graphs.map(|functions| CudaGraphs { functions, edges, loops, captures });
        Own::find(loaded).and_then(|own| Ok((Symbols::find(loaded, &NAMES)?, Cuda { own, graphs, early })))
    };
    let library = match found {
        Ok((symbols, cuda)) => Library::new(symbols, &NAMES, Box::new(cuda)),
        Err(name) => {
            let needed = version(OLDEST_DRIVER);
            return no(format!(
                "the NVIDIA driver is too old: it has no {name}; install a driver for CUDA {needed} or newer"
            ));
        }
    };
    if let Some(reason) = why_not_started(library.init(), |c| library.describe(c)) {
        return no(reason);
    }
    let driver = library.driver_version().map_err(|e| Unavailable(e.to_string()))?;
    if driver < OLDEST_DRIVER {
        return no(format!(
            "the NVIDIA driver is too old: it supports CUDA {}, but {} or newer is needed",
            version(driver),
            version(OLDEST_DRIVER)
        ));
    }
    Ok((library, driver))
}

/// All NVIDIA GPUs, or why there can be none.
pub fn list(config: &GpuConfig) -> Result<Vec<Listed>, Unavailable> {
    list_gpus(&start(config)?.0)
}

/// Opens an NVIDIA GPU; the error says why it cannot be used.
pub fn open(config: &GpuConfig) -> Result<GpuDriver, Unavailable> {
    let (library, driver) = start(config)?;
    let context = open_context(library, config)?;
    let (major, minor) = capability(&context).map_err(|e| Unavailable(e.to_string()))?;
    if major * 10 + minor < OLDEST_CHIP {
        return Err(Unavailable(format!(
            "{} has compute capability {major}.{minor}, but {}.{} or newer is needed",
            context.name,
            OLDEST_CHIP / 10,
            OLDEST_CHIP % 10
        )));
    }
    let target = choose_target((major, minor), driver)
        .ok_or_else(|| Unavailable(format!("{} or its driver is too old", context.name)))?;
    // If this chip is newer than the compiler knows, the text is for an older one. The driver, which knows the chip,
    // compiles it better.
    let chip = format!("sm_{major}{minor}");
    let exact = matches!(&target, CodeTarget::Device { cpu, .. } if *cpu == chip);
    let sparse = CudaSparse::new(config, driver);
    let driver = GpuDriver::new(context, target, config)?.with_sparse_libraries(Box::new(sparse));
    Ok(if exact { driver.with_assembler(Box::new(DriverAssembler::new(&chip))) } else { driver })
}

fn capability(context: &Context) -> octants_runtime::Result<(u32, u32)> {
    let attribute = |a| context.library().device_attribute(context.device, a);
    Ok((attribute(number::DEVICE_CAPABILITY_MAJOR)? as u32, attribute(number::DEVICE_CAPABILITY_MINOR)? as u32))
}

/// The reason for a code of `cuInit`.
fn why_not_started(c: i32, describe: impl Fn(i32) -> String) -> Option<String> {
    Some(match c {
        code::SUCCESS => return None,
        code::NO_DEVICE => "no NVIDIA GPU was found".into(),
        code::STUB_LIBRARY => {
            "the CUDA library found is a stub library of the toolkit: no NVIDIA driver is installed".into()
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            "the NVIDIA kernel module and the driver library have different versions: reboot, or reinstall the driver"
                .into()
        }
        c => format!("the NVIDIA driver cannot be initialized: cuInit failed with code {c} ({})", describe(c)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_formatted_as_major_and_minor() {
        assert_eq!(version(12040), "12.4");
        assert_eq!(version(11080), "11.8");
        assert_eq!(version(13000), "13.0");
    }

    #[test]
    fn reasons_name_the_missing_part() {
        let why = |c| why_not_started(c, |_| "CUDA_ERROR_UNKNOWN".into());
        assert_eq!(why(0), None);
        assert!(why(code::NO_DEVICE).is_some_and(|t| t.contains("no NVIDIA GPU")));
        assert!(why(code::STUB_LIBRARY).is_some_and(|t| t.contains("stub library")));
        assert!(why(999).is_some_and(|t| t.contains("code 999 (CUDA_ERROR_UNKNOWN)")));
    }
}
