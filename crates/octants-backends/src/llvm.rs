//! [`Llvm`]: the engine's interface to octants-codegen-llvm.

use octants_artifact::{Artifact, CodeTarget};
use octants_codegen_llvm::{self as llvm, Listing};
use octants_diag::Span;
use octants_engine::{CodeForm, CodeGenerator};
use octants_ir::{CodegenError, CodegenOptions, Scheduled, TargetInfo};

/// LLVM's text after optimization.
const TEXT: CodeForm = CodeForm { name: "llvm", ending: "ll" };
/// LLVM's text before optimization.
const LOWERED: CodeForm = CodeForm { name: "llvm-lowered", ending: "ll" };
/// Assembly.
pub(crate) const ASSEMBLY: CodeForm = CodeForm { name: "asm", ending: "s" };
/// The code that the driver loads: an object file for the CPU, assembly text or linked code for GPUs.
pub(crate) const OBJECT: CodeForm = CodeForm { name: "object", ending: "o" };

const FORMS: &[CodeForm] = &[TEXT, LOWERED, ASSEMBLY, OBJECT];

/// The code generator of all targets that LLVM has.
pub struct Llvm;

/// A target that LLVM knows by this triple and processor.
pub(crate) fn named(triple: &str, processor: &str) -> CodeTarget {
    CodeTarget::Device { triple: triple.into(), cpu: processor.into(), features: String::new() }
}

impl CodeGenerator for Llvm {
    fn info(&self, target: &CodeTarget) -> TargetInfo {
        llvm::target_info(target)
    }

    fn check_target(&self, target: &CodeTarget) -> Result<(), CodegenError> {
        llvm::check_target(target)
    }

    fn check_processor(&self, processor: &str) -> Result<(), CodegenError> {
        llvm::check_processor(processor)
    }

    fn compile(
        &self,
        scheduled: &Scheduled,
        location: &dyn Fn(Span) -> String,
        options: &CodegenOptions,
        target: &CodeTarget,
        after: &mut dyn FnMut(&'static str),
    ) -> Result<Artifact, CodegenError> {
        llvm::compile(scheduled, location, options, target, after)
    }

    fn forms(&self) -> &'static [CodeForm] {
        FORMS
    }

    fn show(
        &self,
        scheduled: &Scheduled,
        options: &CodegenOptions,
        target: &CodeTarget,
        form: CodeForm,
    ) -> Result<Vec<u8>, CodegenError> {
        let list = |listing| llvm::list(scheduled, options, target, listing).map(String::into_bytes);
        match form {
            TEXT => list(Listing::Optimized),
            LOWERED => list(Listing::Lowered),
            ASSEMBLY => list(Listing::Assembly),
            OBJECT => llvm::compile_as_one(scheduled, options, target),
            other => panic!("compiler bug: LLVM has no code form `{}`", other.name),
        }
    }

    fn identity(&self, target: &CodeTarget) -> Result<String, CodegenError> {
        let (major, minor, patch) = llvm::llvm_version();
        let host = match target {
            CodeTarget::Host => llvm::host_target()?,
            CodeTarget::Device { .. } => String::new(),
        };
        Ok(format!("LLVM {major}.{minor}.{patch} {host}"))
    }
}
