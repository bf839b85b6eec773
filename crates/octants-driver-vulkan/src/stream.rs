//! [`Stream`]: an in-order sequence of work, which it records for a [`Queue`] of the device.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use octants_runtime::{Result, StreamHandle};

use crate::queue::{Queue, Queues, Recording, State};
use crate::sharing::{Point, Sharing};
use crate::timeline::Timeline;

/// The last work of a stream.
#[derive(Default)]
struct Last {
    /// The value of its queue's timeline that signals it.
    value: u64,
    /// Its section.
    section: u64,
}

/// A stream.
pub struct Stream {
    queues: Arc<Queues>,
    queue: Arc<Queue>,
    /// Its queue counts it.
    counts: bool,
    /// For the default stream: orders it with another interface to the device, once memory was shared with that.
    sharing: OnceLock<Arc<Sharing>>,
    /// Locked after the queue.
    last: Mutex<Last>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?})", self.queue)
    }
}

impl Stream {
    /// A new stream on one of the device's queues, with a priority: less is higher.
    pub fn new(queues: &Arc<Queues>, priority: i32) -> Result<Arc<Stream>> {
        let queue = queues.take(priority)?;
        let (queues, last, sharing) = (queues.clone(), Mutex::default(), OnceLock::new());
        Ok(Arc::new(Stream { queues, queue, counts: true, sharing, last }))
    }

    /// A stream whose work is always waited for immediately. Other streams of its queue need not wait for it to record.
    pub(crate) fn waited(queues: &Arc<Queues>) -> Result<Arc<Stream>> {
        let queue = queues.last()?;
        let (queues, last, sharing) = (queues.clone(), Mutex::default(), OnceLock::new());
        Ok(Arc::new(Stream { queues, queue, counts: false, sharing, last }))
    }

    /// Its queue's timeline.
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.queue.timeline
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a handle: zero stands for the default stream.
    ///
    /// # Safety
    /// The handle is zero or a live stream's.
    pub unsafe fn of(default: &Stream, handle: StreamHandle) -> &Stream {
        match handle.0 {
            0 => default,
            // SAFETY: the contract above.
            at => unsafe { &*(at as *const Stream) },
        }
    }

    /// Orders its work with that of another interface to the device from now on, while memory is shared.
    pub(crate) fn share(&self, sharing: Arc<Sharing>) {
        let _ = self.sharing.set(sharing);
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.sharing.get().map(|sharing| &**sharing).filter(|sharing| sharing.is_active())
    }

    /// Whether its work is ordered with that of another interface at present.
    pub(crate) fn is_sharing(&self) -> bool {
        self.sharing().is_some()
    }

    /// Opens a batch that runs after the work of the other interface.
    fn begin_shared(&self, state: &mut State, sharing: &Sharing) -> Result<()> {
        self.queue.submit(state)?;
        let after = sharing.after(sharing.unnamed_stream())?;
        self.last().value = self.queue.wait_for(state, after.into_iter().collect())?;
        Ok(())
    }

    /// Submits a batch that a stream of the other interface waits for.
    fn end_shared(&self, state: &mut State, sharing: &Sharing, stream: u64) -> Result<()> {
        let tells = sharing.next();
        let batch = self.queue.open(state)?;
        batch.tells.clone_from(&tells);
        self.last().value = batch.value;
        self.queue.submit(state)?;
        match tells {
            Some(point) => sharing.wait_there(stream, &point),
            None => self.timeline().wait(state.submitted, None).map(|_| ()),
        }
    }

    /// Makes a stream of the other interface wait for its work and for values of other streams.
    pub(crate) fn hand_over(&self, sharing: &Sharing, others: Vec<Point>, stream: u64) -> Result<()> {
        let others = submitted(others)?;
        let mut state = self.queue.state();
        self.queue.submit(&mut state)?;
        // The batch that ends here is after all work of the queue.
        let others = others.into_iter().filter(|(t, _)| !Arc::ptr_eq(t, self.timeline()));
        self.queue.wait_for(&mut state, others.collect())?;
        self.end_shared(&mut state, sharing, stream)
    }

    /// Records a piece of work after all others of the stream.
    pub fn record<R>(&self, work: impl FnOnce(&mut Recording<'_>) -> Result<R>) -> Result<R> {
        self.record_piece(true, work)
    }

    /// Records commands that wait for all earlier ones without a barrier, and that no later ones wait for. In a shared
    /// queue, a barrier would order other streams' work. Elsewhere there is one: without it, kernels of two
    /// queues with timestamps ran one after the other on an NVIDIA H200.
    pub(crate) fn record_time<R>(&self, work: impl FnOnce(&mut Recording<'_>) -> Result<R>) -> Result<R> {
        self.record_piece(!self.queue.is_shared(), work)
    }

    fn record_piece<R>(&self, is_ordered: bool, work: impl FnOnce(&mut Recording<'_>) -> Result<R>) -> Result<R> {
        let mut state = self.queue.state();
        let sharing = self.sharing();
        if let Some(sharing) = sharing {
            self.begin_shared(&mut state, sharing)?;
        }
        let result = {
            let mut last = self.last();
            let section = is_ordered.then_some(&mut last.section);
            let (result, value) = self.queue.record(&mut state, section, work)?;
            last.value = value;
            result
        };
        match sharing {
            Some(sharing) => self.end_shared(&mut state, sharing, sharing.unnamed_stream())?,
            None => self.queue.submit_if_due(&mut state)?,
        }
        Ok(result)
    }

    /// Submits what is recorded. Returns the value that signals all of the stream's work.
    pub fn flush(&self) -> Result<u64> {
        let value = self.value_after();
        self.timeline().submit_up_to(value)?;
        Ok(value)
    }

    /// The value for an event: what is recorded is submitted, unless more work of other streams may join the batch.
    pub(crate) fn mark(&self) -> Result<u64> {
        if self.queue.is_shared() { Ok(self.value_after()) } else { self.flush() }
    }

    /// Makes later work wait for values of other streams.
    pub fn wait_for(&self, others: Vec<Point>) -> Result<()> {
        let others = others.into_iter().filter(|(t, value)| !t.has_reached(*value).unwrap_or(false)).collect();
        let others = submitted_elsewhere(others, self.timeline())?;
        if others.is_empty() {
            return Ok(());
        }
        let mut state = self.queue.state();
        let sharing = self.sharing();
        {
            let mut last = self.last();
            for point in others.iter().filter(|(t, _)| Arc::ptr_eq(t, self.timeline())) {
                // The queue's own work: a barrier follows it.
                last.value = last.value.max(point.1);
                last.section = state.sections.current();
            }
            let mut new: Vec<Point> = Vec::new();
            for point in others.into_iter().filter(|(t, _)| !Arc::ptr_eq(t, self.timeline())) {
                match self.queue.waits_for(&state, &point).filter(|_| sharing.is_none()) {
                    // The stream's work is done only when that batch is.
                    Some(batch) => last.value = last.value.max(batch),
                    // Several streams of another queue: one wait suffices.
                    None => match new.iter_mut().find(|(t, _)| Arc::ptr_eq(t, &point.0)) {
                        Some((_, value)) => *value = (*value).max(point.1),
                        None => new.push(point),
                    },
                }
            }
            if !new.is_empty() {
                last.value = self.queue.wait_for(&mut state, new)?;
            }
        }
        match sharing {
            // The other interface's work waits too.
            Some(sharing) => self.end_shared(&mut state, sharing, sharing.unnamed_stream()),
            None => Ok(()),
        }
    }

    /// The value that signals all work recorded so far.
    pub fn value_after(&self) -> u64 {
        self.last().value
    }

    /// Whether all work is done.
    pub fn is_done(&self) -> Result<bool> {
        let value = self.flush()?;
        self.timeline().has_reached(value)
    }

    /// Waits for all work, with a timeout. Returns whether it is done.
    pub fn wait(&self, time: Option<Duration>) -> Result<bool> {
        let value = self.flush()?;
        let is_done = self.timeline().wait(value, time)?;
        if is_done {
            self.queue.reap(&mut self.queue.state())?;
        }
        Ok(is_done)
    }
}

/// Submits the work that reaches these values.
fn submitted(points: Vec<Point>) -> Result<Vec<Point>> {
    points.iter().try_for_each(|(t, value)| t.submit_up_to(*value))?;
    Ok(points)
}

/// The same, but for the values of one timeline.
fn submitted_elsewhere(points: Vec<Point>, own: &Arc<Timeline>) -> Result<Vec<Point>> {
    points.iter().filter(|(t, _)| !Arc::ptr_eq(t, own)).try_for_each(|(t, value)| t.submit_up_to(*value))?;
    Ok(points)
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.wait(None);
        if self.counts {
            self.queues.give(&self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::event::Event;
    use crate::memory::{Kind, Memory};
    use crate::{Instances, Request, VulkanDriver};

    /// A device, with as many streams as it has queues, and one more: the first and the last share a queue.
    struct Fixture {
        _driver: VulkanDriver,
        queues: Arc<Queues>,
        streams: Vec<Arc<Stream>>,
        memory: Arc<Memory>,
        at: u64,
    }

    const BYTES: u64 = 4096;

    impl Drop for Fixture {
        fn drop(&mut self) {
            self.streams.clear();
            self.queues.follower.end();
        }
    }

    impl Fixture {
        /// `None` without a device.
        fn new() -> Option<Fixture> {
            let request = Request { takes_processor: true, ..Request::default() };
            let driver = crate::open(&Instances::default(), &request).ok()?;
            let gpu = driver.gpu();
            let queues = Arc::new(Queues::new(gpu));
            let streams = (0..=gpu.queues.len()).map(|_| Stream::new(&queues, 0).unwrap()).collect();
            let memory = Arc::new(Memory::new(gpu, Kind::Pinned));
            let at = memory.allocate(BYTES).unwrap();
            Some(Fixture { _driver: driver, queues, streams, memory, at })
        }

        fn fill(&self, stream: &Stream, word: u32) {
            let part = self.memory.find(self.at).unwrap();
            let work = |r: &mut Recording<'_>| {
                // SAFETY: the range is within its buffer.
                unsafe { r.gpu().device.cmd_fill_buffer(r.commands(), part.buffer, part.offset, BYTES, word) };
                Ok(())
            };
            stream.record(work).unwrap();
        }

        fn words(&self) -> &[u32] {
            // SAFETY: the memory is mapped, and the work was waited for.
            unsafe { std::slice::from_raw_parts(self.at as *const u32, BYTES as usize / 4) }
        }

        fn shared(&self) -> (&Stream, &Stream) {
            (&self.streams[0], self.streams.last().unwrap())
        }
    }

    fn submitted(stream: &Stream) -> u64 {
        stream.queue.state().submitted
    }

    fn section(stream: &Stream) -> u64 {
        stream.last().section
    }

    #[test]
    fn streams_of_a_queue_record_into_one_batch() {
        let Some(f) = Fixture::new() else { return };
        let (a, b) = f.shared();
        assert!(Arc::ptr_eq(&a.queue, &b.queue) && a.queue.is_shared());
        let start = Instant::now();
        f.fill(a, 1);
        f.fill(b, 2);
        let (first, second) = (a.value_after(), b.value_after());
        // A slow machine may take so long that the batch was submitted.
        if start.elapsed() < Duration::from_micros(50) {
            assert_eq!((first, second, submitted(a)), (1, 1, 0));
            assert_eq!(section(a), section(b), "no barrier is between different streams");
        }
        f.fill(b, 3);
        assert!(section(b) > section(a), "a barrier is between pieces of a stream");
        let (before, timed) = (section(b), Event::new(&f.queues.gpu, true).unwrap());
        timed.record(b).unwrap();
        assert_eq!(section(b), before, "a timestamp needs no barrier");
        assert!(b.wait(None).unwrap() && submitted(a) >= 1);
        assert!(f.words().iter().all(|&w| w == 3));
    }

    #[test]
    fn recorded_work_of_a_shared_queue_is_submitted_without_a_wait() {
        let Some(f) = Fixture::new() else { return };
        let (a, _) = f.shared();
        f.fill(a, 7);
        let start = Instant::now();
        while !a.timeline().has_reached(a.value_after()).unwrap() {
            assert!(start.elapsed() < Duration::from_secs(20), "the work does not start");
            std::thread::yield_now();
        }
        assert!(f.words().iter().all(|&w| w == 7));
    }

    #[test]
    fn a_stream_with_a_queue_of_its_own_starts_immediately() {
        let Some(f) = Fixture::new() else { return };
        let alone = Stream::new(&Arc::new(Queues::new(&f.queues.gpu)), 0).unwrap();
        assert!(!alone.queue.is_shared());
        f.fill(&alone, 4);
        assert_eq!((alone.value_after(), submitted(&alone)), (1, 1));
        alone.wait(None).unwrap();
        // A stream that is waited for at once does not count.
        let queues = Arc::new(Queues::new(&f.queues.gpu));
        let all: Vec<_> = (0..f.queues.gpu.queues.len()).map(|_| Stream::new(&queues, 0).unwrap()).collect();
        let waited = Stream::waited(&queues).unwrap();
        assert!(all.iter().all(|s| !s.queue.is_shared()) && !waited.queue.is_shared());
        f.fill(&waited, 5);
        waited.wait(None).unwrap();
        assert!(f.words().iter().all(|&w| w == 5));
    }

    #[test]
    fn a_stream_that_is_waited_for_has_the_queue_that_others_take_last() {
        let Some(f) = Fixture::new() else { return };
        let queues = Arc::new(Queues::with_count(&f.queues.gpu, 8));
        let waited = Stream::waited(&queues).unwrap();
        let others: Vec<_> = (0..5).map(|_| Stream::new(&queues, 0).unwrap()).collect();
        assert!(others.iter().all(|s| !Arc::ptr_eq(&s.queue, &waited.queue)));
        let sixth = Stream::new(&queues, 0).unwrap();
        assert!(Arc::ptr_eq(&sixth.queue, &waited.queue) && !sixth.queue.is_shared());
    }

    #[test]
    fn an_event_of_the_same_queue_is_a_barrier() {
        let Some(f) = Fixture::new() else { return };
        let (a, b) = f.shared();
        let event = Event::new(&f.queues.gpu, false).unwrap();
        for round in 1..=20 {
            f.fill(a, round);
            event.record(a).unwrap();
            b.wait_for(event.stands_for().into_iter().collect()).unwrap();
            let before = section(a);
            f.fill(b, 100 + round);
            // Without a barrier only if the event was complete.
            assert!(section(b) > before || a.timeline().has_reached(event.stands_for().unwrap().1).unwrap());
            assert!(b.wait(None).unwrap());
            assert!(f.words().iter().all(|&w| w == 100 + round));
        }
    }

    #[test]
    fn waits_submit_what_they_wait_for() {
        let Some(f) = Fixture::new() else { return };
        let (a, b) = f.shared();
        let event = Event::new(&f.queues.gpu, false).unwrap();
        f.fill(a, 1);
        event.record(a).unwrap();
        // Work that no stream waits for, behind the event.
        f.fill(b, 2);
        event.wait().unwrap();
        assert!(event.is_done().unwrap());
        // A stream of another device queue, if there is one: here, of the same queue again.
        let other = Stream::new(&Arc::new(Queues::new(&f.queues.gpu)), 0).unwrap();
        for round in 10..30 {
            f.fill(a, round);
            event.record(a).unwrap();
            other.wait_for(event.stands_for().into_iter().collect()).unwrap();
            f.fill(&other, 100 + round);
            assert!(other.wait(None).unwrap());
            assert!(f.words().iter().all(|&w| w == 100 + round));
        }
        assert!(b.is_done().unwrap() || b.wait(None).unwrap());
    }

    #[test]
    fn a_stream_is_done_only_after_what_it_waits_for() {
        let Some(f) = Fixture::new() else { return };
        let queues = Arc::new(Queues::with_count(&f.queues.gpu, 2));
        let streams: Vec<_> = (0..4).map(|_| Stream::new(&queues, 0).unwrap()).collect();
        let [a, b, c, d] = &streams[..] else { unreachable!() };
        assert!(Arc::ptr_eq(&a.queue, &c.queue) && Arc::ptr_eq(&b.queue, &d.queue));
        let (event, joined) = (Event::new(&f.queues.gpu, false).unwrap(), Event::new(&f.queues.gpu, false).unwrap());
        for round in 1..=50 {
            // Enough work that it is not done before the waits.
            (0..200).for_each(|_| f.fill(b, 0));
            f.fill(b, round);
            event.record(b).unwrap();
            let point = event.stands_for().unwrap();
            // Both streams of the other queue wait. The second needs no wait of its own.
            a.wait_for(vec![point.clone()]).unwrap();
            c.wait_for(vec![point.clone()]).unwrap();
            joined.record(c).unwrap();
            match round % 3 {
                0 => assert!(c.wait(None).unwrap()),
                1 => joined.wait().unwrap(),
                _ => {
                    d.wait_for(joined.stands_for().into_iter().collect()).unwrap();
                    assert!(d.wait(None).unwrap());
                }
            }
            assert!(point.0.has_reached(point.1).unwrap(), "the work that the stream waits for is not done");
            assert!(f.words().iter().all(|&w| w == round));
        }
        drop(streams);
        queues.follower.end();
    }

    #[test]
    fn batches_grow_while_the_device_is_busy() {
        let Some(f) = Fixture::new() else { return };
        let (a, _) = f.shared();
        for number in 0..2000 {
            f.fill(a, number);
        }
        assert!(submitted(a) >= 3, "a batch has at most 512 pieces");
        assert!(a.wait(None).unwrap());
        assert!(f.words().iter().all(|&w| w == 1999));
    }

    #[test]
    fn queues_count_their_streams() {
        let Some(f) = Fixture::new() else { return };
        let queues = Arc::new(Queues::new(&f.queues.gpu));
        let count = f.queues.gpu.queues.len();
        let mut all: Vec<_> = (0..2 * count).map(|_| Stream::new(&queues, 0).unwrap()).collect();
        assert!(all.iter().all(|s| s.queue.is_shared()));
        let rest = all.split_off(count);
        drop(rest);
        assert!(all.iter().all(|s| !s.queue.is_shared()));
        let kept = Arc::downgrade(&all[0].queue);
        drop(all);
        assert!(kept.upgrade().is_none(), "a queue's pool lives as long as its streams");
    }
}
