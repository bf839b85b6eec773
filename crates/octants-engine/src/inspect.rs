//! A kernel's code for any machine that code can be made for, as text or bytes for people: the machine need not be there.

use std::path::PathBuf;

use octants_artifact::CodeTarget;
use octants_codegen_llvm::{DeviceLibrary, Listing, check_target, compile, list};
use octants_diag::Span;
use octants_driver_cuda::choose_target::choose_target;
use {octants_driver_cuda as cuda, octants_driver_hip as hip};

use crate::config::Arch;
use crate::environment::folders;
use crate::error::Error;
use crate::session::{Lowering, Session};
use crate::suggest::nearest;

/// What is shown of a kernel's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The program of tasks that code is made of.
    Ir,
    /// LLVM's text after optimisation.
    Llvm,
    /// Assembly.
    Assembly,
    /// What the machine's driver is given: an object file for the CPU, assembly text or linked code for GPUs.
    Object,
}

/// The forms by name.
pub const FORMS: &[(&str, Form)] =
    &[("ir", Form::Ir), ("llvm", Form::Llvm), ("asm", Form::Assembly), ("object", Form::Object)];

impl Form {
    /// The form with this name.
    pub fn named(name: &str) -> Result<Form, Error> {
        let known = FORMS.iter().find(|(n, _)| *n == name).map(|(_, form)| *form);
        known.ok_or_else(|| not_one_of("emit", name, FORMS.iter().map(|(n, _)| *n)))
    }
}

/// A machine that code can be made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    target: CodeTarget,
    library: DeviceLibrary,
}

impl Machine {
    /// The usual ending of the name of a file with code in this form.
    pub fn file_ending(&self, form: Form) -> &'static str {
        let triple = match &self.target {
            CodeTarget::Host => "",
            CodeTarget::Device { triple, .. } => triple.as_str(),
        };
        match form {
            Form::Ir => "oir",
            Form::Llvm => "ll",
            _ if triple.starts_with("nvptx") => "ptx",
            Form::Object if triple.starts_with("amdgcn") => "hsaco",
            Form::Object => "o",
            Form::Assembly => "s",
        }
    }
}

fn bad(name: &str, reason: String) -> Error {
    Error::BadOption { name: name.into(), reason }
}

fn not_one_of<'a>(option: &str, given: &str, names: impl Iterator<Item = &'a str> + Clone) -> Error {
    let all: Vec<&str> = names.clone().collect();
    let hint = nearest(given, names).map_or_else(String::new, |s| format!(" (did you mean `{s}`?)"));
    bad(option, format!("`{given}` is not one of {}{hint}", all.join(", ")))
}

/// The kind of machine that a chip is of, as far as its name tells.
fn arch_of(target: &str) -> Option<Arch> {
    match target {
        "cpu" | "native" => Some(Arch::Cpu),
        t if t.starts_with("sm_") => Some(Arch::Cuda),
        t if t.starts_with("gfx") => Some(Arch::Amdgpu),
        _ => None,
    }
}

impl Session {
    /// The machine that a user names by its kind, its chip, or both; this session's own where nothing is said. In `packages`, folders
    /// of installed packages, vendors' libraries are looked for.
    pub fn machine(&self, arch: Option<&str>, target: Option<&str>, packages: &[PathBuf]) -> Result<Machine, Error> {
        const KINDS: [&str; 3] = ["cpu", "cuda", "amdgpu"];
        let own = || Machine { target: self.target.clone(), library: self.library.clone() };
        let told = target.map(|t| {
            let unknown = || bad("target", format!("`{t}` names no chip: `gfx90a`, `sm_90` and `cpu` do, for example"));
            arch_of(t).ok_or_else(unknown)
        });
        let told = told.transpose()?;
        let arch = match (arch, told) {
            (None, None) => return Ok(own()),
            (None, Some(told)) => told,
            (Some(name), _) => match name {
                "cpu" | "x64" | "arm64" => Arch::Cpu,
                "cuda" => Arch::Cuda,
                "amdgpu" => Arch::Amdgpu,
                _ => return Err(not_one_of("arch", name, KINDS.into_iter())),
            },
        };
        if let (Some(told), Some(target)) = (told, target)
            && told != arch
        {
            return Err(bad("target", format!("`{target}` is not a chip of arch `{}`", arch.name())));
        }
        if target.is_none() && arch == self.config().arch {
            return Ok(own());
        }
        match arch {
            Arch::Cpu => Ok(Machine { target: CodeTarget::Host, library: DeviceLibrary::default() }),
            Arch::Cuda => self.nvidia(target.unwrap_or("sm_80"), packages),
            _ => self.amd(target.unwrap_or("gfx90a"), packages),
        }
    }

    fn nvidia(&self, chip: &str, packages: &[PathBuf]) -> Result<Machine, Error> {
        let number = chip.strip_prefix("sm_").and_then(|n| n.parse::<u32>().ok());
        // For the newest driver that this build knows.
        let target = number.and_then(|n| choose_target((n / 10, n % 10), i32::MAX));
        match target {
            Some(target @ CodeTarget::Device { .. }) if matches!(&target, CodeTarget::Device { cpu, .. } if cpu == chip) => {
                Ok(Machine {
                    target,
                    library: self
                        .library_or(Arch::Cuda, cuda::find_device_library(&folders(cuda::HOME_VARIABLES), packages)),
                })
            }
            _ => Err(bad("target", format!("no code is made for the GPU {chip}"))),
        }
    }

    fn amd(&self, chip: &str, packages: &[PathBuf]) -> Result<Machine, Error> {
        let target =
            CodeTarget::Device { triple: "amdgcn-amd-amdhsa".into(), cpu: chip.into(), features: String::new() };
        check_target(&target).map_err(|e| bad("target", e.to_string()))?;
        Ok(Machine {
            target,
            library: self.library_or(Arch::Amdgpu, hip::find_device_library(&folders(hip::HOME_VARIABLES), packages)),
        })
    }

    /// The library of math functions that the user names, unless for GPUs of another kind, or the one found.
    fn library_or(&self, arch: Arch, found: Option<PathBuf>) -> DeviceLibrary {
        let config = self.config();
        let meant = config.arch == Arch::Cpu || config.arch == arch;
        let given = Some(config.device_library.as_str()).filter(|path| meant && !path.is_empty());
        DeviceLibrary { path: given.map(Into::into).or(found) }
    }

    /// A kernel's code for a machine.
    pub fn inspect(
        &self,
        lowering: &Lowering,
        arrays_may_alias: bool,
        machine: &Machine,
        form: Form,
    ) -> Result<Vec<u8>, Error> {
        let program = self.split(&lowering.lowered, arrays_may_alias, false, |_| ());
        let concurrent = !self.device().is_immediate() || machine.target != CodeTarget::Host;
        let options = self.codegen_options(arrays_may_alias, concurrent, &machine.library);
        let listed = |listing| list(&program, &options, &machine.target, listing).map(String::into_bytes);
        let code = match form {
            Form::Ir => return Ok((lowering.kept() + &program.to_string()).into_bytes()),
            Form::Llvm => listed(Listing::Optimised),
            Form::Assembly => listed(Listing::Assembly),
            Form::Object => {
                let location = |span: Span| lowering.lowered.sources.location(span);
                compile(&program, &location, &options, &machine.target, &mut |_| ()).map(|artifact| artifact.code)
            }
        };
        code.map_err(|e| Error::Codegen(e.to_string()))
    }
}
