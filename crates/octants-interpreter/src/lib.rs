//! For tests: an interpreter for both dialects of the IR, which implements the semantics at the top of `octants_ir`.
//!
//! It runs a [`Kernel`] or a [`Program`] on [`Memory`] that the test fills, one instruction at a time. It reports
//! undefined behavior as a [`Fault`]: an access outside of a buffer, an integer division by zero, a read of shared
//! memory that was never written, a race between the threads of a block, or a thread operation (barrier, exchange) that
//! not all threads reach.
//!
//! - Floats are rounded after each operation, and nothing is reassociated.
//! - Iterations of a parallel loop run in order, or in an order that depends on a seed ([`Order`]).
//! - A parallel loop that contains thread operations runs on a [`Grid`]: thread `i` takes the iterations `i`, `i +
//!   threads` and so on. So does a task with a grid. Everything else runs on one thread.
//! - Random numbers are those of compiled code. A kernel that was not split into tasks draws the numbers of its first
//!   task.
//! - `address_bits` and launches are not interpreted; format specifications of printed text are ignored.
//!
//! Reading order: `scalar`, `arithmetic`, `value`; `memory`, `thread_memory`; `thread` (the state of a thread);
//! `operations`, `control`, `grid` (execution); `graph`. [`random_kernels`], [`random_threads`], [`shaped_loops`] and
//! [`kernel_variants`] generate kernels from seeds.

mod arithmetic;
mod control;
mod graph;
mod grid;
pub mod kernel_variants;
mod machine;
mod memory;
mod operations;
mod products;
mod random;
pub mod random_kernels;
pub mod random_threads;
mod scalar;
pub mod shaped_loops;
mod thread;
mod thread_memory;
mod value;

use std::collections::HashMap;
use std::rc::Rc;

use octants_ir::{Kernel, Program, Type};

pub use machine::Fault;
pub use memory::Memory;
pub use scalar::Leaf;

use graph::Launch;
use machine::Machine;
use thread::{Activation, zeros};
use value::Value;

/// The threads of a parallel loop with operations of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Threads of a block, if the loop does not specify it.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a subgroup, at most 64.
    pub subgroup_size: u32,
}

impl Default for Grid {
    fn default() -> Self {
        Grid { block_size: 64, blocks: 2, subgroup_size: 32 }
    }
}

/// The order of iterations, blocks, and threads between two barriers, which the IR leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As it is numbered.
    #[default]
    Numbered,
    /// An order made from a seed.
    Shuffled(u64),
}

/// How code is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interpreter {
    /// For loops with operations of threads.
    pub grid: Grid,
    /// The order of iterations and threads.
    pub order: Order,
    /// The seed of random numbers.
    pub seed: u64,
    /// The number of the launch, for random numbers.
    pub launch: u64,
    /// A run with more instructions is assumed not to terminate.
    pub most_steps: u64,
}

impl Default for Interpreter {
    fn default() -> Self {
        Interpreter { grid: Grid::default(), order: Order::Numbered, seed: 0, launch: 0, most_steps: 20_000_000 }
    }
}

/// The results of a run besides memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The scalars of the result.
    pub returned: Option<Vec<Leaf>>,
    /// Printed lines.
    pub printed: Vec<String>,
    /// The message of the first assertion that failed.
    pub failure: Option<String>,
    /// No float on the way was infinite or NaN.
    pub finite: bool,
}

impl Interpreter {
    /// Runs a kernel. Each parameter is given by its scalars; memory is that of the kernel's buffers.
    pub fn run_kernel(&self, k: &Kernel, memory: &mut Memory, params: &[Vec<Leaf>]) -> Result<Outcome, Fault> {
        let types: Vec<&Type> = k.params.iter().map(|p| &p.ty).collect();
        let params = parameters(&types, params);
        let mut machine = Machine::new(self, &k.buffers, &k.functions, memory, params);
        let params: Rc<[Value]> = machine.params.clone().into();
        let returned = machine.run_body(Activation::new("body".into(), &k.body, params, None))?;
        Ok(outcome(machine, returned, &k.ret))
    }

    /// Runs a program according to its graph, with groups in sequence. Each parameter is given by its scalars; memory
    /// is that of the program's buffers.
    pub fn run_program(&self, p: &Program, memory: &mut Memory, params: &[Vec<Leaf>]) -> Result<Outcome, Fault> {
        let types: Vec<&Type> = p.params.iter().map(|p| &p.ty).collect();
        let params = parameters(&types, params);
        let mut machine = Machine::new(self, &p.buffers, &p.functions, memory, params);
        machine.frame = p.frame.iter().map(zeros).collect();
        let params: Rc<[Value]> = machine.params.clone().into();
        let mut launch = Launch { machine: &mut machine, program: p, params, returned: None, rounds: HashMap::new() };
        launch.run(&p.graph)?;
        let returned = launch.returned;
        Ok(outcome(machine, returned, &p.ret))
    }
}

fn parameters(types: &[&Type], given: &[Vec<Leaf>]) -> Vec<Value> {
    assert_eq!(types.len(), given.len(), "parameters");
    let bits = |ty: &Type, leaves: &[Leaf]| {
        let scalars = ty.leaves();
        assert_eq!(scalars.len(), leaves.len(), "scalars of a parameter of type {ty}");
        leaves.iter().zip(scalars).map(|(x, s)| x.to_bits(s)).collect()
    };
    types.iter().zip(given).map(|(ty, leaves)| Value::of(bits(ty, leaves))).collect()
}

fn outcome(machine: Machine<'_>, returned: Option<Vec<u64>>, ty: &Type) -> Outcome {
    let leaves = |bits: Vec<u64>| bits.iter().zip(ty.leaves()).map(|(b, s)| Leaf::from_bits(*b, s)).collect();
    let Machine { printed, failure, finite, .. } = machine;
    Outcome { returned: returned.filter(|r| !r.is_empty()).map(leaves), printed, failure, finite }
}
