//! Waits that a caller who is interrupted leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::driver::Caller;
use crate::error::{ErrorKind, Result};

/// Between two looks whether a thread was interrupted that waits.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Calls `wait`, which waits for some time, until it says that what it waits for is done. Notes in `left` when the
/// caller leaves the wait.
pub(crate) fn leave_if_interrupted(
    caller: &dyn Caller,
    left: &AtomicBool,
    mut wait: impl FnMut() -> Result<bool>,
) -> Result<()> {
    while !wait()? {
        if caller.is_interrupted() {
            left.store(true, Ordering::Relaxed);
            return Err(ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}
