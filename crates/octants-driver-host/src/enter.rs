//! [`Entry`]: entry into a task's code, and early exit from it.
//!
//! Code with fast-math floats needs a processor that flushes denormals to zero. The mode is restored for later code on
//! the thread.
//!
//! Code with long loops calls `HostContext::poll` now and then. If the launch has been interrupted, that call does not
//! return: it unwinds the stack to the entry. The code holds no resources that would have to be released.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use octants_artifact::{HostContext, HostTask};
use octants_runtime::Caller;

use crate::watch::Watch;

/// The code of a task.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    code: HostTask,
    form: EntryForm,
}

/// The requirements of a task's code.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryForm {
    /// Runs with denormals flushed to zero.
    pub flushes: bool,
    /// It polls for interrupts.
    pub polls: bool,
}

/// The context of code that polls.
#[repr(C)]
struct Polled<'a> {
    /// The first member, because code hands its address to [`answer`].
    context: HostContext,
    /// The stack where the code was entered.
    stack: Cell<usize>,
    watch: &'a Watch<'a>,
}

impl Entry {
    /// Code, and its requirements.
    pub fn new(code: HostTask, form: EntryForm) -> Entry {
        Entry { code, form }
    }

    /// Runs iterations `begin..end`, or some of them once `watch` is stopped.
    ///
    /// # Safety
    /// The code is loaded, and `context` holds what it expects.
    #[inline]
    pub unsafe fn run(self, context: &HostContext, begin: u64, end: u64, watch: &Watch<'_>) {
        // SAFETY: the contract above.
        unsafe {
            if self.form.polls {
                self.run_polled(context, begin, end, watch)
            } else {
                self.run_to_its_end(context, begin, end)
            }
        }
    }

    /// Runs iterations `begin..end` on the launching thread. If it is interrupted, runs only some of them and returns
    /// false.
    ///
    /// # Safety
    /// As [`Entry::run`].
    #[inline]
    pub unsafe fn run_for(self, caller: &dyn Caller, context: &HostContext, begin: u64, end: u64) -> bool {
        if !self.form.polls {
            // SAFETY: the contract above.
            unsafe { self.run_to_its_end(context, begin, end) };
            return true;
        }
        let stop = AtomicBool::new(false);
        // SAFETY: as above.
        unsafe { self.run_polled(context, begin, end, &Watch::of_caller(caller, &stop)) };
        !stop.into_inner()
    }

    /// # Safety
    /// As [`Entry::run`].
    #[inline(never)]
    unsafe fn run_polled(self, context: &HostContext, begin: u64, end: u64, watch: &Watch<'_>) {
        let context = HostContext { poll: poll(), ..context.clone() };
        let polled = Polled { context, stack: Cell::new(0), watch };
        let bits = if self.form.flushes { FLUSHING } else { 0 };
        let (context, stack) = (&raw const polled.context, polled.stack.as_ptr());
        // Failures are recorded by then, and `watch` knows whether the code was left. SAFETY: the contract above.
        let _: u32 = unsafe { enter_polled(context, begin as i64, end as i64, self.code, stack, bits) };
    }

    /// Runs iterations `begin..end` without polls.
    ///
    /// # Safety
    /// As [`Entry::run`].
    #[inline]
    pub unsafe fn run_to_its_end(self, context: &HostContext, begin: u64, end: u64) {
        let (begin, end) = (begin as i64, end as i64);
        // SAFETY: the contract above.
        let _: u32 = unsafe {
            if self.form.flushes {
                enter_flushing(context, begin, end, self.code)
            } else {
                (self.code)(context, begin, end)
            }
        };
    }
}

/// For contexts of code that is not left: returns, and keeps all registers.
///
/// # Safety
/// None; a function that compiled code calls is unsafe.
#[unsafe(naked)]
pub unsafe extern "C" fn go_on(_: *const HostContext) {
    core::arch::naked_asm!("ret")
}

/// Called by long loops. Does not return if the launch has been interrupted.
///
/// # Safety
/// Called by code that [`Entry::run`] has entered, with its context.
unsafe extern "C" fn answer(context: *const HostContext) {
    // SAFETY: the context is the first member of what `run` has made, which lives until the code is left.
    let polled = unsafe { &*context.cast::<Polled<'_>>() };
    // After a panic the code continues: it cannot be unwound.
    let ends = as_entered(|| catch_unwind(AssertUnwindSafe(|| polled.watch.ends_code())).unwrap_or(false));
    if ends {
        // SAFETY: `enter_polled` has stored its stack pointer, and waits there; no frame in between owns anything.
        unsafe { leave(polled.stack.get()) }
    }
}

/// The function that long loops call.
#[cfg(all(target_arch = "x86_64", not(windows)))]
fn poll() -> unsafe extern "C" fn(*const HostContext) {
    if std::arch::is_x86_feature_detected!("xsave") { poll_keeping_vectors } else { poll_keeping_sse }
}

#[cfg(not(all(target_arch = "x86_64", not(windows))))]
fn poll() -> unsafe extern "C" fn(*const HostContext) {
    answer
}

/// Calls [`answer`], and preserves all registers: vector and floating-point ones by `$save` and `$restore`, in 2,688
/// bytes at the stack pointer, whose header is zero.
macro_rules! poll_keeping {
    ($save:literal, $restore:literal) => {
        core::arch::naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "push rax",
            "push rcx",
            "push rdx",
            "push rsi",
            "push rdi",
            "push r8",
            "push r9",
            "push r10",
            "push r11",
            "sub rsp, 2688",
            "and rsp, -64",
            // The header.
            "xor eax, eax",
            "mov [rsp + 512], rax",
            "mov [rsp + 520], rax",
            "mov [rsp + 528], rax",
            "mov [rsp + 536], rax",
            "mov [rsp + 544], rax",
            "mov [rsp + 552], rax",
            "mov [rsp + 560], rax",
            "mov [rsp + 568], rax",
            // x87, SSE, AVX, and the three parts of AVX-512.
            "mov eax, 0xe7",
            "xor edx, edx",
            $save,
            "call {answer}",
            "mov eax, 0xe7",
            "xor edx, edx",
            $restore,
            "lea rsp, [rbp - 72]",
            "pop r11",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop rcx",
            "pop rax",
            "pop rbp",
            "ret",
            answer = sym answer,
        )
    };
}

/// For processors with `xsave` enabled.
///
/// # Safety
/// As [`answer`].
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn poll_keeping_vectors(context: *const HostContext) {
    poll_keeping!("xsave64 [rsp]", "xrstor64 [rsp]")
}

/// For others, which have vectors of 128 bits only.
///
/// # Safety
/// As [`answer`].
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn poll_keeping_sse(context: *const HostContext) {
    poll_keeping!("fxsave64 [rsp]", "fxrstor64 [rsp]")
}

/// Bits 6 and 15 of MXCSR: denormal operands are zero, and so are results that would be denormal.
const FLUSHING: u32 = 0x8040;

/// Runs a callback, possibly Python's signal handlers, with the floating-point mode from before the code was entered.
#[cfg(target_arch = "x86_64")]
fn as_entered<T>(run: impl FnOnce() -> T) -> T {
    let mut held = 0u32;
    // SAFETY: MXCSR is stored, then loaded with fewer bits, none of them reserved.
    unsafe {
        core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut held, options(nostack, preserves_flags));
        let plain = held & !FLUSHING;
        core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const plain, options(nostack, preserves_flags));
    }
    let end = run();
    // SAFETY: as it was.
    unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const held, options(nostack, preserves_flags)) };
    end
}

#[cfg(not(target_arch = "x86_64"))]
fn as_entered<T>(run: impl FnOnce() -> T) -> T {
    run()
}

/// Calls `code` with the other parameters in the requested floating-point mode, then restores the mode. Artifacts for
/// other processors never request it.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn enter_flushing(context: *const HostContext, begin: i64, end: i64, code: HostTask) -> u32 {
    core::arch::naked_asm!(
        "sub rsp, 24",
        "stmxcsr [rsp + 8]",
        "mov eax, [rsp + 8]",
        "or eax, {flushing}",
        "mov [rsp + 12], eax",
        "ldmxcsr [rsp + 12]",
        "call rcx",
        "ldmxcsr [rsp + 8]",
        "add rsp, 24",
        "ret",
        flushing = const FLUSHING,
    )
}

#[cfg(not(all(target_arch = "x86_64", not(windows))))]
unsafe fn enter_flushing(context: *const HostContext, begin: i64, end: i64, code: HostTask) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { code(context, begin, end) }
}

/// Calls `code` with the other parameters, with `bits` of MXCSR set meanwhile. Writes to `stack` what [`leave`] takes.
///
/// # Safety
/// That of `code`.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn enter_polled(
    context: *const HostContext,
    begin: i64,
    end: i64,
    code: HostTask,
    stack: *mut usize,
    bits: u32,
) -> u32 {
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 24",
        "stmxcsr [rsp + 8]",
        "mov eax, [rsp + 8]",
        "or eax, r9d",
        "mov [rsp + 12], eax",
        "ldmxcsr [rsp + 12]",
        "mov [r8], rsp",
        "call rcx",
        "ldmxcsr [rsp + 8]",
        "add rsp, 24",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Returns from the call of [`enter_polled`] that wrote `stack`.
///
/// # Safety
/// That call is on this thread's stack, and frames above it own nothing.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn leave(stack: usize) -> ! {
    core::arch::naked_asm!(
        "mov rsp, rdi",
        "xor eax, eax",
        "ldmxcsr [rsp + 8]",
        "add rsp, 24",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// As on other processors; no bits are requested.
///
/// # Safety
/// That of `code`.
#[cfg(all(target_arch = "aarch64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn enter_polled(
    context: *const HostContext,
    begin: i64,
    end: i64,
    code: HostTask,
    stack: *mut usize,
    bits: u32,
) -> u32 {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x4]",
        "blr x3",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}

/// As on other processors.
///
/// # Safety
/// As there.
#[cfg(all(target_arch = "aarch64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn leave(stack: usize) -> ! {
    core::arch::naked_asm!(
        "mov sp, x0",
        "mov w0, #0",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(windows))))]
unsafe fn enter_polled(
    context: *const HostContext,
    begin: i64,
    end: i64,
    code: HostTask,
    _stack: *mut usize,
    _bits: u32,
) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { code(context, begin, end) }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(windows))))]
unsafe fn leave(_stack: usize) -> ! {
    unreachable!("compiler bug: returned from code that was unwound")
}
