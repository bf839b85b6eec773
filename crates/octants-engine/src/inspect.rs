//! A kernel's code for any machine that code can be made for, as text or bytes for people: the machine need not be there.

use std::path::PathBuf;

use octants_analysis::describe_access;
use octants_artifact::CodeTarget;
use octants_codegen_llvm::{DeviceLibrary, Listing, check_target, compile_as_one, known_processors, list, target_info};
use octants_driver_cuda::choose_target::{chips, choose_target};
use octants_schedule::{describe_schedule, schedule_program};
use {octants_driver_cuda as cuda, octants_driver_hip as hip};

use crate::config::Arch;
use crate::environment::folders;
use crate::error::Error;
use crate::session::{Lowering, Session, keeping_on};
use crate::suggest::nearest;

/// What is shown of a kernel's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The elements that each task reads, writes and updates, in terms of the arguments.
    Access,
    /// The program of tasks that code is made of.
    Ir,
    /// How each task of the program runs on the machine.
    Schedule,
    /// LLVM's text after optimisation.
    Llvm,
    /// Assembly.
    Assembly,
    /// What the machine's driver is given: an object file for the CPU, assembly text or linked code for GPUs.
    Object,
}

/// The forms by name.
pub const FORMS: &[(&str, Form)] = &[
    ("access", Form::Access),
    ("ir", Form::Ir),
    ("schedule", Form::Schedule),
    ("llvm", Form::Llvm),
    ("asm", Form::Assembly),
    ("object", Form::Object),
];

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
    fn is_gpu(&self) -> bool {
        target_info(&self.target).has_grid
    }

    /// The usual ending of the name of a file with code in this form.
    pub fn file_ending(&self, form: Form) -> &'static str {
        let triple = match &self.target {
            CodeTarget::Host => "",
            CodeTarget::Device { triple, .. } => triple.as_str(),
        };
        match form {
            Form::Access => "access",
            Form::Ir => "oir",
            Form::Schedule => "schedule",
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

/// The architectures of processors. Object files are those of Linux.
const X86: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";
/// What all processors of the second run.
const ANY_ARM: &str = "aarch64";
/// The architecture of AMD's GPUs.
const AMD: &str = "amdgcn-amd-amdhsa";

fn named(triple: &str, chip: &str) -> CodeTarget {
    CodeTarget::Device { triple: triple.into(), cpu: chip.into(), features: String::new() }
}

/// A processor by its name: this machine's, or any of one of these architectures.
fn processor(name: &str, architectures: &[&str]) -> Option<CodeTarget> {
    let is = |triple: &str| match name {
        "cpu" | "native" => triple.starts_with(std::env::consts::ARCH),
        ANY_ARM => triple == ARM,
        _ => known_processors(triple).iter().any(|known| known == name),
    };
    let triple = architectures.iter().find(|triple| is(triple))?;
    Some(match name {
        "cpu" | "native" => CodeTarget::Host,
        ANY_ARM => named(triple, "generic"),
        _ => named(triple, name),
    })
}

/// Kinds of machines, and the targets of each that code can be made for.
pub fn code_targets() -> [(&'static str, Vec<String>); 3] {
    let (levels, x86): (Vec<_>, Vec<_>) =
        known_processors(X86).into_iter().partition(|name| name.starts_with("x86-64"));
    let arm = known_processors(ARM);
    let processors = ["cpu".to_owned()].into_iter().chain(levels).chain([ANY_ARM.to_owned()]).chain(x86).chain(arm);
    [("cpu", processors.collect()), ("cuda", chips().collect()), ("amdgpu", known_processors(AMD))]
}

/// That there is no such target, with those that there are; all of one kind where the user named it.
fn unknown(target: &str, kind: Option<&str>) -> Error {
    let all = code_targets();
    let kinds = || all.iter().filter(|(name, _)| kind.is_none_or(|kind| kind == *name));
    let names = kinds().flat_map(|(_, names)| names.iter().map(String::as_str));
    let hint = nearest(target, names).map_or_else(String::new, |s| format!(" (did you mean `{s}`?)"));
    let list = |(name, names): &(&str, Vec<String>)| {
        // Of hundreds of processors those that stand for many.
        let usual =
            |n: &str| kind.is_some() || *name != "cpu" || ["cpu", ANY_ARM].contains(&n) || n.starts_with("x86-64");
        let (shown, others): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(|n| usual(n));
        let rest = if others.is_empty() { String::new() } else { format!(", and {} by name", others.len()) };
        format!("\n  {name}: {}{rest}", shown.join(", "))
    };
    let lists: String = kinds().map(list).collect();
    let all = "`python -m octants.inspect --list` prints all";
    bad("target", format!("no code is made for `{target}`{hint}. There are ({all}):{lists}"))
}

impl Session {
    /// The machine that a user names by its kind, its chip, or both; this session's own where nothing is said. In `packages`, folders
    /// of installed packages, vendors' libraries are looked for.
    pub fn machine(&self, arch: Option<&str>, target: Option<&str>, packages: &[PathBuf]) -> Result<Machine, Error> {
        let own = Machine { target: self.target.clone(), library: self.library.clone() };
        let (kind, architectures): (Option<Arch>, &[&str]) = match arch {
            None => (None, &[X86, ARM]),
            Some("cpu") => (Some(Arch::Cpu), &[X86, ARM]),
            Some("x64") => (Some(Arch::Cpu), &[X86]),
            Some("arm64") => (Some(Arch::Cpu), &[ARM]),
            Some("cuda") => (Some(Arch::Cuda), &[]),
            Some("amdgpu") => (Some(Arch::Amdgpu), &[]),
            Some(name) => return Err(not_one_of("arch", name, ["cpu", "x64", "arm64", "cuda", "amdgpu"].into_iter())),
        };
        let on_processor = |target| Machine { target, library: DeviceLibrary::default() };
        let Some(target) = target else {
            return match kind {
                None => Ok(own),
                Some(Arch::Cpu) => {
                    let usual = ["cpu", "x86-64", ANY_ARM].into_iter().find_map(|name| processor(name, architectures));
                    Ok(on_processor(usual.expect("compiler bug: an architecture without processors")))
                }
                Some(arch) if arch == self.config().arch => Ok(own),
                Some(Arch::Cuda) => self.nvidia("sm_80", packages),
                Some(_) => self.amd("gfx90a", packages),
            };
        };
        let told = match target {
            t if t.starts_with("sm_") => Some(Arch::Cuda),
            t if t.starts_with("gfx") => Some(Arch::Amdgpu),
            t => processor(t, &[X86, ARM]).map(|_| Arch::Cpu),
        };
        let no_such = || bad("target", format!("`{target}` is not a chip of arch `{}`", arch.unwrap_or_default()));
        if kind.is_some() && told.is_some() && kind != told {
            return Err(no_such());
        }
        match told {
            Some(Arch::Cpu) => processor(target, architectures).map(on_processor).ok_or_else(no_such),
            Some(Arch::Cuda) => self.nvidia(target, packages),
            Some(_) => self.amd(target, packages),
            None => Err(unknown(target, kind.map(|kind| kind.name()))),
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
            _ => Err(unknown(chip, Some("cuda"))),
        }
    }

    fn amd(&self, chip: &str, packages: &[PathBuf]) -> Result<Machine, Error> {
        let target = named(AMD, chip);
        check_target(&target).map_err(|_| unknown(chip, Some("amdgpu")))?;
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
        let lowering = lowering.kept_as(keeping_on(&machine.target));
        let concurrent = !self.device().is_immediate() || machine.is_gpu();
        let program = self.split(&lowering.lowered, (arrays_may_alias, concurrent), &machine.target, false, |_| ());
        let schedule_options = self.schedule_options(arrays_may_alias);
        let schedule = schedule_program(&program, &target_info(&machine.target), schedule_options);
        let scheduled = (&program, &schedule);
        let options = self.codegen_options(concurrent, &machine.library);
        let listed = |listing| list(scheduled, &options, &machine.target, listing).map(String::into_bytes);
        let code = match form {
            Form::Access => return Ok(describe_access(&program).into_bytes()),
            Form::Ir => return Ok((lowering.kept() + &program.to_string()).into_bytes()),
            Form::Schedule => return Ok(describe_schedule(&program, &schedule).into_bytes()),
            Form::Llvm => listed(Listing::Optimised),
            Form::Assembly => listed(Listing::Assembly),
            Form::Object => compile_as_one(scheduled, &options, &machine.target),
        };
        code.map_err(|e| Error::Codegen(e.to_string()))
    }
}
