//! AMD GPUs, as code objects: ELF shared objects that contain machine code and a description of each entry point.
//!
//! Waves (called warps elsewhere) have 64 threads on CDNA and 32 on RDNA. The parameter of an entry point is in
//! constant memory. The runtime also passes the sizes of the grid if the code asks for them. In code objects of
//! version 5, which ROCm's own compiler generates since ROCm 6.0, they follow the parameter. A driver with an older
//! runtime requests version 4 by a word among the features ([`OLDER`]); there they are in the dispatch packet.
//!
//! Atomic updates assume that memory is local to the device (coarse-grained, as allocated by `hipMalloc`). Without
//! that assumption LLVM adds floats by compare-and-swap. The channel is the only memory shared with the host, and is
//! updated without it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Once;

use inkwell::module::Module;
use inkwell::targets::TargetMachine;
use llvm_sys::LLVMAtomicOrdering as Ordering;
use octants_ir::{ProductKind, Scalar, TargetInfo, ThreadScope};

use super::amdgpu_lanes::Lanes;
use super::gpu::{self, Gpu, Register, Vendor, open_machine};
use super::inline_math::trigonometric;
use super::link_code_object::{Undefined, link_code_object};
use super::rocm_library::{Controls, link_rocm_library};
use super::{AtomicStyle, CodeForm, Target, products};
use crate::emit::{Emitter, IntCmp, T, V};
use crate::{CodegenError, CodegenOptions};

/// The chips that code is made for, and the binary logarithm of the threads in their waves.
const CHIPS: &[(&str, u32)] = &[
    ("gfx906", 6),
    ("gfx908", 6),
    ("gfx90a", 6),
    ("gfx942", 6),
    ("gfx1030", 5),
    ("gfx1100", 5),
    ("gfx1101", 5),
    ("gfx1102", 5),
    ("gfx1103", 5),
    ("gfx1151", 5),
    ("gfx1200", 5),
    ("gfx1201", 5),
];

/// LLVM's number of the calling convention of entry points.
const KERNEL_CONVENTION: u32 = 91;
/// Address space of memory that is constant while a kernel runs, and read through the scalar cache.
const CONSTANT: u32 = 4;
/// Requests code objects of version 4.
const OLDER: &str = "+code-object-v4";
/// The hidden arguments that the runtime appends to the parameter: offsets of the number of blocks and of the threads
/// in a block.
const BLOCK_COUNT: i64 = 0;
const GROUP_SIZE: i64 = 12;
/// Offsets in the packet that starts a kernel: the threads in a block, and in the whole grid.
const PACKET_GROUP_SIZE: i64 = 4;
const PACKET_GRID_SIZE: i64 = 12;
/// Threads that can exchange values directly.
const WORKGROUP: &str = "workgroup";

/// The target of AMD GPUs.
struct Amdgpu {
    cpu: String,
    warp_bits: u32,
    /// Code objects have the fourth version.
    older: bool,
    /// Functions of the vendor's library that the module calls.
    library: RefCell<BTreeSet<String>>,
    options: CodegenOptions,
}

/// The target and LLVM's machine for it.
pub(super) fn open(
    triple: &str,
    cpu: &str,
    features: &str,
    options: &CodegenOptions,
) -> Result<(Box<dyn Target>, TargetMachine), CodegenError> {
    let Some(warp_bits) = subgroup_bits(cpu) else {
        let known: Vec<&str> = chips().collect();
        return Err(CodegenError::new(format!(
            "code generation does not support the AMD GPU {cpu}, only {}",
            known.join(", ")
        )));
    };
    static ONCE: Once = Once::new();
    // SAFETY: these register LLVM's own tables; once in a process.
    ONCE.call_once(|| unsafe {
        llvm_sys::target::LLVMInitializeAMDGPUTargetInfo();
        llvm_sys::target::LLVMInitializeAMDGPUTarget();
        llvm_sys::target::LLVMInitializeAMDGPUTargetMC();
        llvm_sys::target::LLVMInitializeAMDGPUAsmPrinter();
    });
    let (older, features): (Vec<&str>, Vec<&str>) = features.split(',').partition(|word| *word == OLDER);
    let machine = open_machine(triple, cpu, &features.join(","), options)?;
    let (cpu, older, options) = (cpu.into(), !older.is_empty(), options.clone());
    let amdgpu = Amdgpu { cpu, warp_bits, older, library: RefCell::default(), options };
    let fast_math = amdgpu.options.fast_math;
    Ok((Box::new(Gpu::new(Box::new(amdgpu), fast_math)), machine))
}

/// The capabilities of a chip.
pub(super) fn info(cpu: &str) -> TargetInfo {
    TargetInfo { products: products::of_amd(cpu), ..gpu::info(subgroup_bits(cpu).unwrap_or(5)) }
}

/// The chips that code is made for.
pub(super) fn chips() -> impl Iterator<Item = &'static str> {
    CHIPS.iter().map(|(name, _)| *name)
}

/// Binary logarithm of the threads in a wave of a chip.
pub(super) fn subgroup_bits(cpu: &str) -> Option<u32> {
    CHIPS.iter().find(|(name, _)| *name == cpu).map(|(_, bits)| *bits)
}

/// The processor's number as the vendor's library has it: major, minor (two digits) and step (two digits).
fn isa_version(cpu: &str) -> Option<i64> {
    let digits = cpu.strip_prefix("gfx")?;
    let (major, rest) = digits.split_at_checked(digits.len().checked_sub(2)?)?;
    let (minor, step) = rest.split_at_checked(1)?;
    let number = |text: &str| i64::from_str_radix(text, 16).ok();
    Some(major.parse::<i64>().ok()? * 1000 + number(minor)? * 100 + number(step)?)
}

impl Amdgpu {
    /// Reads constant memory that an intrinsic points to, of a type and at an offset.
    fn load_invariant(&self, e: &Emitter, source: &str, ty: T, offset: i64) -> V {
        let f = e.declare(source, e.pointer_in(CONSTANT), &mut []);
        let align = if ty == e.i16 { 2 } else { 4 };
        let v = e.load(ty, e.byte_offset(e.call(f, &[]), offset), align);
        e.note(v, e.metadata_kind("invariant.load"));
        v
    }

    /// Exchanges among the threads of a wave.
    fn lanes<'a>(&self, e: &'a Emitter) -> Lanes<'a> {
        Lanes { e, warp_bits: self.warp_bits }
    }

    /// A bit for each thread of the wave that executes this and for which the condition holds.
    fn votes(&self, e: &Emitter, condition: V) -> V {
        e.intrinsic("llvm.amdgcn.ballot", if self.warp_bits == 5 { e.i32 } else { e.i64 }, &[condition])
    }

    /// The version of code objects, times a hundred.
    fn abi(&self) -> i64 {
        if self.older { 400 } else { 500 }
    }

    /// Threads in a block.
    fn block_size(&self, e: &Emitter) -> V {
        let size = match self.older {
            true => self.load_invariant(e, "llvm.amdgcn.dispatch.ptr", e.i16, PACKET_GROUP_SIZE),
            false => self.load_invariant(e, "llvm.amdgcn.implicitarg.ptr", e.i16, GROUP_SIZE),
        };
        e.zext(size, e.i32)
    }

    /// Blocks in the grid, all of the same size.
    fn blocks(&self, e: &Emitter) -> V {
        match self.older {
            true => {
                e.udiv(self.load_invariant(e, "llvm.amdgcn.dispatch.ptr", e.i32, PACKET_GRID_SIZE), self.block_size(e))
            }
            false => self.load_invariant(e, "llvm.amdgcn.implicitarg.ptr", e.i32, BLOCK_COUNT),
        }
    }

    /// An LLVM intrinsic as the back end expands it, with an error of one or two ulps. Flagged as approximate it would
    /// be the hardware's own, which is far off for large results.
    fn exactly(&self, e: &Emitter, intrinsic: &'static str, args: &[V]) -> V {
        let f = e.declare(&format!("{intrinsic}.f32"), e.f32, &mut vec![e.f32; args.len()]);
        e.call(f, args)
    }
}

impl Vendor for Amdgpu {
    fn info(&self) -> TargetInfo {
        info(&self.cpu)
    }

    fn atomic_style(&self) -> AtomicStyle {
        AtomicStyle {
            scope: "agent",
            scope_with_host: "",
            promises: if self.options.fast_math {
                &["amdgpu.no.fine.grained.memory", "amdgpu.no.remote.memory", "amdgpu.ignore.denormal.mode"]
            } else {
                &["amdgpu.no.fine.grained.memory", "amdgpu.no.remote.memory"]
            },
        }
    }

    fn clock(&self, e: &Emitter) -> V {
        // The counter of cycles has 20 bits on these chips; the other one counts at its own rate.
        let steady = self.cpu.starts_with("gfx11");
        let name = if steady { "llvm.readsteadycounter" } else { "llvm.readcyclecounter" };
        e.call(e.declare(name, e.i64, &mut []), &[])
    }

    fn code_form(&self) -> CodeForm {
        CodeForm::Object
    }

    fn package(&self, code: Vec<u8>) -> Result<Vec<u8>, CodegenError> {
        link_code_object(&code, Undefined::Refused)
    }

    fn warp_bits(&self) -> u32 {
        self.warp_bits
    }

    fn describe_module(&self, e: &Emitter) {
        e.set_module_flag("amdhsa_code_object_version", self.abi());
    }

    fn context_type(&self, e: &Emitter) -> T {
        e.pointer_in(CONSTANT)
    }

    fn describe_entry(&self, e: &Emitter, function: V, words: u64, threads: u32) {
        e.set_calling_convention(function, KERNEL_CONVENTION);
        e.param_type_attribute(function, 0, "byref", e.array_type(e.i64, words));
        e.function_text_attribute(function, "amdgpu-flat-work-group-size", &format!("1,{threads}"));
        e.function_text_attribute(function, "uniform-work-group-size", "true");
    }

    fn register(&self, e: &Emitter, register: Register) -> V {
        let read = |name| e.call(e.declare(name, e.i32, &mut []), &[]);
        match register {
            Register::Thread => read("llvm.amdgcn.workitem.id.x"),
            Register::Block => read("llvm.amdgcn.workgroup.id.x"),
            Register::BlockSize => self.block_size(e),
            Register::Blocks => self.blocks(e),
        }
    }

    fn exchange(&self, e: &Emitter, word: V, bits: i64) -> V {
        if let Some(moved) = self.lanes(e).exchange(word, bits) {
            return moved;
        }
        // The number of a byte in a register of the wave, which wraps around.
        let source = e.shl(e.xor(self.register(e, Register::Thread), e.i32c(bits)), e.i32c(2));
        let f = e.declare("llvm.amdgcn.ds.bpermute", e.i32, &mut [e.i32, e.i32]);
        e.call(f, &[source, word])
    }

    fn shuffle_by(&self, e: &Emitter, word: V, by: i64) -> Option<V> {
        self.lanes(e).shift(word, by)
    }

    fn shuffle(&self, e: &Emitter, word: V, lane: V) -> V {
        if let Some(lane) = e.as_int(lane) {
            return self.lanes(e).of_lane(word, lane);
        }
        let f = e.declare("llvm.amdgcn.ds.bpermute", e.i32, &mut [e.i32, e.i32]);
        e.call(f, &[e.shl(lane, e.i32c(2)), word])
    }

    fn ballot(&self, e: &Emitter, condition: V) -> V {
        let votes = self.votes(e, condition);
        if e.type_of(votes) == e.i64 { votes } else { e.zext(votes, e.i64) }
    }

    fn fence(&self, e: &Emitter, scope: ThreadScope) {
        let scope = if scope == ThreadScope::Device { "agent" } else { WORKGROUP };
        e.fence_in(scope, Ordering::LLVMAtomicOrderingAcquireRelease);
    }

    fn subgroup_barrier(&self, e: &Emitter) {
        e.fence_in("wavefront", Ordering::LLVMAtomicOrderingRelease);
        e.call(e.declare("llvm.amdgcn.wave.barrier", e.void, &mut []), &[]);
        e.fence_in("wavefront", Ordering::LLVMAtomicOrderingAcquire);
    }

    fn is_whole_warp(&self, e: &Emitter) -> V {
        let here = self.votes(e, e.int(e.i1, 1));
        e.icmp(IntCmp::LLVMIntEQ, here, e.int(e.type_of(here), -1))
    }

    fn product(&self, e: &Emitter, kind: ProductKind, operands: [&[V]; 3]) -> Vec<V> {
        products::on_amd(e, &self.cpu, kind, operands, &|word| self.exchange(e, word, 16))
    }

    fn holds_for_all(&self, e: &Emitter, condition: V) -> V {
        let others = self.votes(e, e.not(condition));
        e.icmp(IntCmp::LLVMIntEQ, others, e.zero(e.type_of(others)))
    }

    fn block_barrier(&self, e: &Emitter) {
        e.fence_in(WORKGROUP, Ordering::LLVMAtomicOrderingRelease);
        e.call(e.declare("llvm.amdgcn.s.barrier", e.void, &mut []), &[]);
        e.fence_in(WORKGROUP, Ordering::LLVMAtomicOrderingAcquire);
    }

    fn math(&self, e: &Emitter, name: &'static str, s: Scalar, args: &[V]) -> V {
        if s == Scalar::F32 {
            let inline = if self.options.fast_math { trigonometric(e, name, args[0]) } else { None };
            let intrinsic = match name {
                "exp" => Some("llvm.exp"),
                "exp2" => Some("llvm.exp2"),
                "log" => Some("llvm.log"),
                "log2" => Some("llvm.log2"),
                _ => None,
            };
            if let Some(value) = inline.or_else(|| Some(self.exactly(e, intrinsic?, args))) {
                return value;
            }
        }
        let symbol = format!("__ocml_{name}_{}", s.name());
        let ty = e.scalar(s);
        let f = e.declare(&symbol, ty, &mut vec![ty; args.len()]);
        self.library.borrow_mut().insert(symbol);
        e.flagged(e.call(f, args))
    }

    fn finish_function(&self, _e: &Emitter, _function: V) {}

    fn link(&self, module: &Module<'_>) -> Result<(), CodegenError> {
        let library = self.library.borrow();
        if library.is_empty() {
            return Ok(());
        }
        let Some(path) = &self.options.device_library.path else {
            let bare = |symbol: &String| {
                let name = symbol.trim_start_matches("__ocml_");
                let (name, kind) = name.rsplit_once('_').unwrap_or((name, ""));
                format!("{name} on {kind}")
            };
            let names: Vec<String> = library.iter().map(bare).collect();
            return Err(CodegenError::new(format!(
                "{} need{} AMD's library of math functions, ocml.bc, which was not found: install rocm-device-libs \
                 (a package of ROCm, Debian and Ubuntu, sometimes with a version in its name), or set ROCM_PATH to a \
                 ROCm installation, or the option `device_library` to the file",
                names.join(", "),
                if names.len() == 1 { "s" } else { "" }
            )));
        };
        let isa = isa_version(&self.cpu).expect("compiler bug: not a chip of the table");
        let (abi, wave64, fast_math) = (self.abi(), self.warp_bits == 6, self.options.fast_math);
        let controls = Controls { isa, abi, wave64, fast_math };
        link_rocm_library(module, path, &controls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_have_the_vendors_elf_numbers() {
        let numbers: Vec<_> = CHIPS.iter().map(|(name, _)| isa_version(name)).collect();
        let expected = [9006, 9008, 9010, 9402, 10300, 11000, 11001, 11002, 11003, 11501, 12000, 12001];
        assert_eq!(numbers, expected.map(Some));
        assert_eq!(isa_version("gfx"), None);
    }
}
