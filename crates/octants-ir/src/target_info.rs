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
    /// Threads per subgroup. Without a grid, a CPU thread runs the threads of a block in loops.
    pub subgroup_size: u32,
    /// Maximum shared memory for the buffers of a task, in bytes.
    pub max_shared_bytes: u64,
    /// Bytes of it through which the threads of a block agree whether an assertion has failed; zero if they vote.
    pub assertion_bytes: u64,
    /// Whether loops are vectorized.
    pub has_vectors: bool,
    /// Maximum shared memory per block for scatter privatization, in bytes, so that several blocks stay resident. Zero
    /// without thread blocks.
    pub shared_bytes: u64,
    /// Maximum size of a private copy per thread for scatter privatization, in bytes; zero without such copies.
    pub private_bytes: u64,
    /// 32-bit registers per thread when two blocks of 256 threads share a multiprocessor; zero without a grid.
    pub registers: u32,
    /// Minimum number of blocks that fill the machine.
    pub full_grid: u32,
    /// Threads stall on loads, so unrolling pays off even for inner loops with larger bodies.
    pub waits_for_loads: bool,
    /// 64-bit integer arithmetic costs more than 32-bit arithmetic.
    pub counts_in_32_bits: bool,
    /// Whether there is an instruction for loads of memory that is constant during a task.
    pub has_constant_loads: bool,
    /// The shapes of native subgroup matrix-product instructions.
    pub products: &'static [ProductShape],
    /// f16 fragments in shared memory are loaded by one subgroup instruction: `load_matrices`.
    pub loads_matrices: bool,
    /// Copies from global to shared memory may be asynchronous: `copy_async`.
    pub copies_async: bool,
    /// The downstream compiler merges accesses to neighboring addresses. Otherwise the schedule uses vector loads and
    /// stores.
    pub merges_accesses: bool,
    /// The downstream compiler unrolls parallel loops, so that a thread has several loads in flight. Otherwise the
    /// schedule sets their unroll factors.
    pub unrolls_parallel_loops: bool,
    /// Variables in shared memory have types: buffers of several types that share memory take it once for each type.
    pub types_shared_memory: bool,
    /// Costs of operations.
    pub costs: CostTable,
}

impl TargetInfo {
    /// Shared memory per `block_count` on a machine with a grid, in bytes: a word per subgroup.
    pub const BLOCK_COUNT_BYTES: u64 = 4 * 32;

    /// The native instruction for a kind of product, if any.
    pub fn product(&self, kind: ProductKind) -> Option<&'static ProductShape> {
        self.products.iter().find(|shape| shape.kind == kind)
    }

    /// The resources that remain for a program with assertions.
    pub fn with_assertions(self) -> TargetInfo {
        TargetInfo { max_shared_bytes: self.max_shared_bytes - self.assertion_bytes, ..self }
    }
}

/// The cost of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Time per scalar of the result or of the stored value.
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
