//! For tests: an instruction-level emulator of AMD GPUs. It loads a linked code object, decodes its machine code with
//! LLVM's disassembler, and interprets it.
//!
//! - It emulates four chips, gfx90a, gfx942, gfx1100 and gfx1200, which represent the supported families.
//! - Each instruction is decoded once. An unknown instruction or modifier fails the launch with its text; nothing is
//!   skipped.
//! - Registers, shared memory and private memory initially contain garbage. The waves of a block, and of a few blocks,
//!   are interleaved in an order that depends on a seed.
//! - Every access is checked: accesses to device memory to the byte, accesses to shared memory against the size in the
//!   kernel's descriptor, and accesses to private memory against its size per thread.
//! - Results that the hardware only approximates have the largest error that its documentation allows
//!   ([`vector_floats`]).
//!
//! Not modeled: waits (`s_waitcnt`: each instruction completes before the next one begins), caches and the order in
//! which other waves see writes, hazards between instructions, timing, register counts, rounding modes other than to
//! nearest, blocks of more than one dimension, images, messages. Unsupported features fail by name.
//!
//! Reading order: [`number`], [`operand`], [`modifiers`], [`mnemonic`] (text); [`lanewise`], [`vector_integers`],
//! [`vector_floats`], [`comparisons`], [`scalar_table`], [`memory_names`] (tables of instructions); [`instruction`],
//! [`disassemble`], [`decode`]; [`metadata`], [`code_object`], [`program`]; [`garbage`], [`wave`], [`fault`],
//! [`accessible_memory`] (state); [`run_scalar`], [`run_vector`], [`run_exchange`], [`run_memory`], [`run_lds`],
//! [`execute`], [`launch`].

// Lanes are indices of several rows at once.
#![allow(clippy::needless_range_loop)]

pub mod accessible_memory;
pub mod code_object;
pub mod comparisons;
pub mod decode;
pub mod disassemble;
pub mod execute;
pub mod fault;
pub mod garbage;
pub mod instruction;
pub mod lanewise;
pub mod launch;
pub mod matrix_products;
pub mod memory_names;
pub mod metadata;
pub mod mnemonic;
pub mod modifiers;
pub mod number;
pub mod operand;
pub mod program;
pub mod run_exchange;
pub mod run_lds;
pub mod run_matrix;
pub mod run_memory;
pub mod run_scalar;
pub mod run_vector;
pub mod scalar_table;
pub mod vector_floats;
pub mod vector_integers;
pub mod wave;
