//! [`Hip`]: AMD's GPUs.

use std::path::PathBuf;

use octants_artifact::CodeTarget;
use octants_codegen_llvm::{check_target, known_processors};
use octants_driver_gpu::GpuConfig;
use octants_driver_hip::{self as driver, HOME_VARIABLES};
use octants_engine::environment::{folders, is_off};
use octants_engine::{Backend, CodeForm, CodeGenerator, DeviceInfo, DeviceSettings};
use octants_runtime::Driver;

use crate::llvm::{Llvm, OBJECT, named};
use crate::open_gpu::{list_gpus, open_gpu};

/// The architecture of all chips.
const TRIPLE: &str = "amdgcn-amd-amdhsa";

/// Quadrants' variable that turns pools of memory off, for devices whose pools hang.
const POOLS: &str = "QD_ENABLE_HIP_MEMPOOL";

/// The back end of AMD's GPUs.
pub struct Hip;

impl Backend for Hip {
    fn names(&self) -> &'static [&'static str] {
        &["amdgpu"]
    }

    fn code_generator(&self) -> &'static dyn CodeGenerator {
        &Llvm
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Box<dyn Driver>, String> {
        let (homes, plain_memory) = (folders(HOME_VARIABLES), is_off(POOLS));
        open_gpu(settings, GpuConfig { homes, plain_memory, ..GpuConfig::default() }, driver::open)
    }

    fn devices(&self, settings: &DeviceSettings) -> Result<Vec<DeviceInfo>, String> {
        list_gpus(settings, GpuConfig::default(), driver::list)
    }

    fn find_device_library(&self, packages: &[PathBuf]) -> Option<PathBuf> {
        driver::find_device_library(&folders(HOME_VARIABLES), packages)
    }

    fn targets(&self) -> Vec<String> {
        known_processors(TRIPLE)
    }

    fn usual_target(&self, _arch: &str) -> &'static str {
        "gfx90a"
    }

    fn target(&self, _arch: &str, name: &str) -> Option<CodeTarget> {
        let target = named(TRIPLE, name);
        check_target(&target).is_ok().then_some(target)
    }

    fn claims(&self, target: &str) -> bool {
        target.starts_with("gfx")
    }

    fn file_ending(&self, target: &CodeTarget, form: CodeForm) -> &'static str {
        // A stand-in for HIP's library, for tests, may take code of another architecture.
        let is_own = matches!(target, CodeTarget::Device { triple, .. } if triple == TRIPLE);
        if form == OBJECT && is_own { "hsaco" } else { form.ending }
    }
}
