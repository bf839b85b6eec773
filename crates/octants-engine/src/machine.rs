//! [`Machine`]: the machine that code is generated for. It need not be present.

use octants_artifact::CodeTarget;
use octants_ir::{DeviceLibrary, TargetInfo};

use crate::backend::{Backend, CodeGenerator};
use crate::error::Error;
use crate::suggest::nearest;

/// A machine that code can be made for.
#[derive(Clone)]
pub struct Machine {
    pub(crate) backend: &'static dyn Backend,
    pub(crate) target: CodeTarget,
    pub(crate) library: DeviceLibrary,
}

impl Machine {
    /// One that takes no library.
    pub(crate) fn new(backend: &'static dyn Backend, target: CodeTarget) -> Machine {
        Machine { backend, target, library: DeviceLibrary::default() }
    }

    /// Its code generator.
    pub(crate) fn code_generator(&self) -> &'static dyn CodeGenerator {
        self.backend.code_generator()
    }

    /// Its capabilities.
    pub(crate) fn info(&self) -> TargetInfo {
        self.code_generator().info(&self.target)
    }
}

/// The error for an unknown value of an option, with the known ones.
pub(crate) fn not_one_of<'a>(option: &str, given: &str, names: impl Iterator<Item = &'a str> + Clone) -> Error {
    let all: Vec<&str> = names.clone().collect();
    let hint = nearest(given, names).map_or_else(String::new, |s| format!(" (did you mean `{s}`?)"));
    Error::BadOption { name: option.into(), reason: format!("`{given}` is not one of {}{hint}", all.join(", ")) }
}
