//! The thread pool that runs the chunks of a job, optimized for short wake-up.
//!
//! Any number of threads may run jobs concurrently. Each job takes one of a few slots; a job that finds none free runs
//! on its caller only. Every participant of a job has a lane: a run of neighboring chunks, taken from the front. The
//! caller has the first lane. A pool thread takes the lane of its own number if that is still free, so a thread
//! touches the same memory from job to job. A participant that has finished its lane steals chunks from the back of
//! others. Participants join and leave through the state of their lane, which they share with the caller only. The
//! caller takes part, then closes the lanes that no thread has joined, and waits for the others.
//!
//! Idle threads spin for some time, longer if work recently came soon after they had gone to sleep, and then sleep on
//! a futex. The caller wakes two of them, and each of those wakes two more while there are free lanes, so the caller's
//! time does not grow with the number of threads.

use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use octants_runtime::{Caller, Renewable, nesting};

use crate::apart::Apart;
use crate::copies::Copies;
use crate::job_slot::{Body, Job, Slot, panicked};
use crate::lane::{LOOKS, Lane, SPIN, pack};
use crate::lane_state as state;
use crate::watch::Watch;

pub use crate::job_slot::Stopped;
pub use crate::ranges::Ranges;

thread_local! {
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Maximum number of threads of a pool.
const MOST_THREADS: u32 = 1 << 20;
/// Maximum number of concurrent jobs.
const SLOTS: usize = 16;
/// Maximum time that a thread spins before it sleeps. Waking up takes tens of microseconds, more on virtual machines.
const LONGEST_SPIN: Duration = Duration::from_micros(250);
/// Spins before a thread takes a lane meant for another one.
const HOLD: u32 = 128;

struct Shared {
    slots: Box<[Apart<Slot>]>,
    /// Counts opened jobs and, by a last step, the end of the pool. Idle threads sleep on it.
    epoch: Apart<AtomicU32>,
    sleepers: AtomicU32,
    ended: AtomicBool,
}

/// A pool of threads. Threads are started by the first job.
pub struct Pool {
    shared: Arc<Shared>,
    threads: u32,
    started: AtomicBool,
    workers: Renewable<Workers>,
    copies: Copies,
}

#[derive(Default)]
struct Workers {
    handles: Vec<JoinHandle<()>>,
    process: u32,
}

impl Pool {
    /// A pool of `threads` threads, callers among them.
    pub fn new(threads: u32) -> Pool {
        let threads = threads.clamp(1, MOST_THREADS);
        let slot = || Slot {
            taken: AtomicBool::new(false),
            width: AtomicU32::new(0),
            job: UnsafeCell::new(None),
            lanes: (0..threads).map(|_| Apart(Lane::default())).collect(),
            panic: Renewable::default(),
            stop: AtomicBool::new(false),
        };
        let slots = if threads == 1 { 0 } else { SLOTS };
        let shared = Shared {
            slots: (0..slots).map(|_| Apart(slot())).collect(),
            epoch: Apart(AtomicU32::new(0)),
            sleepers: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        };
        Pool {
            shared: Arc::new(shared),
            threads,
            started: AtomicBool::new(false),
            workers: Renewable::default(),
            copies: Copies::default(),
        }
    }

    /// Threads of the pool, callers among them.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Memory that jobs use, by lane.
    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Calls `body(begin, end)` for ranges of `chunk` numbers that cover `0..count` once, on up to `width` threads.
    /// Returns when all of them are done. After a panic the remaining chunks still run, and the first panic's message
    /// is returned. Once `caller`, this thread, is interrupted, no more chunks start.
    pub fn run(
        &self,
        count: u64,
        chunk: u64,
        width: u32,
        caller: &dyn Caller,
        body: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), Stopped> {
        self.share(count, chunk, width, caller, &|ranges| ranges.for_each(|(begin, end)| body(begin, end)))
    }

    /// The same, but each thread calls `body` once, which takes ranges until there are none left; again after a panic.
    pub fn share(
        &self,
        count: u64,
        chunk: u64,
        width: u32,
        caller: &dyn Caller,
        body: &Body<'_>,
    ) -> Result<(), Stopped> {
        let chunk = chunk.max(count.div_ceil(u64::from(u32::MAX))).max(1);
        let chunks = count.div_ceil(chunk) as u32;
        let width = width.min(self.threads).min(chunks);
        let slot = if width < 2 || WORKER.with(Cell::get) { None } else { self.take_slot() };
        let Some(slot) = slot else {
            let lane = [Apart(Lane { chunks: AtomicU64::new(pack(0, chunks)), ..Lane::default() })];
            let may_end = caller.can_be_interrupted();
            // In one piece if the caller cannot be interrupted.
            let (chunk, lanes) = if may_end { (chunk, &lane[..]) } else { (count, &[][..]) };
            let whole = (!may_end && count > 0).then_some((0, count));
            let stop = AtomicBool::new(false);
            let watch = &Watch::of_caller(caller, &stop);
            let mut all = Ranges { whole, lanes, own: 0, empty: 0, chunk, count, watch };
            let end = catch_unwind(AssertUnwindSafe(|| body(&mut all))).map_err(|p| panicked(&*p));
            return if watch.is_stopped() { Err(Stopped::Interrupted) } else { end };
        };
        self.start();
        // SAFETY: only the lifetime changes; no one uses the pointer after this function's end (see `Slot::finish`).
        let body: *const Body<'static> = unsafe { std::mem::transmute::<&Body<'_>, *const Body<'static>>(body) };
        let job = Job { body, count, chunk, width };
        slot.open(job, chunks);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        self.shared.wake(2.min(width - 1));
        let watch = Watch::of_caller(caller, &slot.stop);
        slot.work(&job, 0, &watch);
        slot.finish(&watch);
        let interrupted = watch.is_stopped();
        let panic = slot.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        slot.taken.store(false, Ordering::Release);
        panic.map_or(if interrupted { Err(Stopped::Interrupted) } else { Ok(()) }, Err)
    }

    /// Ends the threads. Later jobs run on their callers.
    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        atomic_wait::wake_all(&self.shared.epoch.0);
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        let me = thread::current().id();
        for handle in workers.handles {
            // After a fork the threads are those of another process; a worker that ends the pool cannot wait for
            // itself.
            if workers.process == std::process::id() && handle.thread().id() != me {
                let _ = handle.join();
            }
        }
    }

    /// In a child process: forgets the threads, which are the parent's, and their jobs. The next job starts new
    /// threads.
    ///
    /// # Safety
    /// This is the only thread of the process, and in no job.
    pub unsafe fn renew_after_fork(&self) {
        for slot in self.shared.slots.iter().map(|s| &s.0) {
            // SAFETY: the contract above.
            unsafe {
                slot.panic.renew_if_held();
                *slot.job.get() = None;
            }
            slot.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            slot.width.store(0, Ordering::Relaxed);
            slot.lanes.iter().for_each(|lane| lane.0.state.store(state::CLOSED, Ordering::Relaxed));
            slot.taken.store(false, Ordering::Relaxed);
        }
        self.shared.sleepers.store(0, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe {
            self.workers.renew_if_held();
            self.copies.renew_after_fork();
        }
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        // Their thread ids may be those of threads of this process.
        std::mem::take(&mut workers.handles).into_iter().for_each(std::mem::forget);
        self.started.store(false, Ordering::Release);
    }

    fn take_slot(&self) -> Option<&Slot> {
        let free = |s: &&Apart<Slot>| {
            !s.0.taken.load(Ordering::Relaxed)
                && s.0.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        self.shared.slots.iter().find(free).map(|s| &s.0)
    }

    #[inline]
    fn start(&self) {
        if !self.started.load(Ordering::Acquire) {
            self.start_threads();
        }
    }

    #[cold]
    fn start_threads(&self) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.started.swap(true, Ordering::AcqRel) || self.shared.ended.load(Ordering::Acquire) {
            return;
        }
        workers.process = std::process::id();
        for n in 1..self.threads {
            let shared = self.shared.clone();
            let builder = thread::Builder::new().name(format!("octants-{n}")).stack_size(8 << 20);
            // With fewer threads than requested, the others do more work.
            if let Ok(handle) = builder.spawn(move || shared.serve(n as usize)) {
                workers.handles.push(handle);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Wakes up to `n` sleeping threads.
    #[inline]
    fn wake(&self, n: u32) {
        // Pairs with the fence of a thread that goes to sleep: it sees the new epoch, or it is counted here.
        fence(Ordering::SeqCst);
        for _ in 0..n.min(self.sleepers.load(Ordering::SeqCst)) {
            atomic_wait::wake_one(&self.epoch.0);
        }
    }

    /// The main loop of the thread with this number.
    fn serve(&self, number: usize) {
        nesting::mark_worker_thread();
        WORKER.with(|w| w.set(true));
        let mut patience = SPIN;
        loop {
            let seen = self.epoch.0.load(Ordering::SeqCst);
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            while self.slots.iter().any(|s| s.0.take_own(number)) {}
            if self.slots.iter().any(|s| s.0.is_open()) && self.hold(seen) {
                while self.slots.iter().any(|s| s.0.take_any()) {}
            }
            let idle = Instant::now();
            if self.spin_while(seen, idle, patience) {
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            atomic_wait::wait(&self.epoch.0, seen);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if !self.ended.load(Ordering::Acquire) && self.slots.iter().any(|s| s.0.has_room()) {
                self.wake(2);
            }
            let idle = idle.elapsed();
            patience = if idle < LONGEST_SPIN { LONGEST_SPIN.min(idle * 2) } else { SPIN.max(patience / 2) };
        }
    }

    /// Gives other threads time to take their own lanes. False if another job was opened meanwhile.
    fn hold(&self, seen: u32) -> bool {
        (0..HOLD).all(|_| {
            spin_loop();
            self.epoch.0.load(Ordering::Acquire) == seen
        })
    }

    /// Spins until the epoch differs from `seen`; false once `patience` has passed since `start`.
    fn spin_while(&self, seen: u32, start: Instant, patience: Duration) -> bool {
        loop {
            for _ in 0..LOOKS {
                if self.epoch.0.load(Ordering::Acquire) != seen {
                    return true;
                }
                spin_loop();
            }
            if start.elapsed() >= patience {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use octants_runtime::Uninterruptible;

    use super::*;

    fn cover(pool: &Pool, count: u64, chunk: u64, width: u32) {
        let seen: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let body = |b: u64, e: u64| {
            for i in b..e {
                seen[i as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        pool.run(count, chunk, width, &Uninterruptible, &body).unwrap();
        assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{count} {chunk} {width}");
    }

    #[test]
    fn every_index_is_covered_once() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            for count in [0, 1, 2, 63, 1000, 4097] {
                for chunk in [1, 7, 64, 5000] {
                    for width in [1, 2, 3, 64] {
                        cover(&pool, count, chunk, width);
                    }
                }
            }
        }
    }

    #[test]
    fn each_participant_is_called_once_and_takes_ranges() {
        for threads in [1, 4] {
            let pool = Pool::new(threads);
            let (calls, sum) = (AtomicU64::new(0), AtomicU64::new(0));
            let body = |ranges: &mut Ranges<'_>| {
                calls.fetch_add(1, Ordering::Relaxed);
                sum.fetch_add(ranges.map(|(b, e)| (b..e).sum::<u64>()).sum(), Ordering::Relaxed);
            };
            pool.share(1001, 10, 4, &Uninterruptible, &body).unwrap();
            assert!((1..=u64::from(threads)).contains(&calls.into_inner()));
            assert_eq!(sum.into_inner(), 1001 * 1000 / 2);
        }
    }

    #[test]
    fn many_threads_run_jobs_concurrently() {
        let pool = Pool::new(3);
        thread::scope(|s| {
            for _ in 0..SLOTS + 4 {
                s.spawn(|| (0..200).for_each(|_| cover(&pool, 300, 10, 3)));
            }
        });
    }

    #[test]
    fn nested_jobs_run_inline() {
        let pool = Pool::new(4);
        let total = AtomicU64::new(0);
        let inner = |b: u64, e: u64| {
            total.fetch_add(e - b, Ordering::Relaxed);
        };
        let outer = |b: u64, e: u64| (b..e).for_each(|_| pool.run(100, 5, 4, &Uninterruptible, &inner).unwrap());
        pool.run(64, 1, 4, &Uninterruptible, &outer).unwrap();
        assert_eq!(total.into_inner(), 6400);
    }

    #[test]
    fn a_panic_does_not_stop_other_chunks() {
        let pool = Pool::new(4);
        let runs = AtomicU32::new(0);
        let body = |b: u64, _| {
            runs.fetch_add(1, Ordering::Relaxed);
            assert_ne!(b, 30, "thirty");
        };
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let end = pool.run(100, 1, 4, &Uninterruptible, &body);
        std::panic::set_hook(hook);
        assert!(matches!(end, Err(Stopped::Panicked(text)) if text.contains("thirty")));
        assert_eq!(runs.into_inner(), 100);
        cover(&pool, 1000, 10, 4);
    }

    #[test]
    fn sleeping_threads_wake_up_and_pools_shut_down() {
        for _ in 0..20 {
            let pool = Pool::new(4);
            for pause in [0, 1, 60, 300] {
                cover(&pool, 1000, 10, 4);
                thread::sleep(Duration::from_micros(pause));
            }
            pool.end();
            cover(&pool, 1000, 10, 4);
        }
    }

    #[test]
    fn work_is_shared_when_one_participant_is_slow() {
        let pool = Pool::new(2);
        let shared = || {
            let threads = Mutex::new(std::collections::HashSet::new());
            let body = |_, _| {
                threads.lock().unwrap().insert(thread::current().id());
                thread::sleep(Duration::from_millis(2));
            };
            pool.run(40, 1, 2, &Uninterruptible, &body).unwrap();
            threads.into_inner().unwrap().len() == 2
        };
        // A busy machine may keep the other thread from waking in time, but not repeatedly.
        assert!((0..20).any(|_| shared()));
    }

    /// Reports an interrupt after this number of polls.
    struct Impatient(Cell<u32>);

    impl Caller for Impatient {
        fn will_block(&self) {}

        fn can_be_interrupted(&self) -> bool {
            true
        }

        fn is_interrupted(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }
    }

    #[test]
    fn an_interrupt_skips_the_chunks_not_yet_started() {
        for threads in [1, 4] {
            let pool = Pool::new(threads);
            let done = AtomicU32::new(0);
            let body = |_, _| {
                thread::sleep(Duration::from_millis(1));
                done.fetch_add(1, Ordering::Relaxed);
            };
            let end = pool.run(1000, 1, 4, &Impatient(Cell::new(5)), &body);
            assert_eq!(end, Err(Stopped::Interrupted));
            let begun = done.load(Ordering::Relaxed);
            assert!((4..200).contains(&begun), "{begun}");
            cover(&pool, 1000, 7, 4);
            assert_eq!(done.load(Ordering::Relaxed), begun, "none was begun later");
        }
    }

    #[test]
    fn a_pool_restarts_after_losing_its_threads() {
        let pool = Pool::new(4);
        cover(&pool, 1000, 7, 4);
        // The state in a child process: the threads, which end here, do not exist; the job of such a thread is open.
        pool.end();
        pool.shared.ended.store(false, Ordering::SeqCst);
        let slot = pool.take_slot().unwrap();
        slot.width.store(4, Ordering::Relaxed);
        slot.lanes[1].0.state.store(state::TAKEN, Ordering::Relaxed);
        // SAFETY: no other thread uses the pool.
        unsafe { pool.renew_after_fork() };
        assert!(!slot.taken.load(Ordering::Relaxed));
        cover(&pool, 1000, 7, 4);
    }
}
