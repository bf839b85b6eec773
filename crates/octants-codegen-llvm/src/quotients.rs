//! Float divisions that are rounded correctly, also under `fast_math`.

use llvm_sys::core::*;

use crate::emit::{Emitter, NO_NAME, V, llvm};

impl Emitter {
    /// A quotient without fast-math flags: it does not become a product with a reciprocal.
    pub fn rounded_fdiv(&self, a: V, b: V) -> V {
        llvm!(LLVMBuildFDiv(self.builder, a, b, NO_NAME))
    }

    /// Whether a float is known to be an integer: it is converted from one, or is such a constant.
    pub fn is_whole(&self, v: V) -> bool {
        let is_converted = llvm!(!LLVMIsASIToFPInst(v).is_null() || !LLVMIsAUIToFPInst(v).is_null());
        is_converted || self.as_real(v).is_some_and(|value| value.fract() == 0.0)
    }
}
