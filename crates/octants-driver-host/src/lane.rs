//! [`Lane`]: a participant's share of a job, a run of neighboring chunks.
//!
//! Its own participant takes chunks from the front, others steal from the back. Participants join and leave through
//! its state, which they share with the caller only.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::lane_state as state;
use crate::watch::Watch;

/// How long a caller spins for the end of its job, and the minimum time that an idle thread spins, before sleeping.
pub(crate) const SPIN: Duration = Duration::from_micros(40);
/// Spins between two readings of the clock.
pub(crate) const LOOKS: u32 = 64;

/// A participant's share of a job.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) state: AtomicU32,
    /// The chunks that no one has taken: the first in the low half, the end in the high half.
    pub(crate) chunks: AtomicU64,
}

impl Lane {
    /// Whether it is free and has chunks.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        let (first, end) = unpack(self.chunks.load(Ordering::Relaxed));
        self.state.load(Ordering::Relaxed) == state::OPEN && first < end
    }

    /// Closes the lane once its participant, if any, has left. A participant that works for long wakes this thread,
    /// which then polls for interrupts.
    pub(crate) fn finish(&self, start: Instant, watch: &Watch<'_>) {
        let closed = self.state.compare_exchange(state::OPEN, state::CLOSED, Ordering::Acquire, Ordering::Acquire);
        if closed.is_ok() {
            return;
        }
        loop {
            for _ in 0..LOOKS {
                if self.state.load(Ordering::Acquire) == state::CLOSED {
                    return;
                }
                spin_loop();
            }
            if start.elapsed() >= SPIN {
                break;
            }
        }
        let awaited = self.state.compare_exchange(state::TAKEN, state::AWAITED, Ordering::Acquire, Ordering::Acquire);
        if awaited.is_ok() {
            while self.state.load(Ordering::Acquire) == state::AWAITED {
                atomic_wait::wait(&self.state, state::AWAITED);
                watch.ends_code();
            }
        }
    }
}

#[inline]
pub(crate) fn pack(first: u32, end: u32) -> u64 {
    u64::from(first) | u64::from(end) << 32
}

#[inline]
fn unpack(lane: u64) -> (u32, u32) {
    (lane as u32, (lane >> 32) as u32)
}

#[inline]
pub(crate) fn take_first(lane: &AtomicU64) -> Option<u32> {
    take(lane, |first, end| (first, pack(first + 1, end)))
}

#[inline]
pub(crate) fn take_last(lane: &AtomicU64) -> Option<u32> {
    take(lane, |first, end| (end - 1, pack(first, end - 1)))
}

#[inline]
fn take(lane: &AtomicU64, choose: impl Fn(u32, u32) -> (u32, u64)) -> Option<u32> {
    let mut now = lane.load(Ordering::Relaxed);
    loop {
        let (first, end) = unpack(now);
        if first >= end {
            return None;
        }
        let (chunk, rest) = choose(first, end);
        match lane.compare_exchange_weak(now, rest, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(chunk),
            Err(other) => now = other,
        }
    }
}
