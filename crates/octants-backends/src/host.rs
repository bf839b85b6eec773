//! [`Host`]: the CPU that the process runs on, and cross-compilation for other CPUs.

use octants_artifact::CodeTarget;
use octants_codegen_llvm::known_processors;
use octants_driver_host::{HostConfig, HostDriver};
use octants_engine::{Backend, CodeGenerator, DeviceInfo, DeviceSettings};
use octants_runtime::Driver;

use crate::llvm::{Llvm, named};

/// The architectures of processors. Object files are those of Linux.
const X86: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";
/// The baseline processor of the first architecture.
const ANY_X86: &str = "x86-64";
/// The baseline processor of the second architecture.
const ANY_ARM: &str = "aarch64";

/// The back end of the host.
pub struct Host;

/// The architectures that a name of this back end includes.
fn architectures(arch: &str) -> &'static [&'static str] {
    match arch {
        "x64" => &[X86],
        "arm64" => &[ARM],
        _ => &[X86, ARM],
    }
}

impl Backend for Host {
    fn names(&self) -> &'static [&'static str] {
        &["cpu", "x64", "arm64"]
    }

    fn code_generator(&self) -> &'static dyn CodeGenerator {
        &Llvm
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Box<dyn Driver>, String> {
        let &DeviceSettings { max_threads, streams, schedule, separate_memory, .. } = settings;
        Ok(Box::new(HostDriver::new(HostConfig { max_threads, streams, schedule, separate_memory })))
    }

    fn devices(&self, settings: &DeviceSettings) -> Result<Vec<DeviceInfo>, String> {
        let driver = self.open(settings)?;
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let note = Some(format!("{threads} processor{}", if threads == 1 { "" } else { "s" }));
        Ok(vec![DeviceInfo { name: driver.name().to_owned(), memory_bytes: driver.memory_bytes(), note }])
    }

    fn targets(&self) -> Vec<String> {
        let (levels, x86): (Vec<_>, Vec<_>) =
            known_processors(X86).into_iter().partition(|name| name.starts_with(ANY_X86));
        let own = [self.name().to_owned()].into_iter().chain(levels).chain([ANY_ARM.to_owned()]);
        own.chain(x86).chain(known_processors(ARM)).collect()
    }

    fn is_listed(&self, target: &str) -> bool {
        [self.name(), ANY_ARM].contains(&target) || target.starts_with(ANY_X86)
    }

    fn usual_target(&self, arch: &str) -> &'static str {
        let usual = [self.name(), ANY_X86, ANY_ARM].into_iter().find(|name| self.target(arch, name).is_some());
        usual.expect("compiler bug: an architecture without known processors")
    }

    fn target(&self, arch: &str, name: &str) -> Option<CodeTarget> {
        let is_own = ["cpu", "native"].contains(&name);
        let has = |triple: &str| match name {
            _ if is_own => triple.starts_with(std::env::consts::ARCH),
            ANY_ARM => triple == ARM,
            _ => known_processors(triple).iter().any(|known| known == name),
        };
        let triple = architectures(arch).iter().find(|triple| has(triple))?;
        Some(match name {
            _ if is_own => CodeTarget::Host,
            ANY_ARM => named(triple, "generic"),
            _ => named(triple, name),
        })
    }
}
