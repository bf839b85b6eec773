//! The programs: the one that `init` creates, and those of further devices. This is the only global state of the
//! system.
//!
//! A program is a session on one device. `init` and `reset` end all programs. Each thread has a current program, on
//! whose device kernels run and objects are created. Outside of `with device:` blocks it is the default one.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use octants_engine::Session;
use octants_engine::runtime::{Buffer, Caller, Renewable, Stream, Uninterruptible};
use pyo3::prelude::*;

use crate::errors;

/// A session on one device, with its identity.
pub struct Program {
    /// The device and its options.
    pub session: Session,
    /// Unique within the process.
    pub serial: u64,
    /// Equal to [`current_epoch`] while this program runs.
    pub epoch: u64,
    /// The device as `qd.device` names it: its kind and its number.
    pub name: String,
    /// Specializations of kernels compiled so far.
    pub compiled: AtomicU64,
    /// Torch's streams that launches have followed.
    pub followed: Mutex<Vec<Stream>>,
    /// Calls that have started and may use addresses of memory.
    calls: AtomicU64,
    /// Memory that is freed when there are none, and whether there is any.
    retired: Mutex<Vec<Buffer>>,
    has_retired: AtomicBool,
}

/// A call that is in progress, until dropped.
pub struct CallInProgress<'a>(&'a Program);

impl Program {
    /// Notes the start of a call. Memory that it might use is not freed before its end. The caller holds the
    /// interpreter, here and at the end, so that the count needs no atomic update.
    #[inline]
    pub fn begin_call(&self) -> CallInProgress<'_> {
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        CallInProgress(self)
    }

    /// Frees retired memory, now or when the last call in progress has ended.
    pub fn free_retired(&self, memory: Buffer) {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        self.has_retired.store(true, Ordering::Relaxed);
        if self.calls.load(Ordering::Relaxed) == 0 {
            self.free_all_retired();
        }
    }

    #[cold]
    fn free_all_retired(&self) {
        self.has_retired.store(false, Ordering::Relaxed);
        let retired = std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner));
        retired.iter().for_each(Buffer::free_retired);
    }
}

impl Drop for CallInProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        let left = self.0.calls.load(Ordering::Relaxed) - 1;
        self.0.calls.store(left, Ordering::Relaxed);
        if left == 0 && self.0.has_retired.load(Ordering::Relaxed) {
            self.0.free_all_retired();
        }
    }
}

/// The running programs, each on its own device.
#[derive(Default)]
struct Running {
    /// That of `init`.
    default: Option<Arc<Program>>,
    /// Those of `qd.device`, in the order in which they began.
    others: Vec<Arc<Program>>,
}

impl Running {
    fn all(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.default.iter().chain(&self.others)
    }

    fn find(&self, serial: u64) -> Option<&Arc<Program>> {
        self.all().find(|p| p.serial == serial)
    }
}

static RUNNING: Renewable<Running> = Renewable::new(Running { default: None, others: Vec::new() });
/// Counts calls of `init` and `reset`.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// The serial of the latest program.
static SERIALS: AtomicU64 = AtomicU64::new(0);
/// That of the default program; zero without one.
static DEFAULT: AtomicU64 = AtomicU64::new(0);
/// Whether a program other than the default one was created. Until then no thread can be on another device.
static SEVERAL: AtomicBool = AtomicBool::new(false);
static FOLLOWS_TORCH: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The serial of the program that this thread is on; zero for the default one.
    static HERE: Cell<u64> = const { Cell::new(0) };
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts calls of `init` and `reset`, which end all programs; objects keep the number they were made under.
pub fn current_epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// The serial of this thread's current program: that of the innermost `with device:` block, or else the default one.
/// Zero without a program.
#[inline]
pub fn current_serial() -> u64 {
    if SEVERAL.load(Ordering::Relaxed) {
        let here = HERE.get();
        if here != 0 {
            return here;
        }
    }
    DEFAULT.load(Ordering::Acquire)
}

/// Whether this process has used further devices.
pub fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Whether work without an explicit stream runs on torch's current stream.
#[inline]
pub fn follows_torch() -> bool {
    FOLLOWS_TORCH.load(Ordering::Acquire)
}

/// This thread's current program, if it runs.
pub fn current() -> Option<Arc<Program>> {
    by_serial(current_serial())
}

/// The program with this serial, if it runs.
pub fn by_serial(serial: u64) -> Option<Arc<Program>> {
    running().find(serial).cloned()
}

/// This thread's current program, or an error with advice.
pub fn require(py: Python<'_>) -> PyResult<Arc<Program>> {
    current().ok_or_else(|| {
        let forked = FORKED.load(Ordering::Acquire);
        if HERE.get() != 0 && !forked {
            return errors::dead_object(py, "device");
        }
        errors::no_program(py, forked)
    })
}

/// The program that `init` created, or an error with advice.
pub fn default(py: Python<'_>) -> PyResult<Arc<Program>> {
    let found = running().default.clone();
    found.ok_or_else(|| errors::no_program(py, FORKED.load(Ordering::Acquire)))
}

/// The program that an object belongs to, or the error that it has ended.
pub fn require_of(py: Python<'_>, serial: u64, what: &str) -> PyResult<Arc<Program>> {
    by_serial(serial).ok_or_else(|| errors::dead_object(py, what))
}

/// The name of a program's device.
pub fn name_of(serial: u64) -> String {
    by_serial(serial).map_or_else(|| String::from("a device whose program has ended"), |p| p.name.clone())
}

/// All programs that run, the default one first.
pub fn all() -> Vec<Arc<Program>> {
    running().all().cloned().collect()
}

/// Makes the program with this serial current on this thread. Returns what [`go_back`] takes.
pub fn go_to(serial: u64) -> u64 {
    HERE.replace(if serial == DEFAULT.load(Ordering::Acquire) { 0 } else { serial })
}

/// Restores this thread's previous program.
pub fn go_back(before: u64) {
    HERE.set(before);
}

/// Ends all programs: waits for their work, until `caller` is interrupted.
pub fn end(caller: &dyn Caller) {
    replace(None, caller);
}

/// Cancels queued work: all programs are about to end.
pub fn cancel_work() {
    all().iter().for_each(|program| program.session.device().cancel());
}

fn program(session: Session, name: String) -> Arc<Program> {
    let serial = SERIALS.fetch_add(1, Ordering::Relaxed) + 1;
    let epoch = current_epoch();
    session.device().set_label(&name);
    Arc::new(Program {
        session,
        serial,
        epoch,
        name,
        compiled: AtomicU64::new(0),
        followed: Mutex::default(),
        calls: AtomicU64::new(0),
        retired: Mutex::default(),
        has_retired: AtomicBool::new(false),
    })
}

/// Replaces all programs by one; the others end.
pub fn replace(session: Option<Session>, caller: &dyn Caller) {
    let old = {
        let mut running = running();
        EPOCH.fetch_add(1, Ordering::AcqRel);
        FOLLOWS_TORCH.store(session.as_ref().is_some_and(|s| s.config().follow_torch_stream), Ordering::Release);
        let default = session.map(|session| {
            let name = session.device_name();
            program(session, name)
        });
        DEFAULT.store(default.as_ref().map_or(0, |p| p.serial), Ordering::Release);
        std::mem::replace(&mut *running, Running { default, others: Vec::new() })
    };
    // Outside the lock: closing waits for the program's work. Failures in it are dropped.
    for program in old.others.iter().chain(&old.default) {
        let _ = program.session.close(caller);
    }
}

/// Makes a session the default program, after an `init`.
pub fn begin(session: Session) {
    FORKED.store(false, Ordering::Release);
    replace(Some(session), &Uninterruptible);
}

/// The program on the device of this name, if it runs.
pub fn by_name(name: &str) -> Option<Arc<Program>> {
    running().all().find(|p| p.name == name).cloned()
}

/// Adds a session to the programs of an epoch. If another thread was faster, returns that thread's. `None` if the epoch
/// has ended.
pub fn join(session: Session, name: String, epoch: u64) -> Option<Arc<Program>> {
    let mut running = running();
    if current_epoch() != epoch {
        return None;
    }
    if let Some(known) = running.all().find(|p| p.name == name) {
        return Some(known.clone());
    }
    let program = program(session, name);
    running.others.push(program.clone());
    SEVERAL.store(true, Ordering::Release);
    Some(program)
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// In a child process: releases the parent's programs with real streams, because the threads that serve them exist only
/// in the parent. Programs without streams continue.
///
/// # Safety
/// The process has just been made by a fork, and this is its only thread.
pub unsafe fn resume_after_fork() {
    // SAFETY: the contract above; nothing here is called with a guard of the locks.
    unsafe {
        RUNNING.renew_if_held();
        PRINTED.renew_if_held();
    }
    let mut running = running();
    // SAFETY: as above.
    let goes_on = |p: &Arc<Program>| unsafe { p.session.device().resume_after_fork() };
    let (others, gone) = std::mem::take(&mut running.others).into_iter().partition(goes_on);
    running.others = others;
    // Their end would wait for the threads.
    Vec::into_iter(gone).for_each(std::mem::forget);
    if let Some(program) = running.default.take_if(|p| !goes_on(p)) {
        EPOCH.fetch_add(1, Ordering::AcqRel);
        DEFAULT.store(0, Ordering::Release);
        FORKED.store(true, Ordering::Release);
        std::mem::forget(program);
    }
}

static PRINTED: Renewable<String> = Renewable::new(String::new());
static ANYTHING_PRINTED: AtomicBool = AtomicBool::new(false);

/// Collects the text that kernels print, on any thread, without the interpreter.
pub fn collect_printed(text: &str) {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    ANYTHING_PRINTED.store(true, Ordering::Release);
}

/// Writes the collected text of kernels to `sys.stdout`.
#[inline]
pub fn write_printed(py: Python<'_>) -> PyResult<()> {
    if ANYTHING_PRINTED.load(Ordering::Acquire) { write_now(py) } else { Ok(()) }
}

#[cold]
fn write_now(py: Python<'_>) -> PyResult<()> {
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

/// The current program's device as DLPack names it; the host if there is no program.
pub fn dlpack_device() -> (i32, i32) {
    current().map_or((1, 0), |p| p.session.device().dlpack_device())
}

/// Whether other libraries use other addresses for the memory of the current program's device.
pub fn has_foreign_addresses() -> bool {
    current().is_some_and(|p| p.session.device().has_foreign_addresses())
}

/// The address of the current program's memory that another library names by `address`. `None` if it is not this
/// program's, and the library's addresses mean nothing here.
pub fn own_address(address: u64) -> Option<u64> {
    current().map_or(Some(address), |p| p.session.device().own_address(address))
}

/// The array-interface attribute for the memory of the current program's device.
pub fn array_protocol() -> Option<&'static str> {
    current().and_then(|p| p.session.device().array_protocol())
}

/// Name of the current program's device.
pub fn device_name() -> String {
    current().map_or_else(|| "the CPU".to_string(), |p| p.session.device().name().to_string())
}

/// True while the devices of all programs are synchronous.
pub fn are_immediate() -> bool {
    running().all().all(|p| p.session.device().is_immediate())
}
