//! [`TargetInfo`]: the capabilities of a kind of machine, as numbers. Scheduling decisions use these, and never the
//! vendor of a machine.

use crate::matrix_product::{ProductKind, ProductShape};
use crate::operation_facts::CostClass;

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetInfo {
    /// A parallel task is a grid-stride loop over a grid of thread blocks. Without a grid, each call runs a range of
    /// iterations.
    pub has_grid: bool,
    /// Threads of a subgroup. Without a grid a machine's thread runs those of a block in loops.
    pub subgroup_size: u32,
    /// Most bytes of shared memory that the buffers of a task may take.
    pub max_shared_bytes: u64,
    /// Bytes of these by which the threads of a block agree whether an earlier assertion has failed; zero where they
    /// vote.
    pub assertion_bytes: u64,
    /// Loops become vector instructions.
    pub has_vectors: bool,
    /// Most bytes of memory of a block of threads for copies of what its threads scatter sums to: several blocks are to
    /// find room at a time. Zero where there are no blocks.
    pub shared_bytes: u64,
    /// Most bytes of one thread's copy of what a task scatters sums to; zero where threads keep none.
    pub private_bytes: u64,
    /// 32-bit registers of a thread when two blocks of 256 threads share a multiprocessor; zero without a grid.
    pub registers: u32,
    /// With fewer blocks than this a grid leaves most of the machine idle.
    pub full_grid: u32,
    /// A thread waits for what it reads from memory, so that inner loops are worth unrolling although their bodies are
    /// not small.
    pub waits_for_loads: bool,
    /// Arithmetic in 64 bits costs more than in 32.
    pub counts_in_32_bits: bool,
    /// Loads of memory that no one writes while a task runs are worth telling apart.
    pub has_constant_loads: bool,
    /// The products of matrices that the threads of a subgroup form by instructions of their own.
    pub products: &'static [ProductShape],
    /// Fragments of f16 in shared memory are loaded by an instruction of the subgroup: `load_matrices`.
    pub loads_matrices: bool,
    /// Copies from global to shared memory may go on beside the thread: `copy_async`.
    pub copies_async: bool,
    /// Whoever compiles the code merges accesses of neighboring addresses. Where nobody does, the schedule has vector
    /// loads and vector stores.
    pub merges_accesses: bool,
    /// Costs of operations.
    pub costs: CostTable,
}

impl TargetInfo {
    /// Bytes of shared memory that each count of a block's votes takes on a machine with a grid: a word for each
    /// subgroup.
    pub const BLOCK_COUNT_BYTES: u64 = 4 * 32;

    /// How the machine forms a kind of product by itself.
    pub fn product(&self, kind: ProductKind) -> Option<&'static ProductShape> {
        self.products.iter().find(|shape| shape.kind == kind)
    }

    /// What is left for a program whose tasks may hold assertions.
    pub fn with_assertions(self) -> TargetInfo {
        TargetInfo { max_shared_bytes: self.max_shared_bytes - self.assertion_bytes, ..self }
    }
}

/// The cost of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Time, for each scalar of the result or of what is written.
    pub nanoseconds: f32,
    /// Scalar instructions, for each scalar of the result.
    pub instructions: usize,
}

/// The cost of an operation of each class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostTable {
    pub free: Cost,
    pub argument: Cost,
    pub index: Cost,
    pub simple: Cost,
    pub division: Cost,
    pub root: Cost,
    pub function: Cost,
    pub long_function: Cost,
    pub product: Cost,
    pub draw: Cost,
    pub memory: Cost,
    pub atomic: Cost,
    pub text: Cost,
    /// An iteration of a loop, its body aside.
    pub nested: Cost,
    /// Nanoseconds of a simple operation with one operand.
    pub unary: f32,
    /// Nanoseconds of a compare-and-swap.
    pub compare_and_swap: f32,
}

impl CostTable {
    /// Numbers of a desktop processor, which serve for all machines: they decide orders of magnitude.
    pub const GENERIC: CostTable = CostTable {
        free: Cost { nanoseconds: 0.0, instructions: 0 },
        argument: Cost { nanoseconds: 0.0, instructions: 1 },
        index: Cost { nanoseconds: 0.15, instructions: 0 },
        simple: Cost { nanoseconds: 0.15, instructions: 1 },
        division: Cost { nanoseconds: 1.0, instructions: 1 },
        root: Cost { nanoseconds: 1.5, instructions: 1 },
        function: Cost { nanoseconds: 4.0, instructions: 20 },
        long_function: Cost { nanoseconds: 8.0, instructions: 30 },
        product: Cost { nanoseconds: 1.0, instructions: 1 },
        draw: Cost { nanoseconds: 8.0, instructions: 1 },
        memory: Cost { nanoseconds: 0.3, instructions: 1 },
        atomic: Cost { nanoseconds: 4.0, instructions: 1 },
        text: Cost { nanoseconds: 500.0, instructions: 1 },
        nested: Cost { nanoseconds: 0.3, instructions: 1 },
        unary: 0.2,
        compare_and_swap: 6.0,
    };

    /// The cost of an operation of a class.
    pub fn of(&self, class: CostClass) -> Cost {
        match class {
            CostClass::Free => self.free,
            CostClass::Argument => self.argument,
            CostClass::Index => self.index,
            CostClass::Simple => self.simple,
            CostClass::Division => self.division,
            CostClass::Root => self.root,
            CostClass::Function => self.function,
            CostClass::LongFunction => self.long_function,
            CostClass::Product => self.product,
            CostClass::Draw => self.draw,
            CostClass::Memory => self.memory,
            CostClass::Atomic => self.atomic,
            CostClass::Text => self.text,
            CostClass::Nested => self.nested,
        }
    }
}
