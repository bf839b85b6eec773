//! [`Profiler`]: the user's interface to a device's profile.

use std::time::Instant;

use crate::caller::{Caller, Uninterruptible};
use crate::cores::DeviceCore;
use crate::device::Device;
use crate::error::Result;
use crate::profile::{Anchor, KernelTotal, Lane, Span, SpanId};

/// A device's profiler. It is on while a user that started it has not stopped it.
#[derive(Debug, Clone)]
pub struct Profiler(Device);

impl Device {
    /// The device's profiler.
    pub fn profiler(&self) -> Profiler {
        Profiler(self.clone())
    }
}

impl Profiler {
    fn core(&self) -> &DeviceCore {
        self.0.core()
    }

    /// Turns it on, for one more user. Returns the number of the next span.
    pub fn start(&self) -> Result<SpanId> {
        let core = self.core();
        core.check_open("device")?;
        core.submit_held(&Uninterruptible);
        let mut s = core.profile.state();
        s.began.get_or_insert_with(Instant::now);
        if s.anchor.is_none() && !core.immediate {
            let event = core.driver.create_event(true)?;
            // SAFETY: made above; the default stream lives as long as the device.
            let recorded = unsafe { core.driver.record_event(self.0.default_stream().core().handle, event) };
            // SAFETY: made above and not used.
            recorded.inspect_err(|_| unsafe { core.driver.destroy_event(event) })?;
            s.anchor = Some(Anchor { event, at_ms: 0.0 });
        }
        s.add_user();
        core.set_measured(true);
        Ok(s.next)
    }

    /// Turns it off, for one user. Returns the number of the next span.
    pub fn stop(&self) -> SpanId {
        let core = self.core();
        let mut s = core.profile.state();
        if s.remove_user() {
            core.set_measured(false);
        }
        s.next
    }

    /// Waits for all launches so far and reads their times.
    pub fn resolve(&self, caller: &dyn Caller) -> Result<()> {
        self.core().check_open("device")?;
        self.core().wait_for_measured(caller)
    }

    /// The spans with numbers from `from` on and below `to`, as far as they are kept, in the order of their begin; and
    /// the total number of dropped spans.
    pub fn spans(&self, from: SpanId, to: SpanId) -> (Vec<Span>, u64) {
        let (mut spans, dropped) = self.core().profile.state().spans(from, to);
        spans.sort_by(|a, b| a.begin_ms.total_cmp(&b.begin_ms));
        (spans, dropped)
    }

    /// The streams that tasks were seen on.
    pub fn lanes(&self) -> Vec<Lane> {
        self.core().profile.state().lanes().to_vec()
    }

    /// The sums since the last clear, by kernel name.
    pub fn totals(&self) -> Vec<(String, KernelTotal)> {
        let mut totals = self.core().profile.state().totals();
        totals.sort_by(|a, b| a.0.cmp(&b.0));
        totals
    }

    /// Forgets the sums and returns the number of the next span; the spans themselves remain for earlier users.
    pub fn clear(&self, caller: &dyn Caller) -> Result<SpanId> {
        self.resolve(caller)?;
        let mut s = self.core().profile.state();
        s.clear();
        Ok(s.next)
    }
}
