//! [`Timeline`]: a timeline semaphore, whose values signal completed work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use octants_runtime::Result;

use crate::checked::failed;
use crate::exports::Exports;
use crate::gpu::Gpu;

/// How long a wait polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// A timeline semaphore. Values count the submissions of a stream.
#[derive(Debug)]
pub struct Timeline {
    gpu: Arc<Gpu>,
    pub(crate) semaphore: vk::Semaphore,
}

impl Timeline {
    /// A new one, at zero.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Timeline> {
        Timeline::create(gpu, vk::SemaphoreCreateInfo::default())
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
        Ok(Timeline { gpu: gpu.clone(), semaphore })
    }

    /// The device.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether the value was reached.
    pub fn has_reached(&self, value: u64) -> Result<bool> {
        // SAFETY: the semaphore is alive.
        let now = unsafe { self.gpu.device.get_semaphore_counter_value(self.semaphore) }
            .map_err(|code| failed("vkGetSemaphoreCounterValue", code, "querying whether work is done"))?;
        Ok(now >= value)
    }

    /// Waits for the value, with a timeout. Returns whether it was reached.
    pub fn wait(&self, value: u64, time: Option<Duration>) -> Result<bool> {
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
