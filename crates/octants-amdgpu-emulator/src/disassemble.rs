//! [`Disassembler`]: LLVM's disassembler, through its C interface.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use llvm_sys::disassembler::{
    LLVMCreateDisasmCPUFeatures, LLVMDisasmContextRef, LLVMDisasmDispose, LLVMDisasmInstruction,
};
use llvm_sys::target::{LLVMInitializeAMDGPUTargetInfo, LLVMInitializeAMDGPUTargetMC};

unsafe extern "C" {
    /// LLVM has it; `llvm-sys` does not declare it.
    fn LLVMInitializeAMDGPUDisassembler();
}

/// LLVM's disassembler for one chip.
#[derive(Debug)]
pub struct Disassembler(Mutex<LLVMDisasmContextRef>);

// SAFETY: the context belongs to no thread; the lock keeps threads apart.
unsafe impl Send for Disassembler {}
// SAFETY: the same.
unsafe impl Sync for Disassembler {}

/// The longest instruction.
const MOST_BYTES: usize = 32;

impl Disassembler {
    /// The one for a chip; nothing where LLVM has no such target.
    pub fn new(cpu: &str, features: &str) -> Option<Disassembler> {
        let (cpu, features) = (CString::new(cpu).ok()?, CString::new(features).ok()?);
        // SAFETY: these register LLVM's own tables, however often they are called; the texts live through the call.
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

    /// The text of the instruction at the beginning of some bytes, and how many of them it takes.
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
        // SAFETY: nobody uses it any more.
        unsafe { LLVMDisasmDispose(*context) }
    }
}
