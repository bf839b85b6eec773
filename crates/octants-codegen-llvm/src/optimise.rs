//! The pass pipeline and the final code generation.

use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine};

use crate::CodegenError;

/// Runs LLVM's default pipeline of a level; `vectors`: loops may become vector code.
pub(crate) fn optimise(
    module: &Module<'_>,
    machine: &TargetMachine,
    level: u8,
    vectors: bool,
) -> Result<(), CodegenError> {
    let options = PassBuilderOptions::create();
    options.set_loop_vectorization(vectors && level >= 2);
    options.set_loop_slp_vectorization(vectors && level >= 2);
    options.set_loop_interleaving(vectors && level >= 2);
    options.set_loop_unrolling(level >= 2);
    options.set_merge_functions(false);
    let passes = match level {
        0 => "default<O0>",
        1 => "default<O1>",
        2 => "default<O2>",
        _ => "default<O3>",
    };
    run(module, machine, passes, options)?;
    if !vectors && level >= 2 {
        // Neighbouring accesses of a thread become wide ones. The back end tries too, but knows too little of alignment by then.
        let passes =
            "function(infer-address-spaces,separate-const-offset-from-gep,infer-alignment,load-store-vectorizer)";
        run(module, machine, passes, PassBuilderOptions::create())?;
    }
    Ok(())
}

fn run(
    module: &Module<'_>,
    machine: &TargetMachine,
    passes: &str,
    options: PassBuilderOptions,
) -> Result<(), CodegenError> {
    module.run_passes(passes, machine, options).map_err(|e| CodegenError::new(format!("LLVM's passes failed: {e}")))
}

/// The bytes of an object file or assembly text.
pub(crate) fn emit_code(module: &Module<'_>, machine: &TargetMachine, kind: FileType) -> Result<Vec<u8>, CodegenError> {
    let buffer = machine
        .write_to_memory_buffer(module, kind)
        .map_err(|e| CodegenError::new(format!("LLVM cannot emit code: {e}")))?;
    Ok(buffer.as_slice().to_vec())
}
