//! The intermediate representation: typed, structured, with aggregates kept whole until code generation.
//!
//! # Shape
//!
//! A [`Kernel`] owns buffers, parameters, functions and a [`Body`]. A body is a tree of blocks; a block is a list of
//! instructions; `If`, `For` and `Loop` hold blocks. Each instruction yields one value (or none), usable after it in
//! the same block and in blocks nested below that point. Variables that change are locals, read and written through
//! addresses.
//!
//! # Semantics
//!
//! - Integers are two's complement and wrap. `u1` holds 0 or 1. Shifts by the width or more yield an unspecified value.
//! - `Div` on integers rounds toward zero, `FloorDiv` and `Mod` follow Python, `Rem` follows C. Dividing an integer by
//!   zero is undefined; `INT_MIN / -1` wraps.
//! - Floats are IEEE; under `fast_math`, back ends may reassociate, contract, and assume no NaN or infinity.
//! - `Min` and `Max` of a number and a NaN yield the number. `Round` rounds ties away from zero. `IsNan` and `IsInf`
//!   test the bits, so they work under `fast_math` too.
//! - `Cast` from float to integer truncates toward zero, and to `u1` tests for non-zero; integer narrowing keeps the
//!   low bits.
//! - `Pow` on integers multiplies repeatedly; a negative exponent yields 0, or ±1 for a base of ±1.
//! - `u1` arithmetic is modulo 2: `true + true` is `false`, as in any other integer type that wraps.
//! - A tensor operand works component by component. `MatMul` sums in index order.
//! - The IR has no implicit conversion. The language's promotion is [`Scalar::promote`]: floats win over integers and
//!   keep their width, the wider of two integers wins, and unsigned wins at equal width. So `-1 < 1` is false between
//!   `i32` and `u32`.
//! - Bounds and indices of a `For` are i32 or i64, one type for each axis. `Shape` yields an i32 only if the extent at
//!   launch is known to fit; for an axis that may be longer, the front end uses i64.
//! - Locals start as zero at each execution of the body that declares them.
//! - A plain load or store that races with another thread's store of the same address is undefined, except that threads
//!   storing the same value leave that value. Atomics are relaxed and device-wide. A `VolatileLoad` may race with them
//!   and with stores. It is never merged, hoisted or removed, and orders no other access.
//! - `AddressBits` neither reads nor writes memory. Its value is valid for this launch, and for arithmetic only.
//! - Iterations of a parallel `For` run in any order and concurrently. A task sees all effects of the tasks before it;
//!   [`task_graph`] says which tasks these are.
//! - A parallel `For` with groups splits the iterations of its last axis. Each group, in order, runs its body once per
//!   `factor` adjacent iterations while at least `factor` iterations remain. The loop's own body runs the remainder.
//!   An aligned group starts at a multiple of `factor`. Tiles only choose the threads that run the groups.
//! - An `Assert` that fails ends the iteration of the parallel loop that it is in, or the task if it is in none. In a
//!   function, it returns zero, and the caller ends in the same way. Nothing after it in the iteration is executed.
//!   Other iterations continue, no matter which thread runs them. One of a launch's failures is reported, and no task
//!   that comes after the one that failed is executed.
//! - Threads of a device form subgroups, which run in step, and blocks, which share memory and meet at barriers. All
//!   threads of a subgroup or block reach its `Barrier`, `BlockCount` and `Subgroup` operations together: these must
//!   not be under a divergent condition (except for `AllHere` and `IsWhole`). A shuffle from a lane outside the
//!   subgroup yields the thread's own value.
//! - The operands of matrix products are fragments, which a subgroup holds together: see [`matrix_product`]. All
//!   threads of the subgroup must reach them together.
//! - Shared memory is undefined when its block starts. A plain access that races with another thread of the block is
//!   undefined; a barrier orders accesses before it with accesses after it.
//! - Private memory that a caller gives to a thread is initially zero. The buffers in `copies` are the private memory
//!   of all threads, indexed by thread and scalar, for code that runs after these threads have ended. This code must
//!   leave zeros in it.
//! - `VectorLoad` and `VectorStore` access the scalars of a vector at consecutive locations, from the address on.
//!   `Prefetch` has no observable effect, even if its address is invalid.
//! - `Freeze` of an undefined value is one value of its type, the same at each use.
//! - `Random` depends on the seed, the launch number, the linear index of the iteration and the number of earlier draws
//!   in that iteration, and never on the schedule.
//!
//! Reading order: [`types`], [`op`], [`mod@operation_table`], [`mod@instruction_table`], [`body`], [`kept_facts`],
//! [`kernel`], [`task_graph`], [`mod@launch_count`], [`mod@task_blocks`]; then [`mod@print`] (the text form),
//! [`parse`]; [`verify`], which lists the rules; [`copy_code`], [`plain_update`] and [`mod@run_pipeline`] serve passes.
//! [`affine`], [`schedule`], [`target_info`] and [`codegen_options`] are data that later stages exchange.

#![allow(missing_docs)] // Names of operations are their documentation; semantics are above.

#[macro_use]
mod operation_macros;

pub mod affine;
pub mod body;
pub mod codegen_options;
pub mod copy_code;
pub mod expand_matrix_products;
pub mod insert_code;
pub mod instruction_table;
pub mod kept_facts;
pub mod kernel;
pub mod launch_count;
mod lex;
pub mod matrix_product;
pub mod op;
pub mod operation_facts;
pub mod operation_table;
pub mod parse;
mod parse_graph;
mod parse_op;
mod parser;
pub mod plain_update;
pub mod print;
mod print_graph;
mod rules;
pub mod run_pipeline;
pub mod schedule;
pub mod target_info;
pub mod task_blocks;
pub mod task_graph;
pub mod types;
pub mod verify;
mod verify_access;
mod verify_convergence;
mod verify_graph;
mod verify_types;

pub use affine::{Affine, Term};
pub use body::{Body, Builder, Code, Inst, Local};
pub use codegen_options::{CodegenError, CodegenOptions, DeviceLibrary};
pub use copy_code::{Copier, Locals, copy_blocks, renumber};
pub use expand_matrix_products::expand_matrix_products;
pub use instruction_table::Effect;
pub use kernel::{
    AccessSet, ArgLayout, AutodiffMode, Buffer, ComponentLayout, Function, Kernel, Layout, MemorySpace, NO_BYTES,
    Param, Program, ShadowBuffer, Task, TaskKind,
};
pub use launch_count::launch_count;
pub use matrix_product::{FragmentAxis, FragmentElement, FragmentLayout, FragmentRole, ProductKind, ProductShape};
pub use octants_diag::Span;
pub use octants_layout::{CellIndex, Digit, IndexDigit, Placement};
pub use op::{
    BlockId, BufferId, CodeSizeHint, Const, ForLoop, FrameSlot, FuncId, GroupPlacement, IterationGroup, LocalId,
    LoopConfig, LoopGroup, LoopHints, Op, Range, Reduction, TextPart, ThreadScope, Unroll, ValueId, fold_identity,
};
pub use operation_facts::{CostClass, Definedness, Derivative, Domain, SubgroupResult, Yields};
pub use operation_table::{AtomicOp, BinaryOp, GridValue, ReduceOp, SubgroupOp, UnaryOp, binary_type, unary_type};
pub use parse::ParseError;
pub use plain_update::{push_plain_swap, push_plain_update};
pub use print::print_inst;
pub use run_pipeline::{Pass, PassState, Verified, always, run_pass, run_pipeline, run_pipeline_with};
pub use schedule::{Schedule, ScheduleOptions, Scheduled};
pub use target_info::{Cost, CostTable, TargetInfo};
pub use task_blocks::{RoundEnd, holds_tasks, round_end, section_of, task_blocks, task_branches, task_statements};
pub use task_graph::{Condition, GuardedIterations, LaunchCount, TaskGraph, TaskId};
pub use types::{Scalar, StructType, Type};
pub use verify::{
    Rule, Violation, assert_kernel, assert_program, assert_scheduled, verify_kernel, verify_program, verify_scheduled,
};
