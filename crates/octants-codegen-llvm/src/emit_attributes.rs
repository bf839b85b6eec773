//! Attributes of functions, parameters and calls, for [`Emitter`].

use llvm_sys::core::*;
use llvm_sys::prelude::*;

use crate::emit::{Emitter, T, V, llvm};

impl Emitter {
    fn attribute_kind(name: &str) -> u32 {
        llvm!(LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()))
    }

    /// Adds an attribute to a function's parameter.
    pub fn param_attribute(&self, f: V, i: usize, name: &str, value: u64) {
        let kind = Self::attribute_kind(name);
        llvm!(LLVMAddAttributeAtIndex(f, i as u32 + 1, LLVMCreateEnumAttribute(self.ctx, kind, value)));
    }

    /// Adds an attribute to a function.
    pub fn function_attribute(&self, f: V, name: &str, value: u64) {
        let kind = Self::attribute_kind(name);
        llvm!(LLVMAddAttributeAtIndex(
            f,
            llvm_sys::LLVMAttributeFunctionIndex,
            LLVMCreateEnumAttribute(self.ctx, kind, value)
        ));
    }

    /// Adds a string attribute to a function.
    pub fn function_text_attribute(&self, f: V, key: &str, value: &str) {
        llvm!(LLVMAddAttributeAtIndex(f, llvm_sys::LLVMAttributeFunctionIndex, self.text_attribute(key, value)));
    }

    /// Adds a string attribute to a call.
    pub fn call_text_attribute(&self, call: V, key: &str, value: &str) {
        llvm!(LLVMAddCallSiteAttribute(call, llvm_sys::LLVMAttributeFunctionIndex, self.text_attribute(key, value)));
    }

    fn text_attribute(&self, key: &str, value: &str) -> LLVMAttributeRef {
        llvm!(LLVMCreateStringAttribute(
            self.ctx,
            key.as_ptr().cast(),
            key.len() as u32,
            value.as_ptr().cast(),
            value.len() as u32
        ))
    }

    /// Sets the calling convention of a function by LLVM's number.
    pub fn set_calling_convention(&self, f: V, number: u32) {
        llvm!(LLVMSetFunctionCallConv(f, number));
    }

    /// Adds an attribute that names a type to a parameter of pointer type.
    pub fn param_type_attribute(&self, f: V, i: usize, name: &str, ty: T) {
        let kind = Self::attribute_kind(name);
        llvm!(LLVMAddAttributeAtIndex(f, i as u32 + 1, LLVMCreateTypeAttribute(self.ctx, kind, ty)));
    }

    /// Adds a string attribute to a function's parameter.
    pub fn param_text_attribute(&self, f: V, i: usize, key: &str, value: &str) {
        llvm!(LLVMAddAttributeAtIndex(f, i as u32 + 1, self.text_attribute(key, value)));
    }

    pub fn set_fast_call(&self, f_or_call: V, is_call: bool) {
        const FAST: u32 = 8;
        llvm!(if is_call {
            LLVMSetInstructionCallConv(f_or_call, FAST)
        } else {
            LLVMSetFunctionCallConv(f_or_call, FAST)
        });
    }
}
