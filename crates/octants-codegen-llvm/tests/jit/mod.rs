//! Loads an artifact into this process and runs its tasks in order, one thread, with a chosen chunk size.

#![allow(dead_code)] // Each test file uses a part of it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, Once};

use llvm_sys::core::*;
use llvm_sys::error::{LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::orc2::lljit::*;
use llvm_sys::orc2::*;
use octants_artifact::{Artifact, CodeTarget, HostContext, HostCount, HostTask};
use octants_codegen_llvm::{CodegenOptions, target_info};
use octants_diag::Span;
use octants_ir::*;
use octants_schedule::schedule_program;

use super::scheduled::{compile_host, with_access};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
}

fn check(error: LLVMErrorRef) {
    if !error.is_null() {
        let text = unsafe { CStr::from_ptr(LLVMGetErrorMessage(error)) };
        panic!("{}", text.to_string_lossy());
    }
}

// SAFETY: loaded code and the symbol table may be used from any thread; ORC locks its session.
unsafe impl Sync for Loaded {}

/// An artifact in memory.
pub struct Loaded {
    pub artifact: Artifact,
    jit: LLVMOrcLLJITRef,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        unsafe { check(LLVMOrcDisposeLLJIT(self.jit)) };
    }
}

/// Values of a `Print` or `Assert` site as they arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub site: u32,
    pub values: Vec<u64>,
}

#[derive(Default)]
struct Host {
    printed: Mutex<Vec<Message>>,
    failed: Mutex<Vec<Message>>,
    sizes: Vec<usize>,
}

unsafe extern "C" fn on_print(context: *const HostContext, site: u32, values: *const u64) {
    let host = unsafe { &*(*context).owner.cast::<Host>() };
    let values = (0..host.sizes[site as usize]).map(|i| unsafe { *values.add(i) }).collect();
    host.printed.lock().unwrap().push(Message { site, values });
}

unsafe extern "C" fn on_fail(context: *const HostContext, site: u32, values: *const u64) {
    let host = unsafe { &*(*context).owner.cast::<Host>() };
    let values = (0..host.sizes[site as usize]).map(|i| unsafe { *values.add(i) }).collect();
    host.failed.lock().unwrap().push(Message { site, values });
}

/// Never aborts long loops. Preserves all registers.
#[unsafe(naked)]
unsafe extern "C" fn go_on(_: *const HostContext) {
    core::arch::naked_asm!("ret")
}

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub chunk: i64,
    pub single: bool,
    pub seed: u64,
    pub launch: u64,
    /// Calls have private copies of scattered-to memory.
    pub copies: bool,
}

impl Default for Run {
    fn default() -> Self {
        Run { chunk: i64::MAX, single: false, seed: 1, launch: 1, copies: false }
    }
}

/// The result.
#[derive(Debug, Default)]
pub struct Outcome {
    pub result: Vec<u64>,
    pub printed: Vec<Message>,
    pub failed: Vec<Message>,
    pub counts: Vec<i64>,
}

/// Loads an artifact.
pub fn load(artifact: Artifact) -> Loaded {
    static INIT: Once = Once::new();
    INIT.call_once(|| unsafe {
        dlopen(c"libm.so.6".as_ptr(), 0x102);
        dlopen(c"libmvec.so.1".as_ptr(), 0x102);
    });
    unsafe {
        let mut jit = std::ptr::null_mut();
        check(LLVMOrcCreateLLJIT(&mut jit, LLVMOrcCreateLLJITBuilder()));
        let dylib = LLVMOrcLLJITGetMainJITDylib(jit);
        let mut generator = std::ptr::null_mut();
        let prefix = LLVMOrcLLJITGetGlobalPrefix(jit);
        check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&mut generator, prefix, None, std::ptr::null_mut()));
        LLVMOrcJITDylibAddGenerator(dylib, generator);
        for code in &artifact.modules {
            let (start, length) = (code.as_ptr().cast(), code.len());
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(start, length, c"object".as_ptr());
            check(LLVMOrcLLJITAddObjectFile(jit, dylib, buffer));
        }
        Loaded { artifact, jit }
    }
}

/// Compiles with the default options and loads.
pub fn build(program: &Program) -> Loaded {
    build_with(program, &CodegenOptions::default())
}

/// Compiles and loads.
pub fn build_with(program: &Program, options: &CodegenOptions) -> Loaded {
    load(compile_host(program, &|span: Span| format!("test.py:{}", span.start), options).expect("compiles"))
}

/// Compiles and loads a program whose launches may run concurrently with others on the same memory.
pub fn build_concurrent(program: &Program) -> Loaded {
    let options = CodegenOptions::default();
    let asked = ScheduleOptions { concurrent_launches: true, ..ScheduleOptions::default() };
    let scheduled = schedule_program(with_access(program), &target_info(&CodeTarget::Host), asked);
    load(octants_codegen_llvm::compile_host(&scheduled, &|_| String::new(), &options).expect("compiles"))
}

impl Loaded {
    fn address(&self, symbol: &str) -> u64 {
        let name = CString::new(symbol).unwrap();
        let mut address = 0;
        unsafe { check(LLVMOrcLLJITLookup(self.jit, &mut address, name.as_ptr())) };
        address
    }

    /// Runs all tasks with these argument slots.
    pub fn run(&self, args: &[u64], how: Run) -> Outcome {
        let a = &self.artifact;
        assert_eq!(args.len(), a.arg_slots as usize, "argument slots");
        let mut frame = vec![0u64; (a.frame_bytes as usize).div_ceil(8) + 1];
        let mut result = vec![0u64; a.result.len() + 1];
        let sizes = a
            .sites
            .iter()
            .map(|s| {
                let size = |p: &octants_artifact::SitePart| match p {
                    octants_artifact::SitePart::Text(_) => 0,
                    octants_artifact::SitePart::Choice(_) => 1,
                    octants_artifact::SitePart::Value { shape, .. } => shape.iter().product::<u32>() as usize,
                };
                s.parts.iter().map(size).sum()
            })
            .collect();
        let host = Host { sizes, ..Host::default() };
        let context = HostContext {
            args: args.as_ptr(),
            frame: frame.as_mut_ptr().cast(),
            result: result.as_mut_ptr(),
            print: on_print,
            fail: on_fail,
            seed: how.seed,
            launch: how.launch,
            owner: (&raw const host).cast(),
            copies: std::ptr::null(),
            copy_count: 0,
            copy_offset: 0,
            poll: go_on,
        };
        let mut counts = Vec::new();
        for t in &a.tasks {
            let symbol = if how.single { t.single_thread_symbol.as_ref().unwrap_or(&t.symbol) } else { &t.symbol };
            let code: HostTask = unsafe { std::mem::transmute(self.address(symbol)) };
            let run = |code: HostTask, context: &HostContext, begin, end| {
                flushing(t.flushes_denormals, || unsafe { code(context, begin, end) });
            };
            let Some(p) = &t.parallel else {
                run(code, &context, 0, 1);
                continue;
            };
            // Calls alternate between two private copies of scattered-to memory.
            let scatter = p.scatter.as_ref().filter(|_| how.copies && !how.single);
            let room = scatter.map_or(0, |s| s.room(s.bytes(args).expect("copies are small")));
            let mut copies = [0, 1].map(|_| vec![0u64; room.div_ceil(8) as usize]);
            let pointers = copies.each_mut().map(|c| c.as_mut_ptr().cast::<c_void>());
            let n = p.iterations(args).map_or_else(
                || {
                    let symbol = p.count_symbol.as_ref().expect("somebody must count");
                    let count: HostCount = unsafe { std::mem::transmute(self.address(symbol)) };
                    unsafe { count(&context) }
                },
                |n| n as i64,
            );
            counts.push(n);
            let mut chunks = Vec::new();
            let mut begin = 0;
            while begin < n {
                let end = begin.saturating_add(how.chunk).min(n);
                chunks.push((begin, end));
                begin = end;
            }
            // Chunks run in reverse order, because nothing may depend on their order.
            if !p.serialize {
                chunks.reverse();
            }
            for (i, (begin, end)) in chunks.into_iter().enumerate() {
                let own = scatter.map_or(std::ptr::null(), |_| pointers[i % 2].cast_const());
                run(code, &HostContext { copies: own, ..context.clone() }, begin, end);
            }
            if let Some(scatter) = scatter {
                let context = HostContext { copies: pointers.as_ptr().cast(), copy_count: 2, ..context.clone() };
                scatter.for_each_region(args, |region, groups, copy_offset| {
                    let symbol = &scatter.regions[region].merge_symbol;
                    let merge: HostTask = unsafe { std::mem::transmute(self.address(symbol)) };
                    let context = HostContext { copy_offset, ..context.clone() };
                    let (first, groups) = (groups as i64 / 3, groups as i64);
                    [(first, groups), (0, first)].into_iter().for_each(|(begin, end)| run(merge, &context, begin, end));
                });
                assert!(copies.iter().flatten().all(|word| *word == 0), "copies are zero again");
            }
        }
        result.truncate(a.result.len());
        Outcome {
            result,
            printed: host.printed.into_inner().unwrap(),
            failed: host.failed.into_inner().unwrap(),
            counts,
        }
    }
}

/// Runs code with its calling convention.
fn flushing(flushes: bool, code: impl Fn() -> u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if flushes {
        use std::arch::x86_64;
        #[allow(deprecated)] // Nothing is computed here between the two calls.
        return unsafe {
            let saved = x86_64::_mm_getcsr();
            x86_64::_mm_setcsr(saved | 0x8040);
            let status = code();
            x86_64::_mm_setcsr(saved);
            status
        };
    }
    code()
}

/// The address of a slice as an argument.
pub fn ptr<T>(slice: &mut [T]) -> u64 {
    slice.as_mut_ptr() as u64
}

impl Loaded {
    /// Runs the first task whole, on this thread, while other threads may do the same.
    pub fn run_unsynchronized(&self, args: &[u64]) {
        self.run(args, Run { chunk: 1000, ..Run::default() });
    }
}
