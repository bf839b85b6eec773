//! Targets: how code is entered, where arguments are, how code sends messages to the host.
//!
//! The lowering calls a [`Target`] and never checks which one it is.

mod amdgpu;
mod amdgpu_lanes;
pub(crate) mod cpu;
mod device_library;
mod gpu;
mod gpu_channel;
#[cfg(feature = "host-gpu")]
mod host_gpu;
mod inline_math;
mod link_code_object;
mod nvptx;
mod nvptx_math;
mod nvptx_text;
mod processors;
mod products;
mod rocm_library;

use inkwell::module::Module;
use inkwell::targets::TargetMachine;
use octants_artifact::CodeTarget;
use octants_ir::{AtomicOp, GridValue, ProductKind, Scalar, TargetInfo, ThreadScope};

pub(crate) use crate::emit::AtomicStyle;
use crate::emit::{Emitter, T, V};
use crate::{CodegenError, CodegenOptions};

/// The pointers that every function of a module starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPointers {
    /// The launch's argument slots.
    pub args: V,
    /// The launch's frame.
    pub frame: V,
}

/// A task's function with its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskEntry {
    pub function: V,
    /// The arguments that calls of other functions pass on.
    pub context: V,
    /// How the iterations of a parallel task are passed to this function.
    pub share: Share,
}

/// The iterations of a parallel task that one call of its function runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Share {
    /// All from `begin` to before `end`, both i64.
    Range { begin: V, end: V },
    /// With the stride of the grid: each of its threads enters the function.
    Strided,
}

/// A vector form of a math function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VectorForm {
    /// Number of elements.
    pub lanes: u32,
    /// Symbol of the vector function.
    pub symbol: String,
}

/// The form of machine code that a driver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeForm {
    /// An object file.
    Object,
    /// Assembly text.
    Text,
}

/// One kind of machine.
pub(crate) trait Target {
    /// Its capabilities.
    fn info(&self) -> TargetInfo;
    /// How atomic operations are marked.
    fn atomic_style(&self) -> AtomicStyle {
        AtomicStyle::default()
    }
    /// The code format of the machine's driver.
    fn code_form(&self) -> CodeForm {
        CodeForm::Object
    }
    /// Converts LLVM's output to what the driver loads.
    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        Ok(code)
    }
    /// The driver assembles code when it loads it, so that forms which few launches fit are better kept apart.
    fn keeps_forms_apart(&self) -> bool {
        false
    }
    /// Symbol of a task of this name: letters, digits and underscores.
    fn task_symbol(&self, name: &str) -> String;
    /// Sets the number of argument slots of a launch.
    fn set_slots(&self, _slots: u32) {}
    /// Adds module-level metadata to a new module.
    fn describe_module(&self, _e: &Emitter) {}
    /// Type of the context parameter of functions.
    fn context_type(&self, e: &Emitter) -> T {
        e.ptr
    }
    /// Declares a task; `pointers` more parameters follow those that the host passes. `threads` is the block size that
    /// the user requested.
    fn declare_task(&self, e: &Emitter, symbol: &str, pointers: usize, threads: Option<u32>) -> TaskEntry;
    /// Declares a function with the code of a task, which an entry point calls with its own context.
    fn declare_part(&self, _e: &Emitter, _symbol: &str) -> TaskEntry {
        panic!("compiler bug: this target has no persistent loops")
    }
    /// Declares the function that counts a task's iterations: its value and its context.
    fn declare_count(&self, e: &Emitter, symbol: &str) -> (V, V);
    /// The offset in the context of the function that long loops call periodically, so that the host can interrupt
    /// them.
    fn poll_offset(&self) -> Option<u32> {
        None
    }
    /// Ends a task; `status` is 1 if an assertion failed.
    fn return_from_task(&self, e: &Emitter, status: V);
    /// Whether the code of tasks waits for the work before it: see [`Target::begin_task`].
    fn waits_for_work_before(&self) -> bool {
        false
    }
    /// The prologue of a task: it waits for earlier work, if its threads may start before that work ends.
    fn begin_task(&self, _e: &Emitter) {}
    /// Facts about the context parameter `index` of a function.
    fn describe_context(&self, e: &Emitter, function: V, index: usize);
    /// Emits reads of the pointers, in the entry block of a function.
    fn entry_pointers(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> EntryPointers;
    /// Reads a pointer to memory of the device from a slot; `describe` adds the metadata of the load.
    fn load_pointer(&self, e: &Emitter, slot: V, describe: &dyn Fn(V)) -> V {
        let v = e.load(e.ptr, slot, 8);
        describe(v);
        v
    }
    /// Address of result slot `i`.
    fn result_slot(&self, e: &Emitter, context: V, i: usize) -> V;
    /// Reads the processor's counter of ticks, i64.
    fn clock(&self, e: &Emitter) -> V {
        e.call(e.declare("llvm.readcyclecounter", e.i64, &mut []), &[])
    }
    /// Seed and launch number, two i64.
    fn random_key(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> (V, V);
    /// The address [`DeviceContext::of_loop`](octants_artifact::DeviceContext::of_loop), which may be null; `None` on a
    /// target without it, where the launch number always differs between rounds.
    fn of_loop_at(&self, _e: &Emitter, _invariant: &dyn Fn(V), _context: V) -> Option<V> {
        None
    }
    /// Calls the host's printer with a number of values in memory.
    fn print(&self, e: &Emitter, context: V, site: u32, values: V, count: usize);
    /// Calls the host's error reporter with a number of values in memory.
    fn fail(&self, e: &Emitter, context: V, site: u32, values: V, count: usize);
    /// Whether a task that may assert must be skipped, because an earlier assertion failed that the host has not seen
    /// yet: an i1. `None` if the host ensures that.
    fn stays_out(&self, _e: &Emitter, _context: V) -> Option<V> {
        None
    }
    /// The target has fused multiply-adds, which LLVM forms only for products without other uses.
    fn fuses_shared_products(&self) -> bool {
        false
    }
    /// Number of this thread, and of all threads that share a task, both i32 and not negative; for tasks whose share is
    /// strided.
    fn thread(&self, _e: &Emitter) -> (V, V) {
        panic!("compiler bug: tasks of this target run ranges")
    }
    /// Number of this thread's block, and of all blocks, both i32 and not negative.
    fn block_of_grid(&self, _e: &Emitter) -> (V, V) {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// A position of this thread in the grid, or an extent of the grid, i32.
    fn grid_value(&self, _e: &Emitter, _value: GridValue) -> V {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// Waits for all threads of the subgroup or block; their writes are then visible to all.
    fn barrier(&self, _e: &Emitter, _scope: ThreadScope) {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// Orders this thread's accesses to memory, as other threads of the block or device see them.
    fn fence(&self, e: &Emitter, _scope: ThreadScope) {
        e.fence();
    }
    /// The value of the subgroup's thread with an index, an i32.
    fn shuffle(&self, _e: &Emitter, _s: Scalar, _value: V, _lane: V) -> V {
        panic!("compiler bug: this target has no warps")
    }
    /// The value of the subgroup's thread with an index, which is this thread's index plus `by`, or this thread's own
    /// value if there is no such thread.
    fn shuffle_by(&self, e: &Emitter, s: Scalar, value: V, _by: V, lane: V) -> V {
        self.shuffle(e, s, value, lane)
    }
    /// The value of the subgroup's thread whose index differs in these bits, an i32.
    fn shuffle_xor(&self, _e: &Emitter, _s: Scalar, _value: V, _bits: V) -> V {
        panic!("compiler bug: this target has no warps")
    }
    /// A bit, of an i64, for each thread of the subgroup that has not ended and for which the condition, an i1, holds.
    fn ballot(&self, _e: &Emitter, _condition: V) -> V {
        panic!("compiler bug: this target has no warps")
    }
    /// This thread's part of four matrices, `load_matrices`, from the address of a row.
    fn load_matrices(&self, _e: &Emitter, _row: V, _transposed: bool) -> Vec<V> {
        panic!("compiler bug: this target has no matrix loads")
    }
    /// Copies 16 bytes to shared memory asynchronously.
    fn copy_async(&self, _e: &Emitter, _to: V, _from: V) {
        panic!("compiler bug: this target has no asynchronous copies")
    }
    /// Waits for such copies of this thread.
    fn await_copies(&self, _e: &Emitter) {
        panic!("compiler bug: this target has no asynchronous copies")
    }
    /// The subgroup's product of matrices `a @ b + c`, of the components that this thread has of each, in the layouts
    /// of [`TargetInfo::products`].
    fn product(&self, _e: &Emitter, _kind: ProductKind, _operands: [&[V]; 3]) -> Vec<V> {
        panic!("compiler bug: this target has no matrix products")
    }
    /// The start of dynamic shared memory, if code may declare less shared memory than a block can have.
    fn launch_memory(&self, _e: &Emitter) -> Option<V> {
        None
    }
    /// Launches allocate shared memory dynamically: see [`Target::launch_memory`].
    fn has_launch_memory(&self) -> bool {
        false
    }
    /// Uninitialized memory of a block of threads; the same for the same name.
    fn shared_memory(&self, _e: &Emitter, _name: &str, _bytes: u64) -> V {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// Whether all threads of the warp execute this together: an i1, equal for all threads that do.
    fn is_whole_warp(&self, _e: &Emitter) -> V {
        panic!("compiler bug: this target has no warps")
    }
    /// Warp-wide vote: whether a condition (an i1) holds for all threads of the warp that execute this together. On
    /// some targets, only this thread's own condition.
    fn holds_for_all(&self, _e: &Emitter, condition: V) -> V {
        condition
    }
    /// How many bits number a warp's threads.
    fn warp_bits(&self) -> u32 {
        panic!("compiler bug: this target has no warps")
    }
    /// Uninitialized memory of a block of threads, a number of 32-bit words.
    fn block_memory(&self, _e: &Emitter, _words: u64) -> V {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// Number of this thread in its block, and of the block's threads, both i64.
    fn thread_of_block(&self, _e: &Emitter) -> (V, V) {
        panic!("compiler bug: this target has no thread blocks")
    }
    /// Whether there is an atomic operation (`None`: compare-and-swap) on a type of less than four bytes.
    fn has_narrow_atomic(&self, _op: Option<AtomicOp>, _s: Scalar) -> bool {
        true
    }
    /// Atomically updates a float to a minimum or maximum without compare-and-swap; yields the old value.
    fn atomic_float_extremum(&self, _e: &Emitter, _op: AtomicOp, _s: Scalar, _ptr: V, _operand: V) -> Option<V> {
        None
    }
    /// Float code must run with denormals treated as zero; the caller of a task sets that.
    fn flushes_denormals(&self) -> bool {
        false
    }
    /// The private copy that was passed to this call, or null. For code that merges copies, the list of them.
    fn copies(&self, e: &Emitter, _context: V) -> V {
        e.zero(e.ptr)
    }
    /// Bytes of a copy before the region that is added, i64.
    fn copy_offset(&self, e: &Emitter, _context: V) -> V {
        e.i64c(0)
    }
    /// How many copies are added, i64.
    fn count_copies(&self, e: &Emitter, _context: V) -> V {
        e.i64c(0)
    }
    /// The target's own implementation of the C function `name`, if any.
    fn math(&self, _e: &Emitter, _name: &'static str, _s: Scalar, _args: &[V]) -> Option<V> {
        None
    }
    /// Vector forms of the math function with C's name `name`, for the machine compiled for.
    fn vector_forms(&self, _name: &str, _scalar: Scalar, _operands: usize) -> Vec<VectorForm> {
        Vec::new()
    }
    /// Whether vector instructions take masks, at no cost.
    fn masks_vectors(&self) -> bool {
        false
    }
    /// Prefers narrower vectors in a large function. The widest ones add a vectorized remainder loop to each loop,
    /// which costs compile time and rarely pays in large functions.
    fn prefer_narrow_vectors(&self, _e: &Emitter, _function: V) {}
    /// Requests code that prefetches into registers: the task reads memory in inner loops, so threads stall repeatedly,
    /// and few other threads are resident.
    fn prefer_loads_ahead(&self, _e: &Emitter, _function: V, _threads: Option<u32>) {}
    /// Requests code that allows several warps per processor, even for small blocks: their threads wait for one
    /// another.
    fn prefer_warps(&self, _e: &Emitter, _function: V, _threads: Option<u32>) {}
    /// Requests code with few registers, which allows many threads: the task's threads have loops of similar lengths,
    /// and compute more than they wait.
    fn prefer_threads(&self, _e: &Emitter, _function: V) {}
    /// Attributes of every function with code.
    fn finish_function(&self, e: &Emitter, function: V);
    /// Adds the code of functions that the module calls and that are kept elsewhere.
    fn link(&self, _module: &Module<'_>) -> Result<(), CodegenError> {
        Ok(())
    }
}

/// A target with LLVM's machine for it and its name.
pub(crate) type Opened = (Box<dyn Target>, TargetMachine, String);

/// The capabilities of a machine.
pub(crate) fn info(target: &CodeTarget) -> TargetInfo {
    match target {
        CodeTarget::Device { triple, cpu, .. } => match triple.split('-').next() {
            Some("nvptx64") => nvptx::info(cpu),
            Some("amdgcn") => amdgpu::info(cpu),
            #[cfg(feature = "host-gpu")]
            Some("hostgpu") => gpu::info(host_gpu::subgroup_bits(cpu).unwrap_or(5)),
            _ => cpu::INFO,
        },
        CodeTarget::Host => cpu::INFO,
    }
}

/// Opens a target.
pub(crate) fn open(target: &CodeTarget, options: &CodegenOptions) -> Result<Opened, CodegenError> {
    match target {
        CodeTarget::Host => {
            let chosen = match &options.processor {
                None => cpu::host_machine()?.processor.clone(),
                Some(text) => cpu::Processor::on_host(text)?,
            };
            let (target, machine) = cpu::Cpu::new(&chosen, options)?;
            Ok((Box::new(target), machine, format!("{} {} {}", chosen.triple, chosen.cpu, chosen.features)))
        }
        CodeTarget::Device { triple, cpu, features } => {
            let name = format!("{triple} {cpu} {features}");
            let architecture = triple.split('-').next().unwrap_or_default();
            let (target, machine) = match architecture {
                "nvptx64" => nvptx::open(triple, cpu, features, options)?,
                "amdgcn" => amdgpu::open(triple, cpu, features, options)?,
                #[cfg(feature = "host-gpu")]
                "hostgpu" => host_gpu::open(cpu, options)?,
                "x86_64" | "aarch64" => {
                    let (target, machine) = cpu::Cpu::new(&cpu::Processor::named(triple, cpu)?, options)?;
                    (Box::new(target) as Box<dyn Target>, machine)
                }
                _ => return Err(CodegenError::new(format!("there is no code generator for {triple}"))),
            };
            Ok((target, machine, name))
        }
    }
}

/// The processors of an architecture, given by LLVM's triple, for which code can be generated. Empty for NVIDIA GPUs,
/// because newer chips run the code of the newest known one.
pub fn known_processors(triple: &str) -> Vec<String> {
    match triple.split('-').next() {
        Some("amdgcn") => amdgpu::chips().map(String::from).collect(),
        Some("x86_64" | "aarch64") => processors::names(triple),
        _ => Vec::new(),
    }
}
