//! [`LaunchHistory`]: the launches that a manual `kernel.grad()` may refer to. It detects loops whose trip count has
//! changed since the launch.
//!
//! `kernel.grad(...)` does not name a launch. It may refer to any launch with the same arguments, not only the last
//! one: programs that recompute states from checkpoints launch a kernel several times and then call its gradients. The
//! call is an error if no launch matches what the gradient would run while some launch still has no gradient. If no
//! launch was recorded, the gradient uses memory as it is.
//!
//! Before the first `kernel.grad()`, nothing indicates that one will follow. Until then, launches are recorded only if
//! gradients have memory, and at most a thousand. Recording a launch means waiting for it, so on asynchronous devices
//! it happens in debug mode only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::trip_count_record::TripCountRecord;

/// Maximum number of recorded launches before the first `kernel.grad()`.
const MOST_WITHOUT_GRADIENT: usize = 1000;

/// Maximum number of distinct records per specialization. Beyond it, recording stops.
const MOST_KEPT: usize = 1 << 16;

/// The recorded launches of one specialization.
#[derive(Default)]
pub struct LaunchHistory(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// By the slots of their arguments.
    launches: HashMap<Box<[u64]>, Launches>,
    /// Number of recorded launches.
    count: usize,
    /// Number of stored trip-count records.
    kept: usize,
    /// Recording has stopped.
    ended: bool,
}

/// Launches with the same arguments.
#[derive(Default)]
struct Launches {
    /// The distinct records; the last one belongs to the latest launch.
    records: Vec<TripCountRecord>,
    /// Number of launches without a gradient so far.
    owed: usize,
}

impl LaunchHistory {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to record the next launch.
    pub fn wants_more(&self, differentiated: bool) -> bool {
        let mut seen = self.lock();
        if !differentiated && seen.count >= MOST_WITHOUT_GRADIENT {
            seen.forget();
        }
        !seen.ended && (differentiated || seen.count < MOST_WITHOUT_GRADIENT)
    }

    /// Stops recording and forgets all launches: a gradient may now refer to a launch that was not recorded.
    pub fn end(&self) {
        let mut seen = self.lock();
        seen.ended = true;
        seen.forget();
    }

    /// Forgets the recorded launches; recording continues.
    pub fn forget(&self) {
        self.lock().forget();
    }

    /// Records a launch.
    pub fn add(&self, slots: &[u64], trip_counts: TripCountRecord) {
        let mut seen = self.lock();
        let seen = &mut *seen;
        let same = seen.launches.entry(slots.into()).or_default();
        seen.count += 1;
        same.owed += 1;
        match same.records.iter().position(|t| *t == trip_counts) {
            Some(i) => same.records[i..].rotate_left(1),
            None => {
                same.records.push(trip_counts);
                seen.kept += 1;
            }
        }
        if seen.kept > MOST_KEPT {
            seen.ended = true;
            seen.forget();
        }
    }

    /// Whether a launch with these arguments still has no gradient.
    pub fn lacks_gradient(&self, slots: &[u64]) -> bool {
        self.lock().launches.get(slots).is_some_and(|same| same.owed > 0)
    }

    /// Called before a gradient runs. Returns the record of the latest launch with its arguments, if no launch matches
    /// the gradient.
    pub fn unlike(&self, slots: &[u64], now: &TripCountRecord) -> Option<TripCountRecord> {
        let mut seen = self.lock();
        let same = seen.launches.get_mut(slots)?;
        if !same.records.contains(now) {
            return same.records.last().cloned();
        }
        same.owed = same.owed.saturating_sub(1);
        None
    }
}

impl Seen {
    fn forget(&mut self) {
        self.launches = HashMap::new();
        self.kept = 0;
    }
}
