//! Counts the work that threads do without the interpreter, so that a fork can wait for it: see [`crate::fork`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use octants_engine::runtime::Renewable;
use pyo3::prelude::*;

/// Longest that a fork waits for kernels that other threads run.
const PATIENCE: Duration = Duration::from_millis(500);

/// Threads that want to make a fork: nothing is compiled.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Of these, the threads that have waited for what was being compiled: no launch begins. Those that have begun go on,
/// since others may wait for their turn after them.
static HOLDING: AtomicU32 = AtomicU32::new(0);
/// Threads that launch or wait without the interpreter.
static LAUNCHING: AtomicU32 = AtomicU32::new(0);
/// Forks that made this process, from the first process on.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Threads that compile, load or open without the interpreter.
static COMPILING: Renewable<u32> = Renewable::new(0);
/// Told when one of these numbers falls.
static CHANGED: Condvar = Condvar::new();

fn compiling() -> MutexGuard<'static, u32> {
    COMPILING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the forks that made this process. What a thread notes under an earlier number is the note of a thread of
/// another process.
pub fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// To be called before a launch, which then begins: waits while a fork is made.
#[inline]
pub fn before_launch(py: Python<'_>) {
    if HOLDING.load(Ordering::Relaxed) > 0 {
        py.detach(wait_for_fork);
    }
}

/// To be called by a thread that launches, once it has released the interpreter.
#[inline]
pub fn leave() {
    LAUNCHING.fetch_add(1, Ordering::SeqCst);
}

/// To be called by it before it takes the interpreter again.
#[inline]
pub fn come_back() {
    LAUNCHING.fetch_sub(1, Ordering::SeqCst);
    if HOLDING.load(Ordering::SeqCst) > 0 {
        tell();
    }
}

#[cold]
fn tell() {
    drop(compiling());
    CHANGED.notify_all();
}

#[cold]
fn wait_for_fork() {
    let mut guard = compiling();
    while HOLDING.load(Ordering::SeqCst) > 0 {
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A thread that has left the interpreter, until dropped.
struct Away;

impl Drop for Away {
    fn drop(&mut self) {
        come_back();
    }
}

/// Waits without the interpreter.
pub fn waiting<T: Send>(py: Python<'_>, wait: impl FnOnce() -> T + Send) -> T {
    before_launch(py);
    py.detach(|| {
        leave();
        let _away = Away;
        wait()
    })
}

/// A thread that a fork waits for, until dropped.
pub struct Busy;

impl Drop for Busy {
    fn drop(&mut self) {
        *compiling() -= 1;
        CHANGED.notify_all();
    }
}

/// Works without the interpreter, in what a child process could not take up again.
pub fn working<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let _busy = begin_work();
        work()
    })
}

/// Begins such work, on a thread without the interpreter.
pub fn begin_work() -> Busy {
    let mut count = compiling();
    while FORKING.load(Ordering::SeqCst) > 0 {
        count = CHANGED.wait(count).unwrap_or_else(PoisonError::into_inner);
    }
    *count += 1;
    Busy
}

/// A fork is about to be made: begins nothing of what a fork waits for, and waits for what others compile; with
/// `launches`, for some time for what they launch too.
pub fn pause_for_fork(py: Python<'_>, launches: bool) {
    FORKING.fetch_add(1, Ordering::SeqCst);
    py.detach(|| {
        let mut count = compiling();
        while *count > 0 {
            count = CHANGED.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        HOLDING.fetch_add(1, Ordering::SeqCst);
    });
    let until = Instant::now() + PATIENCE;
    // Looked at with the interpreter: a thread that has begun may be about to release it.
    while launches && LAUNCHING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        py.detach(|| {
            let mut count = compiling();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if LAUNCHING.load(Ordering::SeqCst) == 0 || left.is_zero() {
                    break;
                }
                count = CHANGED.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        });
    }
}

/// The fork was made, by this process: others go on.
pub fn resume_after_fork() {
    HOLDING.fetch_sub(1, Ordering::SeqCst);
    FORKING.fetch_sub(1, Ordering::SeqCst);
    tell();
}

/// In a child process: forgets the threads, which are the parent's.
///
/// # Safety
/// The process has just been made by a fork, and this is its only thread.
pub unsafe fn renew_after_fork() {
    // SAFETY: the contract above; this thread has no guard.
    unsafe { COMPILING.renew_if_held() };
    *compiling() = 0;
    FORKING.store(0, Ordering::SeqCst);
    HOLDING.store(0, Ordering::SeqCst);
    LAUNCHING.store(0, Ordering::SeqCst);
    FORKS.fetch_add(1, Ordering::Relaxed);
}
