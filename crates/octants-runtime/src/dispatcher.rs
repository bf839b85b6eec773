//! [`Dispatcher`]: runs the tasks of a kernel on arrays that are split over ranks.
//!
//! The ranks of a process are its devices. Their launches are nested: the launches of all but the first device lend
//! themselves ([`Dispatcher::lend`]), and the launch of the first device decides which task runs next and queues it on
//! all devices.

use crate::error::{ErrorKind, Result};

/// Runs a kernel on split arrays task by task, because each task needs rows of other ranks.
pub trait Dispatcher {
    /// Calls `run` with the first row and the end of each range of rows that this rank computes. Its random numbers are
    /// those of `draw`.
    ///
    /// # Errors
    /// Those of `run`, and its own.
    fn dispatch(&self, task: usize, draw: Draw, run: &mut dyn FnMut(i32, i32) -> Result<()>) -> Result<()>;

    /// A task on no split array was queued, with random numbers from this draw. Queues it on the other devices of this
    /// process.
    ///
    /// # Errors
    /// Those of the other devices.
    fn repeat_elsewhere(&self, _task: usize, _draw: Draw) -> Result<()> {
        Ok(())
    }

    /// Takes a launch instead of running it: the launch of another device queues its tasks before this returns. `None`
    /// for a launch that runs its own tasks.
    fn lend(&self, _open: &dyn OpenLaunch) -> Option<Result<()>> {
        None
    }
}

/// The data on which a launch's random numbers depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The program's seed.
    pub seed: u64,
    /// The number of the launch.
    pub number: u64,
}

/// A launch whose tasks the launch of another device queues.
pub trait OpenLaunch {
    /// Queues a task on a range of rows, from the first to before the end.
    ///
    /// # Errors
    /// The driver's, and failures of the task on a synchronous device.
    fn run_rows(&self, task: usize, draw: Draw, rows: (i32, i32)) -> Result<()>;

    /// Queues a task on no split array.
    ///
    /// # Errors
    /// As [`OpenLaunch::run_rows`].
    fn run_whole(&self, task: usize, draw: Draw) -> Result<()>;

    /// Waits for queued work if its memory is host memory, which the dispatcher accesses directly.
    ///
    /// # Errors
    /// The driver's.
    fn finish_on_host(&self) -> Result<()>;
}

/// The error for a launch that was lent and is asked to run tasks by itself.
pub fn not_lent() -> ErrorKind {
    ErrorKind::CompilerBug("a launch on one of several devices was not lent to the first device's".into())
}
