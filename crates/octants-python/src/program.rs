//! The current program: what `init` makes and `reset` ends. The only global state of the system.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use octants_engine::Session;
use octants_engine::runtime::{Caller, Patient, Renewable, Stream};
use pyo3::prelude::*;

use crate::errors;

/// A session and the number of the `init` that made it.
pub struct Program {
    /// The device and its options.
    pub session: Session,
    /// Equal to [`current_generation`] as long as this program is the current one.
    pub generation: u64,
    /// Specialisations of kernels compiled so far.
    pub compiled: AtomicU64,
    /// Torch's streams that launches have followed.
    pub followed: Mutex<Vec<Stream>>,
}

static CURRENT: Renewable<Option<Arc<Program>>> = Renewable::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Counts calls of `init` and `reset`; objects keep the number they were made under.
pub fn current_generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

static FOLLOWS_TORCH: AtomicBool = AtomicBool::new(false);

/// Whether work that names no stream goes to torch's current one.
#[inline]
pub fn follows_torch() -> bool {
    FOLLOWS_TORCH.load(Ordering::Acquire)
}

/// The current program, if `init` was called.
pub fn current() -> Option<Arc<Program>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The current program, or the error that says what to do.
pub fn require(py: Python<'_>) -> PyResult<Arc<Program>> {
    current().ok_or_else(|| errors::no_program(py, FORKED.load(Ordering::Acquire)))
}

/// Ends the current program: waits for its work, until `caller` is interrupted.
pub fn end(caller: &dyn Caller) {
    replace(None, caller);
}

/// What is queued is not to be waited for: the current program is about to end.
pub fn cancel_work() {
    if let Some(program) = current() {
        program.session.device().cancel();
    }
}

/// Puts a program in the place of the current one, which ends.
pub fn replace(program: Option<Session>, caller: &dyn Caller) {
    let old = {
        let mut slot = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
        FOLLOWS_TORCH.store(program.as_ref().is_some_and(|s| s.config().follow_torch_stream), Ordering::Release);
        std::mem::replace(
            &mut *slot,
            program.map(|session| {
                Arc::new(Program { session, generation, compiled: AtomicU64::new(0), followed: Mutex::default() })
            }),
        )
    };
    // Outside the lock: closing waits for the program's work. What failed in it has no one left to be told.
    if let Some(old) = old {
        let _ = old.session.close(caller);
    }
}

/// Makes a session the current program, after an `init`.
pub fn begin(session: Session) {
    FORKED.store(false, Ordering::Release);
    replace(Some(session), &Patient);
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// In a child process: lets go of the parent's program where streams are real, since the threads that serve them are
/// the parent's. Without streams the program goes on.
///
/// # Safety
/// The process has just been made by a fork, and this is its only thread.
pub unsafe fn go_on_after_fork() {
    // SAFETY: the contract above; nothing here is called with a guard of the locks.
    unsafe {
        CURRENT.renew_if_held();
        PRINTED.renew_if_held();
    }
    let mut slot = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as above.
    let goes_on = |p: &mut Arc<Program>| unsafe { p.session.device().go_on_after_fork() };
    if let Some(program) = slot.take_if(|p| !goes_on(p)) {
        GENERATION.fetch_add(1, Ordering::AcqRel);
        FORKED.store(true, Ordering::Release);
        // Its end would wait for the threads.
        std::mem::forget(program);
    }
}

static PRINTED: Renewable<String> = Renewable::new(String::new());
static ANYTHING_PRINTED: AtomicBool = AtomicBool::new(false);

/// Takes what kernels print, from whatever thread, without the interpreter.
pub fn keep_printed(text: &str) {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    ANYTHING_PRINTED.store(true, Ordering::Release);
}

/// Writes what kernels have printed to `sys.stdout`.
#[inline]
pub fn write_printed(py: Python<'_>) -> PyResult<()> {
    if !ANYTHING_PRINTED.load(Ordering::Acquire) {
        return Ok(());
    }
    let text = {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        ANYTHING_PRINTED.store(false, Ordering::Release);
        std::mem::take(&mut *printed)
    };
    let stdout = py.import("sys")?.getattr("stdout")?;
    if !stdout.is_none() {
        stdout.call_method1("write", (text,))?;
        stdout.call_method0("flush")?;
    }
    Ok(())
}

/// The current program's device as DLPack names it; the host where there is no program.
pub fn dlpack_device() -> (i32, i32) {
    current().map_or((1, 0), |p| p.session.device().dlpack_device())
}

/// The attribute by which Python objects show arrays in the memory of the current program's device.
pub fn array_protocol() -> Option<&'static str> {
    current().and_then(|p| p.session.device().array_protocol())
}

/// Name of the current program's device.
pub fn device_name() -> String {
    current().map_or_else(|| "the CPU".to_string(), |p| p.session.device().name().to_string())
}

/// True while the current program does all work within the call that asks for it.
pub fn is_immediate() -> bool {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(|p| p.session.device().is_immediate())
}
