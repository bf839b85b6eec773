//! NVIDIA GPUs, as PTX text.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Once;

use inkwell::module::Module;
use inkwell::targets::TargetMachine;
use octants_ir::{ProductKind, Scalar, TargetInfo, ThreadScope};

use super::device_library::link_device_library;
use super::gpu::{self, BLOCK, GLOBAL, Gpu, Register, THREADS, Vendor, open_machine};
use super::nvptx_text::replace_miscompiled;
use super::{AtomicStyle, CodeForm, Target, products};
use crate::emit::{Emitter, IntCmp, T, V};
use crate::{CodegenError, CodegenOptions};

/// LLVM's number of the calling convention of entry points.
const KERNEL_CONVENTION: u32 = 71;

/// The target of NVIDIA GPUs.
pub(super) struct Nvptx {
    /// Such as `sm_90`.
    chip: String,
    pub(super) fast_math: bool,
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
    let machine = open_machine(triple, cpu, features, options)?;
    let nvptx =
        Nvptx { chip: cpu.into(), fast_math: options.fast_math, library: RefCell::default(), options: options.clone() };
    Ok((Box::new(Gpu::new(Box::new(nvptx), options.fast_math)), machine))
}

/// A thread issues instructions in order, and the assembler unrolls only short loops.
pub(super) fn info(chip: &str) -> TargetInfo {
    let is_ampere = number_of(chip) >= 80;
    TargetInfo {
        waits_for_loads: true,
        max_shared_bytes: block_bytes(chip),
        products: if is_ampere { products::NVIDIA } else { &[] },
        loads_matrices: is_ampere,
        copies_async: is_ampere,
        ..gpu::INFO
    }
}

/// 90 for `sm_90a`.
fn number_of(chip: &str) -> u32 {
    let digits = chip.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_alphabetic());
    digits.parse().unwrap_or(0)
}

/// Maximum bytes of shared memory per block on a chip; a launch must request more than 48 KiB explicitly. Source: the
/// table of compute capabilities in the CUDA C++ Programming Guide.
fn block_bytes(chip: &str) -> u64 {
    let kibibytes = match number_of(chip) {
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        86 | 88 | 89 | 120.. => 99,
        90..=119 => 227,
        _ => 48,
    };
    kibibytes << 10
}

impl Nvptx {
    /// The mask of the active threads of the warp.
    fn here(&self, e: &Emitter) -> V {
        e.call(e.declare("llvm.nvvm.activemask", e.i32, &mut []), &[])
    }
}

impl Vendor for Nvptx {
    fn info(&self) -> TargetInfo {
        info(&self.chip)
    }

    fn has_launch_memory(&self) -> bool {
        true
    }

    fn adds_half_floats(&self) -> bool {
        true
    }

    fn atomic_style(&self) -> AtomicStyle {
        // Only threads of the device change the channel while it works. System-wide atomics would need a bus with
        // atomic operations, which few machines have.
        AtomicStyle { scope: "device", scope_with_host: "device", promises: &[] }
    }

    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        Ok(replace_miscompiled(&String::from_utf8_lossy(&code)).into_bytes())
    }

    fn code_form(&self) -> CodeForm {
        // The driver assembles it for the very chip it finds.
        CodeForm::Text
    }

    fn warp_bits(&self) -> u32 {
        5
    }

    fn describe_module(&self, e: &Emitter) {
        e.set_module_flag("nvvm-reflect-ftz", i64::from(self.fast_math));
    }

    fn context_type(&self, e: &Emitter) -> T {
        e.ptr
    }

    fn describe_entry(&self, e: &Emitter, function: V, words: u64, threads: u32) {
        e.set_calling_convention(function, KERNEL_CONVENTION);
        e.param_type_attribute(function, 0, "byval", e.array_type(e.i64, words));
        e.param_text_attribute(function, 0, "nvvm.grid_constant", "");
        e.function_text_attribute(function, "nvvm.maxntid", &threads.to_string());
    }

    fn prefer_loads_ahead(&self, e: &Emitter, function: V, threads: u32) {
        // The assembler schedules for as many threads as a multiprocessor can hold, which leaves each 32 registers and
        // one or two loads in flight. A minimum of one block per multiprocessor lifts this limit.
        if threads < THREADS {
            return self.prefer_warps(e, function, threads);
        }
        e.function_text_attribute(function, "nvvm.minctasm", "1");
    }

    fn prefer_warps(&self, e: &Emitter, function: V, threads: u32) {
        // Room for 640 threads, with 96 registers each. On an H200 a simulator's loops with blocks of 32, which took up
        // to 250 registers, ran 15 % faster with 128 than with all of them, and 2.5 % faster again with 96; with 64
        // some ran faster still and others slower.
        e.function_text_attribute(function, "nvvm.minctasm", &(640 / threads).max(1).to_string());
    }

    fn prefer_threads(&self, e: &Emitter, function: V) {
        // 64 registers. On an H200 gradients of loops took 74 to 90 microseconds with them that took 120 to 154 with a
        // hundred.
        e.function_text_attribute(function, "nvvm.minctasm", "4");
    }

    fn waits_for_work_before(&self) -> bool {
        number_of(&self.chip) >= 90
    }

    fn wait_for_work_before(&self, e: &Emitter) {
        // LLVM's intrinsic lets accesses to memory pass.
        e.assembly("griddepcontrol.wait;", "~{memory}");
    }

    fn register(&self, e: &Emitter, register: Register) -> V {
        let name = match register {
            Register::Thread => "tid.x",
            Register::BlockSize => "ntid.x",
            Register::Block => "ctaid.x",
            Register::Blocks => "nctaid.x",
        };
        let f = e.declare(&format!("llvm.nvvm.read.ptx.sreg.{name}"), e.i32, &mut []);
        e.call(f, &[])
    }

    fn exchange(&self, e: &Emitter, word: V, bits: i64) -> V {
        let f = e.declare("llvm.nvvm.shfl.sync.bfly.i32", e.i32, &mut [e.i32, e.i32, e.i32, e.i32]);
        e.call(f, &[e.i32c(-1), word, e.i32c(bits), e.i32c(31)])
    }

    fn shuffle(&self, e: &Emitter, word: V, lane: V) -> V {
        let f = e.declare("llvm.nvvm.shfl.sync.idx.i32", e.i32, &mut [e.i32, e.i32, e.i32, e.i32]);
        e.call(f, &[e.i32c(-1), word, lane, e.i32c(31)])
    }

    fn ballot(&self, e: &Emitter, condition: V) -> V {
        let f = e.declare("llvm.nvvm.vote.ballot.sync", e.i32, &mut [e.i32, e.i1]);
        e.zext(e.call(f, &[e.i32c(-1), condition]), e.i64)
    }

    fn fence(&self, e: &Emitter, scope: ThreadScope) {
        let name = if scope == ThreadScope::Device { "llvm.nvvm.membar.gl" } else { "llvm.nvvm.membar.cta" };
        e.call(e.declare(name, e.void, &mut []), &[]);
    }

    fn subgroup_barrier(&self, e: &Emitter) {
        e.call(e.declare("llvm.nvvm.bar.warp.sync", e.void, &mut [e.i32]), &[e.i32c(-1)]);
    }

    fn is_whole_warp(&self, e: &Emitter) -> V {
        e.icmp(IntCmp::LLVMIntEQ, self.here(e), e.i32c(-1))
    }

    fn product(&self, e: &Emitter, kind: ProductKind, operands: [&[V]; 3]) -> Vec<V> {
        products::on_nvidia(e, kind, operands)
    }

    fn load_matrices(&self, e: &Emitter, row: V, transposed: bool) -> Vec<V> {
        products::load_matrices(e, e.address_space_cast(row, e.pointer_in(BLOCK)), transposed)
    }

    fn copy_async(&self, e: &Emitter, to: V, from: V) {
        let [block, global] = [BLOCK, GLOBAL].map(|space| e.pointer_in(space));
        let copy = e.declare("llvm.nvvm.cp.async.cg.shared.global.16", e.void, &mut [block, global]);
        e.call(copy, &[e.address_space_cast(to, block), e.address_space_cast(from, global)]);
    }

    fn await_copies(&self, e: &Emitter) {
        e.call(e.declare("llvm.nvvm.cp.async.wait.all", e.void, &mut []), &[]);
    }

    fn holds_for_all(&self, e: &Emitter, condition: V) -> V {
        e.call(e.declare("llvm.nvvm.vote.all.sync", e.i1, &mut [e.i32, e.i1]), &[self.here(e), condition])
    }

    fn block_barrier(&self, e: &Emitter) {
        let barrier = e.declare("llvm.nvvm.barrier.cta.sync.aligned.all", e.void, &mut [e.i32]);
        e.call(barrier, &[e.i32c(0)]);
    }

    fn agree(&self, e: &Emitter, ask: &dyn Fn() -> V) -> V {
        let any = e.declare("llvm.nvvm.barrier.cta.red.or.aligned.all", e.i1, &mut [e.i32, e.i1]);
        e.call(any, &[e.i32c(0), ask()])
    }

    fn math(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V {
        self.compute(e, name, s, args)
    }

    fn finish_function(&self, _e: &Emitter, _function: V) {}

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
                    "{} need{} NVIDIA's library of math functions, libdevice.10.bc, which was not found: install it \
                     with `pip install nvidia-cuda-nvcc`, or let CUDA_HOME name a CUDA toolkit",
                    names.join(", "),
                    if names.len() == 1 { "s" } else { "" }
                )))
            }
        }
    }
}
