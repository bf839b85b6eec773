//! Links a vendor's math library, which is LLVM bitcode.
//!
//! The library is read lazily, and its definitions are kept only if they are called, so linking takes only the time of
//! the few functions in use.

use std::path::Path;

use inkwell::module::Module;
use llvm_sys::LLVMLinkage;
use llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use llvm_sys::core::*;
use llvm_sys::linker::LLVMLinkModules2;

use crate::CodegenError;
use crate::emit::{c_string, llvm};

/// Adds the functions that `module` calls.
pub(super) fn link_device_library(module: &Module<'_>, path: &Path) -> Result<(), CodegenError> {
    let failed = |what: &str| CodegenError::new(format!("{what} {}", path.display()));
    let file = c_string(&path.to_string_lossy());
    let module = module.as_mut_ptr();
    let status = llvm!({
        let (mut buffer, mut message) = (std::ptr::null_mut(), std::ptr::null_mut());
        if LLVMCreateMemoryBufferWithContentsOfFile(file.as_ptr(), &mut buffer, &mut message) != 0 {
            LLVMDisposeMessage(message);
            return Err(failed("cannot read"));
        }
        let mut library = std::ptr::null_mut();
        // The module owns the buffer from here on. If reading fails, LLVM has freed it.
        if LLVMGetBitcodeModuleInContext2(LLVMGetModuleContext(module), buffer, &mut library) != 0 {
            return Err(failed("no bitcode that this LLVM reads:"));
        }
        LLVMSetTarget(library, LLVMGetTarget(module));
        LLVMSetDataLayout(library, LLVMGetDataLayoutStr(module));
        let mut function = LLVMGetFirstFunction(library);
        while !function.is_null() {
            if LLVMIsDeclaration(function) == 0 && LLVMGetLinkage(function) == LLVMLinkage::LLVMExternalLinkage {
                LLVMSetLinkage(function, LLVMLinkage::LLVMLinkOnceODRLinkage);
            }
            function = LLVMGetNextFunction(function);
        }
        LLVMLinkModules2(module, library)
    });
    if status != 0 { Err(failed("cannot link")) } else { Ok(()) }
}
