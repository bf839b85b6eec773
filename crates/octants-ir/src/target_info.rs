//! [`TargetInfo`]: what a kind of machine can do, as numbers. What decides how code is to run asks it, and never which
//! maker's machine it is.

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetInfo {
    /// A parallel task is a grid-stride loop over a grid of thread blocks. Without a grid, each call runs a range of
    /// iterations.
    pub has_grid: bool,
    /// Threads of a subgroup; zero without a grid.
    pub subgroup_size: u32,
    /// Most bytes of shared memory that the buffers of a task may take; zero without a grid.
    pub max_shared_bytes: u64,
    /// Loops become vector instructions.
    pub has_vectors: bool,
    /// Most bytes of memory of a block of threads for copies of what its threads scatter sums to: several blocks are to
    /// find room at a time. Zero where there are no blocks.
    pub shared_bytes: u64,
    /// Most bytes of one thread's copy of what a task scatters sums to; zero where threads keep none.
    pub private_bytes: u64,
    /// A thread waits for what it reads from memory, so that inner loops are worth unrolling although their bodies are
    /// not small.
    pub waits_for_loads: bool,
    /// Arithmetic in 64 bits costs more than in 32.
    pub counts_in_32_bits: bool,
    /// Loads of memory that no one writes while a task runs are worth telling apart.
    pub has_constant_loads: bool,
}
