//! [`WorkerPool`]: the worker streams of a device, on which launches run groups of tasks.
//!
//! A worker returns to the pool only after its join event is recorded, so its next user queues work after that event.
//! If the launching stream was being captured, the worker has become part of a graph. It returns to the pool too, but
//! until that capture ends only launches on the same stream may take it.

use std::sync::Mutex;

use crate::driver::{Driver, EventHandle, StreamHandle};
use crate::error::Result;
use crate::report::lock;

/// Counts of a device's pool of worker streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Streams made so far.
    pub created: u64,
    /// Streams that launches hold now.
    pub in_use: u64,
    /// Streams that wait to be used again.
    pub idle: u64,
    /// Times that a stream was taken from the idle ones.
    pub reused: u64,
}

/// A stream with the events of its fork and join.
pub(crate) struct Worker {
    pub(crate) stream: StreamHandle,
    /// Recorded on the launching stream, by the first worker of a fork only.
    pub(crate) fork: EventHandle,
    pub(crate) join: EventHandle,
    /// The stream whose capture it last took part in.
    pub(crate) captured_with: Option<StreamHandle>,
}

impl Worker {
    fn new(driver: &dyn Driver) -> Result<Worker> {
        let stream = driver.create_stream(0)?;
        let events = || {
            let fork = driver.create_event(false)?;
            // SAFETY: made here and not used.
            let join = driver.create_event(false).inspect_err(|_| unsafe { driver.destroy_event(fork) })?;
            Ok(Worker { stream, fork, join, captured_with: None })
        };
        // SAFETY: as above.
        events().inspect_err(|_| unsafe { driver.destroy_stream(stream) })
    }

    /// False while it is part of a graph that another stream's capture makes. `capture` is the requesting stream, if it
    /// is being captured.
    fn is_free(&mut self, driver: &dyn Driver, capture: Option<StreamHandle>) -> bool {
        let Some(with) = self.captured_with else { return true };
        // SAFETY: the stream is the worker's own.
        if unsafe { driver.is_capturing(self.stream) }.unwrap_or(true) {
            return capture == Some(with);
        }
        self.captured_with = None;
        true
    }

    /// Waits for the worker's stream and gives everything back.
    fn destroy(self, driver: &dyn Driver) {
        // SAFETY: made by this driver; not used afterwards. An error concerns work whose launch has reported already.
        unsafe {
            let _ = driver.synchronize(self.stream);
            driver.destroy_event(self.fork);
            driver.destroy_event(self.join);
            driver.destroy_stream(self.stream);
        }
    }
}

#[derive(Default)]
struct FreeList {
    /// Last in, first out: the stream used last is the warmest.
    idle: Vec<Worker>,
    created: u64,
    in_use: u64,
    reused: u64,
}

/// A device's worker streams: as many as were ever needed at one time.
#[derive(Default)]
pub(crate) struct WorkerPool(Mutex<FreeList>);

impl WorkerPool {
    pub(crate) fn stats(&self) -> PoolStats {
        let s = lock(&self.0);
        PoolStats { created: s.created, in_use: s.in_use, idle: s.idle.len() as u64, reused: s.reused }
    }

    /// Destroys the idle streams, but those that a capture holds.
    pub(crate) fn trim(&self, driver: &dyn Driver) {
        let idle: Vec<_> = lock(&self.0).idle.extract_if(.., |w| w.is_free(driver, None)).collect();
        idle.into_iter().for_each(|w| w.destroy(driver));
    }

    pub(crate) fn take(&self, driver: &dyn Driver, capture: Option<StreamHandle>) -> Result<Worker> {
        {
            let mut s = lock(&self.0);
            if let Some(at) = s.idle.iter_mut().rposition(|w| w.is_free(driver, capture)) {
                s.in_use += 1;
                s.reused += 1;
                return Ok(s.idle.remove(at));
            }
        }
        let worker = Worker::new(driver)?;
        let mut s = lock(&self.0);
        s.created += 1;
        s.in_use += 1;
        Ok(worker)
    }

    pub(crate) fn release(&self, worker: Worker) {
        let mut s = lock(&self.0);
        s.in_use -= 1;
        s.idle.push(worker);
    }

    pub(crate) fn discard(&self, worker: Worker, driver: &dyn Driver) {
        lock(&self.0).in_use -= 1;
        worker.destroy(driver);
    }
}
