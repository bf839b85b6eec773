//! In-order work queues and the threads that serve them: real streams on the CPU.
//!
//! A queue with work is on the list of ready queues. A dispatcher removes it, executes one piece of its work, which
//! may use the thread pool, and appends it to the list again, so busy queues take turns. A queue that waits for a
//! point of another one is off the list until that point is reached. It holds no thread, so a few dispatchers serve
//! any number of streams and cannot block one another. A point is a number of pieces of a queue's work, so an event
//! costs the queue nothing.
//!
//! Under a [`Schedule`] there are no dispatchers: the threads that queue work or wait for it do what the schedule
//! picks. A queue may wait for another device's point: the thread that waits then does that device's work as well.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use octants_runtime::nesting::{self, Inside};
use octants_runtime::{Caller, Launch};

use crate::memory::HostMemory;
use crate::peers::Peers;
use crate::pool::Pool;
use crate::run_task::{LoadedTask, QueuedTask};
use crate::schedule::Schedule;

/// Maximum number of task objects cached per queue.
const MOST_SPARE: usize = 256;

/// A piece of a queue's work.
pub enum Work {
    /// Runs a task.
    Task(Box<QueuedTask>),
    /// Runs the remaining pieces of a task that a schedule has split, last first.
    Pieces(Box<QueuedTask>, Vec<(u64, u64)>),
    /// Copies bytes; the ranges may overlap.
    Copy {
        /// Address.
        to: u64,
        /// Address.
        from: u64,
        /// Length.
        bytes: usize,
    },
    /// Gives memory back.
    Free {
        /// Address.
        address: u64,
        /// Length.
        bytes: u64,
        /// The memory that it was allocated from.
        of: Arc<HostMemory>,
    },
    /// Notes the time.
    Time(Arc<OnceLock<Instant>>),
    /// Waits until a point is reached.
    Await(Point),
}

/// An in-order queue.
pub struct Queue {
    priority: i32,
    /// The threads that serve it.
    of: Weak<Shared>,
    state: Mutex<QueueState>,
    progress: Condvar,
    /// Number of pieces of work at the front that are canceled.
    canceled: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    work: VecDeque<Work>,
    /// Cached task objects.
    #[allow(clippy::vec_box)] // Boxes move between this list and the work.
    spare: Vec<Box<QueuedTask>>,
    /// Whether it is ready, being served, or waiting for a point.
    scheduled: bool,
    queued: u64,
    done: u64,
    waiting: u32,
    /// Queues that wait until a number of pieces are done.
    waiting_queues: Vec<(u64, Arc<Queue>)>,
}

/// A point in a queue's work: after its first pieces.
#[derive(Clone)]
pub struct Point {
    queue: Arc<Queue>,
    pieces: u64,
}

#[derive(Default)]
struct Ready {
    queues: Vec<Arc<Queue>>,
    idle: u32,
    ended: bool,
}

/// The server of a ready queue.
#[derive(PartialEq, Eq)]
enum Served {
    ByThreads,
    /// The threads have ended.
    ByCaller,
}

struct Shared {
    own: Weak<Shared>,
    pool: Arc<Pool>,
    ready: Mutex<Ready>,
    wake: Condvar,
    schedule: Option<Mutex<Schedule>>,
    /// All work is canceled.
    canceled: AtomicBool,
    /// Other devices whose points the queues have waited for.
    peers: Peers<Shared>,
}

/// The threads that run the tasks of a queue.
struct Server<'a> {
    shared: &'a Shared,
    queue: &'a Queue,
    /// The position of the work in the queue.
    place: u64,
}

impl Caller for Server<'_> {
    fn will_block(&self) {}

    fn can_be_interrupted(&self) -> bool {
        true
    }

    fn is_interrupted(&self) -> bool {
        self.shared.canceled.load(Ordering::Relaxed) || self.queue.canceled.load(Ordering::Relaxed) > self.place
    }
}

/// The queues' list and the threads that serve them.
pub struct Queues {
    shared: Arc<Shared>,
    dispatchers: u32,
    started: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Panics of tasks are caught before they get here; what the locks guard is valid between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// True when all work is done.
    fn is_done(&self) -> bool {
        let s = lock(&self.state);
        s.done == s.queued
    }

    /// Waits until this many pieces of its work are done.
    fn wait_until_done(&self, pieces: u64) {
        let mut s = lock(&self.state);
        s.waiting += 1;
        while s.done < pieces {
            s = self.progress.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        s.waiting -= 1;
    }

    /// The point after all work that is in the queue now.
    pub fn end(self: &Arc<Queue>) -> Point {
        Point { queue: self.clone(), pieces: lock(&self.state).queued }
    }
}

impl QueueState {
    /// The queues whose points are reached.
    fn take_awaiting(&mut self) -> Vec<Arc<Queue>> {
        let done = self.done;
        self.waiting_queues.extract_if(.., |(pieces, _)| *pieces <= done).map(|(_, queue)| queue).collect()
    }

    /// Whether the first piece of work is short enough for a thread that must stay interruptible.
    fn begins_short(&self) -> bool {
        match self.work.front() {
            Some(Work::Task(task)) => task.is_short(),
            Some(Work::Pieces(..)) | None => false,
            Some(_) => true,
        }
    }
}

impl Point {
    /// Whether the work before it is done.
    pub fn is_reached(&self) -> bool {
        lock(&self.queue.state).done >= self.pieces
    }

    /// Lets a queue wait for it, unless it is reached.
    fn is_awaited_by(&self, queue: &Arc<Queue>) -> bool {
        let mut s = lock(&self.queue.state);
        let waits = s.done < self.pieces;
        if waits {
            s.waiting_queues.push((self.pieces, queue.clone()));
        }
        waits
    }

    /// Cancels the work before it.
    fn cancel(&self) {
        cancel_to(&self.queue, self.pieces);
    }
}

impl Queues {
    /// Serves queues with at most `dispatchers` threads, started by the first work, or by a schedule.
    pub fn new(pool: Arc<Pool>, dispatchers: u32, schedule: Option<u64>) -> Queues {
        let shared = Arc::new_cyclic(|own: &Weak<Shared>| Shared {
            own: own.clone(),
            pool,
            ready: Mutex::default(),
            wake: Condvar::new(),
            schedule: schedule.map(|seed| Mutex::new(Schedule::new(seed))),
            canceled: AtomicBool::new(false),
            peers: Peers::default(),
        });
        let (started, threads) = (AtomicBool::new(false), Mutex::default());
        Queues { shared, dispatchers: dispatchers.max(1), started, threads }
    }

    /// An empty queue. Ready queues of higher priority are served first.
    pub fn queue(&self, priority: i32) -> Arc<Queue> {
        let (state, progress, canceled) = (Mutex::default(), Condvar::new(), AtomicU64::new(0));
        Arc::new(Queue { priority, of: self.shared.own.clone(), state, progress, canceled })
    }

    /// Adds work to a queue.
    pub fn push(&self, queue: &Arc<Queue>, work: Work) {
        self.push_made(queue, |_| work);
    }

    /// Adds a launch's task to a queue.
    pub fn push_task(&self, queue: &Arc<Queue>, task: Arc<LoadedTask>, launch: &Launch<'_>) {
        self.push_made(queue, |s| {
            let mut queued = s.spare.pop().unwrap_or_default();
            queued.fill(task, launch);
            Work::Task(queued)
        });
    }

    fn push_made(&self, queue: &Arc<Queue>, make: impl FnOnce(&mut QueueState) -> Work) {
        let ready = {
            let mut s = lock(&queue.state);
            let work = make(&mut s);
            s.queued += 1;
            if let Work::Await(point) = &work {
                self.shared.note_peer(point);
            }
            s.work.push_back(work);
            !std::mem::replace(&mut s.scheduled, true)
        };
        if ready && self.shared.make_ready(queue.clone()) == Served::ByCaller {
            while self.shared.step() {}
        }
        match &self.shared.schedule {
            Some(schedule) => {
                let steps = lock(schedule).steps_after_push();
                (0..steps).for_each(|_| _ = self.shared.step());
            }
            None if !self.started.load(Ordering::Acquire) => self.start_threads(),
            None => {}
        }
    }

    /// Whether all work of the queue is done. Under a schedule, each query does some work.
    pub fn query(&self, queue: &Queue) -> bool {
        if self.shared.is_stepped() && !queue.is_done() {
            self.shared.step();
        }
        queue.is_done()
    }

    /// Whether the point is reached. Under a schedule, each query does some work.
    pub fn query_point(&self, point: &Point) -> bool {
        if self.shared.is_stepped() && !point.is_reached() {
            self.shared.step();
        }
        point.is_reached()
    }

    /// Waits until the work that is in the queue now is done. This thread does work that no other has begun, so a short
    /// wait needs no thread to wake up.
    pub fn wait(&self, queue: &Queue) {
        let until = lock(&queue.state).queued;
        if self.shared.steps_until(|| lock(&queue.state).done >= until) {
            return;
        }
        while lock(&queue.state).done < until && self.shared.serve_if_ready(queue) {}
        queue.wait_until_done(until);
    }

    /// As [`Queues::wait`], with a timeout; returns whether the work is done. This thread runs only short work.
    pub fn wait_for(&self, queue: &Queue, time: Duration) -> bool {
        let (until, end) = (lock(&queue.state).queued, Instant::now() + time);
        let done = || lock(&queue.state).done >= until;
        if self.shared.steps_until(|| done() || Instant::now() >= end) {
            return done();
        }
        while !done() && lock(&queue.state).begins_short() && self.shared.serve_if_ready(queue) {}
        let mut s = lock(&queue.state);
        s.waiting += 1;
        while s.done < until {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            s = queue.progress.wait_timeout(s, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        s.waiting -= 1;
        s.done >= until
    }

    /// Waits until the point is reached.
    pub fn wait_point(&self, point: &Point) {
        if !self.shared.steps_until(|| point.is_reached()) {
            point.queue.wait_until_done(point.pieces);
        }
    }

    /// Cancels the work in the queue, and the work that it waits for on other queues. Running tasks exit at their next
    /// poll, and no others begin.
    pub fn cancel(&self, queue: &Queue) {
        let queued = lock(&queue.state).queued;
        cancel_to(queue, queued);
    }

    /// Cancels all work, including later work.
    pub fn cancel_all(&self) {
        self.shared.canceled.store(true, Ordering::Relaxed);
    }

    /// Ends the threads once all work is done. Work that is queued later runs on the thread that queues it.
    pub fn end(&self) {
        lock(&self.shared.ready).ended = true;
        self.shared.wake.notify_all();
        let me = thread::current().id();
        for handle in std::mem::take(&mut *lock(&self.threads)) {
            if handle.thread().id() != me {
                let _ = handle.join();
            }
        }
        while self.shared.step() {}
    }

    #[cold]
    fn start_threads(&self) {
        let mut threads = lock(&self.threads);
        if self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        for n in 1..=self.dispatchers {
            let shared = self.shared.clone();
            let builder = thread::Builder::new().name(format!("octants-stream-{n}")).stack_size(8 << 20);
            match builder.spawn(move || shared.serve()) {
                Ok(handle) => threads.push(handle),
                // Fewer dispatchers suffice. Without any, the threads that queue work do it.
                Err(_) if threads.is_empty() => lock(&self.shared.ready).ended = true,
                Err(_) => {}
            }
        }
        let none = threads.is_empty();
        drop(threads);
        while none && self.shared.step() {}
    }
}

/// Cancels the first pieces of a queue's work, and the work that they wait for.
fn cancel_to(queue: &Queue, pieces: u64) {
    let awaited: Vec<_> = {
        let s = lock(&queue.state);
        if queue.canceled.fetch_max(pieces, Ordering::Relaxed) >= pieces {
            return;
        }
        let left = usize::try_from(pieces.saturating_sub(s.done)).unwrap_or(usize::MAX);
        let point = |work: &Work| if let Work::Await(point) = work { Some(point.clone()) } else { None };
        s.work.iter().take(left).filter_map(point).collect()
    };
    awaited.iter().for_each(|point| point.cancel());
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Adds a queue to the list.
    fn make_ready(&self, queue: Arc<Queue>) -> Served {
        let mut ready = lock(&self.ready);
        ready.queues.push(queue);
        if ready.idle > 0 {
            self.wake.notify_one();
        }
        if ready.ended && self.schedule.is_none() { Served::ByCaller } else { Served::ByThreads }
    }

    /// A dispatcher's main loop.
    fn serve(&self) {
        nesting::mark_worker_thread();
        loop {
            let queue = {
                let mut ready = lock(&self.ready);
                loop {
                    if let Some(queue) = ready.take() {
                        break queue;
                    }
                    if ready.ended {
                        return;
                    }
                    ready.idle += 1;
                    ready = self.wake.wait(ready).unwrap_or_else(PoisonError::into_inner);
                    ready.idle -= 1;
                }
            };
            self.serve_one(queue);
        }
    }

    /// Records that a queue waits for a point, which may be another device's.
    fn note_peer(&self, point: &Point) {
        if !point.queue.of.ptr_eq(&self.own) {
            self.peers.note(&point.queue.of);
        }
    }

    /// The other devices with a schedule that this one's queues may wait for.
    fn scheduled_peers(&self) -> Vec<Arc<Shared>> {
        let mut found = self.peers.reachable(|shared| &shared.peers);
        found.retain(|peer| peer.schedule.is_some() && !std::ptr::eq(&**peer, self));
        found
    }

    /// Whether threads that query or wait do the work: there is a schedule, here or on a device that is waited for.
    fn is_stepped(&self) -> bool {
        self.schedule.is_some() || !self.scheduled_peers().is_empty()
    }

    /// Under a schedule, or after the end: does one piece of work on this thread, or else one of a scheduled peer.
    /// False when none is ready.
    fn step(&self) -> bool {
        let steps = self.schedule.is_some() || lock(&self.ready).ended;
        steps && self.step_own_queue() || self.scheduled_peers().iter().any(|peer| peer.step_own_queue())
    }

    /// Does one piece of this device's work on this thread. False when none is ready.
    fn step_own_queue(&self) -> bool {
        let queue = {
            let mut ready = lock(&self.ready);
            match &self.schedule {
                Some(_) if ready.queues.is_empty() => None,
                Some(schedule) => {
                    let pick = lock(schedule).pick(ready.queues.len());
                    Some(ready.queues.swap_remove(pick))
                }
                None => ready.take(),
            }
        };
        let Some(queue) = queue else { return false };
        let _inside = Inside::enter();
        self.serve_one(queue);
        true
    }

    /// Does one piece of this queue's work on this thread, unless another does or the queue waits.
    fn serve_if_ready(&self, queue: &Queue) -> bool {
        let taken = {
            let mut ready = lock(&self.ready);
            let place = ready.queues.iter().position(|q| std::ptr::eq(&**q, queue));
            place.map(|i| ready.queues.remove(i))
        };
        let Some(queue) = taken else { return false };
        let _inside = Inside::enter();
        self.serve_one(queue);
        true
    }

    /// Under a schedule: does work until `done`. False without a schedule: dispatchers do the work.
    fn steps_until(&self, done: impl Fn() -> bool) -> bool {
        if !self.is_stepped() {
            return false;
        }
        while !done() {
            if !self.step() {
                // Another thread is doing the remaining work.
                thread::yield_now();
            }
        }
        true
    }

    /// Does the first piece of a queue's work.
    fn serve_one(&self, queue: Arc<Queue>) {
        let (Some(work), place) = ({
            let mut s = lock(&queue.state);
            (s.work.pop_front(), s.done)
        }) else {
            unreachable!("compiler bug: a ready queue is empty")
        };
        let mut spare = None;
        let server = Server { shared: self, queue: &queue, place };
        match work {
            Work::Await(point) => {
                // Before the queue waits, because another thread may then serve it at once.
                lock(&queue.state).work.push_front(Work::Await(point.clone()));
                if point.is_awaited_by(&queue) {
                    if server.is_interrupted() {
                        // The thread that canceled may not have seen that the queue waits here.
                        point.cancel();
                    }
                    return;
                }
                lock(&queue.state).work.pop_front();
            }
            Work::Time(at) => _ = at.set(Instant::now()),
            Work::Task(task) | Work::Pieces(task, _) if server.is_interrupted() => spare = Some(task),
            Work::Task(task) => {
                if let Some(schedule) = &self.schedule
                    && let Some((count, unit)) = task.pieces()
                {
                    let pieces = lock(schedule).cut(count, unit);
                    return self.requeue(queue, Work::Pieces(task, pieces));
                }
                task.run(&self.pool, &server);
                spare = Some(task);
            }
            Work::Pieces(task, mut left) => {
                if let Some((begin, end)) = left.pop() {
                    task.run_piece(&self.pool, &server, begin, end);
                    return self.requeue(queue, Work::Pieces(task, left));
                }
                spare = Some(task);
            }
            // SAFETY: the caller that queued the work guarantees the ranges until it is done.
            Work::Copy { to, from, bytes } => unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) },
            // SAFETY: as above; the memory is given back once.
            Work::Free { address, bytes, of } => unsafe { of.free(address, bytes) },
        }
        // Outside the lock: the task may hold the last reference to its code.
        spare.iter_mut().for_each(|task| task.clear());
        let (more, awaiting) = {
            let mut s = lock(&queue.state);
            if s.spare.len() < MOST_SPARE {
                s.spare.extend(spare);
            }
            s.done += 1;
            if s.waiting > 0 {
                queue.progress.notify_all();
            }
            s.scheduled = !s.work.is_empty();
            (s.scheduled, s.take_awaiting())
        };
        if more {
            self.make_ready(queue);
        }
        awaiting.into_iter().for_each(|queue| self.resume(queue));
    }

    /// Continues a queue whose point is reached, which may be another device's.
    fn resume(&self, queue: Arc<Queue>) {
        let Some(server) = queue.of.upgrade() else { return };
        let served = server.make_ready(queue);
        if served == Served::ByCaller && !std::ptr::eq(&*server, self) {
            while server.step_own_queue() {}
        }
    }

    /// Returns unfinished work to a queue.
    fn requeue(&self, queue: Arc<Queue>, work: Work) {
        lock(&queue.state).work.push_front(work);
        self.make_ready(queue);
    }
}

impl Ready {
    /// The queue of the highest priority; among equal ones, the one that has waited longest.
    fn take(&mut self) -> Option<Arc<Queue>> {
        let best = self.queues.iter().map(|q| q.priority).max()?;
        let first = self.queues.iter().position(|q| q.priority == best)?;
        Some(self.queues.remove(first))
    }
}
