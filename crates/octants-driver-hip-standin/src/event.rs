//! [`Event`]: a point in a stream's work.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::lock::lock;
use crate::outcome::{Outcome, code};
use crate::work::{Event, Stream, Work};

impl Event {
    /// An event that is not recorded yet.
    pub fn new(device: i32, timing: bool) -> Event {
        Event { device, timing, recorded: Mutex::default(), time: Mutex::default() }
    }

    /// Records the end of a stream's queue.
    pub fn record(self: &Arc<Event>, stream: &Arc<Stream>) {
        // The lock is held throughout, so that concurrent recordings are ordered.
        let mut recorded = lock(&self.recorded);
        let count = stream.push(Work::Record { event: self.clone() });
        *recorded = Some((stream.clone(), count));
    }

    /// Notes that the stream reached the event.
    pub fn reached(&self) {
        *lock(&self.time) = Some(Instant::now());
    }

    /// The recorded point: a stream and a number of its items.
    pub fn point(&self) -> Option<(Arc<Stream>, u64)> {
        lock(&self.recorded).clone()
    }

    /// Whether the recorded point was reached.
    pub fn is_done(&self) -> bool {
        self.point().is_none_or(|(stream, count)| stream.counts().1 >= count)
    }

    /// Milliseconds until another event.
    pub fn elapsed(&self, later: &Event) -> Outcome<f32> {
        if !self.timing || !later.timing || self.point().is_none() || later.point().is_none() {
            return Err(code::INVALID_HANDLE);
        }
        if !self.is_done() || !later.is_done() {
            return Err(code::NOT_READY);
        }
        let (Some(from), Some(to)) = (*lock(&self.time), *lock(&later.time)) else { return Err(code::NOT_READY) };
        let ms = |a: Instant, b: Instant| b.duration_since(a).as_secs_f32() * 1000.0;
        Ok(if to >= from { ms(from, to) } else { -ms(to, from) })
    }
}
