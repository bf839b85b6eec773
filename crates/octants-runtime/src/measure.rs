//! Measures launches while the profiler is on: see [`crate::profile`].
//!
//! Events are pooled. No call here blocks while it holds the profile's lock: times are read only from events that have
//! completed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use crate::caller::Caller;
use crate::cores::DeviceCore;
use crate::driver::{EventHandle, StreamHandle};
use crate::error::{DeviceError, Result};
use crate::kernel_meta::KernelMeta;
use crate::nesting;
use crate::profile::{Anchor, Pending, Queued, State};

/// The maximum number of pending launches. A launch beyond it waits for its own stream.
const MOST_PENDING: usize = 1 << 13;
/// After this many new launches, completed ones are searched for.
const LOOK_AFTER: usize = 1 << 9;
/// An anchor that is older than this is replaced.
const ANCHOR_MS: f64 = 1000.0;

/// A launch in progress. Its measurements are kept when it is dropped.
pub(crate) struct Measured<'a> {
    device: &'a DeviceCore,
    pending: Option<Pending>,
    /// Start and end of the tasks on a synchronous device.
    times: Vec<(f64, f64)>,
}

impl<'a> Measured<'a> {
    pub(crate) fn new(device: &'a DeviceCore, kernel: &Arc<KernelMeta>, launch: u64) -> Measured<'a> {
        let tasks = Vec::with_capacity(kernel.tasks.len());
        Measured { device, pending: Some(Pending { kernel: kernel.clone(), launch, tasks }), times: Vec::new() }
    }

    /// Queues a task with `launch`, between two events. `number` is that of the stream, if it has one.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn queue(
        &mut self,
        stream: StreamHandle,
        number: Option<u32>,
        task: usize,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let driver = &*self.device.driver;
        let (begin, end) = (self.event()?, self.event());
        let end = end.inspect_err(|_| self.device.profile.state().idle.push(begin))?;
        // SAFETY: the contract above; the events are ours.
        let queued = unsafe {
            driver.record_event(stream, begin).and_then(|()| launch()).and_then(|()| driver.record_event(stream, end))
        };
        let mut s = self.device.profile.state();
        if queued.is_err() {
            s.idle.extend([begin, end]);
            return queued;
        }
        let (id, lane, depends_on) = s.place(stream.0, number);
        drop(s);
        self.tasks().push(Queued { id, task, lane, begin, end, depends_on });
        Ok(())
    }

    /// Runs a task on a synchronous device.
    pub(crate) fn run(&mut self, task: usize, launch: impl FnOnce() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        launch()?;
        let ended = Instant::now();
        let mut s = self.device.profile.state();
        let (id, lane, depends_on) = s.place(0, Some(0));
        let since = |t: Instant| s.began.map_or(0.0, |origin| (t - origin).as_secs_f64() * 1e3);
        let times = (since(began), since(ended));
        drop(s);
        self.times.push(times);
        let (begin, end) = (EventHandle(0), EventHandle(0));
        self.tasks().push(Queued { id, task, lane, begin, end, depends_on });
        Ok(())
    }

    fn tasks(&mut self) -> &mut Vec<Queued> {
        &mut self.pending.as_mut().expect("compiler bug: taken before the drop").tasks
    }

    fn event(&self) -> Result<EventHandle> {
        let idle = self.device.profile.state().idle.pop();
        idle.map_or_else(|| self.device.driver.create_event(true), Ok)
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take_if(|p| !p.tasks.is_empty()) else { return };
        let mut s = self.device.profile.state();
        if self.device.immediate {
            s.keep(pending, &self.times);
        } else {
            s.pending.push_back(pending);
        }
    }
}

impl DeviceCore {
    /// Keeps the number of pending launches within bounds, after one on `stream`.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn bound_pending(&self, stream: StreamHandle, caller: &dyn Caller) -> Result<()> {
        let look = |s: &mut State| {
            self.read_times(s)?;
            s.look_at = s.pending.len() + LOOK_AFTER;
            Ok(s.pending.len() < MOST_PENDING)
        };
        {
            let mut s = self.profile.state();
            if s.pending.len() < s.look_at.max(LOOK_AFTER) || look(&mut s)? {
                return Ok(());
            }
        }
        caller.will_block();
        // SAFETY: the contract above.
        unsafe { self.driver.synchronize(stream)? };
        look(&mut self.profile.state()).map(|_| ())
    }

    /// Waits for all queued work, and reads the times.
    pub(crate) fn wait_for_measured(&self, caller: &dyn Caller) -> Result<()> {
        if self.immediate || nesting::inside() {
            return Ok(());
        }
        for stream in self.live_streams() {
            // Work of a stream that is captured is not measured, nor can it be waited for.
            if !stream.is_captured()? {
                stream.wait_quietly(caller)?;
            }
        }
        self.read_times(&mut self.profile.state())
    }

    /// Reads the times of pending launches that are done.
    fn read_times(&self, s: &mut State) -> Result<()> {
        // Times are relative to the anchor, which follows the work of the default stream at the start.
        let Some(anchor) = s.anchor.as_ref().map(|a| a.event) else { return Ok(()) };
        // SAFETY: the event is ours, and recorded.
        if !unsafe { self.driver.query_event(anchor)? } {
            return Ok(());
        }
        let pending = std::mem::take(&mut s.pending);
        // If a task of a lane is not done, later tasks are not queried.
        let mut busy = HashSet::new();
        let mut end = Ok(());
        for launch in pending {
            // SAFETY: the events are ours, and recorded.
            let mut is_done = |t: &Queued| unsafe {
                let done = !busy.contains(&t.lane) && self.driver.query_event(t.end)?;
                if !done {
                    busy.insert(t.lane);
                }
                Ok::<bool, DeviceError>(done)
            };
            let done = launch.tasks.iter().try_fold(true, |all, t| Ok(all & is_done(t)?));
            let done = match done {
                Ok(true) => self.times(s, &launch),
                Ok(false) => {
                    s.pending.push_back(launch);
                    continue;
                }
                Err(e) => Err(e),
            };
            let events: Vec<EventHandle> = launch.tasks.iter().flat_map(|t| [t.begin, t.end]).collect();
            let kept = s.anchor.as_ref().map(|a| a.event);
            s.idle.extend(events.into_iter().filter(|e| Some(*e) != kept));
            match done {
                Ok(times) => s.keep(launch, &times),
                Err(e) => end = end.and(Err(e)),
            }
        }
        end
    }

    /// Begin and end of each task of a launch that is done.
    fn times(&self, s: &mut State, launch: &Pending) -> Result<Vec<(f64, f64)>> {
        let anchor = s.anchor.as_ref().expect("compiler bug: not created before the measurement");
        let mut times = Vec::with_capacity(launch.tasks.len());
        for task in &launch.tasks {
            // SAFETY: the events are ours, with timing, recorded, and done.
            let (since, took) = unsafe {
                (self.driver.elapsed_ms(anchor.event, task.begin)?, self.driver.elapsed_ms(task.begin, task.end)?)
            };
            let begin = anchor.at_ms + since;
            times.push((begin, begin + took.max(0.0)));
        }
        if times.first().is_some_and(|t| t.0 - anchor.at_ms > ANCHOR_MS) {
            let before = s.anchor.replace(Anchor { event: launch.tasks[0].begin, at_ms: times[0].0 });
            s.idle.extend(before.map(|a| a.event));
        }
        Ok(times)
    }

    /// Records an event: it represents the work queued on the stream so far.
    ///
    /// # Safety
    /// Both belong to this driver and live.
    pub(crate) unsafe fn record_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: the contract above.
        unsafe { self.driver.record_event(stream, event)? };
        if self.is_measured() {
            self.profile.note_record(stream.0, event.0);
        }
        Ok(())
    }

    /// Makes later work on the stream wait for the events.
    ///
    /// # Safety
    /// As [`DeviceCore::record_event`].
    pub(crate) unsafe fn wait_events(&self, stream: StreamHandle, events: &[EventHandle]) -> Result<()> {
        // SAFETY: the contract above.
        unsafe { self.driver.wait_events(stream, events)? };
        if self.is_measured() {
            self.profile.note_wait(stream.0, events);
        }
        Ok(())
    }
}
