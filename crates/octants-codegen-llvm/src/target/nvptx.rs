//! NVIDIA GPUs, as PTX text: entry points that take one parameter by value, `octants_artifact::DeviceContext` and the
//! argument slots behind it.
//!
//! A parallel task is entered by a grid of one-dimensional blocks whose sizes are multiples of a warp; a serial one by a single
//! thread. Pointers to memory of the device are read as such, so that loads and stores name their space and what a task does
//! not write goes through the read-only path. What the code says to the host goes to an `octants_artifact::DeviceChannel`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::module::Module;
use inkwell::targets::{CodeModel, RelocMode, TargetMachine, TargetTriple};
use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_artifact::{DeviceChannel, DeviceContext};
use octants_ir::{AtomicOp, Scalar};

use super::device_library::link_device_library;
use super::{Combine, Share, Surroundings, Target, TaskEntry};
use crate::emit::{Bb, Emitter, IntCmp, T, V};
use crate::{CodegenError, CodegenOptions};

const FRAME: i64 = 0;
const RESULT: i64 = 8;
const CHANNEL: i64 = 16;
const SEED: i64 = 24;
const LAUNCH: i64 = 32;
const KERNEL: i64 = 40;
const TASK: i64 = 48;
const ARGS: i64 = DeviceContext::BYTES as i64;

const NEXT: i64 = 0;
const FAILED: i64 = 4;
const CAPACITY: i64 = 8;
const LOST: i64 = 12;
const FAILURE: i64 = 16;
const RECORDS: i64 = DeviceChannel::BYTES as i64;

/// LLVM's number of the calling convention of entry points.
const KERNEL_CONVENTION: u32 = 71;
/// Address spaces of the device's memory and of the memory of a block.
const GLOBAL: u32 = 1;
const BLOCK: u32 = 3;
/// Threads that run in step.
const WARP: i64 = 32;
/// Threads in a block, where the user asks for none.
const THREADS: u32 = 256;

/// An NVIDIA GPU as a target.
pub(crate) struct Nvptx {
    pub(super) fast_math: bool,
    by_value_slots: Cell<u64>,
    memories: Cell<u32>,
    /// Functions of the vendor's library that the module calls.
    pub(super) library: RefCell<BTreeSet<String>>,
    options: CodegenOptions,
}

/// The target and LLVM's machine for it.
pub(super) fn open(
    triple: &str,
    cpu: &str,
    features: &str,
    options: &CodegenOptions,
) -> Result<(Box<dyn Target>, TargetMachine), CodegenError> {
    static ONCE: Once = Once::new();
    // SAFETY: these register LLVM's own tables; once in a process.
    ONCE.call_once(|| unsafe {
        llvm_sys::target::LLVMInitializeNVPTXTargetInfo();
        llvm_sys::target::LLVMInitializeNVPTXTarget();
        llvm_sys::target::LLVMInitializeNVPTXTargetMC();
        llvm_sys::target::LLVMInitializeNVPTXAsmPrinter();
    });
    let triple = TargetTriple::create(triple);
    let target = inkwell::targets::Target::from_triple(&triple)
        .map_err(|e| CodegenError::new(format!("LLVM does not know the target {triple}: {e}")))?;
    let level = match options.opt_level {
        0 => OptimizationLevel::None,
        1 => OptimizationLevel::Less,
        2 => OptimizationLevel::Default,
        _ => OptimizationLevel::Aggressive,
    };
    let machine = target
        .create_target_machine(&triple, cpu, features, level, RelocMode::PIC, CodeModel::Default)
        .ok_or_else(|| CodegenError::new(format!("LLVM has no code generator for {triple} {cpu}")))?;
    let target = Nvptx {
        fast_math: options.fast_math,
        by_value_slots: Cell::new(0),
        memories: Cell::new(0),
        library: RefCell::default(),
        options: options.clone(),
    };
    Ok((Box::new(target), machine))
}

impl Nvptx {
    fn field(&self, e: &Emitter, ty: T, context: V, offset: i64) -> V {
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

    fn register(&self, e: &Emitter, name: &str) -> V {
        let f = e.declare(&format!("llvm.nvvm.read.ptx.sreg.{name}"), e.i32, &mut []);
        e.call(f, &[])
    }

    /// A module's own function that writes a record: to the channel's records, or as its first failure.
    fn record_function(&self, e: &Emitter, name: &'static str) -> V {
        let known = e.declare(name, e.void, &mut [e.ptr, e.i64, e.ptr, e.i32, e.i32]);
        if crate::emit::llvm!(llvm_sys::core::LLVMCountBasicBlocks(known)) > 0 {
            return known;
        }
        e.set_internal(known);
        e.function_attribute(known, "noinline", 0);
        e.function_attribute(known, "cold", 0);
        self.finish_function(e, known);
        let here = e.block();
        let (channel, header, values, count) =
            (e.param(known, 0), e.param(known, 1), e.param(known, 2), e.param(known, 3));
        let block = |name| e.add_block(known, name);
        let (entry, room, copy, body, publish, full, done) = (
            block(c"entry"),
            block(c"room"),
            block(c"copy"),
            block(c"body"),
            block(c"publish"),
            block(c"full"),
            block(c"done"),
        );
        e.position(entry);
        let (start, most) = if name == FAIL {
            let pair = e.cmpxchg(e.byte_offset(channel, FAILED), e.i32c(0), e.param(known, 4));
            e.cond_br(e.extract_value(pair, 1), room, done);
            e.position(room);
            (e.byte_offset(channel, FAILURE), e.i32c(DeviceChannel::FAILURE_WORDS as i64 - 1))
        } else {
            let words = e.add(count, e.i32c(1));
            // Only threads of the device change the channel while it works. Atomics for the host too would want a bus on which host and
            // device take turns, which few machines have.
            let at = e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpAdd, e.byte_offset(channel, NEXT), words);
            let capacity = e.load(e.i32, e.byte_offset(channel, CAPACITY), 4);
            // In 64 bits: what is counted may exceed the capacity by far.
            let end = e.add(e.zext(at, e.i64), e.zext(words, e.i64));
            e.cond_br(e.icmp(IntCmp::LLVMIntULE, end, e.zext(capacity, e.i64)), room, full);
            e.position(full);
            e.atomic_rmw(Rmw::LLVMAtomicRMWBinOpAdd, e.byte_offset(channel, LOST), e.i32c(1));
            e.br(done);
            e.position(room);
            (e.gep(e.i64, e.byte_offset(channel, RECORDS), e.zext(at, e.i64)), count)
        };
        let fits = e.icmp(IntCmp::LLVMIntULT, count, most);
        let last = e.select(fits, count, most);
        e.br(copy);
        e.position(copy);
        let i = e.phi(e.i32);
        e.add_incoming(i, e.i32c(0), room);
        e.cond_br(e.icmp(IntCmp::LLVMIntULT, i, last), body, publish);
        e.position(body);
        let next = e.add(i, e.i32c(1));
        let value = e.load(e.i64, e.gep(e.i64, values, e.zext(i, e.i64)), 8);
        e.store(e.gep(e.i64, start, e.zext(next, e.i64)), value, 8);
        e.add_incoming(i, next, body);
        e.br(copy);
        e.position(publish);
        // The host may look while other work runs: a record that has its header is whole.
        e.fence();
        e.store(start, header, 8);
        e.br(done);
        if name == FAIL {
            e.position(full);
            e.br(done);
        }
        e.position(done);
        e.ret_void();
        e.position(here);
        known
    }

    fn record(&self, e: &Emitter, name: &'static str, context: V, site: u32, values: V, count: usize) {
        let f = self.record_function(e, name);
        let channel = self.field(e, e.ptr, context, CHANNEL);
        let kernel = self.field(e, e.i64, context, KERNEL);
        let marked = e.shl(e.add(kernel, e.i64c(1)), e.i64c(32));
        let header = e.or(marked, e.i64c(i64::from(site)));
        e.call(f, &[channel, header, values, e.i32c(count as i64), self.task_in_launch(e, context)]);
    }

    /// A number, not zero, that tells a task of a launch from those of other launches at about the same time.
    fn task_in_launch(&self, e: &Emitter, context: V) -> V {
        let (launch, task) = (self.field(e, e.i64, context, LAUNCH), self.field(e, e.i64, context, TASK));
        let number = e.add(e.mul(launch, e.i64c(0x9E37_79B1)), task);
        e.or(e.trunc(number, e.i32), e.i32c(1 << 31))
    }

    /// A value of the thread that is `distance` further in the warp.
    fn shuffle_down(&self, e: &Emitter, s: Scalar, value: V, distance: i64) -> V {
        let f = e.declare("llvm.nvvm.shfl.sync.down.i32", e.i32, &mut [e.i32, e.i32, e.i32, e.i32]);
        let move_word = |word: V| e.call(f, &[e.i32c(-1), word, e.i32c(distance), e.i32c(WARP - 1)]);
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

    /// The values of a warp combined; the first thread has the result.
    fn combine_warp(&self, e: &Emitter, s: Scalar, value: V, combine: &Combine<'_>) -> V {
        [16, 8, 4, 2, 1].into_iter().fold(value, |v, distance| combine(v, self.shuffle_down(e, s, v, distance)))
    }
}

const PRINT: &str = "octants_print";
const FAIL: &str = "octants_fail";

impl Target for Nvptx {
    fn memory_scope(&self) -> &'static str {
        "device"
    }

    fn task_symbol(&self, number: usize, _name: &str) -> String {
        // A user's names may hold letters that PTX does not know.
        format!("octants_task_{number}")
    }

    fn describe_module(&self, e: &Emitter) {
        e.set_module_flag("nvvm-reflect-ftz", i64::from(self.fast_math));
    }

    fn set_slots(&self, slots: u32) {
        let bytes = u64::from(slots) * 8;
        let by_value = if bytes <= DeviceContext::MOST_ARGUMENT_BYTES { u64::from(slots) } else { 0 };
        self.by_value_slots.set(by_value);
    }

    fn declare_task(&self, e: &Emitter, symbol: &str, pointers: usize, threads: Option<u32>) -> TaskEntry {
        assert_eq!(pointers, 0, "compiler bug: a device's task takes one parameter");
        let function = e.add_function(symbol, e.function_type(e.void, &mut [e.ptr]));
        e.set_calling_convention(function, KERNEL_CONVENTION);
        // Arguments that do not fit are elsewhere, at an address that takes their place.
        let words = DeviceContext::BYTES / 8 + self.by_value_slots.get().max(1);
        e.pass_by_value(function, 0, e.array_type(e.i64, words));
        e.param_text_attribute(function, 0, "nvvm.grid_constant", "");
        self.describe_context(e, function, 0);
        let threads = threads.unwrap_or(THREADS).next_multiple_of(WARP as u32);
        e.function_text_attribute(function, "nvvm.maxntid", &threads.to_string());
        TaskEntry { function, context: e.param(function, 0), share: Share::Strided }
    }

    fn declare_count(&self, e: &Emitter, symbol: &str) -> (V, V) {
        // The launcher counts, or lets the code find out: nothing calls this, and it does not stay.
        let function = e.add_function(&format!("{symbol}_count"), e.function_type(e.i64, &mut [e.ptr]));
        e.set_internal(function);
        (function, e.param(function, 0))
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

    fn surroundings(&self, e: &Emitter, invariant: &dyn Fn(V), context: V) -> Surroundings {
        let at = e.byte_offset(context, ARGS);
        let args = if self.by_value_slots.get() > 0 { at } else { self.global_pointer(e, at, invariant) };
        Surroundings { args, frame: self.global_pointer(e, e.byte_offset(context, FRAME), invariant) }
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

    fn print(&self, e: &Emitter, context: V, site: u32, values: V, count: usize) {
        self.record(e, PRINT, context, site, values, count);
    }

    fn fail(&self, e: &Emitter, context: V, site: u32, values: V, count: usize) {
        self.record(e, FAIL, context, site, values, count);
    }

    fn shares_by_stride(&self) -> bool {
        true
    }

    fn stays_out(&self, e: &Emitter, context: V) -> Option<V> {
        let channel = self.global_pointer(e, e.byte_offset(context, CHANNEL), &|_| ());
        let failed = e.load(e.i32, e.byte_offset(channel, FAILED), 4);
        e.set_volatile(failed);
        let is_set = e.icmp(IntCmp::LLVMIntNE, failed, e.i32c(0));
        let is_other = e.icmp(IntCmp::LLVMIntNE, failed, self.task_in_launch(e, context));
        // The threads of a block decide together: later on they wait for one another, and combine what they have.
        let any = e.declare("llvm.nvvm.barrier.cta.red.or.aligned.all", e.i1, &mut [e.i32, e.i1]);
        Some(e.call(any, &[e.i32c(0), e.and(is_set, is_other)]))
    }

    fn thread(&self, e: &Emitter) -> (V, V) {
        let wide = |name| e.zext(self.register(e, name), e.i64);
        let (block, size, own, blocks) = (wide("ctaid.x"), wide("ntid.x"), wide("tid.x"), wide("nctaid.x"));
        (e.add_nsw(e.mul_nsw(block, size), own), e.mul_nsw(blocks, size))
    }

    fn combine_threads(
        &self,
        e: &Emitter,
        s: Scalar,
        value: V,
        identity: V,
        combine: &Combine<'_>,
        after: Bb,
    ) -> Option<V> {
        let memory_type = e.memory(s);
        let slot = |v: V| if s == Scalar::U1 { e.zext(v, e.i8) } else { v };
        let unslot = |v: V| if s == Scalar::U1 { e.trunc(v, e.i1) } else { v };
        let partials = self.add_block_memory(e, e.array_type(memory_type, WARP as u64));
        let own = self.register(e, "tid.x");
        let (lane, warp) = (e.and(own, e.i32c(WARP - 1)), e.lshr(own, e.i32c(5)));
        let warps = e.lshr(self.register(e, "ntid.x"), e.i32c(5));
        let of_warp = self.combine_warp(e, s, value, combine);
        let is_first = e.icmp(IntCmp::LLVMIntEQ, lane, e.i32c(0));
        let function = e.function();
        let block = |name| e.add_block(function, name);
        let (give, given, first_warp, last) =
            (block(c"give"), block(c"given"), block(c"first.warp"), block(c"combined"));
        e.cond_br(is_first, give, given);
        e.position(give);
        e.store(e.gep(memory_type, partials, warp), slot(of_warp), s.bytes());
        e.br(given);
        e.position(given);
        self.block_barrier(e);
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, warp, e.i32c(0)), first_warp, after);
        e.position(first_warp);
        let partial = unslot(e.load(memory_type, e.gep(memory_type, partials, lane), s.bytes()));
        let partial = e.select(e.icmp(IntCmp::LLVMIntULT, lane, warps), partial, identity);
        let all = self.combine_warp(e, s, partial, combine);
        e.cond_br(is_first, last, after);
        e.position(last);
        Some(all)
    }

    fn block_memory(&self, e: &Emitter, words: u64) -> V {
        let memory = self.add_block_memory(e, e.array_type(e.i32, words));
        e.address_space_cast(memory, e.ptr)
    }

    fn block_barrier(&self, e: &Emitter) {
        let barrier = e.declare("llvm.nvvm.barrier.cta.sync.aligned.all", e.void, &mut [e.i32]);
        e.call(barrier, &[e.i32c(0)]);
    }

    fn thread_of_block(&self, e: &Emitter) -> (V, V) {
        (e.zext(self.register(e, "tid.x"), e.i64), e.zext(self.register(e, "ntid.x"), e.i64))
    }

    fn atomic_float_extremum(&self, e: &Emitter, op: AtomicOp, s: Scalar, ptr: V, operand: V) -> Option<V> {
        // The bits of floats that are not negative are in the order of signed integers; those of negative ones in the opposite
        // order of unsigned ones. One of two integer operations is therefore the float's, chosen by the operand's sign.
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
        Some(self.compute(e, name, s, args))
    }

    fn has_constant_loads(&self) -> bool {
        true
    }

    fn finish_function(&self, e: &Emitter, function: V) {
        e.function_attribute(function, "nounwind", 0);
        e.function_text_attribute(function, "no-trapping-math", "true");
        if self.fast_math {
            e.function_text_attribute(function, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
        }
    }

    fn link(&self, module: &Module<'_>) -> Result<(), CodegenError> {
        let library = self.library.borrow();
        if library.is_empty() {
            return Ok(());
        }
        match &self.options.device_library.path {
            Some(path) => link_device_library(module, path),
            None => {
                let names: Vec<&str> = library.iter().map(|n| n.trim_start_matches("__nv_")).collect();
                Err(CodegenError::new(format!(
                    "{} need{} NVIDIA's library of math functions, libdevice.10.bc, which was not found: install it with `pip \
                     install nvidia-cuda-nvcc`, or let CUDA_HOME name a CUDA toolkit",
                    names.join(", "),
                    if names.len() == 1 { "s" } else { "" }
                )))
            }
        }
    }
}
