//! [`Cuda`]: NVIDIA's GPUs.

use std::path::PathBuf;

use octants_artifact::CodeTarget;
use octants_driver_cuda::choose_target::{chips, choose_target};
use octants_driver_cuda::{self as driver, HOME_VARIABLES};
use octants_driver_gpu::GpuConfig;
use octants_engine::environment::folders;
use octants_engine::{Backend, CodeForm, CodeGenerator, DeviceInfo, DeviceSettings};
use octants_runtime::Driver;

use crate::llvm::{ASSEMBLY, Llvm, OBJECT};
use crate::open_gpu::{list_gpus, open_gpu};

/// Common prefix of the chips' names.
const CHIP: &str = "sm_";

/// The back end of NVIDIA's GPUs.
pub struct Cuda;

impl Backend for Cuda {
    fn names(&self) -> &'static [&'static str] {
        &["cuda"]
    }

    fn code_generator(&self) -> &'static dyn CodeGenerator {
        &Llvm
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Box<dyn Driver>, String> {
        open_gpu(settings, GpuConfig { homes: folders(HOME_VARIABLES), ..GpuConfig::default() }, driver::open)
    }

    fn devices(&self, settings: &DeviceSettings) -> Result<Vec<DeviceInfo>, String> {
        list_gpus(settings, GpuConfig::default(), driver::list)
    }

    fn find_device_library(&self, packages: &[PathBuf]) -> Option<PathBuf> {
        driver::find_device_library(&folders(HOME_VARIABLES), packages)
    }

    fn targets(&self) -> Vec<String> {
        chips().collect()
    }

    fn usual_target(&self, _arch: &str) -> &'static str {
        "sm_80"
    }

    fn target(&self, _arch: &str, name: &str) -> Option<CodeTarget> {
        let number: u32 = name.strip_prefix(CHIP)?.parse().ok()?;
        // For the newest driver that this build knows.
        let target = choose_target((number / 10, number % 10), i32::MAX)?;
        let is_named = matches!(&target, CodeTarget::Device { cpu, .. } if cpu == name);
        is_named.then_some(target)
    }

    fn claims(&self, target: &str) -> bool {
        target.starts_with(CHIP)
    }

    fn file_ending(&self, _target: &CodeTarget, form: CodeForm) -> &'static str {
        if form == ASSEMBLY || form == OBJECT { "ptx" } else { form.ending }
    }
}
