//! ROCm's math library (ocml): linking, and its control constants.
//!
//! ROCm has a file for each setting of each constant, and none for chips newer than itself. Here the constants are
//! defined in the module, so one file serves all chips.

use std::ffi::CStr;
use std::path::Path;

use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage};

use super::device_library::link_device_library;
use crate::CodegenError;
use crate::emit::llvm;

/// The configuration of the library.
pub(super) struct Controls {
    /// The chip's number.
    pub isa: i64,
    /// The version of the code objects, times a hundred.
    pub abi: i64,
    /// Waves have 64 threads.
    pub wave64: bool,
    /// Denormals may be treated as zero.
    pub fast_math: bool,
}

impl Controls {
    /// The value of one of the library's constants. Accuracy is not given up even under `fast_math`, NaN and infinity
    /// keep their meaning.
    fn value(&self, name: &str) -> Option<i64> {
        Some(match name {
            "__oclc_ISA_version" => self.isa,
            "__oclc_ABI_version" => self.abi,
            "__oclc_wavefrontsize64" => i64::from(self.wave64),
            "__oclc_daz_opt" => i64::from(self.fast_math),
            "__oclc_finite_only_opt" | "__oclc_unsafe_math_opt" => 0,
            "__oclc_correctly_rounded_sqrt32" => i64::from(!self.fast_math),
            _ => return None,
        })
    }
}

/// Adds the functions that `module` calls, for the module's own chip.
pub(super) fn link_rocm_library(module: &Module<'_>, path: &Path, controls: &Controls) -> Result<(), CodegenError> {
    link_device_library(module, path)?;
    let module = module.as_mut_ptr();
    define_controls(module, path, controls)?;
    let mut function = llvm!(LLVMGetFirstFunction(module));
    while !function.is_null() {
        let next = llvm!(LLVMGetNextFunction(function));
        if llvm!(LLVMIsDeclaration(function)) == 0 {
            adopt(module, function, controls.fast_math);
        } else if llvm!(LLVMGetIntrinsicID(function)) == 0 && llvm!(!LLVMGetFirstUse(function).is_null()) {
            let name = name_of(function);
            return Err(CodegenError::new(format!(
                "{} does not have the function {name}: is it too old?",
                path.display()
            )));
        }
        function = next;
    }
    Ok(())
}

fn name_of(value: LLVMValueRef) -> String {
    let mut length = 0;
    // SAFETY: LLVM gives an address and a length; the bytes live as long as the value.
    let bytes = unsafe { std::slice::from_raw_parts(LLVMGetValueName2(value, &mut length).cast(), length) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Defines the library's constants.
fn define_controls(module: LLVMModuleRef, path: &Path, controls: &Controls) -> Result<(), CodegenError> {
    let mut global = llvm!(LLVMGetFirstGlobal(module));
    while !global.is_null() {
        let name = name_of(global);
        if llvm!(LLVMIsDeclaration(global)) != 0 && name.starts_with("__oclc_") {
            let Some(value) = controls.value(&name) else {
                return Err(CodegenError::new(format!("{} needs {name}, which is unknown here", path.display())));
            };
            llvm!({
                LLVMSetInitializer(global, LLVMConstInt(LLVMGlobalGetValueType(global), value as u64, 1));
                LLVMSetGlobalConstant(global, 1);
                LLVMSetLinkage(global, LLVMLinkage::LLVMInternalLinkage);
            });
        }
        global = llvm!(LLVMGetNextGlobal(global));
    }
    Ok(())
}

/// Adapts a library function to the module: removes its chip attributes, and sets the module's denormal mode. Otherwise
/// it would not be inlined, or code would be made for another chip.
fn adopt(module: LLVMModuleRef, function: LLVMValueRef, fast_math: bool) {
    const FORGOTTEN: [&CStr; 4] = [c"target-cpu", c"target-features", c"denormal-fp-math", c"uniform-work-group-size"];
    const DENORMALS: &CStr = c"denormal-fp-math-f32";
    const FLUSHED: &CStr = c"preserve-sign,preserve-sign";
    let length = |text: &CStr| text.count_bytes() as u32;
    for key in FORGOTTEN.iter().chain([&DENORMALS]) {
        llvm!(LLVMRemoveStringAttributeAtIndex(function, LLVMAttributeFunctionIndex, key.as_ptr(), length(key)));
    }
    if fast_math {
        llvm!({
            let context = LLVMGetModuleContext(module);
            let (key, value) = (DENORMALS.as_ptr(), FLUSHED.as_ptr());
            let attribute = LLVMCreateStringAttribute(context, key, length(DENORMALS), value, length(FLUSHED));
            LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute);
        });
    }
}
