//! Waits that a caller who is interrupted leaves.

use std::time::Duration;

use crate::driver::Caller;
use crate::error::{ErrorKind, Result};

/// Between two looks whether a thread was interrupted that waits.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Calls `wait`, which waits for some time, until it says that what it waits for is done.
pub(crate) fn leave_if_interrupted(caller: &dyn Caller, mut wait: impl FnMut() -> Result<bool>) -> Result<()> {
    while !wait()? {
        if caller.is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}
