//! Forks while other threads are at work.
//!
//! A child process has the memory of its parent and one of its threads. What the others were at stays half done there,
//! and the locks that they held stay held. The forking thread has the interpreter, so that the others can only be where
//! they do without it:
//!
//! - Compiling, loading, opening and closing devices, whose libraries have locks of their own: a fork waits until that
//!   is done.
//! - Launching, or waiting for work: a fork waits for the end too, but not for long, since a kernel may run as long as
//!   it likes. What it holds begins anew in the child (`Device::go_on_after_fork`).
//!
//! Nothing of either begins between the call before a fork and the call after it.

use pyo3::prelude::*;

use crate::{detached, program};

/// Before a fork: waits for what other threads are doing.
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    // Where there are streams, the child begins anew whatever runs on them.
    detached::pause_for_fork(py, program::are_immediate());
}

/// After a fork in the process that made it.
#[pyfunction]
pub fn after_fork_in_parent() {
    detached::resume_after_fork();
}

/// After a fork in the new process: goes on with each program, or releases it where its streams are served by the
/// parent's threads.
#[pyfunction]
pub fn after_fork_in_child() {
    // SAFETY: no other thread is here, and this one has no guard.
    unsafe {
        detached::renew_after_fork();
        program::go_on_after_fork();
    }
}
