//! Waits that return early when the caller is interrupted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::caller::Caller;
use crate::error::{ErrorKind, Result};

/// Interval between checks whether a waiting thread was interrupted.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long a program waits at its end for interrupted work that cannot be canceled.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A caller that stops waiting at a given time.
pub(crate) struct Until(Instant);

impl Until {
    /// From now on for [`GRACE`].
    pub(crate) fn grace() -> Until {
        Until(Instant::now() + GRACE)
    }
}

impl Caller for Until {
    fn will_block(&self) {}

    fn can_be_interrupted(&self) -> bool {
        true
    }

    fn is_interrupted(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Calls `wait`, which waits for a limited time, until it reports completion. Notes in `left` when the caller leaves
/// the wait.
pub(crate) fn abandon_if_interrupted(
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
