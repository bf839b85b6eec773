//! The kinds of machines that programs are scheduled for.

#![allow(dead_code)] // Each test file uses a part of it.

use octants_ir::{CostTable, TargetInfo};

/// Vectors, and threads with private copies of scattered-to memory.
pub const CPU: TargetInfo = TargetInfo {
    has_grid: false,
    subgroup_size: 32,
    max_shared_bytes: 48 << 10,
    assertion_bytes: 0,
    has_vectors: true,
    shared_bytes: 0,
    private_bytes: 4 << 20,
    registers: 0,
    full_grid: 0,
    waits_for_loads: false,
    counts_in_32_bits: false,
    has_constant_loads: false,
    products: &[],
    loads_matrices: false,
    copies_async: false,
    merges_accesses: true,
    unrolls_parallel_loops: true,
    types_shared_memory: false,
    costs: CostTable::GENERIC,
};

/// Thread blocks with shared memory.
pub const GPU: TargetInfo = TargetInfo {
    has_grid: true,
    subgroup_size: 32,
    max_shared_bytes: 48 << 10,
    assertion_bytes: 0,
    has_vectors: false,
    shared_bytes: 32 << 10,
    private_bytes: 0,
    // Small tiles and a small machine, so that tests cover tiled products.
    registers: 8,
    full_grid: 2,
    waits_for_loads: true,
    counts_in_32_bits: true,
    has_constant_loads: true,
    products: &[],
    loads_matrices: false,
    copies_async: false,
    merges_accesses: true,
    unrolls_parallel_loops: true,
    types_shared_memory: false,
    costs: CostTable::GENERIC,
};
