//! [`Disassembler`]: LLVM's disassembler, through its C interface.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use llvm_sys::disassembler::{
    LLVMCreateDisasmCPUFeatures, LLVMDisasmContextRef, LLVMDisasmDispose, LLVMDisasmInstruction,
};
use llvm_sys::target::{LLVMInitializeAMDGPUTargetInfo, LLVMInitializeAMDGPUTargetMC};

unsafe extern "C" {
    /// Part of LLVM's C API, but not declared by `llvm-sys`.
    fn LLVMInitializeAMDGPUDisassembler();
}

/// LLVM's disassembler for one chip.
#[derive(Debug)]
pub struct Disassembler(Mutex<LLVMDisasmContextRef>);

// SAFETY: the context is not bound to a thread, and the lock serializes its use.
unsafe impl Send for Disassembler {}
// SAFETY: the same.
unsafe impl Sync for Disassembler {}

/// Maximum size of an instruction in bytes.
const MOST_BYTES: usize = 32;

impl Disassembler {
    /// The disassembler for a chip; `None` if LLVM has no such target.
    pub fn new(cpu: &str, features: &str) -> Option<Disassembler> {
        let (cpu, features) = (CString::new(cpu).ok()?, CString::new(features).ok()?);
        // SAFETY: registering LLVM's tables is idempotent, and the strings outlive the call.
        let context = unsafe {
            LLVMInitializeAMDGPUTargetInfo();
            LLVMInitializeAMDGPUTargetMC();
            LLVMInitializeAMDGPUDisassembler();
            LLVMCreateDisasmCPUFeatures(
                c"amdgcn-amd-amdhsa".as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                std::ptr::null_mut(),
                0,
                None,
                None,
            )
        };
        (!context.is_null()).then(|| Disassembler(Mutex::new(context)))
    }

    /// Disassembles the first instruction of some bytes. Returns the text and its size.
    pub fn instruction(&self, bytes: &[u8]) -> Option<(String, usize)> {
        let mut text = [0 as c_char; 512];
        let mut code = [0u8; MOST_BYTES];
        let count = bytes.len().min(MOST_BYTES);
        code[..count].copy_from_slice(&bytes[..count]);
        let context = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is LLVM's, and both buffers have the sizes given.
        let size = unsafe {
            LLVMDisasmInstruction(*context, code.as_mut_ptr(), count as u64, 0, text.as_mut_ptr(), text.len())
        };
        // SAFETY: LLVM ends the text with a zero.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().trim().to_string();
        (size > 0).then_some((text, size))
    }
}

impl Drop for Disassembler {
    fn drop(&mut self) {
        let context = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this is the only owner.
        unsafe { LLVMDisasmDispose(*context) }
    }
}
