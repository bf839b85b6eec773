//! Forks while other threads run.
//!
//! A child process has the memory of its parent and one of its threads. Work that other threads were doing remains
//! half done, and locks that they held remain locked. The forking thread holds the interpreter, so other threads can
//! only be in code that runs without it:
//!
//! - Compiling, loading, opening and closing devices, whose libraries have their own locks: a fork waits for these to
//!   finish.
//! - Launching, or waiting for work: a fork waits for these too, but not for long, since a kernel may run for any
//!   time. Its locks are recreated in the child (`Device::resume_after_fork`).
//!
//! None of these starts between the hook before a fork and the hook after it.

use pyo3::prelude::*;

use crate::{detached, program};

/// Before a fork: waits for work of other threads.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    // If there are streams, the child creates new ones.
    detached::pause_for_fork(py, program::are_immediate());
}

/// After a fork in the process that made it.
#[pyfunction]
pub fn after_fork_in_parent() {
    detached::resume_after_fork();
}

/// After a fork, in the child: resumes each program, or releases it if the parent's threads serve its streams.
#[pyfunction]
pub fn after_fork_in_child() {
    // SAFETY: no other thread is here, and this one has no guard.
    unsafe {
        detached::renew_after_fork();
        program::resume_after_fork();
    }
}
