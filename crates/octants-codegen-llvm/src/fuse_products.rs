//! Fuses sums with products that have other uses into fused multiply-adds, if the processor has them.
//!
//! LLVM 22's CPU back ends fuse a product with a sum only if the product has no other use, which saves an instruction.
//! If the product stays, fusing still takes the sum off the critical path: a loop like `z = z * z + c` that also
//! compares `z * z` is one operation shorter per iteration. Rounding differs, as contraction allows.

use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{AsValueRef, BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue};
use llvm_sys::core::{LLVMGetFastMathFlags, LLVMReplaceAllUsesWith, LLVMSetFastMathFlags};
use llvm_sys::{LLVMFastMathAllowContract, LLVMFastMathFlags};

/// Rewrites the sums and differences of a module.
pub(crate) fn fuse_products(module: &Module<'_>) {
    let sums: Vec<_> = module
        .get_functions()
        .flat_map(|f| f.get_basic_blocks())
        .flat_map(|b| b.get_instructions().collect::<Vec<_>>())
        .filter(|i| matches!(i.get_opcode(), InstructionOpcode::FAdd | InstructionOpcode::FSub) && contracts(i))
        .filter(|i| i.get_operand(0).and_then(|o| o.value()).is_some_and(|v| is_fused(module, v.get_type())))
        .collect();
    for sum in sums {
        let _: Option<()> = fuse(module, sum);
    }
}

/// Processors fuse operations with numbers of these types.
fn is_fused<'c>(module: &Module<'c>, ty: BasicTypeEnum<'c>) -> bool {
    let element = match ty {
        BasicTypeEnum::VectorType(v) => v.get_element_type(),
        other => other,
    };
    let context = module.get_context();
    matches!(element, BasicTypeEnum::FloatType(f) if f == context.f32_type() || f == context.f64_type())
}

fn flags(inst: &InstructionValue<'_>) -> LLVMFastMathFlags {
    // SAFETY: this is only called for float operations.
    unsafe { LLVMGetFastMathFlags(inst.as_value_ref()) }
}

fn contracts(inst: &InstructionValue<'_>) -> bool {
    flags(inst) & LLVMFastMathAllowContract != 0
}

/// The product that an operand is, if it is used elsewhere too and made in the same block.
fn shared_product<'c>(sum: &InstructionValue<'c>, operand: BasicValueEnum<'c>) -> Option<InstructionValue<'c>> {
    let product =
        operand.as_instruction_value().filter(|p| p.get_opcode() == InstructionOpcode::FMul && contracts(p))?;
    let uses = std::iter::successors(product.get_first_use(), |u| u.get_next_use()).take(2).count();
    (uses > 1 && product.get_parent() == sum.get_parent()).then_some(product)
}

fn fuse<'c>(module: &Module<'c>, sum: InstructionValue<'c>) -> Option<()> {
    let operand = |i: &InstructionValue<'c>, n| i.get_operand(n)?.value();
    let (left, right) = (operand(&sum, 0)?, operand(&sum, 1)?);
    let is_difference = sum.get_opcode() == InstructionOpcode::FSub;
    let first = shared_product(&sum, left);
    let (product, other, is_left) = match first {
        Some(product) => (product, right, true),
        None => (shared_product(&sum, right)?, left, false),
    };
    // Twice the product, or nothing.
    if left == right {
        return None;
    }
    let builder = module.get_context().create_builder();
    builder.position_before(&sum);
    let negated = |value: BasicValueEnum<'c>| -> Option<BasicValueEnum<'c>> {
        Some(match value {
            BasicValueEnum::FloatValue(v) => builder.build_float_neg(v, "").ok()?.into(),
            BasicValueEnum::VectorValue(v) => builder.build_float_neg(v, "").ok()?.into(),
            _ => return None,
        })
    };
    let (mut a, b, mut c) = (operand(&product, 0)?, operand(&product, 1)?, other);
    match (is_difference, is_left) {
        (true, true) => c = negated(c)?,
        (true, false) => a = negated(a)?,
        (false, _) => {}
    }
    let function = Intrinsic::find("llvm.fma")?.get_declaration(module, &[a.get_type()])?;
    let call = builder.build_call(function, &[a.into(), b.into(), c.into()], "").ok()?;
    let made = call.try_as_basic_value().basic()?;
    // SAFETY: the call is an operation with floats; it has the type of the sum, and is before it.
    unsafe {
        LLVMSetFastMathFlags(made.as_value_ref(), flags(&sum));
        LLVMReplaceAllUsesWith(sum.as_value_ref(), made.as_value_ref());
    }
    sum.erase_from_basic_block();
    Some(())
}
