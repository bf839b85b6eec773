//! Code of programs that are scheduled first, as every program is.

#![allow(dead_code)] // Each test file uses a part of it.

use octants_artifact::{Artifact, CodeTarget};
use octants_codegen_llvm::{CodegenError, CodegenOptions, Listing, target_info};
use octants_diag::Span;
use octants_ir::{Program, ScheduleOptions, Scheduled};
use octants_schedule::schedule_program;

/// The program with the access sets of its tasks.
pub fn with_access(program: &Program) -> Program {
    let mut program = program.clone();
    octants_analysis::compute_access(&mut program);
    program
}

/// How a program runs on a machine.
pub fn scheduled(program: &Program, options: &CodegenOptions, target: &CodeTarget) -> Scheduled {
    let asked = ScheduleOptions { opt_level: options.opt_level, ..ScheduleOptions::default() };
    schedule_program(with_access(program), &target_info(target), asked)
}

/// See [`octants_codegen_llvm::compile_host`].
pub fn compile_host(
    program: &Program,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
) -> Result<Artifact, CodegenError> {
    compile(program, location, options, &CodeTarget::Host)
}

/// See [`octants_codegen_llvm::compile`].
pub fn compile(
    program: &Program,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Artifact, CodegenError> {
    octants_codegen_llvm::compile(&scheduled(program, options, target), location, options, target, &mut |_| ())
}

/// See [`octants_codegen_llvm::compile_as_one`].
pub fn compile_as_one(
    program: &Program,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Vec<u8>, CodegenError> {
    octants_codegen_llvm::compile_as_one(&scheduled(program, options, target), options, target)
}

/// See [`octants_codegen_llvm::list_host`].
pub fn list_host(program: &Program, options: &CodegenOptions, listing: Listing) -> Result<String, CodegenError> {
    list(program, options, &CodeTarget::Host, listing)
}

/// See [`octants_codegen_llvm::list`].
pub fn list(
    program: &Program,
    options: &CodegenOptions,
    target: &CodeTarget,
    listing: Listing,
) -> Result<String, CodegenError> {
    octants_codegen_llvm::list(&scheduled(program, options, target), options, target, listing)
}
