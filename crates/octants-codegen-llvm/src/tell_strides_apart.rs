//! Addresses that walk the same memory with steps of different lengths are written so that LLVM's load-store vectorizer
//! tells them apart.
//!
//! To find adjacent accesses, it compares two `getelementptr` of one base whose extended indices differ by a constant,
//! and multiplies the difference with the size of the first one's element. LLVM 22 does not look whether the second
//! one's has that size too: `x[i, 0]` and `x[0, i]` are then one place to it, and one is read for both. So, of each
//! base, those with elements of another size than the first one's become bytes, with a product for an index, which it
//! does not look into in this way.

use std::collections::HashMap;

use inkwell::module::Module;
use inkwell::targets::TargetData;
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue, PointerValue};
use llvm_sys::core::{LLVMGetGEPSourceElementType, LLVMGetNumIndices, LLVMReplaceAllUsesWith};
use llvm_sys::prelude::LLVMValueRef;
use llvm_sys::target::LLVMABISizeOfType;

/// Rewrites the addresses of a module.
pub(crate) fn tell_strides_apart(module: &Module<'_>, layout: &TargetData) {
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
            let made = made.expect("compiler bug: the builder has a place");
            // SAFETY: both are pointers of one type, and the new one is before the old one.
            unsafe { LLVMReplaceAllUsesWith(inst.as_value_ref(), made.as_value_ref()) };
            inst.erase_from_basic_block();
        }
    }
}

/// Base and index of an address with one index, which is an extended number.
fn extended_index<'c>(inst: &InstructionValue<'c>) -> Option<(PointerValue<'c>, BasicValueEnum<'c>)> {
    // SAFETY: it is asked of a `getelementptr` alone.
    let is_one =
        inst.get_opcode() == InstructionOpcode::GetElementPtr && unsafe { LLVMGetNumIndices(inst.as_value_ref()) } == 1;
    if !is_one {
        return None;
    }
    let (base, index) = (inst.get_operand(0)?.value()?, inst.get_operand(1)?.value()?);
    let (BasicValueEnum::PointerValue(base), Some(extends)) = (base, index.as_instruction_value()) else { return None };
    matches!(extends.get_opcode(), InstructionOpcode::ZExt | InstructionOpcode::SExt).then_some((base, index))
}
