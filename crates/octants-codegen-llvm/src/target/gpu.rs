//! GPUs: the common part of code generation. A [`Vendor`] holds the differences between vendors.
//!
//! Entry points take one parameter by value: `octants_artifact::DeviceContext`, followed by the argument slots. A
//! parallel task is entered by a grid of one-dimensional blocks whose sizes are multiples of a warp; a serial task by
//! a single thread. Pointers to device memory are loaded as such, so loads and stores have the right address space,
//! and memory that a task does not write goes through the read-only path. Messages to the host are in `gpu_channel`.

use std::cell::Cell;

use inkwell::OptimizationLevel;
use inkwell::module::Module;
use inkwell::targets::{CodeModel, RelocMode, TargetMachine, TargetTriple};
use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_artifact::DeviceContext;
use octants_ir::{AtomicOp, CostTable, GridValue, ProductKind, Scalar, TargetInfo, ThreadScope};

use super::{AtomicStyle, CodeForm, EntryPointers, Share, Target, TaskEntry};
use crate::emit::{Emitter, IntCmp, T, V};
use crate::{CodegenError, CodegenOptions};

const FRAME: i64 = 0;
const RESULT: i64 = 8;
pub(super) const CHANNEL: i64 = 16;
const SEED: i64 = 24;
pub(super) const LAUNCH: i64 = 32;
pub(super) const KERNEL: i64 = 40;
pub(super) const TASK: i64 = 48;
const OF_LOOP: i64 = 56;
const ARGS: i64 = DeviceContext::BYTES as i64;
/// The word of the channel that records a failed assertion.
pub(super) const FAILED: i64 = 4;
/// Functions of a module that write to the channel.
const PRINT: &str = "octants_print";
pub(super) const FAIL: &str = "octants_fail";

/// Address space of the device's memory, of all vendors.
pub(super) const GLOBAL: u32 = 1;
/// Address space of the memory of a block.
pub(super) const BLOCK: u32 = 3;
/// Threads per block if the user requests none.
pub(super) const THREADS: u32 = 256;
/// Maximum number of threads in a block on any GPU.
const MOST_THREADS: u32 = 1024;

/// A number that describes a thread's place in the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// The thread's number in its block.
    Thread,
    /// Threads in a block.
    BlockSize,
    /// The block's number.
    Block,
    /// Blocks in the grid.
    Blocks,
}

/// The common part of GPU targets.
pub(super) const INFO: TargetInfo = TargetInfo {
    has_grid: true,
    subgroup_size: 32,
    max_shared_bytes: 48 << 10,
    assertion_bytes: 0,
    has_vectors: false,
    // Several blocks fit on a multiprocessor.
    shared_bytes: 32 << 10,
    private_bytes: 0,
    registers: 128,
    full_grid: 32,
    waits_for_loads: false,
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

/// The same for AMD's GPUs, with subgroups of a size given as its binary logarithm.
pub(super) fn info(subgroup_bits: u32) -> TargetInfo {
    // The answer of [`Vendor::agree`], aligned as arrays are.
    TargetInfo { subgroup_size: 1 << subgroup_bits, max_shared_bytes: 64 << 10, assertion_bytes: 16, ..INFO }
}

/// The part of a GPU target that depends on the vendor.
pub(super) trait Vendor {
    /// Its capabilities.
    fn info(&self) -> TargetInfo {
        info(self.warp_bits())
    }
    /// How atomic operations are marked.
    fn atomic_style(&self) -> AtomicStyle;
    /// See [`Target::clock`].
    fn clock(&self, e: &Emitter) -> V {
        e.call(e.declare("llvm.readcyclecounter", e.i64, &mut []), &[])
    }
    /// See [`Target::has_launch_memory`].
    fn has_launch_memory(&self) -> bool {
        false
    }
    /// Whether there is an atomic addition of floats of 16 bits.
    fn adds_half_floats(&self) -> bool {
        false
    }
    /// The code format of this vendor's driver.
    fn code_form(&self) -> CodeForm;
    /// Binary logarithm of the threads in a warp.
    fn warp_bits(&self) -> u32;
    /// Adds module-level metadata.
    fn describe_module(&self, e: &Emitter);
    /// Type of the parameter of entry points, and of the part that functions pass on.
    fn context_type(&self, e: &Emitter) -> T;
    /// Turns a function with one parameter of `words` words into an entry point, for blocks of at most `threads`
    /// threads.
    fn describe_entry(&self, e: &Emitter, function: V, words: u64, threads: u32);
    /// See [`Target::prefer_loads_ahead`].
    fn prefer_loads_ahead(&self, _e: &Emitter, _function: V, _threads: u32) {}
    /// See [`Target::prefer_warps`].
    fn prefer_warps(&self, _e: &Emitter, _function: V, _threads: u32) {}
    /// See [`Target::prefer_threads`].
    fn prefer_threads(&self, _e: &Emitter, _function: V) {}
    /// See [`Target::waits_for_work_before`].
    fn waits_for_work_before(&self) -> bool {
        false
    }
    /// Waits until earlier grids are done and their writes are visible.
    fn wait_for_work_before(&self, _e: &Emitter) {}
    /// Reads a register, an i32.
    fn register(&self, e: &Emitter, register: Register) -> V;
    /// The i32 of the thread of the warp whose number differs by these bits. All threads of the warp take part.
    fn exchange(&self, e: &Emitter, word: V, bits: i64) -> V;
    /// The i32 of the thread of the warp with this index, which there is.
    fn shuffle(&self, e: &Emitter, word: V, lane: V) -> V;
    /// The i32 of the thread of the warp whose index is this thread's plus `by`, or this thread's own if there is none.
    /// `None` if [`Vendor::shuffle`] is as fast.
    fn shuffle_by(&self, _e: &Emitter, _word: V, _by: i64) -> Option<V> {
        None
    }
    /// A bit for each thread of the warp that has not ended and for which the condition, an i1, holds: i64.
    fn ballot(&self, e: &Emitter, condition: V) -> V;
    /// Orders a thread's accesses to memory, as other threads of the block or device see them.
    fn fence(&self, e: &Emitter, scope: ThreadScope);
    /// Waits for all threads of the warp.
    fn subgroup_barrier(&self, e: &Emitter) {
        self.ballot(e, e.int(e.i1, 1));
    }
    /// Whether all threads of the warp are active, an i1 that is uniform among the active threads.
    fn is_whole_warp(&self, e: &Emitter) -> V;
    /// See [`Target::load_matrices`].
    fn load_matrices(&self, _e: &Emitter, _row: V, _transposed: bool) -> Vec<V> {
        panic!("compiler bug: this target has no matrix loads")
    }
    /// See [`Target::copy_async`].
    fn copy_async(&self, _e: &Emitter, _to: V, _from: V) {
        panic!("compiler bug: this target has no asynchronous copies")
    }
    /// See [`Target::await_copies`].
    fn await_copies(&self, _e: &Emitter) {
        panic!("compiler bug: this target has no asynchronous copies")
    }
    /// See [`Target::product`].
    fn product(&self, _e: &Emitter, _kind: ProductKind, _operands: [&[V]; 3]) -> Vec<V> {
        panic!("compiler bug: this target has no matrix products")
    }
    /// See [`Target::holds_for_all`].
    fn holds_for_all(&self, _e: &Emitter, condition: V) -> V {
        condition
    }
    /// Waits for all threads of the block; their writes to its memory are then visible to all.
    fn block_barrier(&self, e: &Emitter);
    /// A uniform i1 for all threads of a block, for a condition that each might evaluate differently. All threads must
    /// reach it.
    fn agree(&self, e: &Emitter, ask: &dyn Fn() -> V) -> V {
        // Only the first thread reads it, because the read is slow; the others read its answer.
        let answer = e.add_memory("octants_block_answer", e.i32, BLOCK, 4);
        let block = |name| e.add_block(e.function(), name);
        let (first, all) = (block(c"ask"), block(c"asked"));
        let is_first = e.icmp(IntCmp::LLVMIntEQ, self.register(e, Register::Thread), e.i32c(0));
        e.cond_br(is_first, first, all);
        e.position(first);
        e.store(answer, e.zext(ask(), e.i32), 4);
        e.br(all);
        e.position(all);
        self.block_barrier(e);
        e.icmp(IntCmp::LLVMIntNE, e.load(e.i32, answer, 4), e.i32c(0))
    }
    /// The function with C's name `name`, on f32 or f64.
    fn math(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V;
    /// See [`Target::finish_function`].
    fn finish_function(&self, e: &Emitter, function: V);
    /// See [`Target::link`].
    fn link(&self, module: &Module<'_>) -> Result<(), CodegenError>;
    /// See [`Target::package`].
    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        Ok(code)
    }
}

/// A GPU as a target.
pub(super) struct Gpu {
    vendor: Box<dyn Vendor>,
    fast_math: bool,
    by_value_slots: Cell<u64>,
    memories: Cell<u32>,
}

/// LLVM's machine for a GPU. The vendor's part of LLVM is set up.
pub(super) fn open_machine(
    triple: &str,
    cpu: &str,
    features: &str,
    options: &CodegenOptions,
) -> Result<TargetMachine, CodegenError> {
    let triple = TargetTriple::create(triple);
    let target = inkwell::targets::Target::from_triple(&triple)
        .map_err(|e| CodegenError::new(format!("LLVM does not know the target {triple}: {e}")))?;
    let level = match options.opt_level {
        0 => OptimizationLevel::None,
        1 => OptimizationLevel::Less,
        2 => OptimizationLevel::Default,
        _ => OptimizationLevel::Aggressive,
    };
    target
        .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Default)
        .ok_or_else(|| CodegenError::new(format!("LLVM has no code generator for {triple} {cpu}")))
}

impl Gpu {
    /// Maximum number of threads per block, given the user's request.
    fn threads_of_block(&self, asked: Option<u32>) -> u32 {
        asked.unwrap_or(THREADS).next_multiple_of(1 << self.vendor.warp_bits()).min(MOST_THREADS)
    }

    pub fn new(vendor: Box<dyn Vendor>, fast_math: bool) -> Gpu {
        Gpu { vendor, fast_math, by_value_slots: Cell::new(0), memories: Cell::new(0) }
    }

    pub(super) fn field(&self, e: &Emitter, ty: T, context: V, offset: i64) -> V {
        e.load(ty, e.byte_offset(context, offset), 8)
    }

    /// Reads a pointer to memory that all threads of the device see.
    fn global_pointer(&self, e: &Emitter, slot: V, describe: &dyn Fn(V)) -> V {
        let v = e.load(e.pointer_in(GLOBAL), slot, 8);
        describe(v);
        e.address_space_cast(v, e.ptr)
    }

    fn add_block_memory(&self, e: &Emitter, ty: T) -> V {
        let number = self.memories.replace(self.memories.get() + 1);
        e.add_memory(&format!("octants_block_{number}"), ty, BLOCK, 16)
    }

    /// Number of this thread in its warp, an i32.
    fn lane(&self, e: &Emitter) -> V {
        e.and(self.vendor.register(e, Register::Thread), e.i32c((1 << self.vendor.warp_bits()) - 1))
    }

    /// The value of the thread of the warp whose number differs by these bits.
    fn exchange(&self, e: &Emitter, s: Scalar, value: V, other: i64) -> V {
        self.by_words(e, s, value, &|word| self.vendor.exchange(e, word, other))
    }

    /// Moves a value between threads, 32 bits at a time.
    fn by_words(&self, e: &Emitter, s: Scalar, value: V, move_word: &dyn Fn(V) -> V) -> V {
        let bits = if s == Scalar::U1 { e.i1 } else { e.bits(s) };
        let word = if s.is_float() { e.bitcast(value, bits) } else { value };
        let moved = match s.bits() {
            64 => {
                let (low, high) = (e.trunc(word, e.i32), e.trunc(e.lshr(word, e.i64c(32)), e.i32));
                let (low, high) = (move_word(low), move_word(high));
                e.or(e.zext(low, e.i64), e.shl(e.zext(high, e.i64), e.i64c(32)))
            }
            32 => move_word(word),
            _ => e.trunc(move_word(e.zext(word, e.i32)), bits),
        };
        if s.is_float() { e.bitcast(moved, e.scalar(s)) } else { moved }
    }
}

impl Target for Gpu {
    fn info(&self) -> TargetInfo {
        self.vendor.info()
    }

    fn atomic_style(&self) -> AtomicStyle {
        self.vendor.atomic_style()
    }

    fn clock(&self, e: &Emitter) -> V {
        self.vendor.clock(e)
    }

    fn code_form(&self) -> CodeForm {
        self.vendor.code_form()
    }

    fn task_symbol(&self, name: &str) -> String {
        // Profilers of GPUs show it. Offload has replaced the characters that assembly languages do not allow.
        name.to_string()
    }

    fn describe_module(&self, e: &Emitter) {
        self.vendor.describe_module(e);
    }

    fn set_slots(&self, slots: u32) {
        let bytes = u64::from(slots) * 8;
        let by_value = if bytes <= DeviceContext::MOST_ARGUMENT_BYTES { u64::from(slots) } else { 0 };
        self.by_value_slots.set(by_value);
    }

    fn context_type(&self, e: &Emitter) -> T {
        self.vendor.context_type(e)
    }

    fn declare_task(&self, e: &Emitter, symbol: &str, pointers: usize, threads: Option<u32>) -> TaskEntry {
        assert_eq!(pointers, 0, "compiler bug: a device task without its parameter");
        let function = e.add_function(symbol, e.function_type(e.void, &mut [self.context_type(e)]));
        // Arguments that do not fit are elsewhere, at an address that takes their place.
        let words = DeviceContext::BYTES / 8 + self.by_value_slots.get().max(1);
        self.describe_context(e, function, 0);
        self.vendor.describe_entry(e, function, words, self.threads_of_block(threads));
        TaskEntry { function, context: e.param(function, 0), share: Share::Strided }
    }

    fn declare_part(&self, e: &Emitter, symbol: &str) -> TaskEntry {
        let function = e.add_function(symbol, e.function_type(e.void, &mut [self.context_type(e)]));
        e.set_internal(function);
        e.function_attribute(function, "alwaysinline", 0);
        self.describe_context(e, function, 0);
        TaskEntry { function, context: e.param(function, 0), share: Share::Strided }
    }

    fn prefer_loads_ahead(&self, e: &Emitter, function: V, threads: Option<u32>) {
        self.vendor.prefer_loads_ahead(e, function, self.threads_of_block(threads));
    }

    fn prefer_warps(&self, e: &Emitter, function: V, threads: Option<u32>) {
        self.vendor.prefer_warps(e, function, self.threads_of_block(threads));
    }

    fn prefer_threads(&self, e: &Emitter, function: V) {
        self.vendor.prefer_threads(e, function);
    }

    fn declare_count(&self, e: &Emitter, symbol: &str) -> (V, V) {
        // Nothing calls this function, and the optimizer removes it.
        let function = e.add_function(&format!("{symbol}_count"), e.function_type(e.i64, &mut [self.context_type(e)]));
        e.set_internal(function);
        (function, e.param(function, 0))
    }

    fn waits_for_work_before(&self) -> bool {
        self.vendor.waits_for_work_before()
    }

    fn begin_task(&self, e: &Emitter) {
        if self.vendor.waits_for_work_before() {
            self.vendor.wait_for_work_before(e);
        }
    }

    fn return_from_task(&self, e: &Emitter, _status: V) {
        e.ret_void();
    }

    fn describe_context(&self, e: &Emitter, function: V, index: usize) {
        e.param_attribute(function, index, "noalias", 0);
        e.param_attribute(function, index, "readonly", 0);
        e.param_attribute(function, index, "noundef", 0);
        e.param_attribute(function, index, "nonnull", 0);
        e.param_attribute(function, index, "align", 8);
        e.param_attribute(function, index, "dereferenceable", DeviceContext::BYTES);
    }

    fn entry_pointers(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> EntryPointers {
        let at = e.byte_offset(context, ARGS);
        let args = if self.by_value_slots.get() > 0 { at } else { self.global_pointer(e, at, invariant) };
        EntryPointers { args, frame: self.global_pointer(e, e.byte_offset(context, FRAME), invariant) }
    }

    fn load_pointer(&self, e: &Emitter, slot: V, describe: &dyn Fn(V)) -> V {
        self.global_pointer(e, slot, describe)
    }

    fn result_slot(&self, e: &Emitter, context: V, i: usize) -> V {
        let results = self.global_pointer(e, e.byte_offset(context, RESULT), &|_| ());
        e.byte_offset(results, 8 * i as i64)
    }

    fn random_key(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> (V, V) {
        let seed = self.field(e, e.i64, context, SEED);
        let launch = self.field(e, e.i64, context, LAUNCH);
        invariant(seed);
        invariant(launch);
        (seed, launch)
    }

    fn of_loop_at(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> Option<V> {
        Some(self.global_pointer(e, e.byte_offset(context, OF_LOOP), invariant))
    }

    fn print(&self, e: &Emitter, context: V, site: u32, values: V, count: usize) {
        self.record(e, PRINT, context, site, values, count);
    }

    fn fail(&self, e: &Emitter, context: V, site: u32, values: V, count: usize) {
        self.record(e, FAIL, context, site, values, count);
    }

    fn stays_out(&self, e: &Emitter, context: V) -> Option<V> {
        // The threads of a block decide together: afterwards they synchronize, and combine their values.
        Some(self.vendor.agree(e, &|| {
            let channel = self.global_pointer(e, e.byte_offset(context, CHANNEL), &|_| ());
            let failed = e.load(e.i32, e.byte_offset(channel, FAILED), 4);
            e.set_volatile(failed);
            let is_set = e.icmp(IntCmp::LLVMIntNE, failed, e.i32c(0));
            let is_other = e.icmp(IntCmp::LLVMIntNE, failed, self.task_in_launch(e, context));
            e.and(is_set, is_other)
        }))
    }

    fn thread(&self, e: &Emitter) -> (V, V) {
        let read = |register| self.vendor.register(e, register);
        let (size, own) = (read(Register::BlockSize), read(Register::Thread));
        let (block, blocks) = self.block_of_grid(e);
        (e.add_nsw(e.mul_nsw(block, size), own), e.mul_nsw(blocks, size))
    }

    fn block_of_grid(&self, e: &Emitter) -> (V, V) {
        (self.vendor.register(e, Register::Block), self.vendor.register(e, Register::Blocks))
    }

    fn grid_value(&self, e: &Emitter, value: GridValue) -> V {
        match value {
            GridValue::Thread => self.vendor.register(e, Register::Thread),
            GridValue::BlockSize => self.vendor.register(e, Register::BlockSize),
            GridValue::Block => self.vendor.register(e, Register::Block),
            GridValue::Blocks => self.vendor.register(e, Register::Blocks),
            GridValue::Lane => self.lane(e),
            GridValue::SubgroupSize => e.i32c(1 << self.vendor.warp_bits()),
        }
    }

    fn barrier(&self, e: &Emitter, scope: ThreadScope) {
        match scope {
            ThreadScope::Subgroup => self.vendor.subgroup_barrier(e),
            _ => self.vendor.block_barrier(e),
        }
    }

    fn fence(&self, e: &Emitter, scope: ThreadScope) {
        self.vendor.fence(e, scope);
    }

    fn shuffle(&self, e: &Emitter, s: Scalar, value: V, lane: V) -> V {
        let size = 1 << self.vendor.warp_bits();
        let source = match e.as_int(lane) {
            Some(known) if (0..size).contains(&known) => lane,
            Some(_) => return value,
            // Instructions wrap around. As an unsigned number an index below zero is beyond the last one too.
            None => e.select(e.icmp(IntCmp::LLVMIntULT, lane, e.i32c(size)), lane, self.lane(e)),
        };
        self.by_words(e, s, value, &|word| self.vendor.shuffle(e, word, source))
    }

    fn shuffle_by(&self, e: &Emitter, s: Scalar, value: V, by: V, lane: V) -> V {
        let by = e.as_int(by);
        self.by_words(e, s, value, &|word| {
            by.and_then(|by| self.vendor.shuffle_by(e, word, by)).unwrap_or_else(|| self.vendor.shuffle(e, word, lane))
        })
    }

    fn shuffle_xor(&self, e: &Emitter, s: Scalar, value: V, bits: V) -> V {
        match e.as_int(bits) {
            Some(bits) if bits >> self.vendor.warp_bits() == 0 => self.exchange(e, s, value, bits),
            // No lane of the subgroup differs in a bit above its size.
            Some(_) => value,
            None => self.shuffle(e, s, value, e.xor(self.lane(e), bits)),
        }
    }

    fn ballot(&self, e: &Emitter, condition: V) -> V {
        self.vendor.ballot(e, condition)
    }

    fn shared_memory(&self, e: &Emitter, name: &str, bytes: u64) -> V {
        e.address_space_cast(e.named_memory(name, e.array_type(e.i8, bytes), BLOCK, 16), e.ptr)
    }

    fn has_launch_memory(&self) -> bool {
        self.vendor.has_launch_memory()
    }

    fn launch_memory(&self, e: &Emitter) -> Option<V> {
        let memory = || e.external_memory("octants_launch_memory", e.array_type(e.i8, 0), BLOCK, 16);
        self.has_launch_memory().then(|| e.address_space_cast(memory(), e.ptr))
    }

    fn load_matrices(&self, e: &Emitter, row: V, transposed: bool) -> Vec<V> {
        self.vendor.load_matrices(e, row, transposed)
    }

    fn copy_async(&self, e: &Emitter, to: V, from: V) {
        self.vendor.copy_async(e, to, from);
    }

    fn await_copies(&self, e: &Emitter) {
        self.vendor.await_copies(e);
    }

    fn product(&self, e: &Emitter, kind: ProductKind, operands: [&[V]; 3]) -> Vec<V> {
        self.vendor.product(e, kind, operands)
    }

    fn is_whole_warp(&self, e: &Emitter) -> V {
        self.vendor.is_whole_warp(e)
    }

    fn holds_for_all(&self, e: &Emitter, condition: V) -> V {
        self.vendor.holds_for_all(e, condition)
    }

    fn warp_bits(&self) -> u32 {
        self.vendor.warp_bits()
    }

    fn block_memory(&self, e: &Emitter, words: u64) -> V {
        let memory = self.add_block_memory(e, e.array_type(e.i32, words));
        e.address_space_cast(memory, e.ptr)
    }

    fn thread_of_block(&self, e: &Emitter) -> (V, V) {
        let wide = |register| e.zext(self.vendor.register(e, register), e.i64);
        (wide(Register::Thread), wide(Register::BlockSize))
    }

    fn has_narrow_atomic(&self, op: Option<AtomicOp>, s: Scalar) -> bool {
        op == Some(AtomicOp::Add) && s == Scalar::F16 && self.vendor.adds_half_floats()
    }

    fn atomic_float_extremum(&self, e: &Emitter, op: AtomicOp, s: Scalar, ptr: V, operand: V) -> Option<V> {
        // The bits of floats that are not negative are in the order of signed integers; those of negative ones in the
        // opposite order of unsigned ones. One of two integer operations is therefore the float's, chosen by the
        // operand's sign.
        if !self.fast_math || !matches!(s, Scalar::F32 | Scalar::F64) {
            return None;
        }
        let bits = e.bits(s);
        let (signed, unsigned) = match op {
            AtomicOp::Min => (Rmw::LLVMAtomicRMWBinOpMin, Rmw::LLVMAtomicRMWBinOpUMax),
            _ => (Rmw::LLVMAtomicRMWBinOpMax, Rmw::LLVMAtomicRMWBinOpUMin),
        };
        let word = e.bitcast(operand, bits);
        let function = e.function();
        let block = |name| e.add_block(function, name);
        let (plus, minus, done) = (block(c"not.negative"), block(c"negative"), block(c"extremum"));
        e.cond_br(e.icmp(IntCmp::LLVMIntSGE, word, e.zero(bits)), plus, minus);
        e.position(plus);
        let a = e.atomic_rmw(signed, ptr, word);
        e.br(done);
        e.position(minus);
        let b = e.atomic_rmw(unsigned, ptr, word);
        e.br(done);
        e.position(done);
        let old = e.phi(bits);
        e.add_incoming(old, a, plus);
        e.add_incoming(old, b, minus);
        Some(e.bitcast(old, e.scalar(s)))
    }

    fn math(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> Option<V> {
        Some(self.vendor.math(e, name, s, args))
    }

    fn finish_function(&self, e: &Emitter, function: V) {
        e.function_attribute(function, "nounwind", 0);
        e.function_text_attribute(function, "no-trapping-math", "true");
        if self.fast_math {
            e.function_text_attribute(function, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
        }
        self.vendor.finish_function(e, function);
    }

    fn link(&self, module: &Module<'_>) -> Result<(), CodegenError> {
        self.vendor.link(module)
    }

    fn keeps_forms_apart(&self) -> bool {
        self.vendor.code_form() == CodeForm::Text
    }

    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        self.vendor.package(code)
    }
}
