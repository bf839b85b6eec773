//! The pass pipeline and the final code generation.

use std::ffi::CStr;
use std::sync::Once;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};
use llvm_sys::support::LLVMParseCommandLineOptions;

use crate::CodegenError;
use crate::tell_strides_apart::tell_strides_apart;

/// Runs LLVM's default pipeline of a level; `vectors`: loops may become vector code.
pub(crate) fn optimise(
    module: &Module<'_>,
    machine: &TargetMachine,
    level: u8,
    vectors: bool,
) -> Result<(), CodegenError> {
    set_options();
    let options = PassBuilderOptions::create();
    options.set_loop_vectorization(vectors && level >= 2);
    options.set_loop_slp_vectorization(vectors && level >= 2);
    options.set_loop_interleaving(vectors && level >= 2);
    options.set_loop_unrolling(level >= 2);
    options.set_merge_functions(false);
    // Otherwise each loop that is unrolled has what is known of all loops beside it looked through, which takes the square of their number.
    options.set_forget_all_scev_in_loop_unroll(true);
    let passes = match level {
        0 => "default<O0>",
        1 => "default<O1>",
        2 => "default<O2>",
        _ => "default<O3>",
    };
    run(module, machine, passes, options)?;
    if !vectors {
        let of_functions = |passes| run(module, machine, passes, PassBuilderOptions::create());
        if level >= 2 {
            of_functions("function(infer-address-spaces,separate-const-offset-from-gep,infer-alignment)")?;
        }
        tell_strides_apart(module, &machine.get_target_data());
        if level >= 2 {
            // Neighbouring accesses of a thread become wide ones. The back end tries too, but knows too little of alignment by then.
            of_functions("function(load-store-vectorizer)")?;
        }
    }
    if vectors {
        emit_long_functions_plainly(module);
    }
    Ok(())
}

/// Functions of more instructions than this are emitted without the back end's own optimisations, whose time grows with the square of the
/// function: scheduling, moving code out of loops, the order of two-address instructions.
const LONG: usize = 15_000;

fn emit_long_functions_plainly(module: &Module<'_>) {
    let attribute = |name| module.get_context().create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
    for function in module.get_functions() {
        let instructions: usize = function.get_basic_block_iter().map(|b| b.get_instructions().count()).sum();
        if instructions > LONG {
            function.add_attribute(AttributeLoc::Function, attribute("noinline"));
            function.add_attribute(AttributeLoc::Function, attribute("optnone"));
        }
    }
}

fn run(
    module: &Module<'_>,
    machine: &TargetMachine,
    passes: &str,
    options: PassBuilderOptions,
) -> Result<(), CodegenError> {
    module.run_passes(passes, machine, options).map_err(|e| CodegenError::new(format!("LLVM's passes failed: {e}")))
}

/// Options of LLVM that are the process's:
///
/// - The schedulers remember fewer of a block's accesses to memory, each of which they compare with all that come later: beyond so many the order
///   of the earlier ones is kept as it is. By default these are 1,000, and a block of some thousand accesses then takes seconds.
/// - A load is not replaced with what an earlier iteration loaded: carried from iteration to iteration it would keep the loop from becoming vector code.
const OPTIONS: [&CStr; 2] = [c"-dag-maps-huge-region=200", c"-enable-load-in-loop-pre=false"];

unsafe extern "C" {
    /// Adds a pass to each pipeline of the X86 code generator: see `keep_masks.cpp`.
    fn octants_keep_masks();
}

fn set_options() {
    static ONCE: Once = Once::new();
    // An unknown option ends the process: those of other versions were not tried. Their faults are not those of 22 either.
    if crate::llvm_version().0 == 22 {
        let arguments = [c"octants", OPTIONS[0], OPTIONS[1]].map(CStr::as_ptr);
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
