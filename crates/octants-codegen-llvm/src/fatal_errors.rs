//! Isolates LLVM's fatal errors: the affected compilation fails, and the process continues.
//!
//! LLVM reports a fatal error to a handler that must not return. It does so deep inside functions that cannot be
//! unwound: their destructors would be skipped, and half-changed data would become visible. LLVM therefore runs on
//! dedicated threads. A thread that meets a fatal error reports it to the waiting thread, and sleeps forever, so
//! nothing is freed that LLVM may still use. Each such error costs the memory of the thread and of its module. Later
//! compilations have their own contexts, and work.
//!
//! LLVM's crashes (invalid memory accesses) cannot be caught here: modules are verified before code generation.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use inkwell::context::Context;
use llvm_sys::LLVMDiagnosticSeverity;
use llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity,
};
use llvm_sys::error_handling::LLVMInstallFatalErrorHandler;
use llvm_sys::prelude::LLVMDiagnosticInfoRef;

use crate::CodegenError;

/// Stack size of a thread. Only used pages take memory. LLVM recurses deeply on long expressions.
const STACK: usize = 32 << 20;

/// The message of a thread to the one that waits for it.
enum Event {
    /// A step is done.
    Step(&'static str),
    /// It has ended, perhaps by a panic.
    Ended(Option<Box<dyn Any + Send>>),
    /// It has hit a fatal error, and never continues.
    Lost(String),
}

thread_local! {
    /// The channel through which a thread of [`on_threads`] reports.
    static TELL: RefCell<Option<Sender<Event>>> = const { RefCell::new(None) };
}

/// Work of a thread; it receives the callback for its steps.
type Work<'a> = dyn Fn(&mut dyn FnMut(&'static str)) + Sync + 'a;

/// An error that only a bug of this compiler or of LLVM can cause.
pub(crate) fn compiler_bug(what: &str) -> CodegenError {
    CodegenError::new(format!("compiler bug: {what}. Please report it, with the kernel's source"))
}

/// Runs `work` on a number of threads, at least one, and waits for all of them. `after` receives the steps of the
/// first. Returns LLVM's fatal error if there is one.
pub(crate) fn on_threads(
    count: usize,
    after: &mut dyn FnMut(&'static str),
    work: &Work<'_>,
) -> Result<(), CodegenError> {
    install_handler();
    let (tell, events) = channel();
    // SAFETY: a thread uses `work` only before it sends `Ended`, and a thread that sends `Lost` never continues. This
    // function returns, or unwinds, when all threads have sent one or the other: nothing between here and there panics
    // but `after`, for which see below.
    let work: &'static Work<'static> = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
    let mut running = 0;
    for number in 0..count.max(1) {
        let tell = tell.clone();
        let run = move || {
            TELL.set(Some(tell.clone()));
            let mut step = |name| {
                if number == 0 {
                    // The receiver waits for it.
                    let _ = tell.send(Event::Step(name));
                }
            };
            let panic = catch_unwind(AssertUnwindSafe(|| work(&mut step))).err();
            TELL.set(None);
            let _ = tell.send(Event::Ended(panic));
        };
        // Fewer threads suffice, too.
        running +=
            usize::from(thread::Builder::new().name("octants-compile".into()).stack_size(STACK).spawn(run).is_ok());
    }
    if running == 0 {
        // If no thread can be created, the calling thread does all the work.
        work(after);
        return Ok(());
    }
    let (mut panic, mut lost) = (None, None);
    while running > 0 {
        match events.recv().expect("compiler bug: a compilation thread ended without a message") {
            // A panic must not let this function end before its threads.
            Event::Step(name) if panic.is_none() => panic = catch_unwind(AssertUnwindSafe(|| after(name))).err(),
            Event::Step(_) => {}
            Event::Ended(by) => {
                running -= 1;
                panic = panic.or(by);
            }
            Event::Lost(message) => {
                running -= 1;
                lost = Some(compiler_bug(&format!("LLVM cannot generate code: {message}")));
            }
        }
    }
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    lost.map_or(Ok(()), Err)
}

/// Runs `work` on a dedicated thread; the result is an error where LLVM meets a fatal one. `after` is called after each
/// step.
pub(crate) fn on_a_thread<R: Send>(
    after: &mut dyn FnMut(&'static str),
    work: impl FnOnce(&mut dyn FnMut(&'static str)) -> Result<R, CodegenError> + Send,
) -> Result<R, CodegenError> {
    let (work, result) = (Mutex::new(Some(work)), Mutex::new(None));
    on_threads(1, after, &|step| {
        let work = lock(&work).take();
        let made = work.map(|work| work(step));
        *lock(&result) = made;
    })?;
    result
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .expect("compiler bug: a compilation thread ended without a result")
}

/// Runs code that holds a process-wide lock. A thread that sleeps with the lock would block all others, so a fatal
/// error here ends the process.
pub(crate) fn holding_a_lock<R>(work: impl FnOnce() -> R) -> R {
    let tell = TELL.take();
    let result = work();
    TELL.set(tell);
    result
}

/// The state that a panic left is not used: the panic is propagated.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn install_handler() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler is a function of this library, which is never unloaded; LLVM keeps one for the process.
    ONCE.call_once(|| unsafe { LLVMInstallFatalErrorHandler(Some(fatal_error)) });
}

/// Called by LLVM, which ends the process when this returns.
extern "C" fn fatal_error(reason: *const c_char) {
    // SAFETY: LLVM passes a C string.
    let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().trim().to_owned();
    let tell = TELL.try_with(|tell| tell.take()).ok().flatten();
    if tell.is_some_and(|tell| tell.send(Event::Lost(reason)).is_ok()) {
        loop {
            thread::park();
        }
    }
}

/// Errors that LLVM reports to the context of a module. LLVM continues after them, with code that must not be used.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: Mutex<Vec<String>>,
}

impl Diagnostics {
    /// Collects the errors of a context, which without it would end the process.
    ///
    /// # Safety
    /// `self` must outlive the context, and must not move.
    pub unsafe fn collect(&self, context: &Context) {
        let to = (&raw const *self).cast_mut().cast::<c_void>();
        // SAFETY: the handler fits the pointer, which is valid as the caller promises.
        unsafe { LLVMContextSetDiagnosticHandler(context.raw(), Some(diagnosed), to) };
    }

    /// The errors so far, if there are any.
    pub fn check(&self) -> Result<(), CodegenError> {
        let errors = lock(&self.errors);
        if errors.is_empty() { Ok(()) } else { Err(compiler_bug(&format!("LLVM reports {}", errors.join("; ")))) }
    }
}

extern "C" fn diagnosed(info: LLVMDiagnosticInfoRef, to: *mut c_void) {
    // SAFETY: LLVM passes a diagnostic, whose text is given back to it, and what `collect` gave it.
    unsafe {
        if LLVMGetDiagInfoSeverity(info) != LLVMDiagnosticSeverity::LLVMDSError {
            return;
        }
        let text = LLVMGetDiagInfoDescription(info);
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        LLVMDisposeMessage(text);
        lock(&(*to.cast::<Diagnostics>()).errors).push(message);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use inkwell::memory_buffer::MemoryBuffer;
    use inkwell::targets::FileType;
    use octants_artifact::CodeTarget;

    use super::*;
    use crate::optimize::emit_code;
    use crate::target::cpu::{Cpu, Processor};
    use crate::{CodegenOptions, check_target, target};

    /// PTX of a version that lacks a feature of the chip: LLVM ends the process.
    fn impossible() -> CodeTarget {
        CodeTarget::Device { triple: "nvptx64-nvidia-cuda".into(), cpu: "sm_90".into(), features: "+ptx32".into() }
    }

    fn fail() -> Result<(), CodegenError> {
        let (_, machine, _) = target::open(&impossible(), &CodegenOptions::default())?;
        let context = Context::create();
        let text = b"define ptx_kernel void @f() {\n ret void\n}\n";
        let module = context.create_module_from_ir(MemoryBuffer::create_from_memory_range_copy(text, "f")).unwrap();
        module.set_triple(&machine.get_triple());
        emit_code(&module, &machine, FileType::Assembly).map(drop)
    }

    #[test]
    fn a_fatal_error_of_llvm_is_an_error_and_later_compilations_work() {
        for _ in 0..3 {
            let error = on_a_thread(&mut |_| (), |_| fail()).unwrap_err().to_string();
            assert!(error.contains("compiler bug: LLVM cannot generate code: ") && error.contains("PTX"), "{error}");
            assert!(check_target(&CodeTarget::Host).is_ok());
        }
    }

    #[test]
    fn other_threads_finish_when_one_fails() {
        let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let result = on_threads(4, &mut |_| (), &|_| {
            if next.fetch_add(1, Ordering::Relaxed) == 1 {
                let _ = fail();
            }
            thread::sleep(std::time::Duration::from_millis(20));
            ended.fetch_add(1, Ordering::Relaxed);
        });
        assert!(result.is_err());
        assert_eq!(ended.into_inner(), 3);
    }

    #[test]
    fn steps_are_reported_and_panics_propagate() {
        let mut steps = Vec::new();
        let made = on_a_thread(&mut |step| steps.push(step), |step| {
            step("one");
            step("two");
            Ok(7)
        });
        assert_eq!((made, steps), (Ok(7), vec!["one", "two"]));
        let panic = catch_unwind(|| on_a_thread::<()>(&mut |_| (), |_| panic!("compiler bug: a test"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"compiler bug: a test"));
    }

    #[test]
    fn diagnostics_of_an_llvm_context_become_errors() {
        let processor = Processor::named("x86_64-unknown-linux-gnu", "x86-64").unwrap();
        let (_, machine) = Cpu::new(&processor, &CodegenOptions::default()).unwrap();
        let diagnostics = Diagnostics::default();
        let context = Context::create();
        // SAFETY: the context is dropped before.
        unsafe { diagnostics.collect(&context) };
        let text = br#"define void @f(i32 %v) {
  call void asm sideeffect "nop", "{no such register}"(i32 %v)
  ret void
}
"#;
        let module = context.create_module_from_ir(MemoryBuffer::create_from_memory_range_copy(text, "f")).unwrap();
        module.set_triple(&machine.get_triple());
        diagnostics.check().unwrap();
        let _ = emit_code(&module, &machine, FileType::Assembly);
        let error = diagnostics.check().unwrap_err().to_string();
        assert!(error.contains("compiler bug: LLVM reports ") && error.contains("no such register"), "{error}");
    }
}
