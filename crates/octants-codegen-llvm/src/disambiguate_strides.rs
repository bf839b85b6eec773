//! Rewrites addresses that walk the same memory with different strides, to work around a fault of LLVM's load-store
//! vectorizer.
//!
//! To find adjacent accesses, the vectorizer compares two `getelementptr` instructions of one base whose extended
//! indices differ by a constant, and multiplies the difference by the element size of the first one. LLVM 22 does not
//! check that the second one has the same element size: it takes `x[i, 0]` and `x[0, i]` for one address, and merges
//! the loads. The pass rewrites those whose element size differs from the first one's to byte addresses with a product
//! as index, which the vectorizer does not analyze in this way.

use std::collections::HashMap;

use inkwell::module::Module;
use inkwell::targets::TargetData;
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue, PointerValue};
use llvm_sys::core::{LLVMGetGEPSourceElementType, LLVMGetNumIndices, LLVMReplaceAllUsesWith};
use llvm_sys::prelude::LLVMValueRef;
use llvm_sys::target::LLVMABISizeOfType;

/// Rewrites the addresses of a module.
pub(crate) fn disambiguate_strides(module: &Module<'_>, layout: &TargetData) {
    let context = module.get_context();
    let builder = context.create_builder();
    for function in module.get_functions() {
        let mut sizes: HashMap<LLVMValueRef, u64> = HashMap::new();
        let mut others = Vec::new();
        for inst in function.get_basic_blocks().iter().flat_map(|b| b.get_instructions()) {
            let Some((base, index)) = extended_index(&inst) else { continue };
            // SAFETY: it is a `getelementptr`, and the layout is that of the module's target.
            let size =
                unsafe { LLVMABISizeOfType(layout.as_mut_ptr(), LLVMGetGEPSourceElementType(inst.as_value_ref())) };
            if *sizes.entry(base.as_value_ref()).or_insert(size) != size {
                others.push((inst, base, index, size));
            }
        }
        for (inst, base, index, size) in others {
            let BasicValueEnum::IntValue(index) = index else { continue };
            builder.position_before(&inst);
            let size = index.get_type().const_int(size, false);
            let made = builder.build_int_mul(index, size, "").and_then(|offset| {
                // SAFETY: the same address as before, inside the same object.
                unsafe { builder.build_in_bounds_gep(context.i8_type(), base, &[offset], "") }
            });
            let made = made.expect("compiler bug: the builder has no insertion point");
            // SAFETY: both are pointers of one type, and the new one is before the old one.
            unsafe { LLVMReplaceAllUsesWith(inst.as_value_ref(), made.as_value_ref()) };
            inst.erase_from_basic_block();
        }
    }
}

/// Base and index of an address with one index, which is an extended number.
fn extended_index<'c>(inst: &InstructionValue<'c>) -> Option<(PointerValue<'c>, BasicValueEnum<'c>)> {
    // SAFETY: it is called only for a `getelementptr`.
    let is_one =
        inst.get_opcode() == InstructionOpcode::GetElementPtr && unsafe { LLVMGetNumIndices(inst.as_value_ref()) } == 1;
    if !is_one {
        return None;
    }
    let (base, index) = (inst.get_operand(0)?.value()?, inst.get_operand(1)?.value()?);
    let (BasicValueEnum::PointerValue(base), Some(extends)) = (base, index.as_instruction_value()) else { return None };
    matches!(extends.get_opcode(), InstructionOpcode::ZExt | InstructionOpcode::SExt).then_some((base, index))
}
