//! Machine code for programs, through LLVM.
//!
//! # Purpose
//!
//! [`compile_host`] compiles an `octants_ir::Program` to a relocatable object for the machine that the process runs on,
//! inside an `octants_artifact::Artifact`. Large programs are split into several modules, which threads compile in
//! parallel. It may be called from several threads at once: each module has its own LLVM context.
//!
//! # Invariants
//!
//! - There is one lowering. All differences between machines are behind `target::Target`.
//! - During code generation, aggregates are lists of scalar LLVM values. No LLVM value is a first-class array or
//!   struct, except what functions return.
//! - The program has been verified: an ill-typed instruction is a compiler bug and panics.
//! - Code contains no address: everything is reached from the context that each entry point takes.
//!
//! # Behavior where the IR leaves a choice
//!
//! - Float-to-integer casts out of range yield an unspecified but fixed value (never undefined behavior); casts to 8
//!   and 16 bits go through 32 bits.
//! - Integer division by zero yields the dividend, and the remainder is zero; nothing traps.
//! - Shift counts are taken modulo the width.
//! - Under `fast_math`, f32 and f64 denormals are flushed to zero if the processor supports it.
//! - f64 to f16 rounds through f32.
//! - 32-bit signed index arithmetic is done in 64 bits inside an address, so it cannot wrap there.
//!
//! Reading order: `compile` (a program), `facts`, `launch_memory`, `pieces`, `unit` (a module), `lower_task`,
//! `range_loops`, `strided_loops`, `odometer`, `coarsen_threads`, `functions`, `lower_body` (control flow),
//! `serial_loops`, `lower_op` (values), `memory`, `place`, `aggregates`, `arithmetic`, `math`, `atomics`,
//! `thread_ops`, `private_copies`, `vectors`, `effects`, `random`; `persistent_loops`, `lower_entries`; `metadata`,
//! `emit`; `optimize`, `fuse_products`, `disambiguate_strides`; `fatal_errors`; `target`.

mod aggregates;
mod arithmetic;
mod atomics;
mod coarsen_threads;
mod compile;
mod disambiguate_strides;
mod effects;
mod emit;
mod emit_attributes;
mod facts;
mod fatal_errors;
mod functions;
mod fuse_products;
mod launch_memory;
mod lower_body;
mod lower_entries;
mod lower_op;
mod lower_task;
mod lowering;
mod math;
mod memory;
mod metadata;
mod odometer;
mod optimize;
mod persistent_loops;
mod pieces;
mod place;
mod private_copies;
mod quotients;
mod random;
mod range_loops;
mod serial_loops;
mod strided_loops;
mod target;
mod thread_ops;
mod unit;
mod vectors;

pub use target::known_processors;

use octants_artifact::{Artifact, CodeTarget};
use octants_diag::Span;
pub use octants_ir::{CodegenError, CodegenOptions, DeviceLibrary};
use octants_ir::{Scheduled, TargetInfo};

/// The outputs of [`compile_host`] and of its inspecting sibling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// LLVM's text before optimization.
    Lowered,
    /// LLVM's text after optimization.
    Optimized,
    /// Assembly.
    Assembly,
}

/// Compiles a program for the machine this process runs on, as its schedule says. `location` gives `path:line` of a
/// span, for messages at run time.
pub fn compile_host(
    scheduled: &Scheduled,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
) -> Result<Artifact, CodegenError> {
    compile(scheduled, location, options, &CodeTarget::Host, &mut |_| ())
}

/// Compiles a program for a machine. `location` as in [`compile_host`]; `after` is called with the name of each step
/// when it is done.
pub fn compile(
    scheduled: &Scheduled,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    target: &CodeTarget,
    after: &mut dyn FnMut(&'static str),
) -> Result<Artifact, CodegenError> {
    compile::compile(scheduled, location, options, target, after)
}

/// A program's code as one module, for people and their tools.
pub fn compile_as_one(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Vec<u8>, CodegenError> {
    compile::compile_as_one(scheduled, options, target)
}

/// The text of a program's code for this machine at some stage, for tests and for people.
pub fn list_host(scheduled: &Scheduled, options: &CodegenOptions, listing: Listing) -> Result<String, CodegenError> {
    list(scheduled, options, &CodeTarget::Host, listing)
}

/// The text of a program's code for a machine at some stage.
pub fn list(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    target: &CodeTarget,
    listing: Listing,
) -> Result<String, CodegenError> {
    compile::list(scheduled, options, target, listing)
}

/// The capabilities of a machine, for scheduling.
pub fn target_info(target: &CodeTarget) -> TargetInfo {
    target::info(target)
}

/// Whether code can be made for a machine; the error lists the known ones.
pub fn check_target(target: &CodeTarget) -> Result<(), CodegenError> {
    fatal_errors::on_a_thread(&mut |_| (), |_| target::open(target, &CodegenOptions::default()).map(drop))
}

/// Whether this machine runs code for a processor, by LLVM's name. Features that the code does without may follow
/// (`znver5,-sse4a`). The error names the features that this machine lacks.
pub fn check_processor(processor: &str) -> Result<(), CodegenError> {
    target::cpu::Processor::on_host(processor).map(drop)
}

/// The version of LLVM in this process: a shared library may be newer than at build time.
pub fn llvm_version() -> (u32, u32, u32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    emit::llvm!(llvm_sys::core::LLVMGetVersion(&mut major, &mut minor, &mut patch));
    (major, minor, patch)
}

/// The machine code is made for: triple, CPU and features; part of the key under which an artifact is kept.
pub fn host_target() -> Result<String, CodegenError> {
    let host = &target::cpu::host_machine()?.processor;
    Ok(format!("{} {} {}", host.triple, host.cpu, host.features))
}
