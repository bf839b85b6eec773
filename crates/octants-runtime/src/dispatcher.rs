//! [`Dispatcher`]: runs the tasks of a kernel on arrays that are split over ranks.

use crate::error::Result;

/// Runs a kernel on split arrays task by task, because each task needs rows of other ranks.
pub trait Dispatcher {
    /// Calls `run` with the first row and the end of each range of rows that this rank computes.
    ///
    /// # Errors
    /// Those of `run`, and its own.
    fn dispatch(&self, task: usize, run: &mut dyn FnMut(i32, i32) -> Result<()>) -> Result<()>;
}
