//! [`Profile`]: when the tasks of launches ran, on which stream, and after which other tasks.
//!
//! While profiling is on, each task is enclosed by two timing events on its stream (on a device that executes
//! immediately, by two readings of the clock). Nothing waits for the events: times are read on request, or when many
//! have completed. Sums are kept for every kernel, and single tasks for the latest [`MOST_SPANS`]. While profiling is
//! off, launches test one flag that they have loaded anyway.
//!
//! The order of tasks is known without asking the device: an event represents the last tasks of its stream at the time
//! of recording, and a stream that waits for it continues after them. `measure` measures launches, and `profiler` is
//! the user's interface.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::driver::{Driver, EventHandle};
use crate::kernel_meta::KernelMeta;
use crate::renewable::Renewable;
use crate::report::lock;

/// Maximum number of recorded tasks; the oldest are dropped.
pub const MOST_SPANS: usize = 1 << 17;

/// Names the run of a task; later ones have larger numbers.
pub type SpanId = u64;

/// One run of one task.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its number.
    pub id: SpanId,
    /// Number of the launch in the program.
    pub launch: u64,
    /// The kernel.
    pub kernel: Arc<KernelMeta>,
    /// Index of the task in the kernel.
    pub task: usize,
    /// Its lane: an index of [`crate::Profiler::lanes`].
    pub lane: u32,
    /// Milliseconds since the profiler was first turned on.
    pub begin_ms: f64,
    /// As `begin_ms`.
    pub end_ms: f64,
    /// Tasks of other lanes that it waited for.
    pub depends_on: Vec<SpanId>,
}

/// A stream on which tasks ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A stream with this number ([`crate::Stream::number`]).
    Stream(u32),
    /// One of the pool's, counted from 1 in the order in which they were seen.
    Worker(u32),
}

/// How many times something ran and for how long, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Total {
    pub count: u64,
    pub total_ms: f64,
    pub min_ms: f64,
    pub max_ms: f64,
}

impl Default for Total {
    fn default() -> Total {
        Total { count: 0, total_ms: 0.0, min_ms: f64::INFINITY, max_ms: 0.0 }
    }
}

impl Total {
    fn add(&mut self, ms: f64) {
        self.count += 1;
        self.total_ms += ms;
        self.min_ms = self.min_ms.min(ms);
        self.max_ms = self.max_ms.max(ms);
    }
}

/// The sums of a kernel: of its launches, each the sum of its tasks, and of each task.
#[derive(Debug, Clone, Default)]
pub struct KernelTotal {
    /// The sums of its launches.
    pub launches: Total,
    /// The sums of its tasks, by name, in launch order.
    pub tasks: Vec<(String, Total)>,
}

/// The last tasks of streams, one of a lane.
type Front = Vec<(u32, SpanId)>;

/// Adds tasks to a front.
fn advance(front: &mut Front, more: &[(u32, SpanId)]) {
    for &(lane, id) in more {
        match front.iter_mut().find(|(l, _)| *l == lane) {
            Some((_, known)) => *known = id.max(*known),
            None => front.push((lane, id)),
        }
    }
}

/// The state of a driver's stream.
#[derive(Default)]
struct StreamState {
    lane: Option<u32>,
    /// The tasks that the next queued work follows.
    front: Front,
    /// The part of it that the next task is the first to wait for.
    waits: Front,
}

/// A task that was queued.
pub(crate) struct Queued {
    pub(crate) id: SpanId,
    pub(crate) task: usize,
    pub(crate) lane: u32,
    pub(crate) begin: EventHandle,
    pub(crate) end: EventHandle,
    pub(crate) depends_on: Vec<SpanId>,
}

/// The tasks of a launch. Some may not be done.
pub(crate) struct Pending {
    pub(crate) kernel: Arc<KernelMeta>,
    pub(crate) launch: u64,
    pub(crate) tasks: Vec<Queued>,
}

/// The event that times are measured from. It moves along: drivers report times as `f32`, which are coarse when large.
pub(crate) struct Anchor {
    pub(crate) event: EventHandle,
    pub(crate) at_ms: f64,
}

#[derive(Default)]
pub(crate) struct State {
    /// Number of users that have turned it on.
    users: u32,
    pub(crate) began: Option<Instant>,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) next: SpanId,
    lanes: Vec<Lane>,
    streams: HashMap<u64, StreamState>,
    events: HashMap<u64, Front>,
    pub(crate) idle: Vec<EventHandle>,
    pub(crate) pending: VecDeque<Pending>,
    /// Number of pending launches from which completed ones are collected.
    pub(crate) look_at: usize,
    spans: VecDeque<Span>,
    /// Spans that were dropped since the last clear.
    dropped: u64,
    totals: HashMap<String, KernelTotal>,
}

impl State {
    /// The lane of a stream; `number` is missing for the pool's streams, which have none.
    fn lane(&mut self, handle: u64, number: Option<u32>) -> u32 {
        let course = self.streams.entry(handle).or_default();
        let known = course.lane.map(|lane| (lane, self.lanes[lane as usize]));
        match (known, number) {
            (Some((lane, Lane::Stream(n))), Some(number)) if n == number => return lane,
            (Some((lane, Lane::Worker(_))), None) => return lane,
            // A driver may reuse the handle of a destroyed stream.
            (Some(_), _) => *course = StreamState::default(),
            (None, _) => {}
        }
        let seen = self.lanes.iter().position(|l| number.is_some_and(|n| *l == Lane::Stream(n)));
        let workers = self.lanes.iter().filter(|l| matches!(l, Lane::Worker(_))).count() as u32;
        let lane = seen.unwrap_or(self.lanes.len());
        if lane == self.lanes.len() {
            self.lanes.push(number.map_or(Lane::Worker(workers + 1), Lane::Stream));
        }
        course.lane = Some(lane as u32);
        lane as u32
    }

    /// Gives the next task of a stream its number: with its lane and the tasks it waits for.
    pub(crate) fn place(&mut self, handle: u64, number: Option<u32>) -> (SpanId, u32, Vec<SpanId>) {
        let lane = self.lane(handle, number);
        let id = self.next;
        self.next += 1;
        let course = self.streams.entry(handle).or_default();
        course.front = vec![(lane, id)];
        let waits = std::mem::take(&mut course.waits);
        (id, lane, waits.into_iter().filter(|w| w.0 != lane).map(|w| w.1).collect())
    }

    /// Keeps the times of a launch whose work is done: begin and end of each task.
    pub(crate) fn keep(&mut self, done: Pending, times: &[(f64, f64)]) {
        let Pending { kernel, launch, tasks } = done;
        let total = match self.totals.get_mut(&kernel.name) {
            Some(total) => total,
            None => self.totals.entry(kernel.name.clone()).or_default(),
        };
        let mut sum = 0.0;
        for (task, (begin_ms, end_ms)) in tasks.into_iter().zip(times.iter().copied()) {
            sum += end_ms - begin_ms;
            let name = &kernel.tasks[task.task].name;
            let at = total.tasks.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                total.tasks.push((name.clone(), Total::default()));
                total.tasks.len() - 1
            });
            total.tasks[at].1.add(end_ms - begin_ms);
            if self.spans.len() == MOST_SPANS {
                self.spans.pop_front();
                self.dropped += 1;
            }
            let Queued { id, task, lane, depends_on, .. } = task;
            self.spans.push_back(Span { id, launch, kernel: kernel.clone(), task, lane, begin_ms, end_ms, depends_on });
        }
        total.launches.add(sum);
    }

    /// Turns it on for one more user.
    pub(crate) fn add_user(&mut self) {
        self.users += 1;
    }

    /// Turns it off for one user. Returns true if no user remains.
    pub(crate) fn remove_user(&mut self) -> bool {
        self.users = self.users.saturating_sub(1);
        if self.users == 0 {
            // From now on, the tasks that streams and events represent change untracked.
            self.streams.values_mut().for_each(|c| (c.front, c.waits) = Default::default());
            self.events.clear();
        }
        self.users == 0
    }

    /// As [`crate::Profiler::spans`], in the order in which they were kept.
    pub(crate) fn spans(&self, from: SpanId, to: SpanId) -> (Vec<Span>, u64) {
        (self.spans.iter().filter(|p| (from..to).contains(&p.id)).cloned().collect(), self.dropped)
    }

    /// The streams on which tasks ran.
    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The sums of each kernel, by its name, in any order.
    pub(crate) fn totals(&self) -> Vec<(String, KernelTotal)> {
        self.totals.iter().map(|(name, total)| (name.clone(), total.clone())).collect()
    }

    /// Forgets the sums.
    pub(crate) fn clear(&mut self) {
        self.totals.clear();
        self.dropped = 0;
    }
}

/// The profile of a device.
#[derive(Default)]
pub(crate) struct Profile(Renewable<State>);

impl Profile {
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// # Safety
    /// As [`Renewable::renew_if_held`].
    pub(crate) unsafe fn renew_after_fork(&self) {
        // SAFETY: the contract above.
        unsafe { self.0.renew_if_held() };
    }

    /// An event now represents the work queued on a stream.
    #[cold]
    pub(crate) fn note_record(&self, stream: u64, event: u64) {
        let mut s = self.state();
        let front = s.streams.get(&stream).map(|c| c.front.clone()).unwrap_or_default();
        s.events.insert(event, front);
    }

    /// A stream now waits for the work that events represent.
    #[cold]
    pub(crate) fn note_wait(&self, stream: u64, events: &[EventHandle]) {
        let s = &mut *self.state();
        let course = s.streams.entry(stream).or_default();
        for front in events.iter().filter_map(|e| s.events.get(&e.0)) {
            advance(&mut course.front, front);
            advance(&mut course.waits, front);
        }
    }

    /// An event was destroyed.
    #[cold]
    pub(crate) fn forget_event(&self, event: u64) {
        self.state().events.remove(&event);
    }

    /// A stream was destroyed.
    #[cold]
    pub(crate) fn forget_stream(&self, stream: u64) {
        self.state().streams.remove(&stream);
    }

    /// The program has ended: gives the events back.
    pub(crate) fn end(&self, driver: &dyn Driver) {
        let s = std::mem::take(&mut *self.state());
        let pending = s.pending.iter().flat_map(|p| &p.tasks).flat_map(|t| [t.begin, t.end]);
        let anchor = s.anchor.iter().map(|a| a.event);
        for event in s.idle.iter().copied().chain(pending).chain(anchor) {
            // SAFETY: made by this driver; all work is waited for, and nothing uses them any more.
            unsafe { driver.destroy_event(event) }
        }
    }
}
