//! What differs between targets: how code is entered, where arguments are, how it talks to the host.
//!
//! The lowering asks a [`Target`] and never looks at which one it is.

pub(crate) mod cpu;

use octants_ir::Scalar;

use crate::emit::{Emitter, V};

/// The pointers that every function of a module starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// The launch's argument slots.
    pub args: V,
    /// The launch's frame.
    pub frame: V,
}

/// A task's function with its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskEntry {
    pub function: V,
    /// What calls of other functions pass on.
    pub context: V,
    /// First iteration, i64.
    pub begin: V,
    /// One past the last iteration, i64.
    pub end: V,
}

/// A vector form of a math function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VectorForm {
    /// Elements at once.
    pub lanes: u32,
    /// Symbol of the vector function.
    pub symbol: String,
}

/// One kind of machine.
pub(crate) trait Target {
    /// Declares a task; `pointers` more parameters follow those that the host passes.
    fn declare_task(&self, e: &Emitter, symbol: &str, pointers: usize) -> TaskEntry;
    /// Declares the function that counts a task's iterations: its value and its context.
    fn declare_count(&self, e: &Emitter, symbol: &str) -> (V, V);
    /// Facts about the context parameter `index` of a function.
    fn describe_context(&self, e: &Emitter, function: V, index: usize);
    /// Emits reads of the pointers, in the entry block of a function.
    fn surroundings(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> Surroundings;
    /// Address of result slot `i`.
    fn result_slot(&self, e: &Emitter, context: V, i: usize) -> V;
    /// Seed and launch number, two i64.
    fn random_key(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> (V, V);
    /// Calls the host's printer with values in memory.
    fn print(&self, e: &Emitter, context: V, site: u32, values: V);
    /// Calls the host's error reporter with values in memory.
    fn fail(&self, e: &Emitter, context: V, site: u32, values: V);
    /// Float code runs with the processor treating denormals as zero: then `enter_flushing` makes the entry points.
    fn flushes_denormals(&self) -> bool;
    /// Emits the task `symbol`, which sets the processor, calls `body` with its own parameters and sets the processor back. The
    /// call is what keeps float instructions from moving past the change.
    fn enter_flushing(&self, e: &Emitter, symbol: &str, body: V);
    /// Tasks that scatter sums use private copies.
    fn privatises_scatter(&self) -> bool;
    /// Allocates zeroed memory of a number of bytes; null where there is none.
    fn allocate_zeroed(&self, e: &Emitter, bytes: V) -> V;
    /// Frees what was allocated.
    fn free(&self, e: &Emitter, memory: V);
    /// Vector forms of the math function with C's name `name`, for the machine compiled for.
    fn vector_forms(&self, name: &str, scalar: Scalar, operands: usize) -> Vec<VectorForm>;
    /// Asks for narrower vectors in a large function: the widest ones come with a second vectorised copy of each loop for what is
    /// left over, which takes time to compile and seldom pays there.
    fn prefer_narrow_vectors(&self, e: &Emitter, function: V);
    /// Attributes of every function with code.
    fn finish_function(&self, e: &Emitter, function: V);
}
