//! [`Vulkan`]: GPUs of any vendor through Vulkan, and [`Spirv`], the code generator for them.

use octants_artifact::{Artifact, CodeTarget};
use octants_codegen_spirv::{self as spirv, DeviceFeatures};
use octants_diag::Span;
use octants_driver_gpu::importer::FindImporter;
use octants_driver_gpu::{GpuConfig, Unavailable};
use octants_driver_vulkan::{self as driver, Instances, Request};
use octants_engine::{Backend, CodeForm, CodeGenerator, DeviceInfo, DeviceSettings};
use octants_ir::{CodegenError, CodegenOptions, Scheduled, TargetInfo};
use octants_runtime::Driver;

/// The text of the modules.
const TEXT: CodeForm = CodeForm { name: "spirv", ending: "spvasm" };
/// The same, by the name that every back end has for its assembly language.
const ASSEMBLY: CodeForm = crate::llvm::ASSEMBLY;
/// The code that the driver loads: the module of the first task.
const OBJECT: CodeForm = crate::llvm::OBJECT;

/// The target with all optional features.
const USUAL: &str = "vulkan";
/// The target without optional features.
const LEAST: &str = "vulkan-minimum";
/// The target of Vulkan on Metal.
const METAL: &str = "vulkan-metal";

/// octants-codegen-spirv as the engine calls it.
pub struct Spirv;

impl CodeGenerator for Spirv {
    fn info(&self, target: &CodeTarget) -> TargetInfo {
        DeviceFeatures::of(target).unwrap_or(DeviceFeatures::NONE).info()
    }

    fn check_target(&self, target: &CodeTarget) -> Result<(), CodegenError> {
        DeviceFeatures::of(target).map(drop)
    }

    fn check_processor(&self, processor: &str) -> Result<(), CodegenError> {
        Err(CodegenError::new(format!("SPIR-V code cannot be generated for processors such as `{processor}`")))
    }

    fn compile(
        &self,
        scheduled: &Scheduled,
        location: &dyn Fn(Span) -> String,
        options: &CodegenOptions,
        target: &CodeTarget,
        after: &mut dyn FnMut(&'static str),
    ) -> Result<Artifact, CodegenError> {
        let artifact = spirv::compile(scheduled, location, options, target);
        after("emit");
        artifact
    }

    fn forms(&self) -> &'static [CodeForm] {
        &[TEXT, ASSEMBLY, OBJECT]
    }

    fn show(
        &self,
        scheduled: &Scheduled,
        options: &CodegenOptions,
        target: &CodeTarget,
        form: CodeForm,
    ) -> Result<Vec<u8>, CodegenError> {
        match form {
            TEXT | ASSEMBLY => spirv::list(scheduled, options, target).map(String::into_bytes),
            OBJECT => {
                let artifact = spirv::compile(scheduled, &|_| String::new(), options, target)?;
                Ok(artifact.modules.into_iter().next().unwrap_or_default())
            }
            other => Err(CodegenError::new(format!("`{}` is not available for Vulkan: use `spirv`", other.name))),
        }
    }

    fn identity(&self, _target: &CodeTarget) -> Result<String, CodegenError> {
        Ok("SPIR-V 1.5".into())
    }
}

/// The back end of Vulkan's devices.
#[derive(Default)]
pub struct Vulkan {
    /// Kept across programs.
    instances: Instances,
}

fn gpu_config(settings: &DeviceSettings) -> GpuConfig {
    GpuConfig { device: settings.device, library: settings.driver_library.clone(), ..GpuConfig::default() }
}

fn request(settings: &DeviceSettings) -> Request {
    let takes_processor = !settings.only_graphics_processors;
    // Other interfaces through which libraries use the same GPU.
    let finders = vec![octants_driver_cuda::find_importer as FindImporter];
    Request { gpu: gpu_config(settings), takes_processor, portable: settings.portable, finders }
}

/// The features of Vulkan on Metal, for Apple GPUs.
fn metal() -> DeviceFeatures {
    DeviceFeatures {
        float64: false,
        special_float64: false,
        atomic_float64: false,
        atomic_int64: false,
        shared_atomic_int64: false,
        clock: false,
        ..DeviceFeatures::ALL
    }
}

impl Backend for Vulkan {
    fn names(&self) -> &'static [&'static str] {
        &["vulkan"]
    }

    fn code_generator(&self) -> &'static dyn CodeGenerator {
        &Spirv
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Box<dyn Driver>, String> {
        match driver::open(&self.instances, &request(settings)) {
            Ok(driver) => Ok(Box::new(driver)),
            Err(Unavailable(reason)) => Err(reason),
        }
    }

    fn usual_device(&self, settings: &DeviceSettings) -> Option<u32> {
        driver::usual(&self.instances, &request(settings)).ok()
    }

    fn devices(&self, settings: &DeviceSettings) -> Result<Vec<DeviceInfo>, String> {
        let found = driver::list(&self.instances, &gpu_config(settings)).map_err(|Unavailable(reason)| reason)?;
        let info = |device: driver::Listed| {
            let kind = if device.is_processor { ", emulated by the CPU" } else { "" };
            let lacks = device.lacks.map_or_else(String::new, |reason| format!("; cannot be used: {reason}"));
            let note = Some(format!("Vulkan {}{kind}{lacks}", device.version));
            DeviceInfo { name: device.name, memory_bytes: Some(device.memory_bytes).filter(|n| *n > 0), note }
        };
        Ok(found.into_iter().map(info).collect())
    }

    fn targets(&self) -> Vec<String> {
        [USUAL, LEAST, METAL].map(String::from).to_vec()
    }

    fn usual_target(&self, _arch: &str) -> &'static str {
        USUAL
    }

    fn target(&self, _arch: &str, name: &str) -> Option<CodeTarget> {
        match name {
            USUAL => Some(DeviceFeatures::ALL.code_target()),
            LEAST => Some(DeviceFeatures::NONE.code_target()),
            METAL => Some(metal().code_target()),
            _ => None,
        }
    }

    fn file_ending(&self, _target: &CodeTarget, form: CodeForm) -> &'static str {
        match form {
            ASSEMBLY => TEXT.ending,
            OBJECT => "spv",
            other => other.ending,
        }
    }
}
