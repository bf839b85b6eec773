//! [`Follower`]: a thread that submits recorded work when the work before it is done and the stream has batched for a
//! while, so that the device stays busy while the program does something else.
//!
//! The thread is started when a batch is first left open, and ends with the device. It holds no stream while it waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ash::vk;

use crate::timeline::Timeline;

/// Polling interval for new batches.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// An object that may have an open batch.
pub(crate) trait HasBatch: Send + Sync {
    /// Submits the batch.
    fn submit_open(&self);
}

/// An open batch.
struct Waiting {
    stream: Weak<dyn HasBatch>,
    timeline: Arc<Timeline>,
    /// The work before it is done when the timeline has reached this.
    value: u64,
    /// Until then, more work is batched.
    batches_until: Instant,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// The thread has nothing to wait for, and must be woken.
    rests: bool,
    thread: Option<JoinHandle<()>>,
    ends: bool,
}

/// See the file's text.
#[derive(Default)]
pub struct Follower {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Follower")
    }
}

impl Follower {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a stream's recorded work when its timeline has reached a value, but not before an instant.
    pub(crate) fn follow(
        self: &Arc<Self>,
        stream: Weak<dyn HasBatch>,
        timeline: Arc<Timeline>,
        value: u64,
        batches_until: Instant,
    ) {
        let mut state = self.state();
        if state.ends {
            return;
        }
        state.waiting.push(Waiting { stream, timeline, value, batches_until });
        if state.thread.is_none() {
            let own = self.clone();
            // Without a thread, batches are submitted when they are long or when something waits.
            state.thread = std::thread::Builder::new().name("octants-vulkan".into()).spawn(move || own.run()).ok();
        }
        if state.rests {
            state.rests = false;
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        let thread = {
            let mut state = self.state();
            state.ends = true;
            state.waiting.clear();
            state.thread.take()
        };
        self.changed.notify_one();
        // The thread itself may release the last stream.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }

    fn run(&self) {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            {
                let mut state = self.state();
                while waiting.is_empty() && state.waiting.is_empty() && !state.ends {
                    state.rests = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.ends {
                    return;
                }
                state.rests = false;
                waiting.append(&mut state.waiting);
            }
            wait_for_any(&waiting);
            let now = Instant::now();
            waiting.retain(|w| match w.timeline.has_reached(w.value) {
                Ok(false) => w.stream.strong_count() > 0,
                Ok(true) if w.batches_until > now => true,
                _ => {
                    if let Some(stream) = w.stream.upgrade() {
                        stream.submit_open();
                    }
                    false
                }
            });
        }
    }
}

/// Waits, with a timeout, until one of the batches can be submitted.
fn wait_for_any(waiting: &[Waiting]) {
    let now = Instant::now();
    let (due, early): (Vec<&Waiting>, Vec<_>) = waiting.iter().partition(|w| w.batches_until <= now);
    let timeout = early.iter().map(|w| w.batches_until - now).fold(LOOK_AGAIN, Duration::min);
    let Some(first) = due.first() else { return std::thread::sleep(timeout) };
    let semaphores: Vec<vk::Semaphore> = due.iter().map(|w| w.timeline.semaphore).collect();
    let values: Vec<u64> = due.iter().map(|w| w.value).collect();
    let info =
        vk::SemaphoreWaitInfo::default().flags(vk::SemaphoreWaitFlags::ANY).semaphores(&semaphores).values(&values);
    // SAFETY: the semaphores are alive: the timelines own them.
    let waited = unsafe { first.timeline.gpu().device.wait_semaphores(&info, timeout.as_nanos() as u64) };
    if !matches!(waited, Ok(()) | Err(vk::Result::TIMEOUT)) {
        std::thread::sleep(LOOK_AGAIN);
    }
}
