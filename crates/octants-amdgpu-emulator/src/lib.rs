//! For tests: an emulator of AMD GPUs at the level of instructions. It loads a linked code object, decodes its machine
//! code with LLVM's disassembler, and interprets it.
//!
//! - Four chips: gfx90a, gfx942, gfx1100, gfx1200, which stand for the families that code is made for.
//! - An instruction is decoded once. One that is not known, or that has a modifier that is not known, fails the launch
//!   with its text: nothing is skipped.
//! - Registers, shared memory and private memory hold garbage at first. Waves of a block, and a few blocks, take turns
//!   in an order that a seed decides.
//! - Every access is checked: the device's memory to the byte, shared memory by the size in the kernel's descriptor,
//!   private memory by the size of a thread's.
//! - What the hardware computes only nearly is off by as much as its documentation allows ([`vector_floats`]).
//!
//! Not modeled: waits (`s_waitcnt`: each instruction is over when the next begins), caches and the order in which other
//! waves see writes, hazards between instructions, timing, counts of registers, rounding other than to the nearest,
//! blocks of more than one dimension, images, messages. What it does not know fails by name.
//!
//! Reading order: [`number`], [`operand`], [`modifiers`], [`mnemonic`] (text); [`lanewise`], [`vector_integers`],
//! [`vector_floats`], [`comparisons`], [`scalar_table`], [`memory_names`] (what is known of each
//! instruction); [`instruction`], [`disassemble`], [`decode`]; [`metadata`], [`code_object`], [`program`];
//! [`garbage`], [`wave`], [`fault`], [`surroundings`] (state); [`run_scalar`], [`run_vector`], [`run_exchange`],
//! [`run_memory`], [`run_lds`], [`execute`], [`launch`].

// Lanes are indices of several rows at once.
#![allow(clippy::needless_range_loop)]

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
pub mod surroundings;
pub mod vector_floats;
pub mod vector_integers;
pub mod wave;
