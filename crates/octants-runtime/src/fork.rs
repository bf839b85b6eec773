//! [`Fork`]: fork and join of a launch with task groups, on worker streams of the pool.
//!
//! A fork costs one recorded event, plus one wait per worker. A join costs one recorded event per worker, plus one
//! wait. The last group needs no worker, because it runs on the launching stream.

use crate::cores::DeviceCore;
use crate::driver::StreamHandle;
use crate::error::Result;
use crate::worker_pool::Worker;

/// The worker streams of one fork. Joins them when dropped, also after an error.
pub(crate) struct Fork<'a> {
    device: &'a DeviceCore,
    stream: StreamHandle,
    workers: Vec<Worker>,
}

impl<'a> Fork<'a> {
    /// Takes `count` workers, at least one, and makes them wait for the work queued on `stream`, which may be
    /// `captured`.
    pub(crate) fn new(device: &'a DeviceCore, stream: StreamHandle, captured: bool, count: usize) -> Result<Fork<'a>> {
        let mut fork = Fork { device, stream, workers: Vec::with_capacity(count) };
        let capture = captured.then_some(stream);
        for _ in 0..count {
            let worker = device.workers.take(&*device.driver, capture)?;
            fork.workers.push(Worker { captured_with: capture, ..worker });
        }
        let event = fork.workers[0].fork;
        // SAFETY: the stream is the launching one, and the workers belong to the pool.
        unsafe {
            device.record_event(stream, event)?;
            for worker in &fork.workers {
                device.wait_events(worker.stream, &[event])?;
            }
        }
        Ok(fork)
    }

    /// The worker for a group, the launching stream for the last.
    pub(crate) fn stream(&self, group: usize) -> StreamHandle {
        self.workers.get(group).map_or(self.stream, |w| w.stream)
    }

    /// Makes the launching stream wait for all workers and gives them back.
    pub(crate) fn join(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        let (pool, driver) = (&self.device.workers, &*self.device.driver);
        let mut end = Ok(());
        let mut joins = Vec::with_capacity(self.workers.len());
        let mut joined = Vec::with_capacity(self.workers.len());
        for worker in self.workers.drain(..) {
            // SAFETY: as in `new`.
            match unsafe { self.device.record_event(worker.stream, worker.join) } {
                Ok(()) => {
                    joins.push(worker.join);
                    joined.push(worker);
                }
                Err(e) => {
                    // Without the event no one could wait for its work on the device: it is waited for here.
                    pool.discard(worker, driver);
                    end = end.and(Err(e));
                }
            }
        }
        if joins.is_empty() {
            return end;
        }
        // SAFETY: as in `new`.
        match unsafe { self.device.wait_events(self.stream, &joins) } {
            Ok(()) => joined.into_iter().for_each(|w| pool.release(w)),
            Err(e) => {
                joined.into_iter().for_each(|w| pool.discard(w, driver));
                end = end.and(Err(e));
            }
        }
        end
    }
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        // The launch has failed with its own error.
        let _ = self.finish();
    }
}
