//! [`LaunchOrder`]: launches on several streams, ordered only when they use the same memory.
//!
//! A gradient accumulates into memory that belongs to arrays which its kernel only reads. The gradients of independent
//! launches may therefore conflict, and the program's streams and events do not order them sufficiently. The order is
//! derived from the memory that the code accesses. Two launches keep their program order if one of them writes to a
//! buffer that the other uses, and results are those of one stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::buffer::Buffer;
use crate::caller::Uninterruptible;
use crate::cores::DeviceCore;
use crate::counter_snapshot::CounterSnapshot;
use crate::error::Result;
use crate::event::Event;
use crate::kernel::LoadedKernel;
use crate::report::lock;
use crate::stream::Stream;

/// Represents all memory that is not a buffer of the device.
const UNKNOWN: u64 = u64::MAX;

/// Launches in program order. All run after the work of a stream, `home`; [`LaunchOrder::join`] orders that stream
/// after all of them.
pub struct LaunchOrder {
    device: Arc<DeviceCore>,
    home: Stream,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// Streams that all launches are ordered after.
    before: Vec<Stream>,
    /// Streams with launches, except `home`.
    streams: Vec<Stream>,
    /// The users of each buffer, by its number.
    uses: HashMap<u64, Uses>,
}

/// The launches that a later one may conflict with.
#[derive(Default)]
struct Uses {
    writer: Option<Mark>,
    /// The launches that read the memory after the writer.
    readers: Vec<Mark>,
}

/// The end of a launch.
#[derive(Clone)]
struct Mark {
    stream: Stream,
    event: Arc<Event>,
}

impl LaunchOrder {
    /// An order for launches after the work of `home`.
    pub fn new(home: Stream) -> LaunchOrder {
        LaunchOrder { device: home.core().device.clone(), home, made: Mutex::default() }
    }

    /// Orders all launches after the work that a stream has now. To be called before the first launch.
    ///
    /// # Errors
    /// The driver's.
    pub fn order_after(&self, other: &Stream) -> Result<()> {
        let mut made = lock(&self.made);
        if !is_same(&self.home, other) && !made.before.iter().any(|known| is_same(known, other)) {
            self.home.wait_for(other, &Uninterruptible)?;
            made.before.push(other.clone());
        }
        Ok(())
    }

    /// Makes a launch on a stream, after the launches that it conflicts with, with the recorded values of `counters`.
    ///
    /// # Errors
    /// Those of the launch, and of the driver.
    pub fn launch<T, E: From<crate::DeviceError>>(
        &self,
        stream: &Stream,
        (kernel, args, counters): (&LoadedKernel, &[u64], &CounterSnapshot),
        launch: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if self.device.immediate {
            return launch();
        }
        let mut used = self.used(kernel, args);
        for number in counters.buffers().map(Buffer::number) {
            used.retain(|(known, _)| *known != number);
            used.push((number, true));
        }
        let mut made = lock(&self.made);
        made.begin(&self.home, stream)?;
        for (buffer, written) in &used {
            let Some(uses) = made.uses.get(buffer) else { continue };
            let readers = uses.readers.iter().filter(|_| *written);
            for mark in uses.writer.iter().chain(readers).filter(|mark| !is_same(&mark.stream, stream)) {
                mark.event.wait(stream, &Uninterruptible)?;
            }
        }
        // Launching may wait for the host's lock.
        drop(made);
        let result = launch();
        let event = Arc::new(Event::new(&self.device, false)?);
        event.record(stream)?;
        let mut made = lock(&self.made);
        for (buffer, written) in used {
            let uses = made.uses.entry(buffer).or_default();
            let mark = Mark { stream: stream.clone(), event: event.clone() };
            if written {
                *uses = Uses { writer: Some(mark), readers: Vec::new() };
            } else {
                uses.readers.retain(|known| !is_same(&known.stream, stream));
                uses.readers.push(mark);
            }
        }
        result
    }

    /// Orders the home stream after all launches.
    ///
    /// # Errors
    /// The driver's.
    pub fn join(&self) -> Result<()> {
        let streams = std::mem::take(&mut *lock(&self.made)).streams;
        streams.iter().try_for_each(|stream| self.home.wait_for(stream, &Uninterruptible))
    }

    /// The buffers that a launch uses, by number, and whether it writes to them.
    fn used(&self, kernel: &LoadedKernel, args: &[u64]) -> Vec<(u64, bool)> {
        let mut used: Vec<(u64, bool)> = Vec::new();
        for pointer in kernel.pointers.iter() {
            // Arguments that the call does not pass belong to the launch.
            let address = args.get(pointer.slot as usize).copied().unwrap_or(0);
            if address == 0 {
                continue;
            }
            let number = self.device.find_buffer(address).map_or(UNKNOWN, |buffer| buffer.id);
            match used.iter_mut().find(|(known, _)| *known == number) {
                Some((_, written)) => *written |= pointer.written,
                None => used.push((number, pointer.written)),
            }
        }
        used
    }
}

impl Made {
    /// Lets a stream take part.
    fn begin(&mut self, home: &Stream, stream: &Stream) -> Result<()> {
        if !is_same(home, stream) && !self.streams.iter().any(|known| is_same(known, stream)) {
            stream.wait_for(home, &Uninterruptible)?;
            self.streams.push(stream.clone());
        }
        Ok(())
    }
}

fn is_same(a: &Stream, b: &Stream) -> bool {
    Arc::ptr_eq(a.core(), b.core())
}
