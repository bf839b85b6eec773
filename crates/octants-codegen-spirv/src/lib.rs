//! SPIR-V for Vulkan: structured modules of compute shaders.
//!
//! # Purpose
//!
//! [`fn@compile`] compiles a scheduled program to an `octants_artifact::Artifact` whose modules are SPIR-V, one per
//! task, with the entry point [`ENTRY_POINT`].
//!
//! # Invariants
//!
//! - Code generation makes no decisions: it carries out the schedule. If the device lacks a feature, the error shows
//!   the user's line.
//! - Device memory is reached by 64-bit addresses (`PhysicalStorageBuffer64`), under Vulkan's memory model. A launch
//!   passes a `DeviceContext` and the argument slots as push constants. If the slots exceed [`MOST_ARGUMENT_BYTES`],
//!   it passes their address.
//! - Blocks have one dimension, whose size is the specialization constant 0.
//! - Aggregates are lists of scalars during code generation. A variable is an array of scalars of one type.
//! - The program has been verified: an ill-typed instruction is a compiler bug and panics.
//!
//! # Behavior where the IR leaves a choice
//!
//! As in octants-codegen-llvm: integer division by zero yields the dividend, and the remainder is zero; shift counts
//! are taken modulo the width; f64 to f16 rounds through f32; casts to 8 and 16 bits go through 32.
//!
//! Reading order: `target`, `compile`, `emit`, `instructions`, `structure`, `lowering`, `lower_body`, `strided_loops`,
//! `iteration_groups`, `odometer`, `functions`, `lower_op`, `place`, `memory`, `vectors`, `aggregates`, `arithmetic`,
//! `math`, `atomics`, `thread_ops`, `random`, `channel`.

mod aggregates;
mod arithmetic;
mod atomics;
mod channel;
mod compile;
mod emit;
mod functions;
mod instructions;
mod iteration_groups;
mod lower_body;
mod lower_op;
mod lowering;
mod math;
mod memory;
mod odometer;
mod place;
mod random;
mod strided_loops;
mod structure;
mod target;
mod thread_ops;
mod vectors;

pub use target::{DeviceFeatures, TRIPLE};

use octants_artifact::{Artifact, CodeTarget};
use octants_diag::Span;
use octants_ir::{CodegenError, CodegenOptions, Scheduled};
use rspirv::binary::Disassemble;

/// The name of the entry point of each module.
pub const ENTRY_POINT: &str = "main";

/// Bytes of argument slots that travel as push constants. Every device has 128 bytes of them.
pub const MOST_ARGUMENT_BYTES: u64 = 128 - octants_artifact::DeviceContext::BYTES;

/// Compiles a program for a device, as its schedule says. `location` gives `path:line` of a span, for messages.
pub fn compile(
    scheduled: &Scheduled,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Artifact, CodegenError> {
    compile::compile(scheduled, location, options, target)
}

/// The text of a program's modules.
pub fn list(scheduled: &Scheduled, options: &CodegenOptions, target: &CodeTarget) -> Result<String, CodegenError> {
    let modules = compile::modules(scheduled, options, target)?;
    let texts: Vec<String> = modules.iter().map(Disassemble::disassemble).collect();
    Ok(texts.join("\n\n"))
}
