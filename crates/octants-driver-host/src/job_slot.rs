//! [`Slot`]: a job while threads take part in it.
//!
//! The caller takes a slot, opens it, takes part, then closes the lanes that no thread has joined, and waits for the
//! others.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use octants_runtime::Renewable;

use crate::apart::Apart;
use crate::lane::{Lane, pack};
use crate::lane_state as state;
use crate::ranges::Ranges;
use crate::watch::Watch;

/// Why a job did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// Something panicked, with this message.
    Panicked(String),
    /// The caller was interrupted.
    Interrupted,
}

/// The function that each participant of a job calls.
pub(crate) type Body<'a> = dyn Fn(&mut Ranges<'_>) + Sync + 'a;

/// The description of a job.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// Lives until the caller has closed the job and all participants have left.
    pub(crate) body: *const Body<'static>,
    pub(crate) count: u64,
    pub(crate) chunk: u64,
    pub(crate) width: u32,
}

/// A place for a job, with a lane for each thread of the pool.
pub(crate) struct Slot {
    pub(crate) taken: AtomicBool,
    /// Lanes of the open job; 0 while there is none.
    pub(crate) width: AtomicU32,
    pub(crate) job: UnsafeCell<Option<Job>>,
    pub(crate) lanes: Box<[Apart<Lane>]>,
    pub(crate) panic: Renewable<Option<Stopped>>,
    /// The open job was interrupted.
    pub(crate) stop: AtomicBool,
}

// SAFETY: `job` is written by the thread that took the slot, before it opens lanes and after the last participant has
// left; participants read it between taking an open lane and leaving it.
unsafe impl Sync for Slot {}
// SAFETY: the pointer in `job` is used as above whichever thread holds the slot.
unsafe impl Send for Slot {}

impl Slot {
    /// Starts a job: gives each participant its share of the chunks and opens all lanes except the caller's.
    pub(crate) fn open(&self, job: Job, chunks: u32) {
        // SAFETY: this thread took the slot and no lane is open.
        unsafe { *self.job.get() = Some(job) };
        self.stop.store(false, Ordering::Relaxed);
        let (width, all) = (u64::from(job.width), u64::from(chunks));
        for (i, lane) in self.lanes[..job.width as usize].iter().enumerate() {
            let n = i as u64;
            let share = pack((n * all / width) as u32, ((n + 1) * all / width) as u32);
            lane.0.chunks.store(share, Ordering::Relaxed);
            if i > 0 {
                lane.0.state.store(state::OPEN, Ordering::Release);
            }
        }
        self.width.store(job.width, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.width.load(Ordering::Relaxed) > 0
    }

    /// The lanes of the open job that are not the caller's.
    fn others(&self) -> impl Iterator<Item = (usize, &Lane)> {
        let width = self.width.load(Ordering::Acquire) as usize;
        self.lanes[..width].iter().map(|l| &l.0).enumerate().skip(1)
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.others().any(|(_, lane)| lane.is_wanted())
    }

    /// Joins the open job on the lane with this number, if it is free.
    #[inline]
    pub(crate) fn take_own(&self, number: usize) -> bool {
        number < self.width.load(Ordering::Acquire) as usize && self.take_part(number)
    }

    /// The same with any free lane.
    pub(crate) fn take_any(&self) -> bool {
        self.others().any(|(number, lane)| lane.is_wanted() && self.take_part(number))
    }

    fn take_part(&self, number: usize) -> bool {
        let state = &self.lanes[number].0.state;
        let taken = state.compare_exchange(state::OPEN, state::TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return false;
        }
        // SAFETY: this thread has taken an open lane; the job is written before, and kept until all have left.
        if let Some(job) = unsafe { *self.job.get() } {
            self.work(&job, number, &Watch::of_lane(state, &self.stop));
        }
        if state.swap(state::CLOSED, Ordering::AcqRel) == state::AWAITED {
            // The slot is part of the pool's shared state, which this thread keeps alive, so its address stays good.
            atomic_wait::wake_all(state);
        }
        true
    }

    /// Runs chunks until there are none left, or the job is interrupted.
    pub(crate) fn work(&self, job: &Job, own: usize, watch: &Watch<'_>) {
        // SAFETY: participants use the body only here, between taking a lane and leaving it.
        let body = unsafe { &*job.body };
        let lanes = &self.lanes[..job.width as usize];
        let (chunk, count) = (job.chunk, job.count);
        let mut ranges = Ranges { whole: None, lanes, own, empty: 0, chunk, count, watch };
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&mut ranges))) {
            let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| panicked(&*payload));
        }
    }

    /// Closes the lanes that no thread has joined, and waits until all participants have left.
    pub(crate) fn finish(&self, watch: &Watch<'_>) {
        let others = self.others();
        self.width.store(0, Ordering::Relaxed);
        let start = Instant::now();
        others.for_each(|(_, lane)| lane.finish(start, watch));
    }
}

pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Stopped {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    Stopped::Panicked(text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into()))
}
