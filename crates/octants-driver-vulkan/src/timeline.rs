//! [`Timeline`]: a timeline semaphore, whose values signal completed work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ash::vk;
use octants_runtime::Result;

use crate::checked::failed;
use crate::exports::Exports;
use crate::gpu::Gpu;

/// How long a wait polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Submits work that is recorded.
pub(crate) trait Submits: Send + Sync {
    /// Submits what is recorded, if the value is not submitted yet.
    fn submit_up_to(&self, value: u64) -> Result<()>;
}

/// A timeline semaphore.
pub struct Timeline {
    gpu: Arc<Gpu>,
    pub(crate) semaphore: vk::Semaphore,
    /// For a queue's timeline.
    queue: Option<Weak<dyn Submits>>,
    /// The queue's submitted work reaches this value.
    submitted: AtomicU64,
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timeline({:?})", self.semaphore)
    }
}

impl Timeline {
    /// A new one, at zero.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Timeline> {
        Timeline::create(gpu, vk::SemaphoreCreateInfo::default())
    }

    /// The same, of a queue. Its values count the queue's submissions, including the next one.
    pub(crate) fn of(mut self, queue: Weak<dyn Submits>) -> Timeline {
        self.queue = Some(queue);
        self
    }

    /// A new one that can be exported.
    pub(crate) fn exported(gpu: &Arc<Gpu>) -> Result<Timeline> {
        let mut exported = Exports::semaphore_info();
        Timeline::create(gpu, vk::SemaphoreCreateInfo::default().push_next(&mut exported))
    }

    fn create(gpu: &Arc<Gpu>, info: vk::SemaphoreCreateInfo<'_>) -> Result<Timeline> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = info.push_next(&mut kind);
        // SAFETY: the structures are whole.
        let semaphore = unsafe { gpu.device.create_semaphore(&info, None) }
            .map_err(|code| failed("vkCreateSemaphore", code, "creating a stream"))?;
        Ok(Timeline { gpu: gpu.clone(), semaphore, queue: None, submitted: AtomicU64::new(0) })
    }

    /// The device.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The queue has submitted work that reaches a value.
    pub(crate) fn note_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    /// Whether the work that reaches a value is submitted. For timelines of other interfaces, always.
    pub(crate) fn is_submitted(&self, value: u64) -> bool {
        self.queue.is_none() || self.submitted.load(Ordering::Acquire) >= value
    }

    /// Submits the queue's work that reaches a value, if it is only recorded. Called without a locked queue.
    pub(crate) fn submit_up_to(&self, value: u64) -> Result<()> {
        // A queue ends after its work.
        match self.queue.as_ref().filter(|_| self.submitted.load(Ordering::Acquire) < value).and_then(Weak::upgrade) {
            Some(queue) => queue.submit_up_to(value),
            None => Ok(()),
        }
    }

    /// Whether the value was reached.
    pub fn has_reached(&self, value: u64) -> Result<bool> {
        // SAFETY: the semaphore is alive.
        let now = unsafe { self.gpu.device.get_semaphore_counter_value(self.semaphore) }
            .map_err(|code| failed("vkGetSemaphoreCounterValue", code, "querying whether work is done"))?;
        Ok(now >= value)
    }

    /// Waits for the value, with a timeout. Returns whether it was reached. Called without a locked queue, unless the
    /// value is submitted.
    pub fn wait(&self, value: u64, time: Option<Duration>) -> Result<bool> {
        self.submit_up_to(value)?;
        if !self.gpu.is_processor {
            // The system takes some 20 us to wake a thread.
            let start = Instant::now();
            while start.elapsed() < SPIN.min(time.unwrap_or(SPIN)) {
                if self.has_reached(value)? {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
        }
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let time = time.map_or(u64::MAX, |t| t.as_nanos().min(u128::from(u64::MAX)) as u64);
        // SAFETY: the semaphore is alive.
        match unsafe { self.gpu.device.wait_semaphores(&info, time) } {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(failed("vkWaitSemaphores", code, "waiting for work")),
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: batches that signal or wait for it hold it until they are done.
        unsafe { self.gpu.device.destroy_semaphore(self.semaphore, None) }
    }
}
