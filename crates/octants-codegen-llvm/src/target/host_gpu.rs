//! A GPU target for tests: GPU-style code, compiled for the host CPU. A grid of blocks runs it; the threads of a block
//! synchronize at barriers and exchange values within warps. The test's runner emulates the GPU: one call of an entry
//! point is one thread.
//!
//! Code is a shared object. Each entry point has the symbols `<symbol>.bytes`, the size of the parameter, and
//! `<symbol>.threads`, the maximum number of threads of a block, both 64 bits wide. Operations that a GPU does in
//! hardware are calls through a table of functions, which the runner stores in the variable `octants_host_gpu`: the
//! thread's registers, the block barrier, and the exchange and vote within a warp. Block memory is a variable of the
//! shared object. If the symbol `octants_host_gpu_block` is present, only one block may run at a time.

use std::cell::Cell;

use inkwell::OptimizationLevel;
use inkwell::module::{Linkage, Module};
use inkwell::targets::{CodeModel, RelocMode, TargetMachine, TargetTriple};
use llvm_sys::LLVMAtomicOrdering as Ordering;
use llvm_sys::core::*;
use octants_ir::{Scalar, ThreadScope};

use super::cpu::host_machine;
use super::gpu::{Gpu, Register, Vendor};
use super::link_code_object::{Undefined, link_code_object};
use super::{AtomicStyle, CodeForm, Target};
use crate::emit::{Emitter, IntCmp, T, V, c_string, llvm};
use crate::{CodegenError, CodegenOptions};

/// Processor names of this target, and the binary logarithm of the warp size of each.
const KINDS: &[(&str, u32)] = &[("wave64", 6), ("wave32", 5)];

/// Offsets in the table of functions.
const REGISTER: i64 = 0;
const BARRIER: i64 = 8;
const EXCHANGE: i64 = 16;
const BALLOT: i64 = 32;

/// How the names of a block's memories begin.
const BLOCK_MEMORY: &[u8] = b"octants_block_";

struct HostGpu {
    warp_bits: u32,
    /// Points where the threads of a warp vote.
    places: Cell<i64>,
}

/// Binary logarithm of the warp size of a processor of this target.
pub(super) fn subgroup_bits(kind: &str) -> Option<u32> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, bits)| *bits)
}

/// The target and LLVM's machine for it.
pub(super) fn open(kind: &str, options: &CodegenOptions) -> Result<(Box<dyn Target>, TargetMachine), CodegenError> {
    let Some(warp_bits) = subgroup_bits(kind) else {
        return Err(CodegenError::new(format!("the host GPU target has no processor `{kind}`")));
    };
    let host = &host_machine()?.processor;
    let triple = TargetTriple::create(&host.triple);
    let machine = inkwell::targets::Target::from_triple(&triple).ok().and_then(|target| {
        let level = if options.opt_level == 0 { OptimizationLevel::None } else { OptimizationLevel::Less };
        target.create_target_machine(&triple, &host.cpu, &host.features, level, RelocMode::PIC, CodeModel::Small)
    });
    let machine =
        machine.ok_or_else(|| CodegenError::new(format!("LLVM has no code generator for {}", host.triple)))?;
    Ok((Box::new(Gpu::new(Box::new(HostGpu { warp_bits, places: Cell::new(0) }), options.fast_math)), machine))
}

impl HostGpu {
    /// Calls a function of the table.
    fn ask(&self, e: &Emitter, offset: i64, result: T, args: &[V]) -> V {
        let name = c_string("octants_host_gpu");
        let table = llvm!({
            let known = LLVMGetNamedGlobal(e.module, name.as_ptr());
            if known.is_null() {
                let new = LLVMAddGlobal(e.module, e.ptr, name.as_ptr());
                LLVMSetInitializer(new, LLVMConstNull(e.ptr));
                new
            } else {
                known
            }
        });
        let function = e.load(e.ptr, e.byte_offset(e.load(e.ptr, table, 8), offset), 8);
        let mut types: Vec<T> = args.iter().map(|a| e.type_of(*a)).collect();
        e.call_pointer(function, e.function_type(result, &mut types), args)
    }

    /// A metadata number of an entry point.
    fn note(&self, e: &Emitter, function: V, what: &str, value: u64) {
        let mut length = 0;
        llvm!({
            let name = LLVMGetValueName2(function, &mut length);
            let name = std::slice::from_raw_parts(name.cast::<u8>(), length);
            let name = c_string(&format!("{}.{what}", String::from_utf8_lossy(name)));
            let note = LLVMAddGlobal(e.module, e.i64, name.as_ptr());
            LLVMSetInitializer(note, e.i64c(value as i64));
            LLVMSetGlobalConstant(note, 1);
        });
    }
}

impl Vendor for HostGpu {
    fn atomic_style(&self) -> AtomicStyle {
        AtomicStyle { scope: "", scope_with_host: "", promises: &[] }
    }

    fn code_form(&self) -> CodeForm {
        CodeForm::Object
    }

    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        // Mathematical functions are the process's.
        link_code_object(&code, Undefined::Allowed)
    }

    fn warp_bits(&self) -> u32 {
        self.warp_bits
    }

    fn describe_module(&self, _e: &Emitter) {}

    fn context_type(&self, e: &Emitter) -> T {
        e.ptr
    }

    fn describe_entry(&self, e: &Emitter, function: V, words: u64, threads: u32) {
        self.note(e, function, "bytes", 8 * words);
        self.note(e, function, "threads", threads.into());
    }

    fn register(&self, e: &Emitter, register: Register) -> V {
        self.ask(e, REGISTER, e.i32, &[e.i32c(register as i64)])
    }

    fn exchange(&self, e: &Emitter, word: V, bits: i64) -> V {
        let own = self.register(e, Register::Thread);
        let distance = e.sub(e.xor(own, e.i32c(bits)), own);
        self.ask(e, EXCHANGE, e.i32, &[word, distance])
    }

    fn shuffle(&self, e: &Emitter, word: V, lane: V) -> V {
        let own = e.and(self.register(e, Register::Thread), e.i32c((1 << self.warp_bits) - 1));
        self.ask(e, EXCHANGE, e.i32, &[word, e.sub(lane, own)])
    }

    fn ballot(&self, e: &Emitter, condition: V) -> V {
        // Threads vote together when they are at the same place in the code.
        let place = self.places.replace(self.places.get() + 1);
        self.ask(e, BALLOT, e.i64, &[e.i32c(place), e.zext(condition, e.i32)])
    }

    fn is_whole_warp(&self, e: &Emitter) -> V {
        let all = e.i64c(if self.warp_bits == 6 { -1 } else { i64::from(u32::MAX) });
        e.icmp(IntCmp::LLVMIntEQ, self.ballot(e, e.int(e.i1, 1)), all)
    }

    fn holds_for_all(&self, e: &Emitter, condition: V) -> V {
        e.icmp(IntCmp::LLVMIntEQ, self.ballot(e, e.not(condition)), e.i64c(0))
    }

    fn fence(&self, e: &Emitter, _scope: ThreadScope) {
        e.fence();
    }

    fn block_barrier(&self, e: &Emitter) {
        e.fence_in("", Ordering::LLVMAtomicOrderingRelease);
        self.ask(e, BARRIER, e.void, &[]);
        e.fence_in("", Ordering::LLVMAtomicOrderingAcquire);
    }

    fn math(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V {
        let symbol = format!("{name}{}", if s == Scalar::F32 { "f" } else { "" });
        let ty = e.scalar(s);
        let f = e.declare(&symbol, ty, &mut vec![ty; args.len()]);
        e.flagged(e.call(f, args))
    }

    fn finish_function(&self, _e: &Emitter, _function: V) {}

    fn link(&self, module: &Module<'_>) -> Result<(), CodegenError> {
        if module.get_globals().any(|global| global.get_name().to_bytes().starts_with(BLOCK_MEMORY)) {
            let ty = module.get_context().i64_type();
            let mark = module.add_global(ty, None, "octants_host_gpu_block");
            mark.set_initializer(&ty.const_zero());
            // Other modules of the same code may have it too.
            mark.set_linkage(Linkage::WeakAny);
        }
        Ok(())
    }
}
