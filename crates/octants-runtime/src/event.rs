//! [`Event`]: a point in a stream's work that other streams or the host can wait for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::caller::Caller;
use crate::capture;
use crate::cores::{DeviceCore, StreamCore};
use crate::driver::EventHandle;
use crate::error::{ErrorKind, Result};
use crate::interruptible_wait::{LOOK, abandon_if_interrupted};
use crate::nesting::{self, refuse_while_capturing};
use crate::peer_waits::OTHER_DEVICE;
use crate::poll::poll;
use crate::report::lock;
use crate::stream::Stream;

/// A point in a stream's work. Destroyed when dropped; queued waits for it remain valid.
pub struct Event {
    device: Arc<DeviceCore>,
    handle: EventHandle,
    timing: bool,
    /// The stream it was recorded on last.
    stream: Mutex<Option<Weak<StreamCore>>>,
    /// Whether it was last recorded in a capture, so it represents no queued work.
    noted: AtomicBool,
}

impl DeviceCore {
    /// Waits for the event. An interrupted caller abandons the wait.
    ///
    /// # Safety
    /// The event is the driver's, and alive.
    pub(crate) unsafe fn wait_for_event(&self, event: EventHandle, caller: &dyn Caller) -> Result<()> {
        if !self.immediate {
            caller.will_block();
        }
        if self.immediate || !caller.can_be_interrupted() {
            // SAFETY: the contract above.
            return unsafe { self.driver.synchronize_event(event) };
        }
        // SAFETY: as above.
        abandon_if_interrupted(caller, &self.wait_was_abandoned, || {
            poll(LOOK, || unsafe { self.driver.query_event(event) })
        })
    }
}

impl Event {
    pub(crate) fn new(device: &Arc<DeviceCore>, timing: bool) -> Result<Event> {
        device.check_open("device")?;
        let handle = device.driver.create_event(timing)?;
        Ok(Event { device: device.clone(), handle, timing, stream: Mutex::new(None), noted: AtomicBool::new(false) })
    }

    /// The driver's handle; zero if the device has no native streams.
    pub fn handle(&self) -> u64 {
        if self.device.immediate { 0 } else { self.handle.0 }
    }

    /// False once its program has ended.
    pub fn alive(&self) -> bool {
        !self.device.is_closed()
    }

    /// Records the event: it represents the work queued on the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let core = self.check(stream)?;
        if let Some(capture) = capture::current() {
            if self.timing {
                let message = "an event with timing cannot be recorded in a capture: use the profiler to time a \
                               graph's launches";
                return Err(ErrorKind::Misuse { message: message.into() }.into());
            }
            capture.note_event(core, self.handle)?;
            self.noted.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // SAFETY: both belong to this driver and live.
        core.after_lanes(|| unsafe { self.device.record_event(core.handle, self.handle) })?;
        if let Some(watch) = self.device.watch.get() {
            watch.record(core, self.handle);
        }
        self.noted.store(false, Ordering::Relaxed);
        *lock(&self.stream) = Some(Arc::downgrade(core));
        Ok(())
    }

    /// Makes later work on the stream wait for the event. No effect if the event was never recorded. The stream may
    /// belong to another device: see [`crate::peer_waits`].
    pub fn wait(&self, stream: &Stream, caller: &dyn Caller) -> Result<()> {
        if !self.is_of_device_of(stream) {
            self.device.check_open("event")?;
            stream.core().device.check_open("stream")?;
            self.check_not_noted()?;
            // SAFETY: the event lives as long as `self`.
            return unsafe { stream.core().wait_for_peer(&self.device, self.handle, caller) };
        }
        let core = self.check(stream)?;
        if let Some(capture) = capture::current() {
            return capture.wait_event(core, self.handle);
        }
        self.check_not_noted()?;
        // SAFETY: as above.
        core.after_lanes(|| unsafe { self.device.wait_events(core.handle, &[self.handle]) })?;
        if let Some(watch) = self.device.watch.get() {
            watch.wait(core, self.handle);
        }
        Ok(())
    }

    /// Blocks this thread until the event has completed, and reports an unreported failure of its stream.
    pub fn synchronize(&self, caller: &dyn Caller) -> Result<()> {
        self.device.check_open("event")?;
        refuse_while_capturing("the host cannot wait for an event")?;
        self.check_not_noted()?;
        if nesting::inside() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.device.wait_for_event(self.handle, caller)? };
        self.note_host_wait();
        let stream = lock(&self.stream).as_ref().and_then(Weak::upgrade);
        stream.iter().for_each(|s| s.drain_log_so_far(caller));
        self.device.printer.flush();
        stream.map_or(Ok(()), |s| s.report_pending())
    }

    /// Whether the event has completed.
    pub fn query(&self) -> Result<bool> {
        self.device.check_open("event")?;
        refuse_while_capturing("the host cannot query an event")?;
        self.check_not_noted()?;
        // SAFETY: as above.
        let done = unsafe { self.device.driver.query_event(self.handle) }?;
        if done {
            self.note_host_wait();
        }
        Ok(done)
    }

    /// Notes that the host has waited for the event.
    fn note_host_wait(&self) {
        if let Some(watch) = self.device.watch.get() {
            watch.host_waited_for_event(self.handle);
        }
    }

    /// Milliseconds from this event to a later one. Waits for both.
    pub fn elapsed_ms(&self, later: &Event, caller: &dyn Caller) -> Result<f64> {
        self.device.check_open("event")?;
        refuse_while_capturing("the host cannot read the time between events")?;
        if !Arc::ptr_eq(&self.device, &later.device) {
            return Err(ErrorKind::ForeignDevice { what: "event" }.into());
        }
        for event in [self, later] {
            let missing = if !event.timing {
                "elapsed_ms() needs events with timing: create them with create_event(timing=True)"
            } else if lock(&event.stream).is_none() {
                "elapsed_ms() needs two recorded events: call record() on both"
            } else {
                continue;
            };
            return Err(ErrorKind::Misuse { message: missing.into() }.into());
        }
        // SAFETY: as above.
        unsafe {
            self.device.wait_for_event(self.handle, caller)?;
            later.device.wait_for_event(later.handle, caller)?;
        }
        self.note_host_wait();
        later.note_host_wait();
        // SAFETY: as above.
        unsafe { self.device.driver.elapsed_ms(self.handle, later.handle) }
    }

    /// Rejects a wait for an event that exists only among a graph's own steps.
    fn check_not_noted(&self) -> Result<()> {
        if !self.noted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message =
            "this event was last recorded in a capture, where it only orders steps of that graph: record it again \
                       after the graph's launch"
                .into();
        Err(ErrorKind::Misuse { message }.into())
    }

    /// Whether the event and the stream belong to one device. Waiting for another device's event may take time.
    pub fn is_of_device_of(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&stream.core().device, &self.device)
    }

    fn check<'s>(&self, stream: &'s Stream) -> Result<&'s Arc<StreamCore>> {
        self.device.check_open("event")?;
        let core = stream.core();
        if Arc::ptr_eq(&core.device, &self.device) {
            return Ok(core);
        }
        core.device.check_open("stream")?;
        Err(ErrorKind::ForeignDevice { what: "stream" }.into())
    }
}

impl Stream {
    /// Makes later work on this stream wait for the work queued on `other` so far, which may be a stream of another
    /// device.
    pub fn wait_for(&self, other: &Stream, caller: &dyn Caller) -> Result<()> {
        if Arc::ptr_eq(self.core(), other.core()) {
            return self.core().device.check_open("stream");
        }
        if !self.is_of_device_of(other) {
            refuse_while_capturing(OTHER_DEVICE)?;
        } else if let Some(capture) = capture::current() {
            return capture.wait_stream(self.core(), other.core());
        }
        let event = Event::new(&other.core().device, false)?;
        event.record(other)?;
        event.wait(self, caller)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.is_abandoned() {
            return;
        }
        if self.device.is_measured() {
            self.device.profile.forget_event(self.handle.0);
        }
        // SAFETY: made by this driver, and not used afterwards.
        unsafe { self.device.driver.destroy_event(self.handle) }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("handle", &self.handle.0).field("timing", &self.timing).finish()
    }
}
