//! [`Event`]: a value of a queue's timeline, and the time at which it was reached.

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use octants_runtime::{ErrorKind, EventHandle, Result};

use crate::checked::failed;
use crate::gpu::Gpu;
use crate::stream::Stream;
use crate::timeline::Timeline;

/// An event.
pub struct Event {
    gpu: Arc<Gpu>,
    /// One timestamp.
    time: Option<vk::QueryPool>,
    stands_for: Mutex<Option<(Arc<Timeline>, u64)>>,
}

impl Event {
    /// A new event, not recorded yet.
    pub fn new(gpu: &Arc<Gpu>, timing: bool) -> Result<Event> {
        let time = if timing && gpu.tick > 0.0 {
            let info = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(1);
            // SAFETY: the structures are whole.
            let made = unsafe { gpu.device.create_query_pool(&info, None) };
            Some(made.map_err(|code| failed("vkCreateQueryPool", code, "creating an event"))?)
        } else {
            None
        };
        Ok(Event { gpu: gpu.clone(), time, stands_for: Mutex::new(None) })
    }

    /// The event of a handle.
    ///
    /// # Safety
    /// It is a live event's.
    pub unsafe fn of<'e>(handle: EventHandle) -> &'e Event {
        // SAFETY: the contract above.
        unsafe { &*(handle.0 as *const Event) }
    }

    /// Records it after the work of a stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        if stream.is_sharing() && self.time.is_none() {
            // Work that waits for the event also waits for the work of the other interface.
            stream.record(|_| Ok(()))?;
        }
        if let Some(pool) = self.time {
            // The second command waits for all earlier work by its stage.
            stream.record_time(|r| {
                // SAFETY: the commands are being recorded; the pool is this event's.
                unsafe {
                    r.gpu().device.cmd_reset_query_pool(r.commands(), pool, 0, 1);
                    let stage = vk::PipelineStageFlags::ALL_COMMANDS;
                    r.gpu().device.cmd_write_timestamp(r.commands(), stage, pool, 0);
                }
                Ok(())
            })?;
        }
        let value = stream.mark()?;
        *self.stands_for.lock().unwrap_or_else(PoisonError::into_inner) = Some((stream.timeline().clone(), value));
        Ok(())
    }

    /// Its point; `None` if it was not recorded.
    pub fn stands_for(&self) -> Option<(Arc<Timeline>, u64)> {
        self.stands_for.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for it.
    pub fn wait(&self) -> Result<()> {
        match self.stands_for() {
            Some((timeline, value)) => timeline.wait(value, None).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether it is complete.
    pub fn is_done(&self) -> Result<bool> {
        let Some((timeline, value)) = self.stands_for() else { return Ok(true) };
        timeline.submit_up_to(value)?;
        timeline.has_reached(value)
    }

    /// Its timestamp, in milliseconds from an arbitrary origin.
    fn time(&self) -> Result<f64> {
        let Some(pool) = self.time else {
            let message = format!("{} has no timestamps", self.gpu.name);
            return Err(ErrorKind::Misuse { message }.into());
        };
        self.wait()?;
        let mut ticks = [0u64];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the timestamp was written.
        unsafe { self.gpu.device.get_query_pool_results(pool, 0, &mut ticks, flags) }
            .map_err(|code| failed("vkGetQueryPoolResults", code, "reading an event's time"))?;
        Ok(ticks[0] as f64 * self.gpu.tick / 1e6)
    }

    /// Milliseconds from this event to a later one.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f64> {
        Ok(later.time()? - self.time()?)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(pool) = self.time {
            let _ = self.wait();
            // SAFETY: the commands that write it are done.
            unsafe { self.gpu.device.destroy_query_pool(pool, None) }
        }
    }
}
