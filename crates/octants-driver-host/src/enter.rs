//! [`Entry`]: how the code of a task is entered. Code that computes with floats under fast math wants a processor that
//! treats denormals as zero; it is set back for whoever comes next on the thread.

use octants_artifact::{HostContext, HostTask};

/// The code of a task.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    code: HostTask,
    flushes: bool,
}

impl Entry {
    /// Code, and whether denormals are zero while it runs.
    pub fn new(code: HostTask, flushes: bool) -> Entry {
        Entry { code, flushes }
    }

    /// Runs iterations `begin..end`.
    ///
    /// # Safety
    /// The code is loaded, and `context` holds what it expects.
    #[inline]
    pub unsafe fn run(self, context: *const HostContext, begin: u64, end: u64) {
        let (begin, end) = (begin as i64, end as i64);
        // What failed is recorded by then.
        // SAFETY: the contract above.
        let _: u32 = unsafe {
            if self.flushes { enter_flushing(context, begin, end, self.code) } else { (self.code)(context, begin, end) }
        };
    }
}

/// Calls `code` with the other parameters between setting the processor and setting it back. No artifact asks for it on
/// other processors.
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[unsafe(naked)]
unsafe extern "C" fn enter_flushing(context: *const HostContext, begin: i64, end: i64, code: HostTask) -> u32 {
    // Bits 6 and 15 of MXCSR: denormal operands are zero, and so are results that would be denormal.
    core::arch::naked_asm!(
        "sub rsp, 24",
        "stmxcsr [rsp + 8]",
        "mov eax, [rsp + 8]",
        "or eax, 0x8040",
        "mov [rsp + 12], eax",
        "ldmxcsr [rsp + 12]",
        "call rcx",
        "ldmxcsr [rsp + 8]",
        "add rsp, 24",
        "ret",
    )
}

#[cfg(not(all(target_arch = "x86_64", not(windows))))]
unsafe fn enter_flushing(context: *const HostContext, begin: i64, end: i64, code: HostTask) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { code(context, begin, end) }
}
