//! Counts the work that threads do without the interpreter, so that a fork can wait for it: see [`crate::fork`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use octants_engine::runtime::Renewable;
use pyo3::prelude::*;

/// Maximum time that a fork waits for kernels that other threads run.
const PATIENCE: Duration = Duration::from_millis(500);

/// Threads about to fork. While there are any, no compilation starts.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// The number of these threads that have waited for running compilations. While there are any, no launch starts.
/// Launches that have started continue, because others may wait for them.
static HOLDING: AtomicU32 = AtomicU32::new(0);
/// Threads that launch or wait without the interpreter.
static LAUNCHING: AtomicU32 = AtomicU32::new(0);
/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Threads that compile, load or open without the interpreter.
static COMPILING: Renewable<u32> = Renewable::new(0);
/// Notified when one of these counts falls.
static CHANGED: Condvar = Condvar::new();

fn compiling() -> MutexGuard<'static, u32> {
    COMPILING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of forks between the first process and this one. A record under an earlier number was made by another
/// process's thread.
pub fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Call this before a launch. Waits while another thread forks.
#[inline]
pub fn before_launch(py: Python<'_>) {
    if HOLDING.load(Ordering::Relaxed) > 0 {
        py.detach(wait_for_fork);
    }
}

/// A launching thread calls this once it has released the interpreter.
#[inline]
pub fn begin_wait() {
    LAUNCHING.fetch_add(1, Ordering::SeqCst);
}

/// A launching thread calls this before it takes the interpreter again.
#[inline]
pub fn end_wait() {
    LAUNCHING.fetch_sub(1, Ordering::SeqCst);
    if HOLDING.load(Ordering::SeqCst) > 0 {
        notify();
    }
}

#[cold]
fn notify() {
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
struct Waiting;

impl Drop for Waiting {
    fn drop(&mut self) {
        end_wait();
    }
}

/// Waits without the interpreter.
pub fn waiting<T: Send>(py: Python<'_>, wait: impl FnOnce() -> T + Send) -> T {
    before_launch(py);
    py.detach(|| {
        begin_wait();
        let _waiting = Waiting;
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

/// Runs work without the interpreter that a child process could not resume.
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

/// Prepares a fork: blocks new compilations and launches, and waits for compilations in progress. With `launches`, also
/// waits for launches, for a limited time.
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
    // Checked while holding the interpreter: a thread that has started may be about to release it.
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

/// Ends a fork in the parent: other threads continue.
pub fn resume_after_fork() {
    HOLDING.fetch_sub(1, Ordering::SeqCst);
    FORKING.fetch_sub(1, Ordering::SeqCst);
    notify();
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
