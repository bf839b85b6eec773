//! The pass pipeline and the final code generation.

use std::ffi::CStr;
use std::sync::Once;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};
use inkwell::values::FunctionValue;
use llvm_sys::prelude::{LLVMContextRef, LLVMModuleRef};
use llvm_sys::support::LLVMParseCommandLineOptions;
use llvm_sys::target_machine::LLVMTargetMachineRef;

use crate::CodegenError;
use crate::disambiguate_strides::disambiguate_strides;
use crate::fatal_errors::compiler_bug;

/// Runs LLVM's default pipeline of a level, and verifies the result. `vectors`: loops may be vectorized.
pub(crate) fn optimize(
    module: &Module<'_>,
    machine: &TargetMachine,
    level: u8,
    vectors: bool,
) -> Result<(), CodegenError> {
    set_options();
    // Targets without loop vectorization report that to LLVM themselves.
    let interleaves = vectors && level >= 2;
    let is_long = vectors && longest(module) > LONG;
    let pairs = level >= 2 && !is_long;
    // SAFETY: both live, and no other thread uses them.
    unsafe {
        octants_run_default_pipeline(module.as_mut_ptr(), machine.as_mut_ptr(), u32::from(level), interleaves, pairs);
    }
    if !vectors {
        let of_functions = |passes| run(module, machine, passes);
        if level >= 2 {
            of_functions("function(infer-address-spaces,separate-const-offset-from-gep,infer-alignment)")?;
        }
        disambiguate_strides(module, &machine.get_target_data());
        if level >= 2 {
            // Merges adjacent accesses of a thread. The back end tries too, but has lost the alignment by then.
            of_functions("function(load-store-vectorizer)")?;
        }
    }
    if vectors {
        emit_huge_functions_plainly(module);
    }
    if is_long {
        // SAFETY: the context lives, and no other thread uses it.
        unsafe { octants_skip_passes(module.get_context().raw()) };
    }
    check_module(module, "the optimizer")
}

/// Maximum length of a function, in LLVM instructions before optimization, for which the SLP vectorizer and the passes
/// that `skip_passes.cpp` names run. Longer functions are mostly branches and inner loops: there these passes took a
/// third of the time and made no program faster. Loop vectorization is unaffected.
const LONG: usize = 2_500;

fn instructions(function: FunctionValue<'_>) -> usize {
    function.get_basic_block_iter().map(|b| b.get_instructions().count()).sum()
}

/// Instructions of the longest function.
fn longest(module: &Module<'_>) -> usize {
    module.get_functions().map(instructions).max().unwrap_or(0)
}

/// Functions of more instructions than this, after optimization, are emitted without the back end's own optimizations,
/// whose time grows with the square of the function: scheduling, moving code out of loops, the order of two-address
/// instructions. A contact detection of 20,000 instructions runs a fifth faster with them, for 0.2 s more; one block of
/// 100,000 would take 14 s instead of 3.
const HUGE: usize = 40_000;

/// Verifies a module that `producer` has made: LLVM's passes and its code generator do not check this, and crash on an
/// invalid module. Takes less than one hundredth of their time.
pub(crate) fn check_module(module: &Module<'_>, producer: &str) -> Result<(), CodegenError> {
    module.verify().map_err(|e| compiler_bug(&format!("{producer} produced an invalid module: {e}")))
}

fn emit_huge_functions_plainly(module: &Module<'_>) {
    let attribute = |name| module.get_context().create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
    for function in module.get_functions() {
        if instructions(function) > HUGE {
            function.add_attribute(AttributeLoc::Function, attribute("noinline"));
            function.add_attribute(AttributeLoc::Function, attribute("optnone"));
        }
    }
}

fn run(module: &Module<'_>, machine: &TargetMachine, passes: &str) -> Result<(), CodegenError> {
    module
        .run_passes(passes, machine, PassBuilderOptions::create())
        .map_err(|e| CodegenError::new(format!("LLVM's passes failed: {e}")))
}

/// Process-wide options of LLVM:
///
/// - The schedulers track at most 200 memory accesses of a block, and keep the order of earlier ones. They compare each
///   with all later ones: at the default of 1,000, a block of some thousand accesses takes seconds.
/// - A load is not replaced by a value that an earlier iteration loaded: the loop-carried value would prevent
///   vectorization.
/// - The register allocator's budget for region splitting, in basic blocks, is 300 instead of 10,000. Splitting took a
///   third of the emission time of code with many blocks.
const OPTIONS: [&CStr; 3] =
    [c"-dag-maps-huge-region=200", c"-enable-load-in-loop-pre=false", c"-grow-region-complexity-budget=300"];

/// Lets the host end long loops of the functions that call [`POLLED`]: see `poll_loops.cpp`. `offset` is that of the
/// host's function in the context.
pub(crate) fn poll_loops(module: &Module<'_>, machine: &TargetMachine, offset: u32) {
    // SAFETY: both live, and no other thread uses them.
    unsafe { octants_poll_loops(module.as_mut_ptr(), machine.as_mut_ptr(), offset) }
}

/// The function that marks functions with long loops, called with their context.
pub(crate) const POLLED: &str = "octants.polled";

unsafe extern "C" {
    /// See `poll_loops.cpp`.
    fn octants_poll_loops(module: LLVMModuleRef, machine: LLVMTargetMachineRef, offset: u32);

    /// Adds a pass to each pipeline of the X86 code generator: see `keep_masks.cpp`.
    fn octants_keep_masks();

    /// See `skip_passes.cpp`.
    fn octants_skip_passes(context: LLVMContextRef);

    /// See `default_pipeline.cpp`.
    fn octants_run_default_pipeline(
        module: LLVMModuleRef,
        machine: LLVMTargetMachineRef,
        level: u32,
        interleaves: bool,
        pairs: bool,
    );
}

fn set_options() {
    static ONCE: Once = Once::new();
    // An unknown option ends the process, and options of other versions are untested. Their bugs are not those of 22
    // either.
    if crate::llvm_version().0 == 22 {
        let arguments: Vec<_> = std::iter::once(c"octants").chain(OPTIONS).map(CStr::as_ptr).collect();
        // SAFETY: the arguments are C strings; LLVM takes its options, and the callback, once in a process.
        ONCE.call_once(|| unsafe {
            LLVMParseCommandLineOptions(arguments.len() as i32, arguments.as_ptr(), std::ptr::null());
            octants_keep_masks();
        });
    }
}

/// The bytes of an object file or assembly text.
pub(crate) fn emit_code(module: &Module<'_>, machine: &TargetMachine, kind: FileType) -> Result<Vec<u8>, CodegenError> {
    set_options();
    let buffer = machine
        .write_to_memory_buffer(module, kind)
        .map_err(|e| CodegenError::new(format!("LLVM cannot emit code: {e}")))?;
    Ok(buffer.as_slice().to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use inkwell::context::Context;
    use inkwell::memory_buffer::MemoryBuffer;
    use llvm_sys::core::*;

    use super::*;
    use crate::CodegenOptions;
    use crate::target::cpu::{Cpu, Processor};

    /// A mask with two users: as bits of an integer, and with a lane exchanged. LLVM's instruction that exchanges a
    /// lane overwrites the mask.
    const MASK: &str = r#"
define <4 x i32> @f(<4 x i32> %r, i32 %n, <4 x i32> %t, <4 x i32> %e, ptr %p) {
  %mask = icmp slt <4 x i32> %r, zeroinitializer
  %bits = bitcast <4 x i1> %mask to i4
  %wide = zext i4 %bits to i32
  %product = mul i32 %wide, %n
  store volatile i32 %product, ptr %p
  %lane = icmp slt i32 %product, 0
  %exchanged = insertelement <4 x i1> %mask, i1 %lane, i64 0
  %v = select <4 x i1> %exchanged, <4 x i32> %t, <4 x i32> %e
  ret <4 x i32> %v
}
"#;

    #[test]
    fn avx512_masks_stay_in_mask_registers() {
        for name in ["x86-64-v4", "znver4", "znver5", "skylake-avx512"] {
            for level in 1..=3 {
                let options = CodegenOptions { opt_level: level, ..CodegenOptions::default() };
                let processor = Processor::named("x86_64-unknown-linux-gnu", name).unwrap();
                let (_, machine) = Cpu::new(&processor, &options).unwrap();
                let context = Context::create();
                let text = MemoryBuffer::create_from_memory_range_copy(MASK.as_bytes(), "mask");
                let module = context.create_module_from_ir(text).unwrap();
                module.set_triple(&machine.get_triple());
                let code = emit_code(&module, &machine, FileType::Assembly).unwrap();
                let code = String::from_utf8_lossy(&code);
                assert!(code.contains("vpmovd2m") && !code.contains("movmsk"), "{name} at {level}: {code}");
            }
        }
    }

    /// A function that adds one to four adjacent floats, followed by `others` volatile stores.
    fn adjacent_sums(others: usize) -> String {
        let mut text = String::from("define void @f(ptr noalias %p, ptr noalias %q) {\n");
        for i in 0..4 {
            text += &format!("  %a{i} = getelementptr float, ptr %q, i64 {i}\n  %b{i} = load float, ptr %a{i}\n");
            text += &format!("  %c{i} = fadd float %b{i}, 1.0\n");
        }
        for i in 0..4 {
            text += &format!("  %d{i} = getelementptr float, ptr %p, i64 {i}\n  store float %c{i}, ptr %d{i}\n");
        }
        text + &"  store volatile i32 0, ptr %p\n".repeat(others) + "  ret void\n}\n"
    }

    /// The module of a text after its code is emitted: some passes of the code generator work on the module itself.
    fn emitted(text: &str, level: u8) -> String {
        let processor = Processor::named("x86_64-unknown-linux-gnu", "x86-64-v3").unwrap();
        let (_, machine) = Cpu::new(&processor, &CodegenOptions::default()).unwrap();
        let context = Context::create();
        let text = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "text");
        let module = context.create_module_from_ir(text).unwrap();
        module.set_triple(&machine.get_triple());
        optimize(&module, &machine, level, true).unwrap();
        emit_code(&module, &machine, FileType::Assembly).unwrap();
        module.print_to_string().to_string()
    }

    #[test]
    fn long_functions_are_not_slp_vectorized() {
        let optimized = |others, level| emitted(&adjacent_sums(others), level);
        assert!(optimized(0, 3).contains("<4 x float>"));
        assert!(optimized(0, 2).contains("<4 x float>"));
        assert!(!optimized(0, 1).contains("<4 x float>"));
        assert!(!optimized(LONG, 3).contains("<4 x float>"));
    }

    #[test]
    fn long_functions_skip_passes_of_the_code_generator() {
        // An address that grows by as many bytes each time: strength reduction turns the product into an addition.
        let strided = |others: usize| {
            let mut text = String::from("define void @f(ptr %p, i64 %n, i64 %s) {\nentry:\n  br label %loop\nloop:\n");
            text += "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %o = mul i64 %i, %s\n";
            text += "  %a = getelementptr i8, ptr %p, i64 %o\n  store volatile i32 1, ptr %a\n";
            text += "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %n\n";
            text += "  br i1 %more, label %loop, label %end\nend:\n";
            text + &"  store volatile i32 0, ptr %p\n".repeat(others) + "  ret void\n}\n"
        };
        // The pass names its new values.
        let is_reduced = |others| emitted(&strided(others), 3).contains("lsr.iv");
        assert!(is_reduced(0));
        assert!(!is_reduced(LONG));
    }

    #[test]
    fn an_invalid_module_is_an_error() {
        let context = Context::create();
        let module = context.create_module("ill-typed");
        let (float, double) = (context.f32_type(), context.f64_type());
        let function =
            module.add_function("f", context.bool_type().fn_type(&[float.into(), double.into()], false), None);
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(function, "entry"));
        // SAFETY: values of one context; that their types differ is what is tested, and the instruction is never run.
        unsafe {
            use inkwell::values::AsValueRef;
            let operand = |i| LLVMGetParam(function.as_value_ref(), i);
            let predicate = llvm_sys::LLVMRealPredicate::LLVMRealUNO;
            let compared = LLVMBuildFCmp(builder.as_mut_ptr(), predicate, operand(0), operand(1), c"".as_ptr());
            LLVMBuildRet(builder.as_mut_ptr(), compared);
        }
        let error = check_module(&module, "a test").unwrap_err().to_string();
        assert!(error.contains("compiler bug") && error.contains("fcmp"), "{error}");
    }
}
