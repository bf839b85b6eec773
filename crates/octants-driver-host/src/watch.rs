//! [`Watch`]: whether running code should exit because the user has interrupted the launch.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use octants_runtime::Caller;

use crate::lane_state as state;

/// Interval between polls of the caller. Shorter code never makes the caller release the interpreter.
const BETWEEN: Duration = Duration::from_millis(5);

/// The interrupt state of a thread that runs code of a launch, which the code's long loops query.
pub struct Watch<'a> {
    /// The launch has been interrupted. Shared by all threads that run it.
    stop: &'a AtomicBool,
    /// The caller, on the launching thread.
    caller: Option<&'a dyn Caller>,
    /// The lane of another thread, for which the caller may wait.
    lane: Option<&'a AtomicU32>,
    next: Cell<Option<Instant>>,
}

impl<'a> Watch<'a> {
    /// For the launching thread.
    pub fn of_caller(caller: &'a dyn Caller, stop: &'a AtomicBool) -> Watch<'a> {
        Watch { stop, caller: Some(caller), lane: None, next: Cell::new(None) }
    }

    /// For a thread that has joined a lane.
    pub(crate) fn of_lane(lane: &'a AtomicU32, stop: &'a AtomicBool) -> Watch<'a> {
        Watch { stop, caller: None, lane: Some(lane), next: Cell::new(None) }
    }

    /// The launch has been interrupted.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Polls whether the launch has been interrupted.
    pub fn look(&self) -> bool {
        if !self.is_stopped() && self.caller.is_some_and(|c| c.is_interrupted()) {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.is_stopped()
    }

    /// The same, for running code, which may poll often and before it is known to run for long.
    pub fn ends_code(&self) -> bool {
        if self.is_stopped() {
            return true;
        }
        let now = Instant::now();
        let is_due = self.next.get().is_some_and(|next| now >= next);
        if is_due || self.next.get().is_none() {
            self.next.set(Some(now + BETWEEN));
        }
        if !is_due {
            return false;
        }
        if let Some(caller) = self.caller {
            caller.will_block();
        }
        if let Some(lane) = self.lane.filter(|l| l.load(Ordering::Relaxed) == state::AWAITED) {
            // The caller polls, and continues to wait.
            atomic_wait::wake_all(lane);
        }
        self.look()
    }
}
